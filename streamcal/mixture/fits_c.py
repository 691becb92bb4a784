"""Loops over cells for the fits to a window: isotonic regression, and the counts of logistic regression."""

from __future__ import annotations

import numpy as np

from streamcal.maps import isotonic_c, logistic_c
from streamcal.values import Counts, Floats

__all__ = ["fit_logistic", "isotonic_knots"]


def isotonic_knots(logits: Floats, counts: Counts, squares: Floats, knots: Floats, values: Floats) -> int:
    """Fit isotonic regression; return how many knots there are: two for each block.

    Parameters
    ----------
    logits, counts, squares
        As in `fits.fit_isotonic`: float64[m], int64[2, m], and float64[m].
    knots, values
        float64[2 m]; the front gets the first and the last logit of each block, and its value.
    """
    m = len(logits)
    means, sizes, starts = np.empty(m), np.empty(m), np.empty(m + 1, np.int64)
    for i in range(m):
        positives = float(counts[1, i])
        weight = positives + counts[0, i]
        if i == 0 or i == m - 1:
            one = squares[i] / weight
            weight += one
            positives += 0.5 * one
        means[i], sizes[i] = positives / weight, weight
    blocks = isotonic_c.pool(means, sizes, starts)
    for i in range(blocks):
        knots[2 * i], knots[2 * i + 1] = logits[starts[i]], logits[starts[i + 1] - 1]
        values[2 * i] = values[2 * i + 1] = min(means[i], 1.0)
    return 2 * blocks


def fit_logistic(
    logits: Floats, counts: Counts, scale: float, bends: Floats, centre: Floats, ridge: Floats, theta: Floats
) -> None:
    """Fit a logistic map to m cells, in place.

    Parameters
    ----------
    logits, counts
        float64[m], ascending, and the labels 0 and 1 of each, int64[2, m].
    scale
        factor of the counts.
    bends, centre, ridge
        The knots, float64[h]; θ of the identity and the weights of the penalty, float64[2 + h].
    theta
        θ to start from, float64[2 + h].
    """
    m = len(logits)
    own, sums, means = np.empty((2, m)), np.empty((2, m)), np.empty(m)
    for i in range(m):
        own[0, i] = scale * counts[1, i]
        own[1, i] = scale * (counts[0, i] + counts[1, i])
    groups = logistic_c.group(logits, own, means, sums)
    known = np.empty((3, groups))
    for i in range(groups):
        known[0, i], known[1, i], known[2, i] = means[i], sums[0, i], sums[1, i]
    logistic_c.minimise(theta, centre, ridge, bends, known[0], known[1], known[2])
