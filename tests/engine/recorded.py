"""What engines of every mode give after the same events, to be compared with what they gave before.

    python tests/engine/recorded.py > tests/engine/recorded.json

Only names of the public API are used, so that this runs on old commits, too; the log of recorded.json says
which commit moved which rows. Half a row is a digest of every bit. They depend on the last bits of numpy's
functions, which differ between processors: `arithmetic` tells whether this machine's are those of the one
that recorded. The other half are some of the figures themselves.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal import DriftAlarm, LabelEvent, MapPublished, PredictionEvent, Recalibrated, Recalibrator

N_SOURCE, N_PART, N_STEPPED, DELAY = 5_000, 5_000, 8_000, 700

VARIANTS: dict[str, dict[str, Any]] = {
    "auto": {"mode": "auto"},
    "source": {"mode": "source"},
    "label_shift": {"mode": "label_shift"},
    "target": {"mode": "target"},
    "composite": {"mode": "composite"},
    "auto, prior scores": {"mode": "auto", "prior": "scores"},
    "composite, prior scores": {"mode": "composite", "prior": "scores"},
    "composite, labels adwin": {"mode": "composite", "prior_window": "adwin"},
    "composite, labels 2000": {"mode": "composite", "prior_window": 2000},
    "target, window 5000": {"mode": "target", "window": 5000},
    "auto, window 5000": {"mode": "auto", "window": 5000},
    "composite, cube root": {"mode": "composite", "bins": "cube_root", "max_cells": 512},
}

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
    """Return what an engine gives: a digest of everything, and some figures."""
    source, target = stream()
    engine = Recalibrator(**VARIANTS[variant])
    for score, label in zip(*(part.tolist() for part in source), strict=True):
        engine.learn_one(score, label, "source")
    feed = stepped if way == "step" else looped
    said, published = feed(engine, *target, DELAY if way == "late" else 0)
    certificate = engine.certificate
    facts = {
        "version": engine.version,
        "map": json.loads(engine.map.model_dump_json()),
        "certificate": certificate and json.loads(certificate.model_dump_json()),
        "alarms": [[alarm.assumption, alarm.reason, alarm.target_labels] for alarm in engine.alarms],
        "said": hashlib.sha256(np.array(said).tobytes()).hexdigest(),
        "published": published,
    }
    return {
        "digest": hashlib.sha256(json.dumps(facts).encode()).hexdigest(),
        "version": engine.version,
        "alarms": len(engine.alarms),
        "said": said[::997],
        "risk": certificate and [certificate.risk, certificate.target_risk or 0.0],
    }


def looped(engine: Recalibrator, scores: Scores, labels: Labels, delay: int) -> tuple[list[float], list[Any]]:
    """Predict, observe and learn one by one."""
    z, y, said = scores.tolist(), labels.tolist(), []
    for i in range(len(z) + delay):
        if i < len(z):
            said.append(engine.predict_one(z[i]))
            engine.observe_one(z[i])
        if i >= delay:
            seen = i - delay if delay else None
            engine.learn_one(z[i - delay], y[i - delay], "target", prediction_index=seen)
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
                certificate = emission.certificate
                published.append([emission.map.version, certificate and certificate.model_dump_json()])
            elif isinstance(emission, DriftAlarm):
                published.append([emission.assumption, emission.reason, emission.target_labels])
    return said, published


def arithmetic() -> str:
    """Return a digest of what numpy's functions give here."""
    x = np.random.default_rng(0).random(10_000)
    parts = [f(x) for f in (np.log, np.log1p, np.expm1, np.tanh, np.cumsum, np.sqrt)]
    parts += [np.exp(-8.0 * x), x @ x[::-1]]
    return hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest()


def main() -> None:
    rows = {f"{variant} | {way}": row(variant, way) for variant in VARIANTS for way in WAYS}
    json.dump({"arithmetic": arithmetic(), "rows": rows}, sys.stdout, indent=0)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
