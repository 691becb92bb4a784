"""Maps of many classes, and rows of scores, on which exports are compared with `predict_many`."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal import MulticlassMap, RecalibrationMap, Recalibrator
from streamcal.values import Floats
from tests.spark.maps import EXACT, LINEAR

NAMES = ("cat", 'it\'s "dog"', "fox", "owl")


def candidate(name: str, weight: float, kind: str, *parameters: float) -> dict[str, Any]:
    return {"name": name, "weight": weight, "kind": kind, "parameters": parameters}


def class_map(*candidates: dict[str, Any], **fields: Any) -> MulticlassMap:
    return MulticlassMap.model_validate(
        {"version": 5, "classes": NAMES, "candidates": candidates or [candidate("s", 1.0, "score")]} | fields
    )


def _mixture(keeps_order: bool) -> MulticlassMap:
    rng = np.random.default_rng(3)
    matrix = (np.eye(4) + rng.normal(0.0, 0.2, (4, 4))).ravel().tolist()
    return class_map(
        candidate("s", 0.1, "score"),
        candidate("m", 0.2, "maps"),
        candidate("one", 0.1, "scaling", 1.3, -0.5, 0.0, 0.25, 1.0),
        candidate("each", 0.1, "scaling", 0.8, 1.0, 1.2, 2.0, -0.5, 0.0, 0.25, 1.0),
        candidate("matrix", 0.2, "scaling", *matrix, -0.5, 0.0, 0.25, 1.0),
        candidate("of maps", 0.1, "scaling of maps", *matrix, 0.0, 0.1, 0.2, 0.3),
        candidate("source", 0.1, "shift"),
        candidate("shift", 0.1, "shift", 0.0, 0.5, 2.0, 1.0),
        maps=(EXACT["31 bins"], None, LINEAR["40 knots, g"], EXACT["g"]),
        source_maps=(LINEAR["1 knot"], EXACT["254 bins"], LINEAR["beyond the ends"], None),
        shared="each",
        keeps_order=keeps_order,
    )


_ZERO = RecalibrationMap(version=1, edges=(0.0, 0.5, 1.0), values=(0.0, 1.0))
CLASS_MAPS = {
    "the score": class_map(),
    "the score, which keeps its order": class_map(keeps_order=True),
    "mixture": _mixture(keeps_order=False),
    "mixture that keeps order": _mixture(keeps_order=True),
    "maps that are all 0": class_map(candidate("m", 1.0, "maps"), maps=(_ZERO,) * 4),
    "a steep scaling": class_map(candidate("a", 1.0, "scaling", 300.0, 0.0, 1.0, 2.0, 3.0)),
    "two": class_map(candidate("m", 1.0, "maps"), classes=("no", "yes"), maps=(None, LINEAR["40 knots, g"])),
    "two that keep their order": class_map(
        candidate("m", 1.0, "maps"), classes=("no", "yes"), maps=(None, EXACT["254 bins"]), keeps_order=True
    ),
}
LARGEST_OF_CLASSES = 1e-13
"""Of a probability: log and exp of two machines differ, and a slope of 300 stretches that."""


def learned(classes: int, count: int = 5000) -> MulticlassMap:
    """Return the map, which keeps its order, of an engine that has learned labels of source and target."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(classes, 0.5), count)
    truth = rows**1.5 / (rows**1.5).sum(axis=1, keepdims=True)
    labels = (truth[:, :-1].cumsum(axis=1) < rng.random((count, 1))).sum(axis=1)
    engine = Recalibrator(classes=[f"c{k}" for k in range(classes)], keeps_order=True)
    engine.learn_many(rows[::2], labels[::2], domain="source")
    engine.learn_many(rows[1::2], labels[1::2])
    assert isinstance(engine.map, MulticlassMap)
    return engine.map


def rows_for(class_map: MulticlassMap, count: int = 1000) -> Floats:
    """Return rows of scores: anywhere, near corners, in them, with equal scores, and off by rounding."""
    rng, classes = np.random.default_rng(11), len(class_map.classes)
    corner = np.eye(classes)
    tiny = rng.dirichlet(np.full(classes, 0.02), count // 4)
    rows = [rng.dirichlet(np.ones(classes), count), tiny, corner, np.full((1, classes), 1.0 / classes)]
    rows += [0.5 * (corner + corner[::-1]), np.abs(corner - 5e-324), corner - 4e-7 * np.roll(corner, 1, 1)]
    rows += [rng.dirichlet(np.ones(classes), 20) * (1.0 + shift) for shift in (9e-7, -9e-7)]
    return np.concatenate(rows)


def refused_for(class_map: MulticlassMap) -> Floats:
    """Return rows that `MulticlassMap.predict_many` refuses, each for a reason of its own."""
    row = np.full(len(class_map.classes), 1.0 / len(class_map.classes))
    bad = np.array([row] * 6)
    bad[0, 0], bad[1, 1], bad[2, 0] = np.nan, np.inf, -np.inf
    bad[3, :2] += [-1.0, 1.0]
    return np.concatenate((bad[:4], bad[4:] * [[1.0 + 2e-6], [1.0 - 2e-6]]))
