"""The loops of maps: bins pooled so that rates ascend, curves, logistic regression, and maps of one score.

Compiled where there is a C compiler; `fits_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.base.values import Counts, Floats
from streamcal.sketch.counts_c import key_of, middle_of

APART: Final = 1e-9
"""Least distance between knots: nearer ones would make a line too steep for float64."""
NO_SHIFT: Final = (1.0, 1.0)
"""Weights (w₀, w₁) of g that leave h unchanged."""

LINE, BENT, STEPS = 0, 1, 2
"""Curves: a line through the means of the blocks, one through those of all bins, and steps."""

_POSITIVES, _TOTALS, _SQUARES, _LOGITS = 0, 1, 2, 3  # rows of what bins and blocks hold
_ROWS: Final = 4

_ONE_LABEL = 1.0 + 1e-9  # but for the rounding of weights
_SLOTS: Final = 40  # of the guide, for each edge
_FEW: Final = 8  # scores for each edge, after which the guide has paid for itself

_REACH: Final = 2  # numbers of bins on each side that the smoothing kernel covers
_WEIGHTS: Final = np.exp(-0.5 * np.arange(-_REACH, _REACH + 1) ** 2.0)
_KERNEL: Final = _WEIGHTS / _WEIGHTS.sum()

# As C has them.
_APART, _NOWHERE = APART, float("-inf")


def isotonic(values: Floats, weights: Floats) -> tuple[Counts, Floats]:
    """Return the blocks of the weighted least squares fit that does not descend, and their values.

    Values and weights are float64[m], m at least 1; weights are positive. The first index of each block comes
    first, then m, int64[b + 1]; behind it the mean of each block, strictly ascending, float64[b].
    """
    starts, means, sizes = np.empty(len(values) + 1, np.int64), values.copy(), weights.copy()
    blocks = pool(means, sizes, starts, len(values))
    return starts[: blocks + 1], means[:blocks]


def isotonic_line(cells: Counts, level: int, masses: Floats, squares: Floats) -> Floats:
    """Return knots and values of isotonic regression, a line between its blocks, float64[2, 2 b].

    Both end blocks count half a positive and half a negative more.

    Parameters
    ----------
    cells, level
        cells of the grid, int64[m], ascending, m at least 1: of most no logit is needed.
    masses, squares
        weights of the labels 0 and 1 of each, float64[2, m], and sums of their squares, float64[m].
    """
    m = len(cells)
    means, sizes, starts = np.empty(m), np.empty(m), np.empty(m + 1, np.int64)
    rates, weights, firsts = means, sizes, starts
    for i in range(m):
        positives, total = masses[1, i], masses[0, i] + masses[1, i]
        if i == 0 or i == m - 1:
            one = squares[i] / total
            total += one
            positives += 0.5 * one
        rates[i], weights[i] = positives / total, total
    blocks = pool(means, sizes, starts, m)
    out = np.empty((2, 2 * blocks))
    line = out
    for i in range(blocks):
        line[0, 2 * i] = cell_logit(cells[firsts[i]], level)
        line[0, 2 * i + 1] = cell_logit(cells[firsts[i + 1] - 1], level)
        line[1, 2 * i] = line[1, 2 * i + 1] = min(rates[i], 1.0)
    return out


def pool(means: Floats, sizes: Floats, starts: Counts, m: int) -> int:
    """Pool neighbours that do not ascend, in place; return how many blocks there are.

    Values and weights, float64[m], then begin with those of the blocks; ``starts``, int64[m + 1], has the
    first index of each block, then m. The arrays may be longer.
    """
    last = -1
    for i in range(m):
        mean, size, start = means[i], sizes[i], i
        while last >= 0 and means[last] >= mean:
            total = sizes[last] + size
            mean = (sizes[last] * means[last] + size * mean) / total
            size = total
            start = starts[last]
            last -= 1
        last += 1
        means[last], sizes[last], starts[last] = mean, size, start
    starts[last + 1] = m
    return last + 1


def loss_left_out(positives: float, totals: float, squares: float) -> float:
    """Return the sum of the leave-one-out squared errors of one bin, in closed form.

    S (1 − (S−1)/(N−1))² + (N−S) (S/(N−1))², for S positives among N labels. A bin with a single score counts
    with the largest loss, 1, because no other label can predict its label. Weighted labels are treated as
    (Σw)² / Σw² labels of equal weight Σw² / Σw.
    """
    if squares <= 0.0 or totals <= 0.0:  # of weights too small beside the others
        return 0.0
    weight = squares / totals
    positives, totals = positives / weight, totals / weight
    if totals <= _ONE_LABEL:
        return weight
    # (1 − (S−1)/(N−1)) = (N−S)/(N−1)
    others, misses = totals - 1.0, totals - positives
    return weight * (positives * (misses / others) ** 2 + misses * (positives / others) ** 2)


def put_splits(ends: Floats, bins: int, whole: bool, splits: Counts) -> int:
    """Put the splits of `binning.uniform_mass` into ``splits``; return how many there are.

    Parameters
    ----------
    ends
        mass up to the end of each cell, float64[m], ascending, m at least 1.
    whole
        whether masses count scores: ranks are then rounded down.
    splits
        int64[m + 1], or longer.
    """
    last, count, above = len(ends) - 1, 1, 0
    n, splits[0] = ends[last], 0
    for edge in range(1, bins):
        rank = n * (float(edge) / bins)
        if whole:
            parts = math.floor(n / bins)
            rank = parts * edge + math.floor((n - parts * bins) * edge / bins)
        while above < last and ends[above] < rank:
            above += 1
        below = ends[above - 1] if above > 0 else 0.0
        split = above if rank - below <= ends[above] - rank else above + 1
        if split != splits[count - 1]:  # no bin lies between equal edges
            splits[count] = split
            count += 1
    if splits[count - 1] != last + 1:
        splits[count] = last + 1
        count += 1
    return count


def put_losses_left_out(cells: Floats, whole: bool, numbers: Counts, out: Floats) -> None:
    """Put the summed `loss_left_out` of the bins of `put_splits`, for each number of them, into ``out``.

    Parameters
    ----------
    cells
        labels 1, all labels and the squares of their weights in each cell, float64[3, m].
    numbers, out
        int64[k] and float64[k].
    """
    sums = np.zeros((3, cells.shape[1] + 1))
    sums[:, 1:] = np.cumsum(cells, axis=1)
    summed, splits = sums, np.empty(cells.shape[1] + 1, np.int64)
    for j in range(len(numbers)):
        lost, bins = 0.0, put_splits(summed[_TOTALS, 1:], numbers[j], whole, splits) - 1
        for b in range(bins):
            start, end = splits[b], splits[b + 1]
            lost += loss_left_out(
                summed[_POSITIVES, end] - summed[_POSITIVES, start],
                summed[_TOTALS, end] - summed[_TOTALS, start],
                summed[_SQUARES, end] - summed[_SQUARES, start],
            )
        out[j] = lost


class Curves:
    """The curves through the rates of bins, and their errors on the cells that the bins consist of.

    Parameters
    ----------
    cells
        labels 1 and all labels of each cell, the squares of their weights, and the logit of its score, in
        ascending order: float64[4, m]. No cell is empty.
    whole
        whether labels have no weights.
    monotone
        whether neighbouring bins are pooled so that the rates do not descend.
    """

    def __init__(self, cells: Floats, *, whole: bool, monotone: bool) -> None:
        m = cells.shape[1]
        self._cells, self._whole, self._monotone = cells, whole, monotone
        self._mass: Floats = np.cumsum(cells[_TOTALS])
        self._numbers, self._places = np.empty((3 * _ROWS + 1, m)), np.empty((6, m + 1), np.int64)
        self._bins, self._blocks = self._numbers[:_ROWS], self._numbers[_ROWS : 2 * _ROWS]
        # Of the steps, and of the lines: value or log-odds of each block; and its first cell, then m.
        self._values, self._scratch = self._numbers[8:10], self._numbers[10:12]
        self._starts, self._moved = self._places[:2], self._numbers[12]
        self._splits, self._apart = self._places[2], self._places[3]
        self._ends, self._block = self._places[4], self._places[5]
        self._drawn = self._lined = self._knots = 0

    def choose(self, numbers: Counts, groups: int) -> tuple[int, int, float]:
        """Return the number of bins and the curve that are expected to be best, and its Brier loss, summed.

        The first curve, unless the best of the others is better by a standard error of the difference.

        Parameters
        ----------
        numbers
            numbers of bins, int64[N], ascending.
        groups
            number of groups of cells, at most, on which curves are compared.
        """
        cells, mass, kinds, n = self._cells, self._mass, 2 + self._monotone, len(numbers)
        groups = put_splits(mass, groups, self._whole, self._splits) - 1
        grouped = np.empty((_ROWS, groups))
        self._sum(cells, self._splits, groups, grouped)
        self._cells, self._mass = grouped, np.zeros(groups)
        for i in range(groups):
            self._mass[i] = grouped[_TOTALS, i] + (self._mass[i - 1] if i else 0.0)
        summed, forecasts = np.empty((kinds, n)), np.empty((kinds, n, groups))
        losses, values = summed, forecasts
        self._judge(numbers, losses, values)
        # Averages over neighbouring numbers of bins: noise would decide between bare losses.
        best, smooth, chosen = [0, 0, 0], [math.inf, math.inf, math.inf], 1
        for kind in range(kinds):
            for j in range(n):
                mean = 0.0
                for k in range(-_REACH, _REACH + 1):
                    mean += _KERNEL[_REACH + k] * losses[kind, min(max(j + k, 0), n - 1)]
                if mean < smooth[kind]:
                    best[kind], smooth[kind] = j, mean
        for kind in range(2, kinds):
            if losses[kind, best[kind]] < losses[chosen, best[chosen]]:
                chosen = kind
        error = 0.0
        for i in range(groups):
            here, there = values[0, best[0], i], values[chosen, best[chosen], i]
            error += self._cells[_SQUARES, i] * (here * (1.0 - here) * ((there - here) * (there - here)))
        if not smooth[chosen] + 2.0 * math.sqrt(error) < smooth[0]:
            chosen = 0
        self._cells, self._mass = cells, mass
        curve = STEPS if chosen == kinds - 1 else chosen
        return int(numbers[best[chosen]]), curve, float(losses[chosen, best[chosen]])

    def draw(self, number: int) -> None:
        """Draw the curves of so many uniform-mass bins."""
        splits = self._splits
        bins = put_splits(self._mass, number, self._whole, splits) - 1
        self._sum(self._cells, splits, bins, self._bins)
        self._drawn = self._pool(bins, splits, 0)
        # Bins beyond 2⁻⁴⁰ have the same logit: to a line they are one.
        apart, before = 0, _NOWHERE
        for b in range(bins):
            if self._bins[_LOGITS, b] - before >= _APART:
                self._apart[apart] = splits[b]
                apart += 1
            before = self._bins[_LOGITS, b]
        self._apart[apart] = splits[bins]
        if apart < bins:
            self._sum(self._cells, self._apart, apart, self._bins)
        self._lined = self._pool(apart, self._apart, 1)
        self._knots = apart
        for k in range(self._lined):
            rate = self._values[1, k]
            self._values[1, k] = math.log(rate / (1.0 - rate))
            # A label moves the rate of its block by w/Σw, and the log-odds of its knots by w/(Σw·p(1−p)).
            self._moved[k] = 1.0 / (self._blocks[_TOTALS, k] * rate * (1.0 - rate))
            for b in range(self._ends[k], self._ends[k + 1]):
                self._block[b] = k

    def _sum(self, cells: Floats, splits: Counts, count: int, out: Floats) -> None:
        """Put the sums of groups of cells, and their mean logits, into ``out``."""
        for b in range(count):
            positives = totals = squares = logits = 0.0
            for i in range(splits[b], splits[b + 1]):
                positives += cells[_POSITIVES, i]
                totals += cells[_TOTALS, i]
                squares += cells[_SQUARES, i]
                logits += cells[_TOTALS, i] * cells[_LOGITS, i]
            out[_POSITIVES, b], out[_TOTALS, b], out[_SQUARES, b] = positives, totals, squares
            out[_LOGITS, b] = logits / totals

    def _pool(self, bins: int, splits: Counts, of: int) -> int:
        """Pool bins to blocks, and put the first cells and the values of these; return their number.

        Values are rates inside (0, 1): N labels all alike say ½/(N+1) or 1 − ½/(N+1). These do not pass the
        rate of a neighbouring block that is inside.
        """
        count, blocks = bins, self._blocks
        for b in range(bins):
            self._scratch[0, b] = self._bins[_POSITIVES, b] / self._bins[_TOTALS, b]
            self._scratch[1, b] = self._bins[_TOTALS, b]
            self._ends[b] = b
        self._ends[bins] = bins
        if self._monotone:
            count = pool(self._scratch[0], self._scratch[1], self._ends, bins)
        self._sum(self._bins, self._ends, count, blocks)
        for k in range(count):
            self._starts[of, k] = splits[self._ends[k]]
            self._scratch[0, k] = blocks[_POSITIVES, k] / blocks[_TOTALS, k]
        self._starts[of, count] = splits[bins]
        for k in range(count):
            rate, totals = self._scratch[0, k], blocks[_TOTALS, k]
            doubt = 0.5 / (totals * (totals / blocks[_SQUARES, k]) + 1.0)  # by the effective number
            if rate == 0.0:
                above = self._scratch[0, k + 1] if k + 1 < count else 0.0
                rate = min(doubt, above) if above > 0.0 else doubt
            elif rate == 1.0:
                below = self._scratch[0, k - 1] if k else 1.0
                rate = max(1.0 - doubt, below) if below < 1.0 else 1.0 - doubt
            self._values[of, k] = rate
        return count

    def _judge(self, numbers: Counts, losses: Floats, forecasts: Floats) -> None:
        """Put the squared errors that are expected of each curve on new labels, summed, into ``losses``.

        They are those on the labels that it was fitted to, plus twice the covariance of each label with its
        own forecast; of steps, the leave-one-out errors. The values in the middles of the cells are put into
        ``forecasts``.

        Parameters
        ----------
        numbers
            numbers of bins, int64[N].
        losses, forecasts
            float64[C, N] and float64[C, N, m]: line; bent line, if C is 3; steps.
        """
        steps = len(losses) - 1
        for j in range(len(numbers)):
            self.draw(numbers[j])
            losses[0, j] = self._judge_line(True, forecasts[0, j])
            if steps > 1 and self._lined < self._knots:
                losses[1, j] = self._judge_line(False, forecasts[1, j])
            elif steps > 1:  # nothing was pooled: both are one line
                losses[1, j] = losses[0, j]
                forecasts[1, j, :] = forecasts[0, j]
            losses[steps, j] = self._judge_steps(forecasts[steps, j])

    def _judge_steps(self, forecasts: Floats) -> float:
        lost = 0.0
        for k in range(self._drawn):
            positives = totals = squares = 0.0
            for i in range(self._starts[0, k], self._starts[0, k + 1]):
                positives += self._cells[_POSITIVES, i]
                totals += self._cells[_TOTALS, i]
                squares += self._cells[_SQUARES, i]
                forecasts[i] = self._values[0, k]
            lost += loss_left_out(positives, totals, squares)
        return lost

    def _judge_line(self, is_line: bool, forecasts: Floats) -> float:
        knots = self._blocks[_LOGITS] if is_line else self._bins[_LOGITS]
        last = (self._lined if is_line else self._knots) - 1
        lost, own, passed, before, forecast = 0.0, 0, 0, _NOWHERE, 0.0
        cells, starts, values, block = self._cells, self._starts, self._values, self._block
        for i in range(cells.shape[1]):
            x = cells[_LOGITS, i]
            while starts[1, own + 1] <= i:
                own += 1
            while passed <= last and knots[passed] <= x:
                passed += 1
            left, right = max(passed - 1, 0), min(passed, last)
            width = knots[right] - knots[left]
            part = (x - knots[left]) / width if width > 0.0 else 0.0
            below, above = left, right
            if not is_line:
                below, above = block[left], block[right]
            log_odds = values[1, below]
            log_odds += part * (values[1, above] - log_odds)
            if log_odds != before:  # in a level stretch it is the same
                before, forecast = log_odds, 1.0 / (1.0 + math.exp(-log_odds))
            forecasts[i] = forecast
            positives, noise = cells[_POSITIVES, i], forecast * (1.0 - forecast)
            misses = cells[_TOTALS, i] - positives
            weight = ((1.0 - part) if below == own else 0.0) + (part if above == own else 0.0)
            lost += positives * (1.0 - forecast) ** 2 + misses * forecast**2
            lost += 2.0 * cells[_SQUARES, i] * noise**2 * weight * self._moved[own]
        return lost

    def steps(self) -> tuple[Counts, Floats]:
        """Return the first cell of each block, then m, int64[K + 1]; and the value of each, float64[K]."""
        count = self._drawn
        starts: Any = np.asarray(self._starts)[0, : count + 1].copy()
        return starts, np.asarray(self._values)[0, :count].copy()

    def line(self, curve: int) -> tuple[Floats, Floats]:
        """Return the knots of a line that it bends at, and the log-odds there, float64[k] each."""
        knots, places, kept = self._lined, self._blocks[_LOGITS], 0
        if curve != LINE:
            knots, places = self._knots, self._bins[_LOGITS]
        bends = np.empty((2, knots))
        line = bends
        for k in range(knots):
            line[0, k], line[1, k] = places[k], self._values[1, k if curve == LINE else self._block[k]]
        for k in range(knots):  # a knot inside a level stretch is not needed
            is_end = k == 0 or k == knots - 1
            if is_end or line[1, k] != line[1, kept - 1] or line[1, k] != line[1, k + 1]:
                line[0, kept], line[1, kept] = line[0, k], line[1, k]
                kept += 1
        return bends[0, :kept], bends[1, :kept]


def cell_logits(cells: Counts, level: int, out: Floats) -> None:
    """Put the `cell_logit` of each cell, int64[m], into ``out``, float64[m]."""
    for i in range(len(cells)):
        out[i] = cell_logit(cells[i], level)


def cell_logit(cell: int, level: int) -> float:
    """Return the `platt.wide_logit` of the middle of a cell of the grid."""
    least, most = 2.0**-1022, 1.0 - 2.0**-53
    score = min(max(middle_of(cell << level, (cell + 1) << level), least), most)
    return math.log(score / (1.0 - score))


def minimise(
    fitted: Floats,
    centre: Floats,
    ridge: Floats,
    knots: Floats,
    logits: Floats,
    positives: Floats,
    totals: Floats,
) -> None:
    """Let θ take damped Newton steps, in place, to the least penalised log loss.

    Between two knots the log odds are a line in x: a few sums over the scores there give all derivatives.

    Parameters
    ----------
    fitted
        θ to start from, float64[2 + h]: what x, 1 and max(x − k, 0) of each knot k are multiplied by.
    centre, ridge
        θ of the identity and weights of the penalty, float64[2 + h].
    knots, logits
        float64[h], ascending; of m scores, float64[m].
    positives, totals
        labels 1 and all labels of each score, float64[m]; zeros are allowed.
    """
    most_steps, most_halvings = 50, 30
    # Nats over all labels together; fitting two parameters to chance costs about one nat.
    tolerance = 0.01
    sufficient = 0.1  # the part of the decrease predicted by the slope that a step must reach (Armijo)
    d, m, h = len(fitted), len(logits), len(knots)
    curvature, vectors, rates = np.empty((d, d)), np.empty((3, d)), np.empty((2, m))
    slope, step, trial, now, new = vectors[0], vectors[1], vectors[2], rates[0], rates[1]
    lines, sums, places = np.empty((2, h + 1)), np.empty((5, h + 1)), np.empty(m, np.int64)
    for i in range(m):
        place = 0
        for j in range(h):
            place += logits[i] > knots[j]
        places[i] = place
    loss = loss_of(fitted, centre, ridge, knots, logits, places, positives, totals, lines, now)
    for _ in range(most_steps):
        add_derivatives(logits, places, positives, totals, now, sums)
        put_derivatives(fitted, centre, ridge, knots, sums, slope, curvature)
        solve(curvature, slope, step)
        decrease = 0.0
        for j in range(d):
            decrease += step[j] * slope[j]
        if not decrease > tolerance:
            return
        scale = 1.0
        for _ in range(most_halvings):
            for j in range(d):
                trial[j] = fitted[j] - scale * step[j]
            after = loss_of(trial, centre, ridge, knots, logits, places, positives, totals, lines, new)
            if after <= loss - sufficient * scale * decrease:
                break
            scale /= 2.0
        else:
            return  # rounding error dominates
        loss = after
        for j in range(d):
            fitted[j] = trial[j]
        now, new = new, now


def loss_of(
    theta: Floats,
    centre: Floats,
    ridge: Floats,
    knots: Floats,
    logits: Floats,
    places: Counts,
    positives: Floats,
    totals: Floats,
    lines: Floats,
    rates: Floats,
) -> float:
    """Return the penalised log loss of θ; put the probability of every score into ``rates``, float64[m].

    ``places`` are the numbers of knots below each score, int64[m]; ``lines``, float64[2, h + 1], gets slope
    and intercept of the log odds above so many knots.
    """
    lost = 0.0
    slope, intercept = theta[0], theta[1]
    lines[0, 0], lines[1, 0] = slope, intercept
    for j in range(len(knots)):
        slope += theta[2 + j]
        intercept -= theta[2 + j] * knots[j]
        lines[0, j + 1], lines[1, j + 1] = slope, intercept
    for i in range(len(logits)):
        exponent = lines[0, places[i]] * logits[i] + lines[1, places[i]]
        # log(1 + e^t) = max(t, 0) + log(1 + e^−|t|): one exponential serves the loss and its derivatives.
        small = math.exp(-abs(exponent))
        lost += totals[i] * (max(exponent, 0.0) + math.log1p(small)) - positives[i] * exponent
        rates[i] = (1.0 if exponent >= 0.0 else small) / (1.0 + small)
    for j in range(len(theta)):
        lost += 0.5 * ridge[j] * (theta[j] - centre[j]) * (theta[j] - centre[j])
    return lost


def add_derivatives(
    logits: Floats, places: Counts, positives: Floats, totals: Floats, rates: Floats, sums: Floats
) -> None:
    """Put Σf, Σfx, Σs, Σsx and Σsx² by the number of knots below a score into ``sums``, float64[5, h + 1].

    f and s are the first and second derivative of the loss on the labels of a score by its log odds.
    """
    last = sums.shape[1] - 1
    for j in range(last + 1):
        sums[0, j] = sums[1, j] = sums[2, j] = sums[3, j] = sums[4, j] = 0.0
    for i in range(len(logits)):
        x, place = logits[i], places[i]
        first = totals[i] * rates[i] - positives[i]
        second = totals[i] * rates[i] * (1.0 - rates[i])
        sums[0, place] += first
        sums[1, place] += first * x
        sums[2, place] += second
        sums[3, place] += second * x
        sums[4, place] += second * x * x
    for j in range(last - 1, -1, -1):
        for k in range(5):
            sums[k, j] += sums[k, j + 1]


def put_derivatives(
    theta: Floats,
    centre: Floats,
    ridge: Floats,
    knots: Floats,
    sums: Floats,
    slope: Floats,
    hessian: Floats,
) -> None:
    """Put the derivatives by θ into ``slope``, float64[d], and the lower half of ``hessian``."""
    d = len(theta)
    for j in range(d):
        above = max(j - 1, 0)  # so many knots are below the scores at which the function is not 0
        bend = knots[j - 2] if j > 1 else 0.0
        slope[j] = sums[0, 0] if j == 1 else sums[1, above] - bend * sums[0, above]
        slope[j] += ridge[j] * (theta[j] - centre[j])
        for k in range(j + 1):
            if k == 1 and j == 1:
                hessian[j, k] = sums[2, 0]
            elif k == 1 or j == 1:
                hessian[j, k] = sums[3, above] - bend * sums[2, above]
            else:
                other = knots[k - 2] if k > 1 else 0.0
                hessian[j, k] = (
                    sums[4, above] - (bend + other) * sums[3, above] + bend * other * sums[2, above]
                )
        hessian[j, j] += ridge[j]


def solve(matrix: Floats, right: Floats, out: Floats) -> None:
    """Put A⁻¹b into ``out``, float64[d]. Of A, symmetric and positive, the lower half is overwritten."""
    d = len(right)
    for j in range(d):
        for k in range(j):
            for i in range(j, d):
                matrix[i, j] -= matrix[i, k] * matrix[j, k]
        root = math.sqrt(matrix[j, j])
        for i in range(j, d):
            matrix[i, j] /= root
    for j in range(d):
        total = right[j]
        for k in range(j):
            total -= matrix[j, k] * out[k]
        out[j] = total / matrix[j, j]
    for j in range(d - 1, -1, -1):
        total = out[j]
        for k in range(j + 1, d):
            total -= matrix[k, j] * out[k]
        out[j] = total / matrix[j, j]


def group(logits: Floats, counts: Floats, means: Floats, sums: Floats) -> int:
    """Join neighbouring scores into groups, if there are more than 128; return how many.

    Parameters
    ----------
    logits, counts
        float64[m], ascending, and float64[2, m], labels 1 and all labels of each.
    means, sums
        float64[m] and float64[2, m], whose first columns get the mean logit and the counts of each group.
    """
    parts = 128.0  # of the labels, at least
    apart = 0.125  # nats, at most, between the logits of one group
    last, total = -1, 0.0
    part = place = -math.inf
    if len(logits) <= 128:
        for i in range(len(logits)):
            means[i], sums[0, i], sums[1, i] = logits[i], counts[0, i], counts[1, i]
        return len(logits)
    for i in range(len(logits)):
        total += counts[1, i]
        means[i] = sums[0, i] = sums[1, i] = 0.0
    passed = 0.0
    for i in range(len(logits)):
        now = math.floor((passed + 0.5 * counts[1, i]) * (parts / total))
        here = math.floor(logits[i] / apart)
        last += (now != part) | (here != place)  # a branch would often be foretold wrong
        part, place = now, here
        means[last] += logits[i] * counts[1, i]
        sums[0, last] += counts[0, i]
        sums[1, last] += counts[1, i]
        passed += counts[1, i]
    for i in range(last + 1):
        means[i] /= sums[1, i]
    return last + 1


def regress(
    theta: Floats,
    centre: Floats,
    ridge: Floats,
    knots: Floats,
    logits: Floats,
    masses: Floats,
    squares: Floats,
) -> None:
    """Fit θ to labels, in place, as `minimise` does; the scores are joined by `group`.

    Labels with weights add up to their effective number.

    Parameters
    ----------
    theta, centre
        float64[2 + h] or longer: only as many are used as there are weights of the penalty.
    logits, masses, squares
        float64[m], ascending; the weights of the labels 0 and 1 of each, float64[2, m]; and the sums of their
        squares, float64[m].
    """
    m, d, end = len(logits), len(ridge), 2.0**-40
    total = square = 0.0
    for i in range(m):
        total += masses[0, i] + masses[1, i]
        square += squares[i]
    scale = total / square
    least, most = math.log(end / (1.0 - end)), math.log((1.0 - end) / end)
    narrow, counts, means, sums = np.empty(m), np.empty((2, m)), np.empty(m), np.empty((2, m))
    inside, counted = narrow, counts
    for i in range(m):
        inside[i] = min(max(logits[i], least), most)
        counted[0, i], counted[1, i] = scale * masses[1, i], scale * (masses[0, i] + masses[1, i])
    groups = group(narrow, counts, means, sums)
    of_groups = means[:groups], sums[0, :groups], sums[1, :groups]
    minimise(theta[:d], centre[:d], ridge, knots[: d - 2], *of_groups)


def class_prior(positives: float, n: float) -> float | None:
    """Return (S + ½) / (N + 1), the estimate of the probability of class 1; None if N is 0.

    The estimator is Krichevsky and Trofimov's: never 0 or 1, unlike the paper's plug-in S / N.
    """
    return (positives + 0.5) / (n + 1.0) if n > 0.0 else None


def shift_weights(source: float | None, target: float | None) -> tuple[float, float]:
    """Return (w₀, w₁), w_k = Q̂[Y=k] / P̂[Y=k]: eq. 13 with estimated priors, which is eq. 16.

    ``source`` and ``target`` are the class priors, in [0, 1]; None where there is no estimate yet. Without
    both, the weights are (1, 1), no correction; also if that of the source is 0 or 1: the weight of an unseen
    class is undefined.
    """
    if source is None or target is None:
        return NO_SHIFT
    p, q = source, target
    if not 0.0 < p < 1.0:
        return NO_SHIFT
    return ((1.0 - q) / (1.0 - p), q / p)


def shift_correction_one(probability: float, weights: tuple[float, float]) -> float:
    """Apply `shift_correction` to one probability, with the same bits."""
    w0, w1 = weights
    if w0 == w1:
        return probability
    positive = w1 * probability
    total = positive + w0 * (1.0 - probability)
    return positive / total if total > 0.0 else probability


class LinearFunction:
    """h as a line between knots: the log-odds of h is linear in that of the score, and constant beyond.

    A score is taken for at least 2⁻⁴⁰ away from 0 and 1.

    Parameters
    ----------
    knots
        log-odds of scores, strictly ascending, within ±28.
    log_odds
        one log-odds of h for each knot.
    """

    def __init__(self, knots: tuple[float, ...], log_odds: tuple[float, ...]) -> None:
        self._knots, self._log_odds = np.array(knots), np.array(log_odds)
        self._slopes, self._guide = np.zeros(len(knots)), np.zeros(4 * len(knots) + 1, np.int64)
        first, last = knots[0], knots[len(knots) - 1]
        self._density = 4 * len(knots) / (last - first) if len(knots) > 1 else 0.0
        # The identity between its ends gives a score itself, not one that went through a logarithm.
        self._clips = knots == log_odds
        self._low, self._high = (1.0 / (1.0 + math.exp(-end)) for end in (first, last))
        self._draw()

    def _draw(self) -> None:
        """Work out the slopes, and the last knot before each of equal parts of their range."""
        place = 0
        for i in range(len(self._knots) - 1):
            run = self._knots[i + 1] - self._knots[i]
            self._slopes[i] = (self._log_odds[i + 1] - self._log_odds[i]) / run
        for slot in range(len(self._guide)):
            while place < len(self._knots) - 1:
                if (self._knots[place + 1] - self._knots[0]) * self._density > slot:
                    break
                place += 1
            self._guide[slot] = place

    def __reduce__(self) -> tuple[type[LinearFunction], tuple[tuple[float, ...], tuple[float, ...]]]:
        knots, log_odds = tuple(np.asarray(self._knots).tolist()), tuple(np.asarray(self._log_odds).tolist())
        return LinearFunction, (knots, log_odds)

    def one(self, score: float) -> float:
        """Return h of one checked score."""
        if self._clips:
            return min(max(score, self._low), self._high)
        end, largest = 2.0**-40, 700.0
        score = min(max(score, end), 1.0 - end)
        x, last = math.log(score / (1.0 - score)), len(self._knots) - 1
        if x <= self._knots[0]:
            exponent = self._log_odds[0]
        elif x >= self._knots[last]:
            exponent = self._log_odds[last]
        else:
            slot = int((x - self._knots[0]) * self._density)
            place = self._guide[slot]
            # The part was found by rounded arithmetic.
            while place > 0 and self._knots[place] > x:
                place -= 1
            while self._knots[place + 1] <= x:
                place += 1
            exponent = self._log_odds[place] + (x - self._knots[place]) * self._slopes[place]
        return 1.0 / (1.0 + math.exp(min(-exponent, largest)))

    def apply(self, scores: Floats, out: Floats) -> None:
        """Put h of each checked score, float64[n], into ``out``, float64[n]."""
        for i in range(len(scores)):
            out[i] = self.one(scores[i])


class StepFunction:
    """h as a step function, corrected by g.

    A map that answers many scores gets a guide. It divides the grid into equal parts and stores how many
    edges lie before each part, so a score is compared with few edges, mostly one or none. Memory: up to 176
    bytes a bin. Most maps of mode ``auto`` answer few scores, and have no guide.

    Parameters
    ----------
    inner
        float64[B−1], the edges between the bins, strictly ascending inside (0, 1).
    values
        float64[B], one value for each bin.
    """

    def __init__(self, inner: npt.ArrayLike, values: npt.ArrayLike) -> None:
        self._edges, self.values = np.array(inner, np.float64), np.array(values, np.float64)
        self._values = self.values
        self._last, self._shift, self._first = len(self._edges), 0, 0
        self._guide = np.empty(0, np.int32)
        self._without = _FEW * len(self._edges)  # scores that are looked up before the guide is made

    def _make_guide(self) -> None:
        edges = np.asarray(self._edges)
        keys = np.array([key_of(edge) for edge in edges.tolist()], np.int64)
        self._first = int(keys[0])
        self._shift = ((int(keys.max()) - self._first) // (_SLOTS * len(keys))).bit_length()
        slots = (keys - self._first) >> self._shift
        self._guide = np.searchsorted(slots, np.arange(int(slots.max()) + 2)).astype(np.int32)

    def _count(self, scores: int) -> None:
        """Count scores to be looked up; make the guide when there are enough."""
        if self._without > 0:
            left = self._without - scores
            if left <= 0:
                self._make_guide()
            self._without = left  # only now, so that no look-up trusts a guide for which there was no memory

    def __reduce__(self) -> tuple[type[StepFunction], tuple[tuple[float, ...], tuple[float, ...]]]:
        edges, values = tuple(np.asarray(self._edges).tolist()), tuple(self.values.tolist())
        return StepFunction, (edges, values)

    def bin_of(self, score: float) -> int:
        """Return the number of edges that are at most a checked score."""
        last = self._last
        if last == 0 or score < self._edges[0]:
            return 0
        if score >= self._edges[last - 1]:
            return last
        low, high = 0, last
        if self._without <= 0:
            slot = (key_of(score) - self._first) >> self._shift
            low, high = self._guide[slot], self._guide[slot + 1]
        while low < high:
            middle = (low + high) >> 1
            if self._edges[middle] <= score:
                low = middle + 1
            else:
                high = middle
        return low

    def one(self, score: float) -> float:
        """Return h of one checked score."""
        self._count(1)
        return float(self._values[self.bin_of(score)])

    def apply(self, scores: Floats, values: Floats, out: Floats) -> None:
        """Put the one of values, float64[B], of each checked score, float64[n], into ``out``, float64[n]."""
        self._count(len(scores))
        for i in range(len(scores)):
            out[i] = values[self.bin_of(scores[i])]
