"""Laws of (score, label) with their true risks, exact to quadrature error far below any bound tested.

A truth is h* as a function of the score's quantile rank v in (0, 1) (so it may be constant on atoms) and
the scores at those ranks. The risk of a step map is an integral over v, exact for piecewise constants and
by antiderivatives on a fine grid otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from streamcal.sketch.grid import LAST_KEY, cells_of, left_edges

Reals = npt.NDArray[np.float64]

_GRID = 400_001


@dataclass(frozen=True)
class Truth:
    """A law of (Z, Y): draws, and the moments of h* up to any score."""

    name: str
    scores: Callable[[Reals], Reals]  # quantile function v → z, non-decreasing
    rate: Callable[[Reals], Reals]  # h* as a function of v
    _tables: dict[str, Reals] = field(default_factory=dict, repr=False)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Reals, npt.NDArray[np.int64]]:
        v = rng.random(n)
        return self.scores(v), (rng.random(n) < self.rate(v)).astype(np.int64)

    def moments(self, edges: Reals) -> tuple[Reals, Reals, Reals]:
        """Return P(Z < e), ∫ h*, ∫ h*² over Z < e, for edges e; by tables on the midpoints of a grid of v."""
        if not self._tables:
            v = (np.arange(_GRID) + 0.5) / _GRID
            h = self.rate(v)
            self._tables["z"] = self.scores(v)
            self._tables["h"] = np.concatenate(([0.0], np.cumsum(h))) / _GRID
            self._tables["hh"] = np.concatenate(([0.0], np.cumsum(h * h))) / _GRID
        place = np.searchsorted(self._tables["z"], edges, side="left")
        place = np.where(edges >= 1.0, _GRID, place)
        return place / _GRID, self._tables["h"][place], self._tables["hh"][place]


def risks(truth: Truth, edges: Reals, values: Reals) -> tuple[float, float, float]:
    """Return (R^cal, R^sha, R) of the step map with these bin edges (float64[B+1], 0 to 1) and values."""
    p, h, hh = (np.diff(moment) for moment in truth.moments(edges))
    mean = np.divide(h, p, out=np.zeros_like(h), where=p > 0)
    calibration = float(p @ (values - mean) ** 2)
    risk = float((hh - 2 * values * h + values**2 * p).sum())
    return calibration, max(risk - calibration, 0.0), risk


@cache
def _gaussian(prior: float, shift: tuple[float, float] = (-2.0, 2.0)) -> Truth:
    """D(π): Y ~ Bernoulli(π), X | Y ~ N(±2, 1), score sigmoid(X)."""
    from scipy.special import ndtr

    x = np.linspace(-9.0, 9.0, 200_001)
    cdf = (1 - prior) * ndtr(x - shift[0]) + prior * ndtr(x - shift[1])

    def quantile(v: Reals) -> Reals:
        return np.interp(v, cdf, x)

    def rate(v: Reals) -> Reals:
        at = quantile(v)
        logit = np.log(prior / (1 - prior)) + ((at - shift[0]) ** 2 - (at - shift[1]) ** 2) / 2
        return 1 / (1 + np.exp(-logit))

    return Truth(f"D({prior})", lambda v: 1 / (1 + np.exp(-quantile(v))), rate)


def _flat(value: float) -> Truth:
    return Truth(f"constant {value}", lambda v: v, lambda v: np.full_like(v, value))


def _atoms() -> Truth:
    """Ten atoms with 70 % of the mass, the rest spread; h* rises."""

    def scores(v: Reals) -> Reals:
        tenth = np.floor(v * 10)
        inside = v * 10 - tenth
        return (tenth + 0.05 + 0.9 * np.where(inside < 0.7, 0.0, (inside - 0.7) / 0.3)) / 10

    return Truth("atoms", scores, lambda v: scores(v) ** 2)


def _bands() -> Truth:
    """Ten atoms, and 3e-4 of the mass above each, where h* is already that of the next: seldom seen."""

    def scores(v: Reals) -> Reals:
        tenth = np.floor(v * 10)
        beyond = np.maximum(v * 10 - tenth - 0.997, 0.0) / 0.003
        return (tenth + 0.05 + 0.9 * beyond) / 10

    return Truth("bands", scores, lambda v: ((np.floor(v * 10) + (v * 10 % 1 > 0.997)) / 10) ** 2)


def gaussian(prior: float) -> Truth:
    """Return D(π) of the paper."""
    return _gaussian(prior)


TRUTHS: dict[str, Truth] = {
    truth.name: truth
    for truth in (
        _gaussian(0.5),
        _gaussian(0.1),
        _flat(0.5),
        _flat(0.01),
        Truth("step", lambda v: v, lambda v: np.where(v < 0.377, 0.1, 0.9)),
        Truth("cubic", lambda v: v, lambda v: 0.2 * v**3),
        _atoms(),
        _bands(),
    )
}


def cells(
    scores: Reals, labels: npt.NDArray[np.int64], max_cells: int = 4096
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Reals]:
    """Return what a sketch of the scores holds: negatives, positives int64[m], left edges float64[m]."""
    level = 32
    keys = cells_of(np.ascontiguousarray(scores), level)
    found, where = np.unique(keys, return_inverse=True)
    while len(found) > max_cells:
        level += 1
        found, merged = np.unique(found >> 1, return_inverse=True)
        where = merged[where]
    totals = np.bincount(where, minlength=len(found))
    positives = np.bincount(where, weights=labels, minlength=len(found)).astype(np.int64)
    assert found[-1] <= LAST_KEY >> level
    return totals - positives, positives, left_edges(found.astype(np.int32), level)


def edges_of(left: Reals, splits: npt.NDArray[np.int64]) -> Reals:
    """Return the scores where bins begin: 0, the left edge of each later bin's first cell, 1."""
    return np.concatenate(([0.0], left[splits[1:-1]], [1.0]))
