"""WindowCounts: the labels of many sliding windows at once, as counts per cell of one grid.

The grid is that of a `ScoreSketch` of all labels. Kept are cumulative counts at boundaries between labels,
those before every boundary that a window may begin at; a window is the difference of two. The boundaries are
thinned with age: a window of W labels finds one at most W/8 labels and one step before its exact beginning.

Memory: 8 bytes a cell and boundary, for the windows of mode ``auto`` about 35 boundaries in the long run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.sketch import grid
from streamcal.sketch.cells import check_cells, coarsen, pack_counts, unpack_counts

__all__ = ["PANES", "WindowCounts", "WindowState"]

PANES: Final = 8
"""In how many steps, or fewer, a window advances by its own length."""

_THIN_EVERY: Final = 8

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int32]
Labels = npt.NDArray[np.int8]


class WindowState(msgspec.Struct):
    """The state of `WindowCounts`."""

    level: int
    marks: list[int]
    cells: bytes
    forgotten: bytes
    panes: list[bytes]


class WindowCounts:
    """Counts of labels per cell for windows of several lengths.

    Parameters
    ----------
    lengths
        of the windows, in labels, ascending.
    max_cells
        how many cells may be occupied before the grid is coarsened.
    """

    __slots__ = ("_forgotten", "_lengths", "_marks", "_max_cells", "_since", "cells", "level")

    def __init__(self, lengths: Sequence[int], max_cells: int) -> None:
        self._lengths = tuple(lengths)
        self._max_cells = max_cells
        self.level = grid.MIN_LEVEL
        """The level of the grid."""
        self.cells: Cells = np.empty(0, np.int32)
        """The occupied cells, int32[m], ascending; not to be changed."""
        self._marks = [0, 0]  # labels before each boundary; the last one is now
        # Labels per class and cell before the first boundary, and from there to each of them.
        self._forgotten: npt.NDArray[np.int64] = np.zeros((2, 0), np.int64)
        self._since: list[Counts] = [np.zeros((2, 0), np.int32)] * 2

    @property
    def n(self) -> int:
        """How many labels there were."""
        return self._marks[-1]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """All labels per class and cell, int64[2, m]."""
        counts: npt.NDArray[np.int64] = self._forgotten + self._since[-1]
        return counts

    def held(self, length: int) -> int:
        """Return how many labels the window of this length holds now."""
        return self.n - self._marks[self._start(length)]

    def window(self, length: int) -> npt.NDArray[np.int64]:
        """Return the labels of one window per class and cell, int64[2, m]."""
        counts: npt.NDArray[np.int64] = (self._since[-1] - self._since[self._start(length)]).astype(np.int64)
        return counts

    def add(self, cells: Cells, labels: Labels) -> None:
        """Add labels, int8[n], with the cells of their scores on the finest grid, int32[n], as the latest."""
        places = self._places(cells)
        m = len(self.cells)
        added = np.bincount(places + m * labels.astype(np.int64), minlength=2 * m)
        self._since[-1] = self._since[-1] + added.reshape(2, m).astype(np.int32)  # not in place: it is shared
        self._marks[-1] += len(labels)

    def mark(self) -> None:
        """Let windows begin here too, and now and then forget the boundaries that none needs any more."""
        self._marks.append(self.n)
        self._since.append(self._since[-1])
        if len(self._marks) % _THIN_EVERY == 0:
            self._thin()

    def merge(self, other: WindowCounts) -> None:
        """Add what the other holds, as later labels."""
        level = max(self.level, other.level)
        self._coarsen(level)
        self._make_room(np.unique(other.cells >> np.int32(level - other.level)))
        places = np.searchsorted(self.cells, other.cells >> np.int32(self.level - other.level))
        m, n = len(self.cells), self.n
        theirs = [_spread(counts, places, m) for counts in other._since]
        marks = [n + mark for mark in other._marks]
        if other._marks[0]:
            # It holds all the labels that windows need, and more.
            self._forgotten = self.counts + _spread(other._forgotten, places, m)
            self._since, self._marks = theirs, marks
        else:
            # Windows may begin where the labels of the other do, too.
            last = self._since.pop()
            self._since += [last + counts for counts in theirs]
            self._marks[-1:] = marks

    def to_state(self) -> WindowState:
        """Return the state; equal states are equal in every byte."""
        panes = np.diff(np.stack(self._since), axis=0)
        return WindowState(
            self.level,
            list(self._marks),
            self.cells.astype("<i4").tobytes(),
            pack_counts(self._forgotten),
            [pack_counts(pane) for pane in panes],
        )

    def restore(self, state: WindowState) -> Self:
        """Take on the state that `to_state` gave.

        Raises
        ------
        DamagedStateError
            if it is none.
        """
        if len(state.cells) % 4:
            raise DamagedStateError(f"cells of windows in {len(state.cells)} bytes")
        cells = np.frombuffer(state.cells, "<i4").astype(np.int32)
        m, marks = len(cells), state.marks
        check_cells(cells, state.level, self._max_cells)
        if len(marks) < 2 or len(state.panes) != len(marks) - 1:
            raise DamagedStateError(f"{len(state.panes)} panes of windows, {len(marks)} boundaries")
        panes = np.stack([unpack_counts(part, (2, m)) for part in (state.forgotten, *state.panes)])
        sizes = panes.sum(axis=(1, 2), dtype=object)
        if (panes < 0).any() or [sum(sizes[: i + 1]) for i in range(len(sizes))] != marks:
            raise DamagedStateError("counts of windows are negative or do not add up")
        self.level, self.cells, self._marks = state.level, cells, list(marks)
        self._forgotten = panes[0].copy()
        panes[0] = 0
        self._since = list(panes.cumsum(axis=0).astype(np.int32))
        return self

    def _thin(self) -> None:
        """Forget the boundaries that no window needs any more."""
        marks, n = self._marks, self.n
        kept = [max(0, bisect_right(marks, n - self._lengths[-1]) - 1)]
        for i in range(kept[0] + 1, len(marks) - 1):
            # Where the neighbours leave a gap will begin only windows longer than the later one is old.
            longer = next((length for length in self._lengths if length > n - marks[i + 1]), None)
            if longer is not None and marks[i + 1] - marks[kept[-1]] > longer // PANES:
                kept.append(i)
        kept.append(len(marks) - 1)
        first = self._since[kept[0]]
        self._forgotten = self._forgotten + first
        self._since = [self._since[i] - first for i in kept]
        self._marks = [marks[i] for i in kept]

    def _start(self, length: int) -> int:
        """Return which boundary the window of this length begins at."""
        return max(0, bisect_right(self._marks, self.n - length) - 1)

    def _places(self, cells: Cells) -> npt.NDArray[np.int64]:
        """Return where the counts of every cell of the finest grid are; make room if they are nowhere yet."""
        coarse = cells >> np.int32(self.level - grid.MIN_LEVEL)
        places: npt.NDArray[np.int64] = np.searchsorted(self.cells, coarse)
        if len(cells) and (np.append(self.cells, np.int32(-1))[places] != coarse).any():
            self._make_room(np.unique(coarse))
            places = np.searchsorted(self.cells, cells >> np.int32(self.level - grid.MIN_LEVEL))
        return places

    def _make_room(self, cells: Cells) -> None:
        """Have a place for each of these cells of this level, coarsening until all fit."""
        both = np.union1d(self.cells, cells)
        places = np.searchsorted(both, self.cells)
        self._forgotten = _spread(self._forgotten, places, len(both))
        since = np.zeros((len(self._since), 2, len(both)), np.int32)
        since[:, :, places] = self._since
        self._since = list(since)
        self.cells = both
        while len(self.cells) > self._max_cells:
            self._coarsen(self.level + 1)

    def _coarsen(self, level: int) -> None:
        """Go up to this level: neighbours 2k and 2k+1 add up."""
        stacked = np.stack(self._since)
        cells, self._forgotten = coarsen(self.cells, self._forgotten, level - self.level)
        self._since = list(coarsen(self.cells, stacked, level - self.level)[1])
        self.cells, self.level = cells, level


def _spread(counts: npt.NDArray[Any], places: npt.NDArray[np.int64], m: int) -> npt.NDArray[Any]:
    """Return counts, [2, k], at these of m places; those that fall together add up."""
    spread = np.zeros((2, m), counts.dtype)
    for row, given in zip(spread, counts, strict=True):
        np.add.at(row, places, given)
    return spread
