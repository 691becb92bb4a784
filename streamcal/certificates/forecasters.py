"""Forecasts of labels, made before the labels are seen, for the bets of an e-process (lemma 15).

A forecast is a function of the cell of a score, at any level of the grid, and of labels that came earlier.
Every forecast is strictly between 0 and 1.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, Self

import msgspec
import numpy as np

from streamcal.base.values import Cells, Counts, Floats
from streamcal.maps.binning import bin_sums, cube_root, uniform_mass
from streamcal.maps.fits_c import isotonic
from streamcal.maps.platt import apply_platt, expit, fit_platt, logit, wide_logit
from streamcal.sketch import grid
from streamcal.sketch.cells import coarsen
from streamcal.sketch.decoding import Positive
from streamcal.sketch.score_sketch import ScoreSketch

FORECASTERS: Final = 4
"""Number of forecasters: linear, step, Platt, identity."""

# The first labels have no earlier ones. They are forecast by the mean of these recalibrations a·logit + b.
_SLOPES: Final = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_INTERCEPTS: Final = np.linspace(-7.0, 7.0, 21)
_STEEPEST: Final = 8.0  # log odds of their forecasts

_FITTED: Final = 512  # cells; more would only slow Platt scaling down

Parameter = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]  # the priors of its fits keep it far below


class Levels(NamedTuple):
    """Labels per cell at several levels of the grid, one level behind the other."""

    centres: Floats
    """Score inside each cell, float64[M]."""
    logits: Floats
    """Logit of each of these scores, float64[M]."""
    counts: Counts
    """Labels by class, int64[2, M]; no cell is empty."""
    starts: Counts
    """First cell of each level, int64[k]."""

    @classmethod
    def of(cls, sketch: ScoreSketch, levels: Cells) -> Self:
        """Return the labels of a sketch, at least one, at k levels that are not finer than its own."""
        cells = sketch.cells >> (levels - np.int32(sketch.level))[:, None]
        begins = np.ones(cells.shape, bool)
        np.not_equal(cells[:, 1:], cells[:, :-1], out=begins[:, 1:])
        counts = np.add.reduceat(np.tile(sketch.counts, len(levels)), np.flatnonzero(begins), axis=1)
        sizes = begins.sum(axis=1)
        centres = _centres(cells[begins], np.repeat(levels, sizes))
        return cls(centres, logit(centres), counts, np.cumsum(sizes) - sizes)


class Forecasters(msgspec.Struct, frozen=True):
    """Four maps fitted to a labelled sketch, as forecasts of the labels after it.

    They are the line, in log odds, through the means of B = ⌊n^(1/3)⌋ uniform-mass bins, pooled until they
    ascend; the steps between these bins; Platt scaling; and the identity.
    """

    labels: Positive
    """Number of labels of the sketch."""
    knots: Floats
    """Wide logit of the middle of each bin, float64[B]."""
    means: Floats
    """Pooled label mean of each bin, float64[B] in (0, 1)."""
    starts: Floats
    """Score at which each bin but the first begins, float64[B−1], ascending."""
    platt: tuple[Parameter, Parameter]
    """Slope and intercept of Platt scaling."""

    @classmethod
    def fitted(cls, sketch: ScoreSketch) -> Self:
        """Return the forecasters fitted to a sketch of at least one labelled score."""
        level, cells, counts, n = sketch.level, sketch.cells, sketch.counts, sketch.n
        totals, positives, logits = counts.sum(axis=0), counts[1], wide_logit(_centres(cells, level))
        splits = uniform_mass(totals, cube_root(n))
        sizes = bin_sums(totals, splits).astype(np.float64)
        rates = (bin_sums(positives, splits) + 0.5) / (sizes + 1.0)
        pools, means = isotonic(rates, sizes + 1.0)
        knots = np.add.reduceat(logits * totals, splits[:-1]) / sizes
        starts = grid.left_edges(cells[splits[1:-1]], level)
        while len(cells) > _FITTED and level < grid.MAX_LEVEL:
            level, (cells, counts) = level + 1, coarsen(cells, counts, 1)
        by_label = counts.astype(np.float64)
        ((slope, intercept),) = fit_platt(
            logit(_centres(cells, level)), by_label[1:], by_label.sum(axis=0)[None]
        ).tolist()
        return cls(n, knots, np.repeat(means, np.diff(pools)), starts, (slope, intercept))

    def at(self, labels: Levels) -> Floats:
        """Return the forecasts in the cells of labels, float64[FORECASTERS, M] in (0, 1)."""
        centres, logits = labels.centres, labels.logits
        least = 0.5 / (self.labels + 1.0)  # Platt scaling knows no more than so many labels show
        slope, intercept = np.array(self.platt)
        forecasts = np.empty((FORECASTERS, len(centres)))
        forecasts[0] = expit(
            np.interp(wide_logit(centres), self.knots, np.log(self.means / (1.0 - self.means)))
        )
        forecasts[1] = self.means[np.searchsorted(self.starts, centres, "right")]
        forecasts[2] = np.clip(apply_platt(slope, intercept, logits), least, 1.0 - least)
        forecasts[3] = expit(logits.copy())
        return forecasts


def log_likelihoods(forecasts: Floats, labels: Levels) -> Floats:
    """Return the log likelihood of labels at each of k levels by each row of forecasts, float64[f, M].

    The result is float64[k, f].
    """
    each = np.log(forecasts) * labels.counts[1]
    each += np.log1p(-forecasts) * labels.counts[0]
    return np.asarray(np.add.reduceat(each, labels.starts, axis=1).T)


def log_marginal(labels: Levels) -> Floats:
    """Return the log of the mean likelihood of labels over a fixed grid of maps, float64[k], by level."""
    odds = (_SLOPES[:, None, None] * labels.logits + _INTERCEPTS[:, None]).reshape(-1, len(labels.logits))
    np.clip(odds, -_STEEPEST, _STEEPEST, out=odds)
    each = odds * labels.counts[1]
    each -= np.log1p(np.exp(odds, out=odds), out=odds) * labels.counts.sum(axis=0)
    by_level = np.add.reduceat(each, labels.starts, axis=1)
    return np.asarray(np.logaddexp.reduce(by_level, axis=0) - np.log(len(each)))


def _centres(cells: Cells, level: int | Cells) -> Floats:
    """Return a score in the middle of each cell."""
    finer = np.int32(level) - np.int32(grid.MIN_LEVEL)
    return grid.middles(cells << finer, grid.MIN_LEVEL, (cells + np.int32(1)) << finer)
