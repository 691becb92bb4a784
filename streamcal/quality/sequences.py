"""Confidence sequences of served forecasts: their gap and their gain, over all labels and over the latest.

A confidence sequence is an interval after every label; all of them hold together with the stated probability,
so it may be read at any time. Nothing is assumed of scores and labels, neither independence nor one
distribution: bounded is the mean, over the labels that came, of the difference that was to be expected just
before each came (docs/proofs/verdict.md).

What is kept depends on the order of the labels alone, and is bounded: sums since each of some starts,
which lie dense in the near past and thin in the far.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.values import Floats
from streamcal.quality.label_sums import COLUMNS, EDGES, RANGES, LabelSums, share
from streamcal.sketch.counts_c import add_sums
from streamcal.sketch.decoding import Count, Finite

STRIDE: Final = 256
"""Labels between two starts in the near past."""


class Sequences(msgspec.Struct):
    """Confidence sequences of one stream of forecasts; its fields are its state.

    Examples
    --------
    >>> sequences = Sequences()
    >>> sequences.add(np.full((2, 10_000), 0.5), np.ones(10_000), np.arange(10_000.0))
    >>> sequences.starts
    [0, 4096, 6144, 7168, 8192, 8704, 9216, 9472, 9728, 9984]
    >>> gaps = sequences.sums.gaps("after")
    >>> float(gaps.mean[0, 0]), float(gaps.high[0, 0].round(3))
    (-0.5, -0.481)
    """

    labels: Count = 0
    """Number of labels."""
    starts: list[Count] = []
    """Number of labels before each start: 0, and multiples of `STRIDE`, ascending; of the multiples of each
    power of two times it, about the latest three."""
    times: list[Finite | None] = []
    """Latest event time of a prediction whose label had come at each start, in seconds; None: unknown."""
    parts: list[npt.NDArray[np.float32]] = []
    """Sums from each start to the next, but for the last start: float32[columns] each."""
    open: Floats = msgspec.field(default_factory=lambda: np.zeros(COLUMNS))
    """Sums since the last start: float64[columns]."""
    latest: Finite | None = None
    """Latest event time of a prediction with a label, in seconds; None: unknown."""

    def __post_init__(self) -> None:
        self.open = self.open.reshape(COLUMNS)

    def add(self, forecasts: Floats, labels: Floats, times: Floats) -> None:
        """Add forecasts with their labels, in the order in which the labels came.

        Parameters
        ----------
        forecasts
            scores, and the probabilities that were served: float64[2, n] in [0, 1].
        labels
            each 0 or 1: float64[n].
        times
            event times of the predictions, in seconds; NaN: unknown. float64[n].
        """
        at, forecasts = 0, np.ascontiguousarray(forecasts)
        while at < len(labels):
            end = min(len(labels), at + STRIDE - self.labels % STRIDE)
            if not self.labels % STRIDE:
                self._see(times[at : at + 1])
                self._begin(self.latest)
            self._see(times[at:end])
            add_sums(self.open, EDGES, RANGES, forecasts, labels, at, end)
            self.labels += end - at
            at = end

    @property
    def sums(self) -> LabelSums:
        """Sums of the labels since each start."""
        shares = np.array([share(start // STRIDE) for start in self.starts])
        sums = np.empty((0, COLUMNS))
        if self.starts:
            parts = np.array([*self.parts, self.open], np.float64)
            sums = np.cumsum(parts[::-1], axis=0)[::-1]
        return LabelSums(self.labels, self.starts, self.times, sums, shares)

    def _see(self, times: Floats) -> None:
        """Take note of the event times of predictions; NaN: unknown."""
        latest = float(np.fmax.reduce(times))
        if not math.isnan(latest):
            self.latest = latest if self.latest is None else max(latest, self.latest)

    def _begin(self, time: float | None) -> None:
        """Begin a start, and forget those that lie too near to one another."""
        number = self.labels // STRIDE
        if number:
            self.parts.append(self.open.astype(np.float32))
            self.open = np.zeros(COLUMNS)
        self.starts.append(self.labels)
        self.times.append(time)
        for at in range(number and len(self.starts) - 2, 0, -1):
            if not _is_kept(self.starts[at] // STRIDE, number):
                self.parts[at - 1] = self.parts[at - 1] + self.parts[at]
                del self.starts[at], self.times[at], self.parts[at]


def _is_kept(start: int, now: int) -> bool:
    """Return whether a start is kept: near in comparison with the power of two that divides its number."""
    return not start or now - start <= 3 * (start & -start)
