"""The loops of logistic regression: logits of cells, and damped Newton steps on counts."""

from __future__ import annotations

import math

import numpy as np

from streamcal.sketch.keys_c import middle_of
from streamcal.values import Counts, Floats

__all__ = ["cell_logits", "group", "minimise"]


def cell_logits(cells: Counts, level: int, out: Floats) -> None:
    """Put the `platt.wide_logit` of the middle of cells of the grid, int64[m], into ``out``, float64[m]."""
    least, most = 2.0**-1022, 1.0 - 2.0**-53
    for i in range(len(cells)):
        score = min(max(middle_of(cells[i] << level, (cells[i] + 1) << level), least), most)
        out[i] = math.log(score / (1.0 - score))


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
    knots
        float64[h], ascending.
    logits
        logits of m scores, float64[m].
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
    logits: Floats,
    places: Counts,
    positives: Floats,
    totals: Floats,
    rates: Floats,
    sums: Floats,
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
    curvature: Floats,
) -> None:
    """Put the derivatives by θ into ``slope``, float64[d], and the lower half of ``curvature``."""
    d = len(theta)
    for j in range(d):
        above = max(j - 1, 0)  # so many knots are below the scores at which the function is not 0
        bend = knots[j - 2] if j > 1 else 0.0
        slope[j] = sums[0, 0] if j == 1 else sums[1, above] - bend * sums[0, above]
        slope[j] += ridge[j] * (theta[j] - centre[j])
        for k in range(j + 1):
            if k == 1 and j == 1:
                curvature[j, k] = sums[2, 0]
            elif k == 1 or j == 1:
                curvature[j, k] = sums[3, above] - bend * sums[2, above]
            else:
                other = knots[k - 2] if k > 1 else 0.0
                curvature[j, k] = (
                    sums[4, above] - (bend + other) * sums[3, above] + bend * other * sums[2, above]
                )
        curvature[j, j] += ridge[j]


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
