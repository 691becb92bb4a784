"""The likelihood set: all non-decreasing h* that the labels do not contradict (lemma 15).

It holds the means of h* in the cells of one level of the grid. For each cell it knows a range of plausible
values, from the best likelihood of a non-decreasing function through each value.

Values are rounded to points. Lemma 17 gives the condition on a function at the points under which no sum over
a non-decreasing sequence of points is too small: its linear interpolation must lie above it in between.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.certificates.likelihoods_c import plausible
from streamcal.certificates.prequential import LEVELS
from streamcal.sketch.score_sketch import ScoreSketch

_INTERVALS: Final = 64  # between the points that the plausible ranges are made of
_ROUNDING: Final = 1e-6  # nats; the sums of logarithms are computed to better than that


class LikelihoodSet(NamedTuple):
    """Set of all non-decreasing sequences of m cell means with a likelihood beyond a threshold."""

    negatives: Floats
    """Labels 0 per cell, float64[m]."""
    positives: Floats
    """Labels 1 per cell, float64[m]."""
    largest: Floats
    """Largest log likelihood of the labels of each cell, float64[m], in nats."""
    slack: float
    """Largest distance of the log likelihood below the sum of `best`, in nats."""
    lowest: Floats
    """Smallest plausible mean of each cell, or less, float64[m]; it does not decrease."""
    highest: Floats
    """Largest plausible mean of each cell, or more, float64[m]; it does not decrease."""
    monotone: bool
    """False if the set is empty: the labels refute that h* is non-decreasing."""

    @property
    def cells(self) -> Floats:
        """Labels 1, labels 0, and the largest log likelihood of each cell, float64[3, m]."""
        return np.stack((self.positives, self.negatives, self.largest))


def usable_level(sketch: ScoreSketch, most: int) -> int | None:
    """Return the finest of `LEVELS` at which a sketch has at most ``most`` cells; None if there is none."""
    for level in LEVELS:
        if level >= sketch.level and len(sketch.at_level(level).cells) <= most:
            return int(level)
    return None


def likelihood_set(counts: Counts, level: int, log_likelihood: float, delta: float) -> LikelihoodSet:
    """Return the likelihood set of the means of h* in the cells (lemma 15).

    Parameters
    ----------
    counts
        labels per class and cell, int64[2, m]; no cell is empty.
    level
        level of the cells, one of `LEVELS`.
    log_likelihood
        log likelihood of the forecasts at this level, see `Prequential`.
    delta
        δ in (0, 1). The sets of all levels, at all counts of labels, contain the true means together with
        probability 1 − δ. The finest level spends half of it.
    """
    negatives, positives = counts.astype(np.float64)
    others = 2.0 if level == LEVELS[0] else 2.0 * (len(LEVELS) - 1)
    threshold = log_likelihood - math.log(others / delta) - _ROUNDING
    largest = _xlogy(positives, positives + negatives) + _xlogy(negatives, positives + negatives)
    known = LikelihoodSet(
        negatives, positives, largest, float(largest.sum()) - threshold, negatives, positives, monotone=False
    )
    points = equal_points(_INTERVALS)
    lowest, highest = np.empty_like(largest), np.empty_like(largest)
    if not plausible(points, *log_majorants(points), known.cells, known.slack, lowest, highest):
        return known
    return known._replace(
        lowest=np.maximum.accumulate(lowest),
        highest=np.minimum.accumulate(highest[::-1])[::-1],
        monotone=True,
    )


def equal_points(intervals: int) -> Floats:
    """Return points from 0 to 1, float64[intervals+1], equally spaced in arcsin √v."""
    points = np.sin(np.linspace(0.0, np.pi / 2, intervals + 1)) ** 2
    points[-1] = 1.0
    return np.asarray(points)


def log_majorants(points: Floats) -> tuple[Floats, Floats]:
    """Return values at points, ascending from 0 to 1, whose linear interpolations exceed log v and log(1−v).

    They are finite. Each is the larger of two tangents, one for each of the intervals that meet at the point.
    """
    return _majorant(points), np.ascontiguousarray(_majorant(1.0 - points[::-1])[::-1])


def _majorant(points: Floats) -> Floats:
    left, right = points[:-1], points[1:]
    # The tangent that exceeds log v as much at one end as at the other; from 0 on, the one at the right end.
    touch = right.copy()
    touch[1:] = (right[1:] - left[1:]) / np.log(right[1:] / left[1:])
    at_left, at_right = (np.log(touch) + (end - touch) / touch for end in (left, right))
    return np.asarray(np.maximum(np.append(at_left, -np.inf), np.append(-np.inf, at_right)))


def _xlogy(x: Floats, total: Floats) -> Floats:
    """Return x log(x/total), 0 for x = 0."""
    return np.asarray(x * np.log(np.where(x > 0.0, x, total) / total))
