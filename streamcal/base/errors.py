"""The exceptions that streamcal raises on purpose."""

from __future__ import annotations


class StreamcalError(Exception):
    """The base class of streamcal's own exceptions."""


class ColumnsError(StreamcalError, ValueError):
    """A file has not the columns that options name, or others than the files before. It names the file."""


class DamagedStateError(StreamcalError, ValueError):
    """The bytes are not a valid streamcal state. The message says what is wrong."""


class StoreError(StreamcalError):
    """A store cannot be opened, read or written. The message names it and says what to do."""


class OutputError(StreamcalError):
    """An output cannot be written. The message names it."""
