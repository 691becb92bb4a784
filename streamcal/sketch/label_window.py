"""LabelWindow: the latest labels with their weights, and how many labels these are worth.

Memory: one byte per label, and 8 more once one of them has a weight.
"""

from __future__ import annotations

import msgspec
import numpy as np

from streamcal.sketch import checks
from streamcal.sketch.decoding import require
from streamcal.sketch.weighing import NONE, ONE, Mass, check_units
from streamcal.values import Counts, Labels

__all__ = ["LabelWindow", "LabelWindowState"]


class LabelWindowState(msgspec.Struct, tag="window", omit_defaults=True):
    """The state of a `LabelWindow`."""

    labels: bytes
    units: Counts | None = None


class LabelWindow:
    """The latest labels with their weights.

    Parameters
    ----------
    size
        number of labels to keep, at least 1.
    """

    __slots__ = ("_labels", "_mass", "_positives", "_size", "_units")

    def __init__(self, size: int) -> None:
        self._size = size
        self._labels = bytearray()
        self._units: Counts | None = None  # None: all weights are 1
        self._positives, self._mass = 0, NONE

    def __len__(self) -> int:
        return len(self._labels)

    def effective(self) -> tuple[float, float]:
        """Return (positives, labels); with weights, as the effective number of labels."""
        return self._mass.effective(self._positives, len(self._labels))

    def add(self, labels: Labels, units: Counts | None) -> None:
        """Add labels, int8[n], as the latest; ``units`` are those of their weights, None: all are 1."""
        self._keep(labels.tobytes(), units)

    def to_state(self) -> LabelWindowState:
        """Return the state."""
        return LabelWindowState(bytes(self._labels), self._units)

    def restore(self, state: LabelWindowState) -> None:
        """Replace the contents by a state."""
        require(len(state.labels) <= self._size, f"{len(state.labels)} labels in a window of {self._size}")
        checks.as_labels(np.frombuffer(state.labels, np.int8))
        if state.units is not None:
            check_units(state.units, len(state.labels))
        self._labels, self._units = bytearray(state.labels), state.units
        self._positives = self._labels.count(1)
        self._mass = Mass.of(np.frombuffer(state.labels, np.int8), state.units)

    def _keep(self, later: bytes, units: Counts | None) -> None:
        labels, later = self._labels, later[-self._size :]
        excess = max(0, len(labels) + len(later) - self._size)
        if units is not None or self._units is not None:
            parts = (len(labels), self._units), (len(later), units)
            each = [np.full(n, ONE) if own is None else own[len(own) - n :] for n, own in parts]
            both = np.concatenate(each)[excess:]
            self._units = None if (both == ONE).all() else both
        self._positives += later.count(1) - labels.count(1, 0, excess)
        del labels[:excess]
        labels += later
        if self._units is not None or any(self._mass):
            self._mass = Mass.of(np.frombuffer(bytes(labels), np.int8), self._units)
