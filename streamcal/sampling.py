"""Which predictions to have labelled, where labels cost money: a known chance for each, under a budget.

Of the chance of a label, its propensity, a quarter is even: no kind of prediction is left out. The rest goes
where a label is expected to tell most of whether forecasts are right: where p (1 − p) is large, and in the
bands of forecasts that labels so far contradict, or say little of. As it depends on forecasts and earlier
labels alone, confidence sequences stay valid: docs/proofs/verdict.md, lemmas 6 and 7; compare Xu,
Karampatziakis and Mineiro (arXiv 2406.10490).
"""

from __future__ import annotations

import math
from bisect import bisect
from hashlib import blake2b
from typing import Annotated, Final, TypeAlias

import msgspec

from streamcal.base.values import BANDS

__all__ = ["Sampler"]

_MEMORY: Final = 5000  # predictions over which means go back
_LABELS: Final = 1000  # labels of a band over which its sums go back
_DOUBT: Final = 10.0  # one over the mean square of a shift in log odds, before the first label
_LEAST: Final = 1e-4
_DAY: Final = 86_400.0
_LAST: Final = 1e11  # seconds: the year 5138
_NO_SUMS: Final = (len(BANDS) + 1) * (0.0,)

_Sums: TypeAlias = Annotated[list[float], msgspec.Meta(min_length=len(_NO_SUMS), max_length=len(_NO_SUMS))]


class Sampler(msgspec.Struct):
    """Sampler of predictions to be labelled; its fields are its state.

    A draw depends on seed, id and propensity alone: the same id is drawn alike again, in a resumed run or
    elsewhere. The labels must not depend on the ids.

    Parameters
    ----------
    share
        share of the predictions to have labelled, on average, in (0, 1]; None: ``labels_per_day`` says it.
    labels_per_day
        number of predictions to have labelled in a day of event time, on average, above 0. A pause of more
        than a day counts as none.
    even
        part of the budget that all predictions share alike, from 0.05 to 1.
    seed
        seed of the draws, an integer.

    Raises
    ------
    ValueError
        unless one of both is set, and all are in range.

    Examples
    --------
    >>> sampler = Sampler(share=0.1)
    >>> sampler.propensity(0.5), round(sampler.propensity(0.01), 3)
    (0.1, 0.025)
    >>> for _ in range(20):
    ...     sampler.learn(0.01, 1)
    >>> round(sampler.propensity(0.01), 3)
    0.117
    """

    share: float | None = None
    labels_per_day: float | None = None
    even: float = 0.25
    seed: int = 0
    predictions: int = 0
    """Number of predictions so far."""
    gap: float = 0.0
    """Recent mean of the event time between two predictions, in seconds."""
    time: float | None = None
    """Latest event time, in seconds; None: unknown."""
    owed: float = 0.0
    """Labels that the budget had for predictions so far, less those expected by their propensities."""
    spreads: _Sums = msgspec.field(default_factory=lambda: [*_NO_SUMS])
    """Recent mean of (p (1 − p))² in each band of forecasts, and 0 outside of it."""
    excess: _Sums = msgspec.field(default_factory=lambda: [*_NO_SUMS])
    """Recent sum of label − forecast in each band."""
    variances: _Sums = msgspec.field(default_factory=lambda: [*_NO_SUMS])
    """Recent sum of p (1 − p) over the labels of each band."""

    def __post_init__(self) -> None:
        if (self.share is None) == (self.labels_per_day is None):
            raise ValueError(
                "set one of share and labels_per_day, such as share=0.03: got"
                f" share={self.share}, labels_per_day={self.labels_per_day}"
            )
        if self.share is not None and not 0.0 < self.share <= 1.0:
            raise ValueError(f"share must be above 0 and at most 1, got {self.share}")
        if not 0.05 <= self.even <= 1.0:
            raise ValueError(f"even must be from 0.05 to 1, got {self.even}")
        if self.labels_per_day is not None and not 0.0 < self.labels_per_day < math.inf:
            raise ValueError(f"labels_per_day must be above 0 and finite, got {self.labels_per_day}")

    @property
    def lacks_time(self) -> bool:
        """Whether the next prediction needs an event time."""
        return self.labels_per_day is not None and self.time is None

    def propensity(self, probability: float, time: float | None = None) -> float:
        """Return the chance with which the next prediction is to be labelled, from 0.0001 to 1.

        Parameters
        ----------
        probability
            probability that is served, in [0, 1].
        time
            event time in seconds; ``labels_per_day`` needs it. None: that of the prediction before.

        Raises
        ------
        ValueError
            if the probability or time is out of range, or ``labels_per_day`` has no time yet.
        """
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability must be in [0, 1], got {probability}")
        if time is not None and not abs(time) < _LAST:
            raise ValueError(f"time must be in seconds since the epoch, got {time}")
        if time is None and self.lacks_time:
            raise ValueError("labels_per_day needs the time of the first prediction, in seconds: got None")
        self.predictions += 1
        band, variance = bisect(BANDS, probability), max(probability * (1.0 - probability), 0.0)
        part = 1.0 / min(self.predictions, _MEMORY)
        self.spreads = [(1.0 - part) * each for each in self.spreads]
        self.spreads[band] += part * variance**2
        share = 1.0 if self.share is None else self.share
        if self.labels_per_day is not None and self.time is not None:
            since = 0.0 if time is None else time - self.time
            if abs(since) <= _DAY or not self.gap:  # a pause, or a wrong clock, says nothing of the rate
                self.gap += (max(since, 0.0) - self.gap) / min(self.predictions - 1, _MEMORY)
            share = min(self.labels_per_day * self.gap / _DAY, 1.0)
        if time is not None and not (self.time is not None and 0.0 <= self.time - time <= _DAY):
            self.time = time
        shifts = [self._shift(each) ** 2 for each in range(len(_NO_SUMS))]
        mean = sum(map(float.__mul__, shifts, self.spreads))
        told = shifts[band] * variance**2 / mean if mean else 1.0
        asked = max(share + self.owed / _MEMORY, 0.0) * (self.even + (1.0 - self.even) * told)
        asked = 1.0 if share >= 1.0 else min(max(asked, _LEAST), 1.0)
        self.owed = min(self.owed + share - asked, float(_MEMORY))
        return asked

    def learn(self, probability: float, label: int) -> None:
        """Take in a label, 0 or 1, of a prediction that was asked for, and the probability it was served.

        Raises
        ------
        ValueError
            if it is another label.
        """
        if label not in {0, 1}:
            raise ValueError(f"a label must be 0 or 1, got {label}")
        band = bisect(BANDS, probability)
        kept = 1.0 - 1.0 / _LABELS
        self.excess[band] = kept * self.excess[band] + label - probability
        self.variances[band] = kept * self.variances[band] + max(probability * (1.0 - probability), 0.0)

    def asks(self, id_: str, propensity: float) -> bool:
        """Return whether the prediction with an id is to be labelled, given its propensity."""
        draw = blake2b(f"{self.seed} {id_}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(draw) < propensity * 2.0**64

    def _shift(self, band: int) -> float:
        """Return the mean square of the shift in log odds of a band, given its labels.

        A label is expected to add half of it, times p (1 − p), to the evidence against forecasts.
        """
        known = self.variances[band] + _DOUBT
        return (self.excess[band] / known) ** 2 + 1.0 / known
