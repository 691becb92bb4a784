"""The maps of mode ``auto`` that are fitted to labels: those of the source, and of each window of the target.

A `Fit` takes a few kB and is never changed once it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.maps import binning
from streamcal.maps.platt import IDENTITY, apply_platt, expit, fit_platt, logit
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import class_prior
from streamcal.mixture.names import UNIFORM_FROM
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["Fit", "Line", "Source", "Steps", "cell_logits", "fit_source", "fit_windows"]

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_PRIOR_SMOOTHING: Final = 0.5  # Krichevsky–Trofimov: no prior is ever 0 or 1
_MOST_BINS: Final = 128
_PLATT_CELLS: Final = 128


class Steps(NamedTuple):
    """A step function of the score."""

    edges: Cells
    """int32[B−1], the edges between the bins, in cells of the finest grid."""
    values: Floats
    """float64[B], the value in each bin."""


_NO_STEPS: Final = Steps(np.empty(0, np.int32), np.empty(0))


class Line(NamedTuple):
    """A piecewise linear function of the logit of the score, constant beyond its ends."""

    logits: Floats
    """float64[p], the knots, ascending; two of them may be equal."""
    values: Floats
    """float64[p]."""


class Fit(NamedTuple):
    """All families fitted to one set of labels."""

    labels: int
    positives: int
    uniform: Steps
    """Uniform-mass bins with their label means; without bins where this family is not fitted."""
    isotonic: Line
    """Isotonic regression, interpolated linearly between its blocks."""
    platt: tuple[float, float]
    """(a, b) of expit(a·logit(z) + b)."""

    @property
    def prior(self) -> float:
        """The smoothed estimate of P[Y=1], in (0, 1)."""
        return class_prior(self.positives, self.labels, _PRIOR_SMOOTHING) or 0.5


class Source(NamedTuple):
    """The source map, and how well it does on its own labels."""

    fit: Fit
    losses: tuple[float, ...]
    """Brier loss per label, of the identity and of each family, as expected on new labels of the source."""


def fit_source(uniform_mass: RecalibrationMap, sketch: ScoreSketch) -> Source:
    """Fit all families to the labels of the source.

    Parameters
    ----------
    uniform_mass
        h_P, the uniform-mass map of the sketch; its shift weights are ignored.
    sketch
        The labelled scores of the source.

    Raises
    ------
    ValueError
        If the map has no bins, or the sketch no labels.
    """
    if not uniform_mass.bins or not sketch.n:
        raise ValueError(f"a source needs bins and labels, got {uniform_mass.bins} and {sketch.n}")
    cells, counts, n = sketch.cells, sketch.counts, sketch.n
    totals, positives = counts.sum(axis=0), counts[1]
    logits = cell_logits(cells, sketch.level)
    edges = grid.cells_of(np.array(uniform_mass.edges[1:-1], np.float64), grid.MIN_LEVEL)
    last = np.flatnonzero(np.append(edges[1:] > edges[:-1], True)[: len(edges)])  # of the edges in one cell
    steps = Steps(edges[last], np.array(uniform_mass.values)[np.append(0, last + 1)])
    hits, labels = positives[np.newaxis].astype(np.float64), totals[np.newaxis].astype(np.float64)
    slope, intercept = fit_platt(logits, hits, labels)[0]
    fit = Fit(n, sketch.n_positives, steps, _isotonic(logits, counts), (float(slope), float(intercept)))
    by_platt = apply_platt(slope, intercept, logits)
    inner = np.searchsorted(cells << np.int32(sketch.level - grid.MIN_LEVEL), steps.edges)
    splits = np.unique(np.concatenate(([0], inner, [len(cells)])))
    uniform_loss = binning.leave_one_out_brier(
        binning.bin_sums(positives, splits), binning.bin_sums(totals, splits)
    )
    # On the labels that they were fitted to, two parameters do better than on new ones by about 4·p(1−p)/n.
    optimism = 4.0 * float((totals * by_platt * (1.0 - by_platt)).sum()) / n**2
    losses = (
        _brier(expit(logits.copy()), positives, totals),
        uniform_loss,
        _crossed_brier(logits, counts),
        _brier(by_platt, positives, totals) + optimism,
    )
    return Source(fit, losses)


def fit_windows(
    cells: Cells, level: int, logits: Floats, windows: Sequence[tuple[int, Counts, Fit | None]]
) -> list[Fit]:
    """Fit all families to the labels of several windows.

    Parameters
    ----------
    cells, level
        The grid, int32[m].
    logits
        Its `cell_logits`, float64[m].
    windows
        For each window: its index in `names.WINDOWS`, or `ALL`; its labels per class and cell, int64[2, m],
        not empty; and a fit of nearly the same labels to start from, if there is one.
    """
    counts = np.array([counts for _, counts, _ in windows])
    starts = np.array([IDENTITY if start is None else start.platt for _, _, start in windows])
    # Two parameters do not need all cells: neighbours are grouped, at the mean of their logits.
    first = np.arange(0, len(cells), -(-len(cells) // _PLATT_CELLS))
    means = np.add.reduceat(logits, first) / np.diff(first, append=len(cells))
    grouped = np.add.reduceat(counts, first, axis=2).astype(np.float64)
    platt = fit_platt(means, grouped[:, 1], grouped.sum(axis=1), starts).tolist()
    fits = []
    for (window, held, _), (a, b), (zeros, ones) in zip(
        windows, platt, grouped.sum(axis=2).tolist(), strict=True
    ):
        uniform = _uniform_mass(cells, level, held) if window >= UNIFORM_FROM else _NO_STEPS
        fits.append(Fit(int(zeros + ones), int(ones), uniform, _isotonic(logits, held), (a, b)))
    return fits


def cell_logits(cells: Cells, level: int) -> Floats:
    """Return the logit of the middle of every cell, float64[m]."""
    return logit(grid.left_edges(2 * cells + np.int32(1), level - 1))


def _uniform_mass(cells: Cells, level: int, counts: Counts) -> Steps:
    totals = counts[0] + counts[1]
    occupied = np.flatnonzero(totals)
    totals = totals[occupied]
    # B is chosen with the finest bins instead of cells, in a fraction of the time.
    most = binning.uniform_mass(totals, _MOST_BINS)
    bins = binning.choose_bins(*(binning.bin_sums(row, most) for row in counts[:, occupied]))
    splits = binning.uniform_mass(totals, bins)
    means: Floats = binning.bin_sums(counts[1, occupied], splits) / binning.bin_sums(totals, splits)
    # A bin ends where its last cell ends: the gap between two occupied cells belongs to the upper bin.
    ends = cells[occupied[splits[1:-1] - 1]] + np.int32(1)
    return Steps(ends << np.int32(level - grid.MIN_LEVEL), means)


def _isotonic(logits: Floats, counts: Counts) -> Line:
    # Imported here: scipy.optimize takes longer to import than all of streamcal.
    from scipy.optimize import isotonic_regression

    totals = counts[0] + counts[1]
    occupied = np.flatnonzero(totals)
    totals = totals[occupied]
    fitted = isotonic_regression(counts[1, occupied] / totals, weights=totals)
    ends = np.repeat(fitted.blocks, 2)[1:-1]
    ends[1::2] -= 1
    return Line(logits[occupied[ends]], np.minimum(fitted.x[ends], 1.0))


def _crossed_brier(logits: Floats, counts: Counts) -> float:
    """Return the Brier loss of isotonic regression, fitted to every second cell and tested on the others."""
    losses = 0.0
    for fold in (0, 1):
        here, there = slice(fold, None, 2), slice(1 - fold, None, 2)
        if not len(logits[there]) or not len(logits[here]):
            continue
        line = _isotonic(logits[there], counts[:, there])
        forecast = np.interp(logits[here], line.logits, line.values)
        losses += _brier(forecast, counts[1, here], counts[:, here].sum(axis=0)) * float(
            counts[:, here].sum()
        )
    return losses / float(counts.sum())


def _brier(forecast: Floats, positives: Counts, totals: Counts) -> float:
    """Return the mean Brier loss of one forecast per cell."""
    losses = positives * (1.0 - forecast) ** 2 + (totals - positives) * forecast**2
    return float(losses.sum() / totals.sum())
