"""RowQueue: row numbers, first in, first out, many at a time."""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.texts import Indices

__all__ = ["RowQueue"]

_ROOM: Final = 1 << 16  # at least


class RowQueue:
    """Row numbers in one array, whose free beginning is given up when its end is reached."""

    __slots__ = ("_begin", "_end", "_rows", "popped")

    def __init__(self) -> None:
        self._rows: Indices = np.zeros(0, np.int64)
        self._begin = self._end = 0
        self.popped = 0
        """How many were ever taken out."""

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def rows(self) -> Indices:
        """Those in it, in order; what is written into them stays."""
        return self._rows[self._begin : self._end]

    def push(self, rows: Indices) -> None:
        """Put rows behind the others."""
        if self._end + len(rows) > len(self._rows):
            kept = self.rows
            longer = np.empty(max(_ROOM, (len(kept) + len(rows)) * 5 // 4), np.int64)
            longer[: len(kept)] = kept
            self._rows, self._begin, self._end = longer, 0, len(kept)
        self._rows[self._end : self._end + len(rows)] = rows
        self._end += len(rows)

    def pop(self, count: int) -> Indices:
        """Take out the first so many, of which there must be as many."""
        self._begin += count
        self.popped += count
        return self._rows[self._begin - count : self._begin]
