"""Maps fitted to counts of labels per cell: isotonic regression, uniform mass, and those of the source.

No map says 0 or 1 because of a few labels: the end blocks of an isotonic map and all bins of a uniform-mass
map count half a positive and half a negative more, so N labels all alike say ½ / (N + 1) or 1 − ½ / (N + 1).

Of labels with weights w, counts are sums of w in one unit; the sums of w² tell how many labels they are worth
(`streamcal.sketch.weighing`). One label more is then one of the weight Σw² / Σw.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.maps import binning
from streamcal.maps.curves import fit_curve
from streamcal.maps.platt import apply_platt, cell_logits, expit, fit_platt, logit
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import class_prior
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["Line", "Source", "Steps", "fit_isotonic", "fit_source", "fit_uniform_mass"]

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_SMOOTHING: Final = 0.5  # Krichevsky–Trofimov: no prior is ever 0 or 1
_MOST_BINS: Final = 128
_QUARTER: Final = 0.25  # of a nat: between two knots an expit is straight to within 0.25² / (48√3)


class Steps(NamedTuple):
    """A step function of the score."""

    edges: Floats
    """float64[B−1], the edges between the bins, ascending; a bin contains its left edge."""
    values: Floats
    """float64[B], the value in each bin."""

    def at(self, scores: Floats) -> Floats:
        """Return the values at scores, float64[n]."""
        return self.values[self.edges.searchsorted(scores, "right")]


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
    """Of labels with weights, their effective number."""
    prior: float
    """The smoothed estimate of P[Y=1], in (0, 1)."""
    platt: tuple[float, float]
    """(a, b) of expit(a·logit(z) + b)."""
    curve: Line
    """The map of ``bins="auto"``."""
    uniform: Steps
    losses: tuple[float, float, float, float]
    """Brier loss per label expected on new labels of the source: identity, Platt, curve, uniform mass."""


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
    cells, weighed = sketch.cells, sketch.weighed
    counts, n = weighed.masses, weighed.labels
    logits = cell_logits(cells, level)
    curve = fit_curve(cells, level, counts, squares=weighed.squares)
    uniform, uniform_loss = fit_uniform_mass(cells, level, *weighed)
    totals = counts.sum(axis=0)
    hits, labels = counts[1:].astype(np.float64), totals[np.newaxis].astype(np.float64)
    if sketch.weighted:
        hits, labels = (part * (n / float(totals.sum())) for part in (hits, labels))
    fitted = fit_platt(logits, hits, labels)[0]
    by_platt = apply_platt(fitted[:1], fitted[1:], logits)
    # On the labels that they were fitted to, two parameters do better than on new ones by about 4·p(1−p)/n.
    optimism = 4.0 * float((totals * by_platt * (1.0 - by_platt)).sum()) / (int(totals.sum()) * n)
    losses = (
        _brier(expit(logits.copy()), counts),
        min(1.0, _brier(by_platt, counts) + optimism),
        curve.loss,
        uniform_loss,
    )
    prior = class_prior(*sketch.mass.effective(sketch.n_positives, sketch.n), _SMOOTHING) or 0.5
    slope, intercept = fitted.tolist()
    return Source(max(1, round(n)), prior, (slope, intercept), _as_line(curve.map), uniform, losses)


def fit_uniform_mass(
    cells: Cells, level: int, counts: Counts, squares: Floats | None = None
) -> tuple[Steps, float]:
    """Fit a uniform-mass map, B by leave-one-out; return it with its leave-one-out Brier score.

    Parameters
    ----------
    cells, level
        The grid, int32[m].
    counts
        Labels per class and cell, int64[2, m]; no cell is empty.
    squares
        Σw² per cell, float64[m]; None: all weights are 1.
    """
    totals = counts[0] + counts[1]
    # B is chosen with the finest bins instead of cells, in a fraction of the time.
    most = binning.uniform_mass(totals, _MOST_BINS)
    fine = None if squares is None else np.add.reduceat(squares, most[:-1])
    negatives, hits = (binning.bin_sums(row, most) for row in counts)
    bins = binning.choose_bins(negatives, hits, fine)
    splits = binning.uniform_mass(totals, bins)
    positives, labels = binning.bin_sums(counts[1], splits), binning.bin_sums(totals, splits)
    sums = None if squares is None else np.add.reduceat(squares, splits[:-1])
    one = 1.0 if sums is None else sums / labels
    # A bin ends where its last cell ends: the gap between two occupied cells belongs to the upper bin.
    ends = cells[splits[1:-1] - 1] + np.int32(1)
    steps = Steps(grid.left_edges(ends, level), (positives + 0.5 * one) / (labels + one))
    return steps, binning.leave_one_out_brier(positives, labels, sums)


def fit_isotonic(cells: Cells, level: int, counts: Counts, squares: Floats | None = None) -> Line:
    """Fit isotonic regression, interpolated linearly between its blocks.

    Parameters
    ----------
    cells, level
        The grid, int32[m].
    counts
        Labels per class and cell, int64[2, m]; no cell is empty.
    squares
        Σw² per cell, float64[m]; None: all weights are 1.
    """
    # Imported here: scipy.optimize takes longer to import than all of streamcal.
    from scipy.optimize import isotonic_regression

    positives = counts[1].astype(np.float64)
    weights = positives + counts[0]
    ends = slice(None, None, max(1, len(cells) - 1))  # the first and the last, which may be the same
    one = 1.0 if squares is None else squares[ends] / weights[ends]
    weights[ends] += one
    positives[ends] += 0.5 * one
    fitted = isotonic_regression(positives / weights, weights=weights)
    knots = fitted.blocks.repeat(2)[1:-1]
    knots[1::2] -= 1
    return Line(cell_logits(cells[knots], level), np.minimum(fitted.x[knots], 1.0))


def _as_line(curve: RecalibrationMap) -> Line:
    """Return a map as a `Line`; if it is linear in log-odds, to within 0.001: a knot each quarter nat."""
    if curve.kind == "step":
        ends = np.repeat(logit(np.array(curve.edges)), 2)[1:-1]
        return Line(ends, np.repeat(np.array(curve.values), 2))
    parts = np.maximum(1, np.ceil(np.abs(np.diff(curve.log_odds)) / _QUARTER)).astype(int)
    counted = np.concatenate(([0], np.cumsum(parts)))
    places = np.arange(counted[-1] + 1)
    knots, log_odds = (np.interp(places, counted, ends) for ends in (curve.knots, curve.log_odds))
    return Line(knots, expit(log_odds))


def _brier(forecasts: Floats, counts: Counts) -> float:
    """Return the mean Brier loss of one forecast per cell."""
    losses = counts[1] * (1.0 - forecasts) ** 2 + counts[0] * forecasts**2
    return float(losses.sum() / counts.sum())
