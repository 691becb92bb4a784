"""Forecasts of labels, made before the labels are seen: what an e-process bets on (lemma 15).

A forecast is a function of the cell of a score, at any level of the grid, and of labels that came earlier.
Every one is strictly between 0 and 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.maps.binning import bin_sums, cube_root, uniform_mass
from streamcal.maps.platt import apply_platt, expit, fit_platt, logit
from streamcal.sketch import grid
from streamcal.sketch.arrays import Cells
from streamcal.sketch.cells import coarsen
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["FORECASTERS", "Forecasters", "log_likelihoods", "log_marginal"]

Counts = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

FORECASTERS: Final = 4
"""How many forecasters there are: linear, step, Platt, identity."""

# The first labels have no earlier ones. They are forecast by the mean of these recalibrations a·logit + b.
_SLOPES: Final = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_INTERCEPTS: Final = np.linspace(-7.0, 7.0, 21)
_STEEPEST: Final = 8.0  # log odds of their forecasts

_FITTED: Final = 512  # cells; more would only slow Platt scaling down


class Forecasters:
    """Four maps fitted to a labelled sketch, as forecasts of the labels after it.

    They are the line, in log odds, through the means of B = ⌊n^(1/3)⌋ uniform-mass bins, pooled until they
    ascend; the steps between these bins; Platt scaling; and the identity.

    Parameters
    ----------
    sketch
        at least one labelled score.
    """

    __slots__ = ("_knots", "_least", "_log_odds", "_means", "_platt", "_starts")

    def __init__(self, sketch: ScoreSketch) -> None:
        from scipy.optimize import isotonic_regression  # takes longer to import than all of streamcal

        level, cells, counts = sketch.level, sketch.cells, sketch.counts
        totals, positives, logits = counts.sum(axis=0), counts[1], logit(_centres(cells, level))
        splits = uniform_mass(totals, cube_root(sketch.n))
        sizes = bin_sums(totals, splits).astype(np.float64)
        rates = (bin_sums(positives, splits) + 0.5) / (sizes + 1.0)
        self._means = isotonic_regression(rates, weights=sizes + 1.0).x
        self._log_odds = np.log(self._means / (1.0 - self._means))
        self._knots = np.add.reduceat(logits * totals, splits[:-1]) / sizes
        self._starts = grid.left_edges(cells[splits[1:-1]], level)
        while len(cells) > _FITTED and level < grid.MAX_LEVEL:
            level, (cells, counts) = level + 1, coarsen(cells, counts, 1)
        by_label = counts.astype(np.float64)
        self._platt = fit_platt(logit(_centres(cells, level)), by_label[1:], by_label.sum(axis=0)[None])
        self._least = 0.5 / (sketch.n + 1.0)  # Platt scaling knows no more than so many labels show

    def at(self, cells: Cells, level: int) -> Reals:
        """Return the forecasts in these cells, float64[FORECASTERS, m] in (0, 1)."""
        centres = _centres(cells, level)
        logits = logit(centres)
        forecasts = np.empty((FORECASTERS, len(cells)))
        forecasts[0] = expit(np.interp(logits, self._knots, self._log_odds))
        forecasts[1] = self._means[np.searchsorted(self._starts, centres, "right")]
        slope, intercept = self._platt[:, 0], self._platt[:, 1]
        forecasts[2] = np.clip(apply_platt(slope, intercept, logits), self._least, 1.0 - self._least)
        forecasts[3] = expit(logits)
        return forecasts


def log_likelihoods(forecasts: Reals, counts: Counts) -> Reals:
    """Return the log likelihood of the counts per label, int64[2, m], by each row of forecasts."""
    return np.asarray(np.log(forecasts) @ counts[1] + np.log1p(-forecasts) @ counts[0], np.float64)


def log_marginal(cells: Cells, level: int, counts: Counts) -> float:
    """Return the log of the mean likelihood of counts, int64[2, m], over a fixed grid of maps."""
    odds = _SLOPES[:, None, None] * logit(_centres(cells, level)) + _INTERCEPTS[:, None]
    forecasts = expit(np.clip(odds, -_STEEPEST, _STEEPEST).reshape(-1, len(cells)))
    each = log_likelihoods(forecasts, counts)
    return float(np.logaddexp.reduce(each) - np.log(len(each)))


def _centres(cells: Cells, level: int) -> Reals:
    """Return a score inside each cell: in the middle of its keys."""
    finer = level - grid.MIN_LEVEL
    keys = (cells << np.int32(finer)) + np.int32((1 << finer) >> 1)
    return grid.left_edges(keys, grid.MIN_LEVEL)
