"""Counts of the target's labels with their weights: of all of them, and of the latest.

Memory: a `LabelWindow` of the latest 300 labels.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from streamcal.base.values import Floats, Labels
from streamcal.maps.shift import shift_weights
from streamcal.mixture.candidates import RECENT_PRIOR
from streamcal.sketch.decoding import Count, Part
from streamcal.sketch.label_window import LabelWindow
from streamcal.sketch.weighing import NONE, Mass, other_than_one

_ONES: Final = np.ones(4096)  # what labels without weights count for; cut to length
_ONES.setflags(write=False)


class TargetCounts(Part):
    """Counts of the target's labels; its fields are its state."""

    n: Count = 0
    """Number of labels."""
    latest: LabelWindow = msgspec.field(default_factory=lambda: LabelWindow(RECENT_PRIOR))
    """Latest labels, for the more recent prior."""
    mass: Mass = NONE
    """Weight of all labels."""

    def add(self, labels: Labels, weights: Floats | None) -> Floats:
        """Add the next labels; return what each counts for, float64[k].

        The labels of all calls then count for their effective number together. ``weights`` are theirs,
        float64[k]; None: all are 1.
        """
        self.n += len(labels)
        self.mass = self.mass.with_labels(labels, weights)
        self.latest.add(labels, weights)
        return shared(weights, self.mass, len(labels))

    def effective(self) -> tuple[float, float]:
        """Return (positives, labels) of all; with weights, as their effective number."""
        return self.mass.effective()

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


def shared(weights: Floats | None, mass: Mass, k: int) -> Floats:
    """Return what k labels with these weights, float64[k] or None, count for, float64[k].

    All labels, of which this is the mass, then count for their effective number together.
    """
    if mass.labels == mass.squares and other_than_one(weights) is None:
        return _ONES[:k] if k <= len(_ONES) else np.ones(k)
    own = np.ones(k) if weights is None else weights
    return own * (mass.labels / mass.squares)


def _odds(source: float, target: float) -> float:
    """Return κ of the shift from one prior to another."""
    zeros, ones = shift_weights(source, target)
    return ones / zeros
