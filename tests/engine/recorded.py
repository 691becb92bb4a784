"""What engines of every mode give after the same events, to be compared with what they gave before.

    python tests/engine/recorded.py > tests/engine/recorded.json

Only names of the public API are used, so that this runs on old commits, too; the log of recorded.json says
which commit moved which rows. What is recorded is the same on every machine: counts, and figures to 1e-9.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal import (
    Certificate,
    DriftAlarm,
    LabelEvent,
    MapPublished,
    PredictionEvent,
    Recalibrated,
    Recalibrator,
)
from tests.inside import memo_of

N_SOURCE, N_PART, N_STEPPED, DELAY = 5_000, 5_000, 8_000, 700

VARIANTS: dict[str, dict[str, Any]] = {
    "auto": {"mode": "auto"},
    "source": {"mode": "source"},
    "label_shift": {"mode": "label_shift"},
    "target": {"mode": "target"},
    "composite": {"mode": "composite"},
    "auto, prior scores": {"mode": "auto", "prior": "scores"},
    "composite, prior scores": {"mode": "composite", "prior": "scores"},
    "target, window 5000": {"mode": "target", "window": 5000},
    "auto, window 5000": {"mode": "auto", "window": 5000},
    "composite, cube root": {"mode": "composite", "bins": "cube_root"},
}

GRID = (0.001, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 0.999)

WAYS = ("at once", "late", "step")
"""Labels come at once, or 700 predictions late; or 8,000 predictions and late labels go through `step`."""

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


def stream() -> tuple[tuple[Scores, Labels], tuple[Scores, Labels]]:
    """Return a source, and a target whose prior jumps twice and whose scores then lose their meaning."""
    rng = np.random.default_rng(20261121)

    def draw(n: int, prior: float, slope: float = 1.0) -> tuple[Scores, Labels]:
        labels = (rng.random(n) < prior).astype(np.int8)
        logits = rng.standard_normal(n) + (4.0 * labels - 2.0) * slope
        return 1.0 / (1.0 + np.exp(-logits)), labels

    source = draw(N_SOURCE, 0.5)
    scores, labels = zip(*(draw(N_PART, *part) for part in ((0.3,), (0.1,), (0.2, 0.4))), strict=True)
    return source, (np.concatenate(scores), np.concatenate(labels))


def row(variant: str, way: str) -> dict[str, Any]:
    """Return what an engine gives: counts, some of its figures, and means of all of its answers."""
    source, target = stream()
    engine = Recalibrator(**VARIANTS[variant])
    for score, label in zip(*(part.tolist() for part in source), strict=True):
        engine.learn_one(score, label, "source")
    feed = stepped if way == "step" else looped
    said, published = feed(engine, *target, DELAY if way == "late" else 0)
    return {
        "version": engine.version,
        "alarms": [about(alarm) for alarm in engine.alarms],
        "said": said[::997],
        "means": [math.fsum(said[start : start + 1_000]) / 1_000 for start in range(0, len(said), 1_000)],
        "served": [engine.predict_one(score) for score in GRID],
        "certificate": claims(engine.certificate),
        "emitted": len(published),
        "published": published[::29],
    }


def claims(certificate: Certificate | None) -> list[Any] | None:
    """Return what a certificate is about, and its bounds."""
    if certificate is None:
        return None
    counts = [certificate.n_source, certificate.n_target, certificate.bins]
    return [*counts, certificate.risk, certificate.target_risk]


def about(alarm: DriftAlarm) -> list[Any]:
    """Return what an alarm refutes, and when; its reason is a figure, rounded, that may round otherwise."""
    return [alarm.assumption, alarm.target_labels]


def looped(engine: Recalibrator, scores: Scores, labels: Labels, delay: int) -> tuple[list[float], list[Any]]:
    """Predict, observe and learn one by one."""
    z, y, said = scores.tolist(), labels.tolist(), []
    for i in range(len(z) + delay):
        if i < len(z):
            said.append(engine.predict_one(z[i]))
            engine.observe_one(z[i])
        if i >= delay:
            seen = i - delay if delay else None
            engine.learn_one(z[i - delay], y[i - delay], "target", memo=memo_of(seen))
    return said, []


def stepped(engine: Recalibrator, scores: Scores, labels: Labels, _: int) -> tuple[list[float], list[Any]]:
    """Send events: two of three predictions get a label, a few before they were made, most a while after."""
    due = np.arange(N_STEPPED) + np.random.default_rng(7).exponential(300.0, N_STEPPED) - 20.0
    events: list[tuple[float, int, PredictionEvent | LabelEvent]] = [
        (float(i), 0, PredictionEvent(str(i), float(scores[i]), float(i))) for i in range(N_STEPPED)
    ]
    events += [
        (float(due[i]), 1, LabelEvent(str(i), int(labels[i]), float(due[i])))
        for i in range(N_STEPPED)
        if i % 3
    ]
    said, published = [], []
    for *_, event in sorted(events, key=lambda each: each[:2]):
        for emission in engine.step(event):
            if isinstance(emission, Recalibrated):
                said.append(emission.probability)
            elif isinstance(emission, MapPublished):
                published.append([emission.map.version, claims(emission.certificate)])
            elif isinstance(emission, DriftAlarm):
                published.append(about(emission))
    return said, published


def main() -> None:
    rows = {f"{variant} | {way}": row(variant, way) for variant in VARIANTS for way in WAYS}
    json.dump(rows, sys.stdout, indent=0)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
