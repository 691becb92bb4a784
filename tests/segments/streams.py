"""Simulated streams of segments, and an engine that plays them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamcal import Recalibrator, SegmentedRecalibrator

__all__ = ["BLOCK", "Floats", "Labels", "brier", "drawn", "plain", "played"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
BLOCK = 100


def drawn(
    offsets: Floats, n: int, rng: np.random.Generator
) -> tuple[Floats, Labels, npt.NDArray[np.int64], Floats]:
    """Return scores, labels, segments and the truth, which is off the score by the segment's offset."""
    segments = rng.integers(0, len(offsets), n)
    logits = rng.normal(-1.0, 1.2, n)
    truth = 1.0 / (1.0 + np.exp(-logits - offsets[segments]))
    labels = (rng.random(n) < truth).astype(np.int8)
    return 1.0 / (1.0 + np.exp(-logits)), labels, segments, truth


def played(
    engine: SegmentedRecalibrator,
    scores: Floats,
    labels: Labels,
    segments: object,
    late: int = 0,
) -> tuple[Floats, Floats]:
    """Return pooled and served probabilities, labels learned ``late`` events after their block."""
    values = list(segments)  # type: ignore[call-overload]
    rows = []
    for begin in range(0, len(scores), BLOCK):
        block = slice(begin, begin + BLOCK)
        rows.append(engine.forecast_many(scores[block], values[block]))
        due = begin - late
        if due >= 0:
            part = slice(due, due + BLOCK)
            engine.learn_many(scores[part], labels[part], values[part], forecasts=rows[due // BLOCK])
    forecasts = np.concatenate(rows)
    return forecasts[:, 0], engine.probabilities(forecasts)


def brier(made: Floats, labels: Labels) -> float:
    return float(np.square(made - labels).mean())


def plain(fields: tuple[str, ...] = ("segment",)) -> SegmentedRecalibrator:
    """Return one whose pooled engine is the identity, so that only corrections matter."""
    return SegmentedRecalibrator(fields, Recalibrator(mode="source"), own_engines=0)
