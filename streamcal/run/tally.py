"""What a run counted."""

from __future__ import annotations

import msgspec

from streamcal.run.doubts import Meanings
from streamcal.run.order import TimesRead
from streamcal.sketch.decoding import Count

__all__ = ["Tally"]


class Tally(msgspec.Struct):
    """What a run counted."""

    events: Count = 0
    """Events read, of all sources, bad ones among them."""
    source_labels: Count = 0
    """Labelled events learned from the source of calibration."""
    rejected: Count = 0
    """Events that changed nothing: bad input, duplicates, labels without a prediction in time."""
    refused: Count = 0
    """Those of the rejected events whose key was one too many."""
    times: TimesRead = msgspec.field(default_factory=TimesRead)
    """How the event times were taken."""
    calibration: Meanings = msgspec.field(default_factory=Meanings)
    """What labels and scores meant, in the source of calibration."""
    deployment: Meanings = msgspec.field(default_factory=Meanings)
    """And in the deployment."""
