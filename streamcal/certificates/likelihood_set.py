"""The likelihood set: all non-decreasing h* that the labels do not contradict (lemma 15).

It holds the means of h* in the cells of one level of the grid. For each cell it knows a range of plausible
values, from the best likelihood of a non-decreasing function through each value.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.certificates.prequential import LEVELS
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["COARSE", "LikelihoodSet", "deviances", "likelihood_set", "node_edges", "usable_level"]

Counts = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

COARSE: Final = 128
"""How many intervals of values the plausible ranges are made of."""

_ROUNDING: Final = 1e-6  # nats; the sums of logarithms are computed to better than that
_NEVER: Final = -1e200  # the logarithm of a likelihood 0, whose product with 0 is 0


class LikelihoodSet(NamedTuple):
    """All non-decreasing sequences of m cell means with a likelihood beyond a threshold."""

    negatives: Reals
    """float64[m], labels 0 per cell."""
    positives: Reals
    """float64[m], labels 1 per cell."""
    slack: float
    """How far the log likelihood may fall below its largest value, without regard to order, in nats."""
    first: Counts
    """int64[m], the first plausible interval of `node_edges` (COARSE) in each cell; it does not decrease."""
    last: Counts
    """int64[m], one after the last; it does not decrease."""
    monotone: bool
    """False if the set is empty: the labels refute that h* is non-decreasing."""


def usable_level(sketch: ScoreSketch, most: int) -> int | None:
    """Return the finest of `LEVELS` at which a sketch has at most so many cells; None if there is none."""
    for level in LEVELS:
        if level >= sketch.level and len(sketch.at_level(level).cells) <= most:
            return int(level)
    return None


def likelihood_set(cells: ScoreSketch, log_likelihood: float, delta: float) -> LikelihoodSet:
    """Return the set of what the means of h* in the cells may be (lemma 15).

    Parameters
    ----------
    cells
        the labels, as a sketch whose level is one of `LEVELS`.
    log_likelihood
        of the forecasts at this level, see `Prequential`.
    delta
        δ in (0, 1). The sets of all levels, at all counts of labels, contain the true means together with
        probability 1 − δ. The finest level spends half of it.
    """
    negatives, positives = cells.counts.astype(np.float64)
    others = 2.0 if cells.level == LEVELS[0] else 2.0 * (len(LEVELS) - 1)
    threshold = log_likelihood - math.log(others / delta) - _ROUNDING
    m, edges = len(negatives), node_edges(COARSE)
    fit, largest = deviances(
        negatives, positives, edges, np.repeat(np.arange(m), COARSE), np.tile(np.arange(COARSE), m)
    )
    slack = largest - threshold
    # The best sequence through each value: the best up to it, and the best from it on.
    deviance = fit.reshape(m, COARSE)
    best = np.empty((m, COARSE))
    running = np.zeros(COARSE)
    for cell in range(m):
        np.maximum.accumulate(running, out=running)
        running += deviance[cell]
        best[cell] = running
    running = np.zeros(COARSE)
    for cell in range(m - 1, -1, -1):
        np.maximum.accumulate(running, out=running)
        best[cell] += running[::-1]
        running += deviance[cell, ::-1]
    plausible = best >= -slack
    first = np.maximum.accumulate(plausible.argmax(axis=1))
    last = np.minimum.accumulate((COARSE - plausible[:, ::-1].argmax(axis=1))[::-1])[::-1]
    return LikelihoodSet(negatives, positives, slack, first, last, bool(plausible.any(axis=1).all()))


def node_edges(count: int) -> Reals:
    """Return the edges of intervals of values, float64[count+1], equally spaced in arcsin √v."""
    edges = np.sin(np.linspace(0.0, np.pi / 2, count + 1)) ** 2
    edges[-1] = 1.0
    return np.asarray(edges)


def deviances(
    negatives: Reals, positives: Reals, edges: Reals, cell: Counts, node: Counts
) -> tuple[Reals, float]:
    """Return the best log likelihood of a cell in an interval of values, for many of both.

    Parameters
    ----------
    negatives, positives
        float64[m], labels per cell.
    edges
        of the intervals, from `node_edges`.
    cell, node
        int64[k], which cell in which interval.

    Returns
    -------
    float64[k], less the largest log likelihood of the cell, so at most 0; and the sum of these largest.
    """
    rates = positives / (positives + negatives)
    with np.errstate(divide="ignore"):
        hit = np.maximum(np.log(edges), _NEVER)
        miss = np.maximum(np.log1p(-edges), _NEVER)
        largest = positives * np.maximum(np.log(rates), _NEVER) + negatives * np.maximum(
            np.log1p(-rates), _NEVER
        )
    rate = rates[cell]
    below, above = edges[node + 1] < rate, edges[node] > rate
    nearest = node + below  # the end of the interval nearest to the rate
    fit = positives[cell] * hit[nearest] + negatives[cell] * miss[nearest] - largest[cell]
    return np.where(below | above, np.minimum(fit, 0.0), 0.0), float(largest.sum())
