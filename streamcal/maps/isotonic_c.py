"""Isotonic regression: the least squares fit that does not descend, by pooling adjacent violators."""

from __future__ import annotations

import numpy as np

from streamcal.values import Counts, Floats

__all__ = ["isotonic", "pool"]


def isotonic(values: Floats, weights: Floats) -> tuple[Counts, Floats]:
    """Return the blocks of the weighted least squares fit that does not descend, and their values.

    Parameters
    ----------
    values, weights
        float64[m], m at least 1; weights positive.

    Returns
    -------
    The first index of each block, then m, int64[b + 1]; the mean of each block, strictly ascending,
    float64[b].
    """
    starts, means, sizes = np.empty(len(values) + 1, np.int64), values.copy(), weights.copy()
    blocks = pool(means, sizes, starts)
    return starts[: blocks + 1], means[:blocks]


def pool(means: Floats, sizes: Floats, starts: Counts) -> int:
    """Pool neighbours that do not ascend, in place; return how many blocks there are.

    Parameters
    ----------
    means, sizes
        values and weights, float64[m]; on return, the front holds the values and weights of the blocks.
    starts
        int64[m + 1]; on return, the first index of each block, then m.
    """
    m, last = len(means), -1
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
