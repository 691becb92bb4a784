"""Counts of the target's labels with their weights: of all of them, and of the latest.

Memory: a `LabelWindow` of the latest 300 labels.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from streamcal.maps.shift import shift_weights
from streamcal.mixture.candidates import RECENT_PRIOR
from streamcal.sketch.decoding import Count, require
from streamcal.sketch.label_window import LabelWindow, LabelWindowState
from streamcal.sketch.weighing import NONE, ONE, Mass
from streamcal.values import Counts, Floats, Labels

__all__ = ["CountsState", "TargetCounts", "shared"]


_ONES: Final = np.ones(4096)  # what labels without weights count for; cut to length
_ONES.setflags(write=False)


class CountsState(msgspec.Struct, omit_defaults=True):
    """The state of `TargetCounts`."""

    n: Count
    positives: Count
    latest: LabelWindowState
    mass: Mass = NONE


class TargetCounts:
    """Counts of the target's labels."""

    __slots__ = ("_mass", "_positives", "latest", "n")

    def __init__(self) -> None:
        self.n = 0
        """Number of labels."""
        self._positives = 0
        self._mass = NONE  # what all labels count for beyond one each
        self.latest = LabelWindow(RECENT_PRIOR)
        """Latest labels, for the more recent prior."""

    def add(self, labels: Labels, units: Counts | None) -> Floats:
        """Add the next labels; return what each counts for, float64[k].

        The labels of all calls then count for their effective number together. ``units`` are their weights in
        units of 1/256, int64[k], None: all are 1.
        """
        self.n += len(labels)
        self._positives += int(np.count_nonzero(labels))
        if units is not None:
            self._mass = self._mass.plus(Mass.of(labels, units))
        self.latest.add(labels, units)
        return shared(units, self._mass, self.n, len(labels))

    def effective(self) -> tuple[float, float]:
        """Return (positives, labels) of all; with weights, as their effective number."""
        return self._mass.effective(self._positives, self.n)

    def prior(self, source: float, known: float | None = None) -> float:
        """Return the target's prior, in (0, 1): ``known`` from elsewhere, or that of all labels.

        ``source`` is the source's prior, in (0, 1), which counts as one label more.
        """
        positives, labels = self.effective()
        return (positives + source) / (labels + 1.0) if known is None else known

    def odds(self, source: float, prior: float | None) -> tuple[float, float]:
        """Return κ (eq. 13) of the shift from the source's prior to that of all labels, and of the latest.

        ``prior`` is the target's prior for both, if it is known from elsewhere; None: it is not.
        """
        lately = prior
        if lately is None:
            positives, labels = self.latest.effective()
            lately = (positives + source) / (labels + 1.0)
        return _odds(source, self.prior(source, prior)), _odds(source, lately)

    def to_state(self) -> CountsState:
        """Return the state."""
        mass = self._mass if any(self._mass) else NONE
        return CountsState(self.n, self._positives, self.latest.to_state(), mass)

    def restore(self, state: CountsState) -> None:
        """Set the state."""
        self.n, self._positives, self._mass = n, positives, mass = state.n, state.positives, state.mass
        self.latest.restore(state.latest)
        right = positives <= n and len(self.latest) == min(n, RECENT_PRIOR)
        require(right, f"{positives} positives among {n} labels of a mixture")
        least = min(mass.labels, mass.squares) + ONE * n
        require(least >= n, f"the weights of {n} labels of a mixture are damaged")


def shared(units: Counts | None, mass: Mass, n: int, k: int) -> Floats:
    """Return what k labels with these weights count for, float64[k].

    All labels then count for their effective number together; ``mass`` and ``n`` are their totals.
    """
    if units is None and not any(mass):
        return _ONES[:k] if k <= len(_ONES) else np.ones(k)
    each = mass.effective(0, n)[1] / (mass.labels + ONE * max(n, 1))
    own: Floats = np.full(k, float(ONE)) if units is None else units.astype(np.float64)
    return own * each


def _odds(source: float, target: float) -> float:
    """Return κ of the shift from one prior to another."""
    zeros, ones = shift_weights(source, target)
    return ones / zeros
