"""What a run counted."""

from __future__ import annotations

import msgspec

from streamcal.run.doubts import Meanings
from streamcal.run.order import TimesRead
from streamcal.sketch.decoding import Count, Finite

__all__ = ["Tally"]


class Tally(msgspec.Struct):
    """What a run counted."""

    events: Count = 0
    """Events read, of all sources, bad ones among them."""
    source_labels: Count = 0
    """Labelled events learned from the source of calibration."""
    rejected: Count = 0
    """Events that changed nothing: bad input, duplicates, labels without a prediction in time."""
    squares_before: Finite = 0.0
    """Sum of (score − label)² over the joined labels."""
    squares_after: Finite = 0.0
    """Sum of (probability − label)² over the joined labels, each with the probability of its time."""
    joined: Count = 0
    """How many labels those sums are over."""
    refused: Count = 0
    """Those of the rejected events whose key was one too many."""
    times: TimesRead = msgspec.field(default_factory=TimesRead)
    """How the event times were taken."""
    calibration: Meanings = msgspec.field(default_factory=Meanings)
    """What labels and scores meant, in the source of calibration."""
    deployment: Meanings = msgspec.field(default_factory=Meanings)
    """And in the deployment."""

    @property
    def brier_before(self) -> float | None:
        """Brier score of the scores; None without joined labels."""
        return self.squares_before / self.joined if self.joined else None

    @property
    def brier_after(self) -> float | None:
        """Brier score of the recalibrated probabilities; None without joined labels."""
        return self.squares_after / self.joined if self.joined else None
