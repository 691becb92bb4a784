"""Loops over rows of K probabilities: their check, their scaling, their mixture, what a label needs of them.

One row at a time is the usual case, where a call of numpy costs more than its numbers. Compiled where there
is a C compiler; `rows_c.pxd` has the types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from streamcal.values import Counts, Floats

__all__ = ["are_shares", "gather", "logarithms", "mix", "normalise", "scale", "scale_each"]


def are_shares(rows: Floats, rounding: float) -> bool:
    """Whether all numbers are in [0, 1], and each row sums to 1, both give or take ``rounding``.

    If so, numbers above 1 become 1, in place.
    """
    for i in range(rows.shape[0]):
        total = 0.0
        for k in range(rows.shape[1]):
            if not 0.0 <= rows[i, k] <= 1.0 + rounding:
                return False
            total += rows[i, k]
        if not abs(total - 1.0) <= rounding:
            return False
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            rows[i, k] = min(rows[i, k], 1.0)
    return True


def logarithms(rows: Floats, least: float, out: Floats) -> None:
    """Put the logarithms of numbers, of at least ``least``, into ``out``, float64[n, K]."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            out[i, k] = math.log(max(rows[i, k], least))


def scale(x: Floats, parameters: Floats, out: Floats) -> None:
    """Put softmax(a·x + b) into ``out``, float64[n, K].

    Parameters
    ----------
    x
        float64[n, K].
    parameters
        a, and then K of b. a: one for all classes, K, or a matrix by rows, for x less its row's mean.
    """
    classes = x.shape[1]
    slopes = parameters.shape[0] - classes
    for i in range(x.shape[0]):
        most, mean = -math.inf, 0.0
        if slopes > classes:
            for k in range(classes):
                mean += x[i, k] / classes
        for k in range(classes):
            total = parameters[slopes + k]
            if slopes > classes:
                for j in range(classes):
                    total += parameters[k * classes + j] * (x[i, j] - mean)
            else:
                total += x[i, k] * parameters[k if slopes > 1 else 0]
            out[i, k] = total
            most = max(most, total)
        total = 0.0
        for k in range(classes):
            out[i, k] = math.exp(out[i, k] - most)
            total += out[i, k]
        for k in range(classes):
            out[i, k] /= total


def scale_each(rows: Floats, least: float, parameters: Sequence[Floats], out: Floats) -> None:
    """Put scalings of rows of probabilities into the first rows of ``out``, float64[M, n, K].

    ``parameters`` are those of each scaling; a probability counts as ``least`` at least.
    """
    x = np.empty((rows.shape[0], rows.shape[1]))
    logarithms(rows, least, x)
    for m in range(len(parameters)):
        scale(x, parameters[m], out[m])


def normalise(rows: Floats, instead: Floats) -> None:
    """Divide rows of at least 0 by their sums, in place; where all is 0, take the row of ``instead``."""
    for i in range(rows.shape[0]):
        total = 0.0
        for k in range(rows.shape[1]):
            total += rows[i, k]
        for k in range(rows.shape[1]):
            rows[i, k] = rows[i, k] / total if total > 0.0 else instead[i, k]


def mix(weights: Floats, made: Floats, out: Floats) -> None:
    """Put the mixture of forecasts, float64[M, n, K], by weights, float64[M], into ``out``, float64[n, K]."""
    for i in range(out.shape[0]):
        total = 0.0
        for k in range(out.shape[1]):
            mixed = 0.0
            for m in range(weights.shape[0]):
                mixed += weights[m] * made[m, i, k]
            out[i, k] = mixed
            total += mixed
        for k in range(out.shape[1]):
            out[i, k] /= total


def gather(
    made: Floats,
    codes: Counts,
    trackers: Floats,
    carried: Floats,
    observed: float,
    shares: Floats,
    least: float,
    logs: int,
    out: Floats,
) -> None:
    """Put what n labels tell of the candidates into ``out``.

    Parameters
    ----------
    made
        what the M candidates forecast now, float64[M, n, K].
    codes
        places of the labels' classes, int64[n].
    trackers
        weights by both trackers, float64[2, M].
    carried
        rows of `Many.carry` with all forecasts, float64[n, C]; of no width: nothing was carried.
    observed
        number of scores observed by now.
    shares
        what each label counts for, float64[n].
    least
        probabilities below count as this in logarithms.
    logs
        of how many candidates the logarithms are wanted: 1 or 2.
    out
        for each label the logarithms of the first candidates (2 K numbers, of which the second K may be left
        as they are); what all candidates gave to its class as of the prediction (M), and what they give now
        (M); what the mixtures of both trackers gave as of the prediction; its share; and how many scores came
        since: float64[n, 2 K + 2 M + 4].
    """
    candidates, classes = made.shape[0], made.shape[2]
    for m in range(logs):
        logarithms(made[m], least, out[:, m * classes : (m + 1) * classes])
    out = out[:, 2 * classes :]
    for i in range(made.shape[1]):
        knew, by_first, by_second = False, 0.0, 0.0
        if carried.shape[1]:
            knew = carried[i, 1] + carried[i, 1 + candidates] > 0.0  # weights of the score, which never are 0
        for m in range(candidates):
            now = then = made[m, i, codes[i]]
            first, second = trackers[0, m], trackers[1, m]
            if knew:
                first, second = carried[i, 1 + m], carried[i, 1 + candidates + m]
                if m:  # the score does not change
                    then = carried[i, 1 + 2 * candidates + (m - 1) * classes + codes[i]]
            out[i, m], out[i, candidates + m] = then, now
            by_first += first * then
            by_second += second * then
        out[i, 2 * candidates], out[i, 2 * candidates + 1] = by_first, by_second
        late = observed - carried[i, 0] if carried.shape[1] else 0.0
        out[i, 2 * candidates + 2], out[i, 2 * candidates + 3] = shares[i], max(late, 0.0)
