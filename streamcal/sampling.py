"""Which predictions to have labelled, where labels cost money: a known chance for each, under a budget.

Of the chance of a label, its propensity, half is even, and half proportional to √(p (1 − p)), the standard
deviation of the label if p is right. So labels go where they tell most (Neyman 1934), and no kind of
prediction is left out: with less than half, it takes longer to tell that forecasts are too high. Confidence
sequences stay valid: docs/proofs/verdict.md, lemma 6; compare Xu, Karampatziakis and Mineiro (arXiv
2406.10490).
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Final

import msgspec

__all__ = ["Sampler"]

_MEMORY: Final = 5000  # predictions over which the mean of √(p (1 − p)), and of the time between two, go back
_LEAST: Final = 1e-4
_DAY: Final = 86_400.0


class Sampler(msgspec.Struct):
    """Sampler of predictions to be labelled; its fields are its state.

    A draw depends on seed and id alone: the same id is drawn alike again, in a resumed run or elsewhere. The
    labels must not depend on the ids.

    Parameters
    ----------
    share
        share of the predictions to have labelled, on average, in (0, 1]; None: ``labels_per_day`` says it.
    labels_per_day
        number of predictions to have labelled in a day of event time, on average, above 0.
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
    (0.1, 0.067)
    >>> sum(sampler.asks(f"id-{number}", 0.1) for number in range(1000))
    86
    """

    share: float | None = None
    labels_per_day: float | None = None
    even: float = 0.5
    seed: int = 0
    predictions: int = 0
    """Number of predictions so far."""
    spread: float = 0.0
    """Recent mean of √(p (1 − p))."""
    gap: float = 0.0
    """Recent mean of the event time between two predictions, in seconds."""
    time: float | None = None
    """Latest event time, in seconds; None: unknown."""

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

    def propensity(self, probability: float, time: float | None = None) -> float:
        """Return the chance with which the next prediction is to be labelled, from 0.0001 to 1.

        Parameters
        ----------
        probability
            probability that is served, in [0, 1].
        time
            event time in seconds; ``labels_per_day`` needs it. None: that of the prediction before.
        """
        self.predictions += 1
        deviation = math.sqrt(max(probability * (1.0 - probability), 0.0))
        self.spread += (deviation - self.spread) / min(self.predictions, _MEMORY)
        share = 1.0 if self.share is None else self.share
        if self.labels_per_day is not None and self.time is not None:
            since = 0.0 if time is None else max(time - self.time, 0.0)
            self.gap += (since - self.gap) / min(self.predictions - 1, _MEMORY)
            share = self.labels_per_day * self.gap / _DAY
        if time is not None:
            self.time = time if self.time is None else max(time, self.time)
        part = deviation / self.spread if self.spread else 1.0
        return min(max(share * (self.even + (1.0 - self.even) * part), _LEAST), 1.0)

    def asks(self, id_: str, propensity: float) -> bool:
        """Return whether the prediction with an id is to be labelled, given its propensity."""
        draw = blake2b(f"{self.seed} {id_}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(draw) < propensity * 2.0**64
