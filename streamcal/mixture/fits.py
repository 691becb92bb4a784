"""Maps fitted to counts of labels per cell: isotonic regression, uniform mass, and those of the source.

No map says 0 or 1 because of a few labels: the end blocks of an isotonic map and all bins of a uniform-mass
map count half a positive and half a negative more, so N labels all alike say ½ / (N + 1) or 1 − ½ / (N + 1).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.maps import binning
from streamcal.maps.platt import apply_platt, cell_logits, expit, fit_platt
from streamcal.maps.shift import class_prior
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["Line", "Source", "Steps", "fit_isotonic", "fit_source", "fit_uniform_mass"]

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_SMOOTHING: Final = 0.5  # Krichevsky–Trofimov: no prior is ever 0 or 1
_MOST_BINS: Final = 128


class Steps(NamedTuple):
    """A step function of the score."""

    edges: Floats
    """float64[B−1], the edges between the bins, ascending; a bin contains its left edge."""
    values: Floats
    """float64[B], the value in each bin."""

    def at(self, scores: Floats) -> Floats:
        """Return the values at scores, float64[n]."""
        return self.values[np.searchsorted(self.edges, scores, side="right")]


class Line(NamedTuple):
    """A piecewise linear function of the logit of the score, constant beyond its ends."""

    logits: Floats
    """float64[p], the knots, ascending; two of them may be equal."""
    values: Floats
    """float64[p]."""

    def at(self, logits: Floats) -> Floats:
        """Return the values at logits, float64[n]."""
        return np.interp(logits, self.logits, self.values)


class Source(NamedTuple):
    """Maps of the source, and how well they do on its labels."""

    labels: int
    prior: float
    """The smoothed estimate of P[Y=1], in (0, 1)."""
    platt: tuple[float, float]
    """(a, b) of expit(a·logit(z) + b)."""
    isotonic: Line
    uniform: Steps
    losses: tuple[float, float, float, float]
    """Brier loss per label expected on new labels of the source: identity, Platt, isotonic, uniform mass."""


def fit_source(sketch: ScoreSketch) -> Source:
    """Fit maps to the labelled scores of the source.

    Raises
    ------
    ValueError
        If the sketch has no labels.
    """
    if not sketch.n:
        raise ValueError("a source needs labels, got none")
    level = sketch.level
    cells, counts = sketch.cells, sketch.counts
    logits = cell_logits(cells, level)
    uniform, uniform_loss = fit_uniform_mass(cells, level, counts)
    totals = counts.sum(axis=0)
    hits, labels = counts[1:].astype(np.float64), totals[np.newaxis].astype(np.float64)
    fitted = fit_platt(logits, hits, labels)[0]
    by_platt = apply_platt(fitted[:1], fitted[1:], logits)
    # On the labels that they were fitted to, two parameters do better than on new ones by about 4·p(1−p)/n.
    optimism = 4.0 * float((totals * by_platt * (1.0 - by_platt)).sum()) / sketch.n**2
    losses = (
        _brier(expit(logits.copy()), counts),
        min(1.0, _brier(by_platt, counts) + optimism),
        _crossed_brier(cells, level, counts),
        uniform_loss,
    )
    prior = class_prior(sketch.n_positives, sketch.n, _SMOOTHING) or 0.5
    slope, intercept = fitted.tolist()
    isotonic = fit_isotonic(cells, level, counts)
    return Source(sketch.n, prior, (slope, intercept), isotonic, uniform, losses)


def fit_uniform_mass(cells: Cells, level: int, counts: Counts) -> tuple[Steps, float]:
    """Fit a uniform-mass map, B by leave-one-out; return it with its leave-one-out Brier score.

    Parameters
    ----------
    cells, level
        The grid, int32[m].
    counts
        Labels per class and cell, int64[2, m]; no cell is empty.
    """
    totals = counts[0] + counts[1]
    # B is chosen with the finest bins instead of cells, in a fraction of the time.
    most = binning.uniform_mass(totals, _MOST_BINS)
    bins = binning.choose_bins(*(binning.bin_sums(row, most) for row in counts))
    splits = binning.uniform_mass(totals, bins)
    positives, labels = binning.bin_sums(counts[1], splits), binning.bin_sums(totals, splits)
    # A bin ends where its last cell ends: the gap between two occupied cells belongs to the upper bin.
    ends = cells[splits[1:-1] - 1] + np.int32(1)
    steps = Steps(grid.left_edges(ends, level), (positives + 0.5) / (labels + 1.0))
    return steps, binning.leave_one_out_brier(positives, labels)


def fit_isotonic(cells: Cells, level: int, counts: Counts) -> Line:
    """Fit isotonic regression, interpolated linearly between its blocks.

    Parameters
    ----------
    cells, level
        The grid, int32[m].
    counts
        Labels per class and cell, int64[2, m]; no cell is empty.
    """
    # Imported here: scipy.optimize takes longer to import than all of streamcal.
    from scipy.optimize import isotonic_regression

    positives = counts[1].astype(np.float64)
    weights = positives + counts[0]
    for end in (0, -1)[: len(cells)]:
        weights[end] += 1.0
        positives[end] += 0.5
    fitted = isotonic_regression(positives / weights, weights=weights)
    ends = np.repeat(fitted.blocks, 2)[1:-1]
    ends[1::2] -= 1
    return Line(cell_logits(cells[ends], level), np.minimum(fitted.x[ends], 1.0))


def _crossed_brier(cells: Cells, level: int, counts: Counts) -> float:
    """Return the Brier loss of isotonic regression, fitted to every second cell and tested on the others."""
    losses = 0.0
    for fold in (0, 1):
        here, there = slice(fold, None, 2), slice(1 - fold, None, 2)
        if len(cells) > 1:
            line = fit_isotonic(cells[there], level, counts[:, there])
            forecasts = line.at(cell_logits(cells[here], level))
            losses += _brier(forecasts, counts[:, here]) * float(counts[:, here].sum())
    return losses / float(counts.sum())


def _brier(forecasts: Floats, counts: Counts) -> float:
    """Return the mean Brier loss of one forecast per cell."""
    losses = counts[1] * (1.0 - forecasts) ** 2 + counts[0] * forecasts**2
    return float(losses.sum() / counts.sum())
