"""The rows that a run writes: answers, rejects and map versions."""

from __future__ import annotations

import msgspec

from streamcal.engine.emissions import Recalibrated

__all__ = ["MapRow", "Recalibrated", "RejectRow"]


class RejectRow(msgspec.Struct, frozen=True):
    """A rejected input: where it was, and why it was rejected."""

    source: str
    """Path of the file, or topic and partition."""
    line: int
    """Line in the file, from 1, or offset in the partition."""
    reason: str
    raw: str
    """The rejected text."""


class MapRow(msgspec.Struct, frozen=True):
    """A map version that the run serves from now on."""

    version: int
    key: str | None
    """The key of the events that it is for; None: events without a key."""
    time: float | None
    """Event time of its publication, seconds since the epoch; None before the first event with a time."""
    map: msgspec.Raw
    """JSON of a `streamcal.RecalibrationMap`."""
    certificate: msgspec.Raw = msgspec.Raw(b"null")
    """JSON of a `streamcal.Certificate`; ``null`` if nothing is certified."""
    mixture: msgspec.Raw = msgspec.Raw(b"null")
    """JSON of a `streamcal.engine.emissions.Mixing`; ``null`` if the map is not a mixture."""
