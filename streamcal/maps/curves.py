"""The map of ``bins="auto"``: steps, or a line, through the rates of uniform-mass bins.

Neighbouring bins whose rates contradict a non-decreasing h are pooled to blocks (isotonic regression;
assumption A2 of the paper). Three curves go through what is left:

* steps: one value for each block;
* a line in log-odds through the means of the blocks;
* the same line through the means of all bins: level where bins were pooled.

The first line is best where rates rise smoothly, the second where they rise here and stay level there, steps
where they jump. The number of bins B, and then the curve, is chosen by cross-validation in closed form: the
squared errors on the labels that the curve was fitted to, plus twice the covariance of each label with its
own forecast (Efron 2004, "The Estimation of Prediction Error"; of steps, the leave-one-out errors). Noise
would often decide between the curves, so the first line is replaced only if another is better by more than
one standard error. A line tells no scores apart that are nearer to 0 or 1 than 2⁻⁴⁰; steps do.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from streamcal.maps import binning
from streamcal.maps.isotonic_c import isotonic
from streamcal.maps.platt import cell_logits, expit
from streamcal.maps.recalibration_map import APART, RecalibrationMap
from streamcal.maps.uniform_mass import step_map
from streamcal.values import Cells, Counts, Flags, Floats

__all__ = ["Curve", "fit_curve"]


_RATIO: Final = 2**0.5  # between neighbouring numbers of bins
_REACH: Final = 2  # numbers on each side that the smoothing kernel covers
_KERNEL: Final = np.exp(-0.5 * np.arange(-_REACH, _REACH + 1) ** 2.0)
_GROUPS: Final = 512  # of cells, at most, on which curves are compared: four for each of the most bins
_APART: Final = 100.0  # between the logits of two copies of the cells; those of scores are within ±28


class LabelsPerCell(NamedTuple):
    """Labels per cell, in ascending order of score. No cell is empty."""

    positives: Counts
    totals: Counts
    logits: Floats
    """The logit of the score in the middle of each cell, or the mean logit of a group of cells."""
    squares: Floats
    """Sums of squared weights, float64[m], in the squared unit of the counts: the variances of sums."""

    def grouped(self, splits: Counts) -> LabelsPerCell:
        """Return the labels per group of cells; ``splits``, int64[g+1], go from 0 to m."""
        totals = binning.bin_sums(self.totals, splits)
        logits = np.add.reduceat(self.totals * self.logits, splits[:-1]) / totals
        squares = np.add.reduceat(self.squares, splits[:-1])
        return LabelsPerCell(binning.bin_sums(self.positives, splits), totals, logits, squares)

    def copies(self, number: int) -> LabelsPerCell:
        """Return this many copies, one behind the other: one pass then compares the binnings of all."""
        apart = np.repeat(_APART * np.arange(number), len(self.totals))
        return LabelsPerCell(
            np.tile(self.positives, number),
            np.tile(self.totals, number),
            np.tile(self.logits, number) + apart,
            np.tile(self.squares, number),
        )


class Steps(NamedTuple):
    """One value for each block of cells."""

    splits: Counts
    """First cell of each block, then m: int64[K+1] from 0 to m."""
    values: Floats
    """Values of the blocks, float64[K] in (0, 1)."""

    def judged(self, cells: LabelsPerCell) -> tuple[Floats, Floats]:
        """Return the value of each cell, and the squared errors expected on new labels, float64[m] each.

        The errors in a block all stand at its first cell.
        """
        blocks = cells.grouped(self.splits)
        losses = np.zeros(len(cells.totals))
        errors = binning.leave_one_out_losses(blocks.positives, blocks.totals, blocks.squares)
        losses[self.splits[:-1]] = errors
        return np.repeat(self.values, np.diff(self.splits)), losses


class Line(NamedTuple):
    """A line between knots, from logit to log-odds; constant beyond its ends."""

    splits: Counts
    """First cell of the block of each knot, then m: int64[K+1] from 0 to m."""
    block: Counts
    """Block of each knot, int64[k], ascending."""
    knots: Floats
    """Logits of the scores at the knots, float64[k], ascending."""
    log_odds: Floats
    """Log-odds of h at the knots, float64[k]."""

    def judged(self, cells: LabelsPerCell) -> tuple[Floats, Floats]:
        """Return the value in the middle of each cell, and the squared errors expected on new labels.

        float64[m] each.
        """
        left, right, part = self._place(cells.logits)
        log_odds = self.log_odds[left]
        forecasts = expit(log_odds + part * (self.log_odds[right] - log_odds))
        misses = cells.totals - cells.positives
        errors: Floats = cells.positives * (1.0 - forecasts) ** 2 + misses * forecasts**2
        # A label moves the rate of its block by w/Σw, and the log-odds of its knots by w/(Σw·p(1−p)).
        sizes = np.diff(self.splits)
        own = np.repeat(np.arange(len(sizes)), sizes)
        rates = expit(self.log_odds[np.searchsorted(self.block, np.arange(len(sizes)))])
        moved = 1.0 / (np.add.reduceat(cells.totals, self.splits[:-1]) * rates * (1.0 - rates))
        weights = (1.0 - part) * (self.block[left] == own) + part * (self.block[right] == own)
        noise = forecasts * (1.0 - forecasts)
        errors += 2.0 * cells.squares * noise**2 * weights * moved[own]
        return forecasts, errors

    @property
    def bends(self) -> Flags:
        """Needed knots, bool[k]: a knot inside a level stretch is not needed."""
        rises = np.diff(self.log_odds) != 0.0
        return np.concatenate((rises, [True])) | np.concatenate(([True], rises))

    def _place(self, logits: Floats) -> tuple[Counts, Counts, Floats]:
        """Return the knots on both sides of each logit, and the part of the way between them."""
        cells_of_copy = np.bincount(_copy_of(logits))
        last = np.cumsum(np.bincount(_copy_of(self.knots), minlength=len(cells_of_copy)))
        first = np.concatenate(([0], last[:-1]))
        # Both ascend: to search for the knots, which are fewer, takes less time.
        passed = np.bincount(np.searchsorted(logits, self.knots), minlength=len(logits) + 1)
        place = np.cumsum(passed[:-1])
        left = np.maximum(place - 1, np.repeat(first, cells_of_copy))
        right = np.minimum(place, np.repeat(last - 1, cells_of_copy))
        width = self.knots[right] - self.knots[left]
        part = np.divide(logits - self.knots[left], width, out=np.zeros(len(logits)), where=width > 0.0)
        return left, right, part


_Drawn = Steps | Line


class Curve(NamedTuple):
    """A fitted curve."""

    map: RecalibrationMap
    """The curve as a map of version 0."""
    loss: float
    """Brier score expected on new labels, in [0, 1]."""


def fit_curve(
    cells: Cells,
    level: int,
    counts: Counts,
    *,
    monotone: bool = True,
    squares: Floats | None = None,
) -> Curve:
    """Fit the map of ``bins="auto"``.

    Parameters
    ----------
    cells, level
        the grid, int32[m], m at least 1.
    counts
        labels per class and cell, int64[2, m]; no cell is empty. If labels have weights, the sums of the
        weights.
    monotone
        whether neighbouring bins are pooled so that the map does not decrease.
    squares
        the sums of the squares of the weights, float64[m], in the unit of the counts; None: all are 1.
    """
    totals = counts[0] + counts[1]
    squares = totals.astype(np.float64) if squares is None else squares
    labels = LabelsPerCell(counts[1], totals, cell_logits(cells, level), squares)
    drawn, loss = _choose(labels, monotone=monotone)
    if isinstance(drawn, Line):
        knots, log_odds = (part[drawn.bends].tolist() for part in (drawn.knots, drawn.log_odds))
        line = RecalibrationMap(version=0, kind="linear", knots=tuple(knots), log_odds=tuple(log_odds))
        return Curve(line, loss)
    return Curve(step_map(cells, level, drawn.splits, drawn.values), loss)


def _choose(cells: LabelsPerCell, *, monotone: bool) -> tuple[_Drawn, float]:
    """Return the curve through the rates of these cells that is expected to be best, and its Brier score.

    The parameters are those of `fit_curve`.
    """
    n = int(cells.totals.sum())
    most = 2.0 * math.sqrt(
        binning.effective(cells.totals, cells.squares)
    )  # the best number grows as n^(1/3); larger ones would be chosen by noise
    groups = cells.grouped(binning.uniform_mass(cells.totals, min(_GROUPS, math.ceil(4.0 * most))))
    steps = int(math.log(most, _RATIO))
    numbers = sorted({round(_RATIO**step) for step in range(steps + 1)})
    shape = len(numbers), len(groups.totals)
    splits, _ = binning.uniform_mass_of_each(groups.totals, numbers)
    copy = np.cumsum(splits == 0) - 1
    copies = groups.copies(len(numbers))
    starts = np.append((splits + copy * shape[1])[splits < shape[1]], len(copies.totals))
    judged = [curve.judged(copies) for curve in _curves(copies, starts, monotone=monotone)]
    forecasts = [each.reshape(shape) for each, _ in judged]
    losses = np.array([each.reshape(shape).sum(axis=1) for _, each in judged])
    smooth = np.array([_smoothed(row) for row in losses])
    best = smooth.argmin(axis=1)
    # The first curve, unless the best of the others is better by a standard error of the difference.
    other = 1 + int(np.argmin(losses[np.arange(1, len(best)), best[1:]]))
    here, there = (forecasts[k][best[k]] for k in (0, other))
    error = 2.0 * math.sqrt(groups.squares @ (here * (1.0 - here) * (there - here) ** 2))
    chosen = other if smooth[other, best[other]] + error < smooth[0, best[0]] else 0
    splits = binning.uniform_mass(cells.totals, numbers[best[chosen]])
    loss = min(1.0, float(losses[chosen, best[chosen]]) / n)
    return _curves(cells, splits, monotone=monotone)[chosen], loss


def _smoothed(losses: Floats) -> Floats:
    """Average the losses of neighbouring numbers of bins: noise would decide between bare ones."""
    padded = np.pad(losses, _REACH, mode="edge")
    smooth: Floats = np.convolve(padded, _KERNEL / _KERNEL.sum(), "valid")
    return smooth


def _curves(cells: LabelsPerCell, splits: Counts, *, monotone: bool) -> list[_Drawn]:
    """Return the curves that are compared, through the rates of bins that begin at these cells."""
    bins = cells.grouped(splits)
    pooled = _pooled(bins, monotone=monotone)
    steps = Steps(splits[pooled.ends], pooled.values)
    # Bins beyond 2⁻⁴⁰ have the same logit: to a line they are one.
    apart = np.diff(bins.logits, prepend=-np.inf) >= APART
    if not apart.all():
        firsts = np.append(np.flatnonzero(apart), len(apart))
        splits, bins = splits[firsts], bins.grouped(firsts)
        pooled = _pooled(bins, monotone=monotone)
    log_odds = np.log(pooled.values / (1.0 - pooled.values))
    order, starts = np.arange(len(log_odds)), splits[pooled.ends]
    lines = [Line(starts, order, pooled.logits, log_odds)]
    if monotone:
        block = np.repeat(order, np.diff(pooled.ends))
        lines.append(Line(starts, block, bins.logits, log_odds[block]))
    return [*lines, steps]


class _Blocks(NamedTuple):
    """Bins that are pooled so that their rates ascend."""

    ends: Counts
    """First bin of each block, then their number, int64[K+1]."""
    values: Floats
    """Values of the blocks, float64[K] in (0, 1)."""
    logits: Floats
    """Mean logits of the blocks, float64[K]."""


def _pooled(bins: LabelsPerCell, *, monotone: bool) -> _Blocks:
    """Return the blocks of bins; each is a block of its own if the curve need not be monotone."""
    ends = np.arange(len(bins.totals) + 1)
    if monotone:
        # Copies are so far apart that nothing is pooled across them.
        rates = bins.positives / bins.totals + 2.0 * _copy_of(bins.logits)
        ends = isotonic(rates, bins.totals.astype(np.float64))[0]
    blocks = bins.grouped(ends)
    return _Blocks(ends, _inside(blocks), blocks.logits)


def _inside(blocks: LabelsPerCell) -> Floats:
    """Return the rate of each block, inside (0, 1): N labels all alike say ½/(N+1) or 1 − ½/(N+1).

    These rates do not pass the rate of a neighbouring block that is inside.
    """
    rates = blocks.positives / blocks.totals
    copy = _copy_of(blocks.logits)
    neighbours = copy[1:] == copy[:-1]
    above = np.append(np.where(neighbours & (rates[1:] > 0.0), rates[1:], 1.0), 1.0)
    below = np.concatenate(([0.0], np.where(neighbours & (rates[:-1] < 1.0), rates[:-1], 0.0)))
    doubt = 0.5 / (blocks.totals * (blocks.totals / blocks.squares) + 1.0)  # by the effective numbers
    inside: Floats = np.where(rates == 0.0, np.minimum(doubt, above), rates)
    return np.where(rates == 1.0, np.maximum(1.0 - doubt, below), inside)


def _copy_of(logits: Floats) -> Counts:
    """Return the index of the `LabelsPerCell.copies` that each logit belongs to."""
    return np.rint(logits / _APART).astype(np.int64)
