"""LabelWindow: the latest labels with their weights, and how many labels these are worth.

Memory: one byte per label, and 8 more once one of them has a weight.
"""

from __future__ import annotations

import numpy as np

from streamcal.base.values import Floats, Labels
from streamcal.sketch.decoding import Part, Positive
from streamcal.sketch.weighing import NONE, joined


class LabelWindow(Part):
    """The latest labels with their weights; its fields are its state."""

    size: Positive
    """Number of labels to keep."""
    labels: bytes = b""
    """Labels, 0 or 1 each."""
    weights: Floats | None = None
    """Weights, float64[m]; None: all are 1."""

    def __len__(self) -> int:
        return len(self.labels)

    def effective(self) -> tuple[float, float]:
        """Return (positives, labels); with weights, as the effective number of labels."""
        return NONE.with_labels(np.frombuffer(self.labels, np.int8), self.weights).effective()

    def add(self, labels: Labels, weights: Floats | None) -> None:
        """Add labels, int8[n], as the latest; ``weights``, float64[n]; None: all are 1."""
        parts = (len(self.labels), self.weights), (len(labels), weights)
        self.weights = joined(*parts, size=self.size)
        self.labels = (self.labels + labels.tobytes())[-self.size :]
