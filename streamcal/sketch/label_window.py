"""LabelWindow: the latest labels with their weights, and how many labels these are worth.

Memory: one byte per label, and 8 more once one of them has a weight.
"""

from __future__ import annotations

import numpy as np

from streamcal.sketch import checks
from streamcal.sketch.decoding import Part, Positive, require
from streamcal.sketch.weighing import ONE, Mass, check_units
from streamcal.values import Counts, Labels

__all__ = ["LabelWindow"]


class LabelWindow(Part):
    """The latest labels with their weights; its fields are its state."""

    size: Positive
    """Number of labels to keep."""
    labels: bytes = b""
    """Labels, 0 or 1 each."""
    units: Counts | None = None
    """Weights in units of 1/256, int64[m]; None: all are 1."""

    def __post_init__(self) -> None:
        """Check a decoded state; raise ValueError if it is none."""
        require(len(self.labels) <= self.size, f"{len(self.labels)} labels in a window of {self.size}")
        checks.as_labels(np.frombuffer(self.labels, np.int8))
        if self.units is not None:
            check_units(self.units, len(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    def effective(self) -> tuple[float, float]:
        """Return (positives, labels); with weights, as the effective number of labels."""
        mass = Mass.of(np.frombuffer(self.labels, np.int8), self.units)
        return mass.effective(self.labels.count(1), len(self.labels))

    def add(self, labels: Labels, units: Counts | None) -> None:
        """Add labels, int8[n], as the latest; ``units`` are those of their weights, None: all are 1."""
        if units is not None or self.units is not None:
            parts = (len(self.labels), self.units), (len(labels), units)
            both = np.concatenate([np.full(n, ONE) if own is None else own for n, own in parts])
            both = both[-self.size :]
            self.units = None if (both == ONE).all() else both
        self.labels = (self.labels + labels.tobytes())[-self.size :]
