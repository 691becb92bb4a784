"""Counts of the target's labels with their weights: of all of them, and of the latest.

Memory: a `LabelWindow` of the latest 300 labels.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from streamcal.maps.shift import shift_weights
from streamcal.mixture.candidates import RECENT_PRIOR
from streamcal.sketch.decoding import Count, Part, require
from streamcal.sketch.label_window import LabelWindow
from streamcal.sketch.weighing import NONE, ONE, Mass
from streamcal.values import Counts, Floats, Labels

__all__ = ["TargetCounts", "shared"]


_ONES: Final = np.ones(4096)  # what labels without weights count for; cut to length
_ONES.setflags(write=False)


class TargetCounts(Part):
    """Counts of the target's labels; its fields are its state."""

    n: Count = 0
    """Number of labels."""
    positives: Count = 0
    latest: LabelWindow = msgspec.field(default_factory=lambda: LabelWindow(RECENT_PRIOR))
    """Latest labels, for the more recent prior."""
    mass: Mass = NONE
    """Weight of all labels beyond one each."""

    def __post_init__(self) -> None:
        """Check a decoded state; raise ValueError if it is none."""
        n, latest = self.n, self.latest
        right = self.positives <= n and latest.size == RECENT_PRIOR and len(latest) == min(n, RECENT_PRIOR)
        require(right, f"{self.positives} positives among {n} labels of a mixture")
        least = min(self.mass.labels, self.mass.squares) + ONE * n
        require(least >= n, f"the weights of {n} labels of a mixture are damaged")

    def add(self, labels: Labels, units: Counts | None) -> Floats:
        """Add the next labels; return what each counts for, float64[k].

        The labels of all calls then count for their effective number together. ``units`` are their weights in
        units of 1/256, int64[k], None: all are 1.
        """
        self.n += len(labels)
        self.positives += int(np.count_nonzero(labels))
        more = Mass.of(labels, units)
        if any(more):
            self.mass = self.mass.plus(more)
        self.latest.add(labels, units)
        return shared(units, self.mass, self.n, len(labels))

    def effective(self) -> tuple[float, float]:
        """Return (positives, labels) of all; with weights, as their effective number."""
        return self.mass.effective(self.positives, self.n)

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
