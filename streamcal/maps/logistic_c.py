"""The loops of logistic regression: damped Newton steps on counts, and rows of maps at many logits."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["evaluate", "group", "minimise", "put_features"]

Floats = npt.NDArray[np.float64]


def put_features(logits: Floats, knots: Floats, out: Floats) -> None:
    """Put x, 1 and max(x − k, 0) of every knot k, float64[h], into ``out``, float64[2 + h, n]."""
    for i in range(len(logits)):
        out[0, i], out[1, i] = logits[i], 1.0
        for j in range(len(knots)):
            out[2 + j, i] = max(logits[i] - knots[j], 0.0)


def minimise(
    fitted: Floats, centre: Floats, ridge: Floats, values: Floats, positives: Floats, totals: Floats
) -> None:
    """Let θ take damped Newton steps, in place, to the least penalised log loss.

    Parameters
    ----------
    fitted
        θ to start from, float64[d].
    centre, ridge
        θ of the identity and weights of the penalty, float64[d].
    values
        φ of m scores, float64[d, m].
    positives, totals
        The labels 1 and all labels of each, float64[m]; there may be none.
    """
    most_steps, most_halvings = 50, 30
    # Nats over all labels together; fitting two parameters to chance costs about one nat.
    tolerance = 0.01
    sufficient = 0.1  # the part of the decrease predicted by the slope that a step must reach (Armijo)
    d, m = len(fitted), len(positives)
    curvature, vectors, rates = np.empty((d, d)), np.empty((3, d)), np.empty((2, m))
    slope, step, trial = vectors
    now, new = rates
    loss = loss_of(fitted, centre, ridge, values, positives, totals, now)
    for _ in range(most_steps):
        for j in range(d):
            slope[j] = ridge[j] * (fitted[j] - centre[j])
            for k in range(j + 1):
                curvature[j, k] = 0.0
            curvature[j, j] = ridge[j]
        for i in range(m):
            first = totals[i] * now[i] - positives[i]
            second = totals[i] * now[i] * (1.0 - now[i])
            used = d  # of a low score, the last functions are 0
            while used > 1 and values[used - 1, i] == 0.0:
                used -= 1
            for j in range(used):
                slope[j] += first * values[j, i]
                weighed = second * values[j, i]
                for k in range(j + 1):
                    curvature[j, k] += weighed * values[k, i]
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
            after = loss_of(trial, centre, ridge, values, positives, totals, new)
            if after <= loss - sufficient * scale * decrease:
                break
            scale /= 2.0
        else:
            return  # rounding error dominates
        loss = after
        for j in range(d):
            fitted[j] = trial[j]
        for i in range(m):
            now[i] = new[i]


def loss_of(
    theta: Floats,
    centre: Floats,
    ridge: Floats,
    values: Floats,
    positives: Floats,
    totals: Floats,
    rates: Floats,
) -> float:
    """Return the penalised log loss of θ; put the probability of every score into ``rates``, float64[m]."""
    d, lost = len(theta), 0.0
    for i in range(len(positives)):
        exponent = 0.0
        for j in range(d):
            exponent += theta[j] * values[j, i]
        # log(1 + e^t) = max(t, 0) + log(1 + e^−|t|): one exponential serves the loss and its derivatives.
        small = math.exp(-abs(exponent))
        lost += totals[i] * (max(exponent, 0.0) + math.log1p(small)) - positives[i] * exponent
        rates[i] = (1.0 if exponent >= 0.0 else small) / (1.0 + small)
    for j in range(d):
        lost += 0.5 * ridge[j] * (theta[j] - centre[j]) * (theta[j] - centre[j])
    return lost


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


def evaluate(
    theta: Floats,
    before: Floats | None,
    knots: Floats,
    logits: Floats,
    ends: npt.NDArray[np.int64],
    out: Floats,
) -> None:
    """Put the probabilities of rows of maps at logits, float64[n], into ``out``, float64[r, n].

    Parameters
    ----------
    theta
        float64[s, r, 2 + h], of each row the slope, the intercept, and what the slope grows by at each knot.
        There are s sets of maps, each for some of the logits.
    before
        θ of what is in ``out`` already, float64[r, 2 + h], for a single set: rows that are the same stay.
        None: nothing is.
    knots
        float64[h].
    ends
        int64[s], where the logits of each set end; the last is n.
    """
    largest = 700.0  # e^700 does not overflow, and no number of labels can tell expit(−700) from 0
    h, start = len(knots), 0
    for each in range(len(ends)):
        for row in range(theta.shape[1]):
            same = before is not None
            bends = False
            for j in range(2 + h):
                if same and theta[each, row, j] != before[row, j]:  # type: ignore[index]
                    same = False
                if j > 1 and theta[each, row, j] != 0.0:
                    bends = True
            if same:
                continue
            slope, intercept = theta[each, row, 0], theta[each, row, 1]
            for i in range(start, ends[each]):
                exponent = slope * logits[i] + intercept
                if bends:
                    for j in range(h):
                        if logits[i] > knots[j]:
                            exponent += theta[each, row, 2 + j] * (logits[i] - knots[j])
                out[row, i] = 1.0 / (1.0 + math.exp(min(-exponent, largest)))
        start = ends[each]


def group(logits: Floats, counts: Floats, means: Floats, sums: Floats) -> int:
    """Join neighbouring scores into groups; return how many.

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
    for i in range(len(logits)):
        total += counts[1, i]
    passed = 0.0
    for i in range(len(logits)):
        now = math.floor((passed + 0.5 * counts[1, i]) * (parts / total))
        here = math.floor(logits[i] / apart)
        if now != part or here != place:
            last += 1
            means[last] = sums[0, last] = sums[1, last] = 0.0
        part, place = now, here
        means[last] += logits[i] * counts[1, i]
        sums[0, last] += counts[0, i]
        sums[1, last] += counts[1, i]
        passed += counts[1, i]
    for i in range(last + 1):
        means[i] /= sums[1, i]
    return last + 1
