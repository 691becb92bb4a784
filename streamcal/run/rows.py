"""What a run writes, row by row: answers, rejects, and map versions."""

from __future__ import annotations

import msgspec

from streamcal.engine.emissions import Recalibrated

__all__ = ["MapRow", "Recalibrated", "RejectRow"]


class RejectRow(msgspec.Struct, frozen=True):
    """Bad input, where it was, and why it was refused."""

    source: str
    """A file; topic and partition."""
    line: int
    """Line of a file, from 1; offset in a partition."""
    reason: str
    raw: str
    """Its text."""


class MapRow(msgspec.Struct, frozen=True):
    """A map version that is served from now on."""

    version: int
    key: str | None
    """The events' key it is for."""
    time: float | None
    """Event time at which it came, seconds since the epoch; None before the first event with a time."""
    map: msgspec.Raw
    """JSON of a `streamcal.RecalibrationMap`."""
    certificate: msgspec.Raw = msgspec.Raw(b"null")
    """JSON of a `streamcal.Certificate`; ``null`` where nothing is certified."""
    mixture: msgspec.Raw = msgspec.Raw(b"null")
    """JSON of a `streamcal.engine.emissions.Mixing`; ``null`` where the map is not a mixture."""
