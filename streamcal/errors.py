"""The exceptions that streamcal raises on purpose."""

from __future__ import annotations

__all__ = ["DamagedStateError", "OutputError", "StoreError", "StreamcalError"]


class StreamcalError(Exception):
    """Base of every exception that is streamcal's own."""


class DamagedStateError(StreamcalError, ValueError):
    """Bytes that are not a state of streamcal, or no longer one; the message says what is wrong."""


class StoreError(StreamcalError):
    """A store that cannot be opened, read or written; the message names it and says what to do."""


class OutputError(StreamcalError):
    """An output that cannot be written; the message names it."""
