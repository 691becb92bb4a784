"""Counts of labels by cell: in a Tally, while they are added in any order; or once they are sorted."""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.sketch.keys_c import LAST_KEY, key_of
from streamcal.values import Cells, Counts, Floats, Labels

__all__ = ["Tally", "count_sorted"]

_EMPTY: Final = -1.0  # in place of the atom of a cell without scores
_SEVERAL: Final = float("nan")
_MULTIPLIER: Final = 0x9E3779B1  # 2³² over the golden ratio, which spreads the cells (Knuth, volume 3, 6.4)
_WORD: Final = 0xFFFFFFFF


class Tally:
    """Cells with their counts and atoms, at most ``max_cells`` of them: one more coarsens the grid first.

    What it holds in the end depends only on what was added, not on the order: a coarser level is taken only
    where the cells so far do not fit, and then all of them do not fit either.

    Parameters
    ----------
    cells, counts, atoms, level
        what it begins with: int32[m] that differ, int64[rows, m], float64[m] and their level.
    max_cells
        how many cells may be occupied, at least 64 and m.
    more
        how many scores or cells are to be added at the most.
    """

    def __init__(
        self, cells: Cells, counts: Counts, atoms: Floats, level: int, max_cells: int, more: int
    ) -> None:
        size, room = len(cells), min(max_cells, len(cells) + more)
        self.level = level
        """The level of the cells."""
        self.appended = False
        """Whether the order of the cells has changed: they are not in that of the beginning any more."""
        self._size, self._room = 0, room
        self._cells = np.empty(room, np.int64)
        self._counts = np.empty((room, len(counts)), np.int64)
        self._atoms = np.empty(room)
        bits, every = max(4, (4 * room - 1).bit_length()), (LAST_KEY >> level) + 1
        self._shift = 32 - bits
        # Most often the level is so coarse that each cell can have a slot of its own.
        self._direct = every <= 8 * room
        self._slots = np.full(every if self._direct else 1 << bits, -1, np.int32)
        np.asarray(self._cells)[:size] = cells
        np.asarray(self._counts)[:size] = counts.T
        np.asarray(self._atoms)[:size] = atoms
        self._index(size)

    @property
    def contents(self) -> tuple[Cells, Counts, Floats]:
        """The cells, ascending, with their counts, int64[rows, m], and their atoms."""
        cells, atoms = np.asarray(self._cells)[: self._size], np.asarray(self._atoms)[: self._size]
        counts = np.asarray(self._counts)[: self._size]
        if self.appended:
            order = np.argsort(cells, kind="stable")
            cells, counts, atoms = cells[order], counts[order], atoms[order]
        return cells.astype(np.int32), counts.T, atoms

    def add(self, scores: Floats, labels: Labels) -> None:
        """Add checked scores, float64[n], with their labels, int8[n]; without labels, all count as 0."""
        labelled, size = len(labels) > 0, len(scores)
        slots, counts, atoms = self._slots, self._counts, self._atoms
        direct, level = self._direct, self.level
        for i in range(size):
            score = scores[i]
            key = key_of(score)
            place = slots[key >> level] if direct else -1
            if place < 0:
                place = self._place(key)
                direct, level = self._direct, self.level
            counts[place, labels[i] if labelled else 0] += 1
            atom = atoms[place]
            if atom == atom and atom != score:
                atoms[place] = score if atom == _EMPTY else _SEVERAL

    def merge(self, cells: Cells, counts: Counts, atoms: Floats, level: int) -> None:
        """Add cells of any level, int32[m], with their counts, int64[rows, m], and atoms."""
        if level > self.level:
            self.coarsen(level)
        keys = cells.astype(np.int64) << level
        for i in range(len(keys)):
            place = self._place(keys[i])
            self._join(place, atoms[i])
            for row in range(len(counts)):
                self._counts[place, row] += counts[row, i]

    def coarsen(self, level: int) -> None:
        """Raise the level: cells that become equal are joined."""
        size, up = self._size, level - self.level
        self.level, self._size = level, 0
        self._direct = LAST_KEY >> level < len(self._slots)
        self._slots[:] = -1
        for i in range(size):
            cell = self._cells[i] >> up
            slot = self._slot(cell)
            place = self._slots[slot]
            if place < 0:  # places are taken in turn, so that none is overwritten before it was read
                place = self._take(slot, cell)
                self._atoms[place] = self._atoms[i]
                for row in range(self._counts.shape[1]):
                    self._counts[place, row] = self._counts[i, row]
            else:
                self._join(place, self._atoms[i])
                for row in range(self._counts.shape[1]):
                    self._counts[place, row] += self._counts[i, row]

    def _index(self, size: int) -> None:
        """Enter the first so many cells into the hash table."""
        for i in range(size):
            self._take(self._slot(self._cells[i]), self._cells[i])

    def _place(self, key: int) -> int:
        """Return the place of a key's cell, which becomes occupied; the grid may be coarsened for it."""
        slot = self._slot(key >> self.level)
        place = self._slots[slot]
        while place < 0:
            if self._size < self._room:
                place = self._take(slot, key >> self.level)
                self.appended = True
                self._atoms[place] = _EMPTY
                for row in range(self._counts.shape[1]):
                    self._counts[place, row] = 0
                break
            self.coarsen(self.level + 1)
            slot = self._slot(key >> self.level)
            place = self._slots[slot]
        return place  # type: ignore[no-any-return]

    def _slot(self, cell: int) -> int:
        """Return the slot of a cell in the hash table: the one that has it, or the one to put it into."""
        last = len(self._slots) - 1
        slot = cell if self._direct else ((cell * _MULTIPLIER) & _WORD) >> self._shift
        while self._slots[slot] >= 0 and self._cells[self._slots[slot]] != cell:
            slot = (slot + 1) & last
        return slot

    def _take(self, slot: int, cell: int) -> int:
        """Put a cell into an empty slot; return its place."""
        place = self._size
        self._slots[slot] = place
        self._cells[place] = cell
        self._size += 1
        return place

    def _join(self, place: int, atom: float) -> None:
        """Add the atom of more scores to a cell."""
        own = self._atoms[place]
        if own == _EMPTY:
            self._atoms[place] = atom
        elif own != atom:
            self._atoms[place] = _SEVERAL


def count_sorted(packed: Cells, cells: Cells, counts: Counts) -> int:
    """Count labels by cell and class; return how many cells there are.

    Parameters
    ----------
    packed
        int32[m], ascending: the cell of each label, with the label in the lowest bit.
    cells, counts
        int32[m] and int64[2, m], whose first columns get the cells, ascending, and their labels 0 and 1.
    """
    last = -1
    for i in range(len(packed)):
        cell, label = packed[i] >> 1, packed[i] & 1
        if last < 0 or cells[last] != cell:
            last += 1
            cells[last] = cell
            counts[0, last] = counts[1, last] = 0
        counts[label, last] += 1
    return last + 1
