"""Maps and scores on which another engine is compared with `RecalibrationMap.predict_many`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal import RecalibrationMap

REFUSED: list[float | None] = [None, float("nan"), -2e-6, -1.0, 1.0 + 2e-6, float("inf")]
"""Scores that `predict_many` refuses; their probability is null."""
ROUNDED = [-9e-7, -5e-324, float(np.nextafter(1.0, 2.0)), 1.0 + 9e-7]
"""Scores that `predict_many` takes for 0 and 1."""


def step_map(bins: int, weights: tuple[float, float], seed: int = 1) -> RecalibrationMap:
    random = np.random.default_rng(seed)
    edges = (0.0, *np.sort(random.random(bins - 1)).tolist(), 1.0)
    return RecalibrationMap(version=1, edges=edges, values=tuple(random.random(bins)), weights=weights)


def linear_map(knots: int, weights: tuple[float, float], seed: int = 1) -> RecalibrationMap:
    random = np.random.default_rng(seed)
    x, y = np.sort(random.uniform(-12, 12, knots)), np.sort(random.normal(0, 4, knots))
    return RecalibrationMap(version=1, kind="linear", knots=tuple(x), log_odds=tuple(y), weights=weights)


EXACT = {
    "identity": RecalibrationMap(version=0),
    "g": RecalibrationMap(version=1, weights=(2.0, 0.3)),
    "31 bins": step_map(31, (1.0, 1.0)),
    "254 bins": step_map(254, (0.3, 2.0)),
    "bins to where doubles end": RecalibrationMap(
        version=1,
        edges=(0.0, 2.226e-308, 1e-300, 1e-30, 2.0**-41, 0.5, 1.0 - 2.0**-45, 1.0 - 2.0**-53, 1.0),
        values=tuple(np.linspace(0.01, 0.99, 8).tolist()),
        weights=(0.3, 2.0),
    ),
}
LINEAR = {
    "1 knot": linear_map(1, (1.0, 1.0)),
    "40 knots, g": linear_map(40, (2.0, 0.3)),
    "beyond the ends": RecalibrationMap(
        version=1, kind="linear", knots=(-27.73, -27.729, 0.0, 27.73), log_odds=(-600.0, -30.0, 0.0, 500.0)
    ),
}
LARGEST_DIFFERENCE = 1e-14
"""Of a linear map's probability: log and exp of two machines differ by a unit or two in the last place."""


SAME = {"rtol": 0.0, "atol": 1e-149}
"""The same bits, but for scores so small that SQL takes them for 0."""


def scores_for(recalibration: RecalibrationMap) -> npt.NDArray[np.float64]:
    """Return scores at all edges, beside them, at both ends, rounded beyond, and anywhere: float64[n]."""
    random = np.random.default_rng(7)
    edges = np.array(recalibration.edges or (0.0, 1.0))
    tiny = 10.0 ** random.uniform(-14, 0, 300)
    beside = np.nextafter(edges[1:], 0.0), np.nextafter(edges[:-1], 1.0)
    return np.concatenate((random.random(1000), tiny, 1.0 - tiny, edges, *beside, [5e-324], ROUNDED))


def bits(values: Any) -> npt.NDArray[np.int64]:
    """Return the bits of doubles; those of −0.0 as of 0.0, which databases do not tell apart."""
    return (np.asarray(values, np.float64) + 0.0).view(np.int64)
