"""Delays of labels after their predictions, in all and by class; and how many labels are still out.

What is kept is counts in fixed bins: bounded, and the same however labels come in parts.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from streamcal.sketch.decoding import require
from streamcal.values import Counts, Floats, Labels

__all__ = ["Delay", "Delays", "Trend"]

_CERTAIN: Final = 6.0  # standard deviations, see `Delays.trend`
_LIMITS: Final = np.logspace(-3.0, 9.0, 12 * 16 + 1)  # between the bins of delays, seconds: 15% apart
_BINS: Final = len(_LIMITS) + 1
_OFF: Final = 0.02  # of the rarer class: a smaller bias does not matter
_EXPECTED: Final = 50  # labels of the rarer class in the smaller half: with fewer, z is not normal


class Delay(msgspec.Struct):
    """Delays of labels after their predictions, seconds of event time; None where no times are known."""

    labels: int
    median: float | None
    most: float | None
    """Delay that nine of ten labels did not exceed."""
    out: float | None
    """The share of the predictions that wait for their label; it may yet come. None without predictions."""
    oldest: float | None
    """For how long the one that has waited longest does; None if none waits."""


class Trend(msgspec.Struct, frozen=True):
    """Whether the share of positives among labels changes with their delay."""

    z: float
    """The statistic of Cochran and Armitage: above 0 where labels that come later are more often positive."""
    rate: float
    """Rate of label 1 among all labels."""
    sooner: float
    """Rate of label 1 in the half that came sooner; the halves are as equal as the bins allow."""
    later: float
    """Rate of label 1 in the other half."""

    @property
    def is_certain(self) -> bool:
        """Whether one class surely comes later than the other."""
        return abs(self.z) >= _CERTAIN

    def bias(self, out: float) -> float:
        """Return how much too low the rate of label 1 is, if a share ``out`` of the labels is to come.

        These are taken to be like those of the slower half. It is 0 where it is not certain that one class
        comes later.
        """
        return (self.later - self.rate if self.is_certain else 0.0) * out

    def matters(self, out: float) -> bool:
        """Return whether `bias` is large enough to matter."""
        return abs(self.bias(out)) > _OFF * min(self.rate, 1.0 - self.rate)


class Delays:
    """Delays of labels, counted in bins whose limits are 15% apart, so that quantiles are as exact.

    Parameters
    ----------
    counts, positives
        of a state: how many labels, and how many positive ones, are in each bin. A store from before
        positives were counted has none of these: then there is no trend.

    Examples
    --------
    >>> delays = Delays()
    >>> delays.add(np.array([1.0, 2.0, 3.0, 600.0, np.nan]), np.array([0, 0, 0, 1, 1]))
    >>> delays.labels, round(delays.quantile(0.5))
    (4, 2)
    """

    def __init__(self, counts: list[int] | None = None, positives: list[int] | None = None) -> None:
        self._counts = _binned(counts or [0] * _BINS)
        self._positives = _binned(positives or [0] * _BINS)
        self._by_class = not self.labels or bool(positives)
        fewer = (self._positives <= self._counts).all()
        require(fewer, "more labels are positive than there are, by their delays")

    @property
    def labels(self) -> int:
        """Number of labels with a delay."""
        return int(self._counts.sum())

    @property
    def counts(self) -> list[int]:
        """Number of labels in each bin, to be stored."""
        counts: list[int] = self._counts.tolist()
        return counts

    @property
    def positives(self) -> list[int]:
        """Number of positive labels in each bin, to be stored; empty where it is not known."""
        positives: list[int] = self._positives.tolist()
        return positives if self._by_class else []

    def add(self, delays: Floats, labels: Labels) -> None:
        """Add labels, 0 or 1, with their delays in seconds; a delay of NaN, which is none, is left out."""
        known = ~np.isnan(delays)
        bins = np.searchsorted(_LIMITS, delays[known], side="right")
        self._counts += np.bincount(bins, minlength=_BINS)
        if self._by_class:
            self._positives += np.bincount(bins[labels[known] == 1], minlength=_BINS)

    def quantile(self, share: float) -> float:
        """Return the delay that such a share of the labels did not exceed; there has to be one.

        At most a millisecond counts as one.
        """
        sums = np.cumsum(self._counts)
        rank = share * sums[-1]
        bin_ = int(np.searchsorted(sums, rank))
        if not 0 < bin_ < len(_LIMITS):
            return float(_LIMITS[min(bin_, len(_LIMITS) - 1)])
        within = (rank - sums[bin_ - 1]) / self._counts[bin_]
        return float(_LIMITS[bin_ - 1] ** (1.0 - within) * _LIMITS[bin_] ** within)

    @property
    def trend(self) -> Trend | None:
        """Whether positives take longer than negatives; None where there are too few labels to tell.

        The test of Cochran and Armitage for a trend in proportions, with the mid-rank of each bin as its
        score: so no delay counts more than its rank. The variance is that of drawing the positives from all
        labels without replacement, which is what independence of label and delay means given both counts.
        Then |z| reaches 6 with a probability of 2 · 10⁻⁹ at one look, and as a path of Brownian motion, of
        about 6 φ(6) ln(10⁹ / 100) = 6 · 10⁻⁷ at any of the looks after each of 10⁹ labels. These are
        approximations: the skewness at the fewest labels that are judged may raise both a hundredfold.
        """
        n, positives = self.labels, int(self._positives.sum())
        if not self._by_class or not 0 < positives < n:
            return None
        counts = self._counts.astype(np.float64)
        ends = np.cumsum(counts)
        half = int(np.abs(ends - 0.5 * n).argmin())
        first = float(ends[half])
        if min(first, n - first) * min(positives, n - positives) < _EXPECTED * n:
            return None
        off = ends - 0.5 * counts - 0.5 * n  # mid-ranks, from their mean
        variance = positives * (n - positives) / (n * (n - 1.0)) * float(counts @ off**2)
        sooner = int(self._positives[: half + 1].sum())
        return Trend(
            float(self._positives @ off) / math.sqrt(variance),
            positives / n,
            sooner / first,
            (positives - sooner) / (n - first),
        )

    def figures(self, predictions: int, pending: int, oldest: float | None) -> Delay:
        """Return the figures that are shown.

        Parameters
        ----------
        predictions, pending
            how many there were, and how many of them wait for their label.
        oldest
            for how long one of these does at most, seconds.
        """
        return Delay(
            self.labels,
            self.quantile(0.5) if self.labels else None,
            self.quantile(0.9) if self.labels else None,
            pending / predictions if predictions else None,
            oldest,
        )


def _binned(counts: list[int]) -> Counts:
    require(len(counts) == _BINS, f"delays are counted in {_BINS} bins, got {len(counts)}")
    return np.array(counts, np.int64)
