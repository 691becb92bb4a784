"""Counts of the target's labels with their weights: of all of them, and of the latest.

Memory: a byte for each of the latest 300 labels, and 8 more once one of them has a weight.
"""

from __future__ import annotations

from typing import Self

import msgspec
import numpy as np

from streamcal.maps.shift import shift_weights
from streamcal.mixture.names import RECENT_PRIOR
from streamcal.sketch.decoding import Count, require
from streamcal.sketch.weighing import NONE, ONE, Mass, check_units
from streamcal.values import Counts, Floats, Labels

__all__ = ["CountsState", "LabelCounts", "shared"]


class CountsState(msgspec.Struct, omit_defaults=True):
    """The state of `LabelCounts`."""

    n: Count
    positives: Count
    latest: bytes
    mass: Mass = NONE
    units: Counts | None = None


class LabelCounts:
    """Counts of the target's labels."""

    __slots__ = ("_latest", "_mass", "_positives", "_units", "n")

    def __init__(self) -> None:
        self.n = 0
        """Number of labels."""
        self._positives = 0
        self._mass = NONE  # what all labels count for beyond one each
        self._latest = b""  # the latest labels, for the more recent prior
        self._units: Counts | None = None  # of these; None: all weights are 1

    def shares(self, labels: Labels, units: Counts | None) -> Floats | None:
        """Return the weights of the next labels, float64[k]; None: one each, as for all so far.

        The labels of all calls then count for their effective number together. `add` must follow.
        """
        if units is None and self._mass is NONE:
            return None
        self._mass = self._mass.plus(Mass.of(labels, units))
        own = np.full(len(labels), ONE) if units is None else units
        return shared(own, self._mass, self.n + len(labels))

    def add(self, labels: Labels, units: Counts | None) -> None:
        """Add the next labels; ``units`` are their weights in units of 1/256, int64[k], None: all are 1."""
        told = labels.tobytes()
        self.n += len(told)
        self._positives += told.count(1)
        self._keep(told, units)

    def relabel(self, label: int) -> None:
        """Replace a label of the other class by this one."""
        self._positives += 2 * label - 1

    def effective(self) -> tuple[float, float]:
        """Return (positives, labels) of all; with weights, as their effective number."""
        return self._mass.effective(self._positives, self.n)

    def latest(self) -> tuple[float, float]:
        """Return (positives, labels) of the latest `names.RECENT_PRIOR`; with weights, as `effective`."""
        positives, labels = self._latest.count(1), len(self._latest)
        if self._units is None:
            return positives, labels
        return Mass.of(np.frombuffer(self._latest, np.int8), self._units).effective(positives, labels)

    def odds(self, source: float, prior: float | None) -> tuple[float, float]:
        """Return κ (eq. 13) of the shift from the source's prior to that of all labels, and of the latest.

        ``prior`` is the target's prior for both, if it is known from elsewhere; None: it is not.
        """
        every = lately = source
        if prior is not None:
            every = lately = prior
        elif self.n:
            (positives, labels), (recent, latest) = self.effective(), self.latest()
            every, lately = (positives + source) / (labels + 1.0), (recent + source) / (latest + 1.0)
        return _odds(source, every), _odds(source, lately)

    def merge(self, other: Self) -> None:
        """Add the labels of the other as later ones."""
        self.n += other.n
        self._positives += other._positives
        mass = self._mass.plus(other._mass)
        self._mass = mass if any(mass) else NONE
        self._keep(other._latest, other._units)

    def to_state(self) -> CountsState:
        """Return the state."""
        return CountsState(self.n, self._positives, self._latest, self._mass, self._units)

    def restore(self, state: CountsState) -> None:
        """Set the state."""
        n, positives, latest, units = state.n, state.positives, state.latest, state.units
        right = positives <= n and len(latest) == min(n, RECENT_PRIOR) and {*latest} <= {0, 1}
        require(right, f"{positives} positives among {n} labels of a mixture")
        self.n, self._positives, self._latest, self._units = n, positives, latest, units
        self._mass = state.mass if any(state.mass) else NONE
        least = min(self._mass.labels, self._mass.squares) + ONE * n
        require(least >= n, f"the weights of {n} labels of a mixture are damaged")
        if units is not None:
            check_units(units, len(latest))

    def _keep(self, told: bytes, units: Counts | None) -> None:
        """Add later labels to the latest ones."""
        if units is not None or self._units is not None:
            parts = (len(self._latest), self._units), (len(told), units)
            both = np.concatenate([np.full(n, ONE) if own is None else own for n, own in parts])
            both = both[-RECENT_PRIOR:]
            self._units = None if (both == ONE).all() else both
        self._latest = (self._latest + told)[-RECENT_PRIOR:]


def shared(units: Counts, mass: Mass, labels: int) -> Floats:
    """Return the shares of labels with these weights, so that all count for their effective number together.

    ``mass`` and ``labels`` are the totals.
    """
    return units.astype(np.float64) * (mass.effective(0, labels)[1] / (mass.labels + ONE * labels))


def _odds(source: float, target: float) -> float:
    """Return κ of the shift from one prior to another."""
    zeros, ones = shift_weights(source, target)
    return ones / zeros
