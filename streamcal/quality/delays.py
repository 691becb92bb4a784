"""Delays of labels after their predictions, and how many have not come.

What is kept is counts in fixed bins: bounded, and the same however labels come in parts.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from streamcal.base.values import Floats
from streamcal.sketch.decoding import Count

_LIMITS: Final = np.logspace(-3.0, 9.0, 12 * 16 + 1)  # between the bins of delays, seconds: 15% apart
_BINS: Final = len(_LIMITS) + 1


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


class Delays(msgspec.Struct):
    """Delays of labels, counted in bins whose limits are 15% apart, so that quantiles are as exact.

    Its fields are its state.

    Examples
    --------
    >>> delays = Delays()
    >>> delays.add(np.array([1.0, 2.0, 3.0, 600.0, np.nan]))
    >>> delays.labels, round(delays.quantile(0.5))
    (4, 2)
    """

    counts: list[Count] = msgspec.field(default_factory=lambda: [0] * _BINS)
    """Number of labels in each bin."""

    @property
    def labels(self) -> int:
        """Number of labels with a delay."""
        return sum(self.counts)

    def add(self, delays: Floats) -> None:
        """Add the delays of labels, in seconds; one of NaN, which is none, is left out."""
        bins = np.searchsorted(_LIMITS, delays[~np.isnan(delays)], side="right")
        self.counts = (self.counts + np.bincount(bins, minlength=_BINS)).tolist()

    def quantile(self, share: float) -> float:
        """Return the delay that such a share of the labels did not exceed; there has to be one.

        At most a millisecond counts as one.
        """
        sums = np.cumsum(self.counts)
        rank = share * sums[-1]
        bin_ = int(np.searchsorted(sums, rank))
        if not 0 < bin_ < len(_LIMITS):
            return float(_LIMITS[min(bin_, len(_LIMITS) - 1)])
        within = (rank - sums[bin_ - 1]) / self.counts[bin_]
        return float(_LIMITS[bin_ - 1] ** (1.0 - within) * _LIMITS[bin_] ** within)

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
