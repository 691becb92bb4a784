"""Simulated streams of segments, and an engine that plays them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamcal import RecalibrationMap, Recalibrator

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
    engine: Recalibrator, scores: Floats, labels: Labels, segments: object, late: int = 0
) -> tuple[Floats, Floats]:
    """Return pooled and served probabilities, labels learned ``late`` events after their block."""
    values = list(segments)
    pooled, served, memos = list[Floats](), list[Floats](), list[list[bytes]]()
    for begin in range(0, len(scores), BLOCK):
        block = slice(begin, begin + BLOCK)
        assert isinstance(engine.map, RecalibrationMap)
        pooled.append(engine.map.predict_many(scores[block]))
        answers = engine.answer_many(scores[block], values[block])
        served.append(answers.probabilities)
        memos.append(answers.memos)
        due = begin - late
        if due >= 0:
            part = slice(due, due + BLOCK)
            engine.learn_many(scores[part], labels[part], memos=memos[due // BLOCK])
    return np.concatenate(pooled), np.concatenate(served)


def brier(made: Floats, labels: Labels) -> float:
    return float(np.square(made - labels).mean())


def plain(fields: tuple[str, ...] = ("segment",)) -> Recalibrator:
    """Return one whose pooled engine is the identity, so that only corrections matter."""
    return Recalibrator(mode="source", segments=fields, own_engines=0)
