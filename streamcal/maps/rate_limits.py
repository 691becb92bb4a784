"""RateLimits: an interval for the rate of label 1 at each score.

Isotonic regression pools neighbouring scores into blocks. If the rate does not decrease with the score, the
error of the mean of the block that a score falls into, over its standard error, has a law that is free of
the rate, its slope and the density of scores (Deng, Han and Zhang, Annals of Statistics 2021). Its tails are
those of the normal law, wider by a factor (`_WIDER`, which simulation found). Limits are Wilson's with as
many standard errors: they are of use where a block has few labels of a class. In the first block of all, and
in the last, most scores can lie where nearly nothing is known: there the limit also has to hold for the mean
over the labels from the score on.

The interval is about one score, not about all at once, and about the rate, not about a label.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, Final, Self

import msgspec
import numpy as np

from streamcal.base.values import Cells, Counts, Floats
from streamcal.maps.fits_c import isotonic
from streamcal.maps.shift import shift_correction
from streamcal.sketch import grid
from streamcal.sketch.weighing import Weighed

LEAST, MOST = 0.5, 0.99
"""Least and greatest probability of an interval."""

_WIDER: Final = 1.155
_BEYOND: Final = 4  # blocks, of which the first is that of the end


class RateLimits(msgspec.Struct, frozen=True):
    """Step functions below and above the rate; no limits at all without labels."""

    edges: Floats
    """Inner edges of the steps, float64[b − 1], ascending."""
    low: Floats
    """Lower limits in [0, 1], float64[b]."""
    high: Floats
    """Upper limits in [0, 1], float64[b], not below ``low``."""

    @classmethod
    def of(cls, cells: Cells, level: int, weighed: Weighed, probability: float) -> Self:
        """Return the limits by labels.

        Parameters
        ----------
        cells, level
            cells of a grid, int32[m], ascending.
        weighed
            labels of these cells.
        probability
            that with which the limits hold at a score, in (0, 1).
        """
        if not len(cells):
            return cls.none()
        z = _WIDER * NormalDist().inv_cdf(0.5 + 0.5 * probability)
        masses = weighed.masses.astype(np.float64)
        scale = masses.sum() / float(
            weighed.squares.sum()
        )  # weighted labels count for their effective number
        ones, labels = scale * masses[1], scale * masses.sum(axis=0)
        starts, _ = isotonic(ones / labels, labels)
        high = _upper(starts, ones, labels, z)
        low = 1.0 - _upper(len(cells) - starts[::-1], (labels - ones)[::-1], labels[::-1], z)[::-1]
        return cls(grid.left_edges(cells[1:], level), low, np.maximum(low, high))

    @classmethod
    def none(cls) -> Self:
        """Return the limits without labels: 0 and 1."""
        return cls(np.empty(0), np.zeros(1), np.ones(1))

    def shifted(self, weights: tuple[float, float]) -> Self:
        """Return the limits in a target, shifted by these weights (eq. 13), which count as known."""
        low, high = (shift_correction(limits, weights) for limits in (self.low, self.high))
        return type(self)(self.edges, low, high)

    def at(self, scores: Any, served: Any) -> tuple[Any, Any]:
        """Return the ends of the intervals at scores, which take in what is served there.

        All are float64[n], or all one number.
        """
        steps = self.edges.searchsorted(scores, side="right")
        return np.minimum(self.low[steps], served), np.maximum(self.high[steps], served)


def _upper(starts: Counts, ones: Floats, labels: Floats, z: float) -> Floats:
    """Return the upper limit of each cell, float64[m]; ``starts``, [b + 1], are the first cells of blocks."""
    n, k = (np.concatenate(([0.0], np.cumsum(each))) for each in (labels, ones))
    limits = np.repeat(_wilson(np.diff(k[starts]), np.diff(n[starts]), z), np.diff(starts))
    first = slice(0, int(starts[1]))
    since = [_wilson(k[end] - k[first], n[end] - n[first], z) for end in starts[1 : _BEYOND + 1].tolist()]
    limits[first] = np.maximum(limits[first], np.min(since, axis=0))
    return limits


def _wilson(ones: Floats, labels: Floats, z: float) -> Floats:
    """Return Wilson's upper limit of the rate of ones among labels, z standard errors away."""
    half = z * np.sqrt(ones * (labels - ones) / labels + 0.25 * z * z)
    return np.minimum((ones + 0.5 * z * z + half) / (labels + z * z), 1.0)
