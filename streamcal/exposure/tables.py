"""Counts by key, as sorted columns: the state is a function of the multiset of counted keys.

Memory: 16 bytes for each key that occurs.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np

from streamcal.sketch.decoding import MOST, ascending, require
from streamcal.values import Counts

__all__ = ["Table", "TableState"]

_NONE: Final = np.zeros(0, np.int64)


class TableState(NamedTuple):
    """The state of a `Table`."""

    keys: Counts
    counts: Counts


class Table:
    """Number of times that each key occurred.

    Parameters
    ----------
    keys, counts
        int64[m], ascending; int64[m], positive.
    """

    __slots__ = ("counts", "keys")

    def __init__(self, keys: Counts = _NONE, counts: Counts = _NONE) -> None:
        self.keys, self.counts = keys, counts

    def add(self, keys: Counts, counts: Counts | None = None) -> None:
        """Count keys, int64[n] in any order, once each, or ``counts`` times, int64[n]."""
        if not len(keys):
            return
        more = np.ones(len(keys), np.int64) if counts is None else counts
        self.keys, places = np.unique(np.concatenate((self.keys, keys)), return_inverse=True)
        sums = np.zeros(len(self.keys), np.int64)
        np.add.at(sums, places, np.concatenate((self.counts, more)))
        self.counts = sums

    def take_below(self, key: int) -> Table:
        """Remove the keys below this one, and return them with their counts."""
        cut = int(self.keys.searchsorted(key))
        taken = Table(self.keys[:cut], self.counts[:cut])
        self.keys, self.counts = self.keys[cut:], self.counts[cut:]
        return taken

    @classmethod
    def restored(cls, state: TableState, low: int, end: int) -> Self:
        """Return the table of a state; raise ValueError unless its keys lie in [low, end)."""
        keys, counts = ascending(state.keys, "keys"), state.counts
        require(not len(keys) or low <= keys[0] <= keys[-1] < end, f"keys are not all in [{low}, {end})")
        require(len(keys) == len(counts), f"{len(counts)} counts of {len(keys)} keys")
        require((counts > 0).all() and counts.sum(dtype=float) <= MOST, "counts by key are out of range")
        return cls(keys, counts)
