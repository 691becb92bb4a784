"""Maps of many classes, and rows of scores, on which exports are compared with `predict_many`."""

from __future__ import annotations

import numpy as np

from examples.languages.vectors import class_maps, class_rows
from streamcal import MulticlassMap, Recalibrator
from streamcal.base.values import Floats

CLASS_MAPS = class_maps()
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


def rows_for(class_map: MulticlassMap) -> Floats:
    """Return rows of scores."""
    return class_rows(len(class_map.classes), 1000)


def refused_for(class_map: MulticlassMap) -> Floats:
    """Return rows that `MulticlassMap.predict_many` refuses, each for a reason of its own."""
    row = np.full(len(class_map.classes), 1.0 / len(class_map.classes))
    bad = np.array([row] * 6)
    bad[0, 0], bad[1, 1], bad[2, 0] = np.nan, np.inf, -np.inf
    bad[3, :2] += [-1.0, 1.0]
    return np.concatenate((bad[:4], bad[4:] * [[1.0 + 2e-6], [1.0 - 2e-6]]))
