"""Delays of labels after their predictions, in all and by class; and how many labels are still out.

What is kept is counts in fixed bins: bounded, and the same however labels come in parts.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from streamcal.quality.class_delays import ClassDelays
from streamcal.sketch.decoding import require
from streamcal.values import Counts, Floats, Labels

__all__ = ["Delay", "Delays", "Trend"]

_CERTAIN: Final = 6.0  # standard deviations, see `Delays.trend`
_LIMITS: Final = np.logspace(-3.0, 9.0, 12 * 16 + 1)  # between the bins of delays, seconds: 15% apart
_BINS: Final = len(_LIMITS) + 1
_OFF: Final = 0.02  # of the rarer class: a smaller bias does not matter
_EXPECTED: Final = 50  # labels of the rarer class in the smaller half: with fewer, z is not normal
_MEMORY: Final = 1_000  # labels, of the latest predictions: a short memory of what forecasts learn from


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
    """Whether the share of positives changes with the delay, among predictions alike in forecast and time."""

    z: float
    """Statistic of a stratified test: above 0 where labels that come later are more often positive."""
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
    counts, by_class
        of a state: how many labels are in each bin, and those by class.

    Examples
    --------
    >>> delays, half = Delays(), np.full(5, 0.5)
    >>> delays.add(np.array([1.0, 2.0, 3.0, 600.0, np.nan]), np.array([0, 0, 0, 1, 1]), half, np.arange(5.0))
    >>> delays.labels, round(delays.quantile(0.5))
    (4, 2)
    """

    def __init__(self, counts: list[int] | None = None, by_class: ClassDelays | None = None) -> None:
        self._counts = _binned(counts or [0] * _BINS)
        self.by_class = by_class or ClassDelays()
        self.by_class.check()

    @property
    def labels(self) -> int:
        """Number of labels with a delay."""
        return int(self._counts.sum())

    @property
    def counts(self) -> list[int]:
        """Number of labels in each bin, to be stored."""
        counts: list[int] = self._counts.tolist()
        return counts

    def add(self, delays: Floats, labels: Labels, forecasts: Floats, predicted_at: Floats) -> None:
        """Add labels, 0 or 1, with their delays in seconds, and the forecasts and times of their predictions.

        A delay of NaN, which is none, is left out.
        """
        known = ~np.isnan(delays)
        delays = delays[known]
        bins = np.searchsorted(_LIMITS, delays, side="right")
        self._counts += np.bincount(bins, minlength=_BINS)
        self.by_class.add(delays, labels[known], forecasts[known], predicted_at[known])

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

        If the delay does not depend on the class, given forecast and time, |z| reaches 6 with a probability
        of 2 · 10⁻⁹ at one look, and as a path of Brownian motion, of about 6 φ(6) ln(10⁹ / 100) = 6 · 10⁻⁷ at
        any of the looks after each of 10⁹ labels. These are approximations: the skewness at the fewest labels
        that are judged may raise both a hundredfold.
        """
        found = self.by_class.compared(_EXPECTED)
        if found is None:
            return None
        labels, positives = np.cumsum(found.labels), np.cumsum(found.positives)
        half = int(np.abs(labels - 0.5 * labels[-1]).argmin())
        first, sooner = float(labels[half]), float(positives[half])
        n, ones = float(labels[-1]), float(positives[-1])
        return Trend(found.z, ones / n, sooner / first, (ones - sooner) / (n - first))

    @property
    def tilt(self) -> float:
        """Change of the odds of label 1, among what is told of the latest predictions, by late labels.

        Of the latest 1,000, as a logarithm: below 0 where positives are missing, 0 where no class surely
        comes later.
        """
        found, trend = self.by_class.compared(_EXPECTED), self.trend
        if found is None or trend is None or not trend.is_certain:
            return 0.0
        negatives, positives = found.told(self.by_class.span * _MEMORY / max(self.labels, _MEMORY))
        return math.log(max(positives, 1e-9) / max(negatives, 1e-9))

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
