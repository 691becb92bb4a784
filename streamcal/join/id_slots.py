"""IdSlots: which row holds an id, for many ids at once: a hash table of one array.

Open addressing with steps that depend on the hash. A slot holds a row number and 32 bits of the hash, so that
most slots of other ids are told without looking at the row. Rows die in the order of their numbers, or nearly
so: a slot of a row below the first that lives is free again, and nothing has to be removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.texts import Hashes, Indices

__all__ = ["MAX_ROW", "IdSlots"]

MAX_ROW: Final = (1 << 31) - 1
"""The largest row number."""

_SLOTS_A_ROW: Final = 2  # at least, once as many rows live as may
_FULLEST: Final = 0.5  # of the slots that were ever taken
_HALF: Final = np.uint64(32)
_ROW: Final = np.uint64((1 << 32) - 1)
_ONE: Final = np.uint64(1)

Same = Callable[[Indices, Indices], npt.NDArray[np.bool_]]


class IdSlots:
    """Row numbers by the hash of their ids.

    Parameters
    ----------
    rows
        how many may live.
    """

    __slots__ = ("_mask", "_slots", "_taken")

    def __init__(self, rows: int) -> None:
        size = 1 << (_SLOTS_A_ROW * rows).bit_length()
        self._slots: Hashes = np.zeros(size, np.uint64)
        self._mask = np.uint64(size - 1)
        self._taken = 0  # slots that were ever taken

    def has_room(self, more: int) -> bool:
        """Whether so many rows can be added; else the table has to be made anew from the rows that live."""
        return self._taken + more <= _FULLEST * len(self._slots)

    def find(self, hashes: Hashes, first: int, same: Same) -> Indices:
        """Return the row of each id, int64[n]; 0 where there is none.

        Parameters
        ----------
        hashes
            of the ids.
        first
            no row below lives.
        same
            of some of the ids, given as indices, and of a row for each: whether that row lives and has it.
        """
        rows = np.zeros(len(hashes), np.int64)
        tags, mask = hashes >> _HALF, self._mask
        places = hashes & mask
        some: Indices | None = None  # those still looked for; None: all
        while len(places):
            slots = self._slots[places]
            on = slots != 0
            alike = (slots >> _HALF == tags).nonzero()[0]
            if alike.size:
                found = (slots[alike] & _ROW).astype(np.int64)
                live = found >= first
                alike, found = alike[live], found[live]
                numbers = alike if some is None else some[alike]
                agree = same(numbers, found)
                rows[numbers[agree]] = found[agree]
                on[alike[agree]] = False
            left = on.nonzero()[0]
            some = left if some is None else some[left]
            tags = tags[left]
            places = places[left] + (tags | _ONE) & mask
        return rows

    def add(self, hashes: Hashes, rows: Indices, first: int) -> None:
        """Add rows of ids that none of the rows from ``first`` on has, and no two of them alike."""
        tags, mask = hashes & ~_ROW, self._mask
        values, steps = tags | rows.astype(np.uint64), hashes >> _HALF | _ONE
        places, least = hashes & mask, np.uint64(first)
        while len(places):
            before = self._slots[places]
            free = (before & _ROW < least).nonzero()[0]
            open_, asked = places[free], values[free]
            self._slots[open_] = asked  # of several for one slot, the last stays
            stay = self._slots[open_] == asked
            placed = free[stay]
            self._taken += int(np.count_nonzero(before[placed] == 0))
            left = np.ones(len(places), np.bool_)
            left[placed] = False
            values, steps = values[left], steps[left]
            places = places[left] + steps & mask
