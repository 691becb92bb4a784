"""NestedWindows: the labels of sliding windows of several lengths, as counts per cell of one grid.

The grid is that of a `ScoreSketch` of all labels. The module stores cumulative counts at boundaries between
labels; the counts of a window are the difference of two of them. Older boundaries are thinned out: the window
of W labels begins at a boundary at most W/8 labels and one step before its exact beginning.

Memory: 4 bytes for each cell and boundary, 8 for windows of more than about 29,000 labels. The windows of
mode ``auto`` need about 25 boundaries in the long run.
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
from streamcal.sketch.arrays import Cells, Counts, Labels
from streamcal.sketch.cells import check_cells, coarsen, pack_counts, unpack_counts
from streamcal.sketch.decoding import Count

__all__ = ["STEPS_PER_WINDOW", "NestedWindows", "WindowState"]

STEPS_PER_WINDOW: Final = 8
"""A window advances by its own length in at most this many steps."""

_THIN_EVERY: Final = 8  # boundaries
_MOST_SINCE: Final = 1 << 30  # labels from the first boundary on: they are counted in int32
_FEW_SINCE: Final = 1 << 15  # fewer of them are counted in int16

# Labels per class and cell from the first boundary on, int16[2, m] or int32[2, m]; the last is the widest.
_Cumulative = npt.NDArray[np.int16] | npt.NDArray[np.int32]


class WindowState(msgspec.Struct):
    """The state of `NestedWindows`."""

    level: int
    marks: list[Count]
    cells: bytes
    forgotten: bytes
    panes: list[bytes]


class NestedWindows:
    """Counts of labels per class and cell for windows of several lengths, all ending at the latest label.

    Parameters
    ----------
    lengths
        the lengths of the windows, in labels, ascending.
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
        """The occupied cells, int32[m], ascending. Do not modify the array."""
        self._marks = [0, 0]  # labels before each boundary; the last boundary is after the latest label
        # Labels per class and cell before the first boundary, and from the first boundary to each boundary.
        self._forgotten: Counts = np.zeros((2, 0), np.int64)
        self._since: list[_Cumulative] = [np.zeros((2, 0), np.int16)] * 2

    @property
    def n(self) -> int:
        """How many labels were added so far."""
        return self._marks[-1]

    @property
    def counts(self) -> Counts:
        """All labels per class and cell, int64[2, m]."""
        counts: Counts = self._forgotten + self._since[-1]
        return counts

    def held(self, length: int) -> int:
        """Return how many labels the window of this length holds."""
        return self.n - self._marks[self._start(length)]

    def window(self, length: int) -> Counts:
        """Return the labels of the window of this length per class and cell, int64[2, m]."""
        counts: Counts = (self._since[-1] - self._since[self._start(length)]).astype(np.int64)
        return counts

    def add(self, cells: Cells, labels: Labels) -> None:
        """Add the next labels, int8[n], with the cells of their scores on the finest grid, int32[n]."""
        columns = self._columns(cells)
        m = len(self.cells)
        added = np.bincount(columns + m * labels.astype(np.int64), minlength=2 * m)
        # A new array, because the boundary before may share this one.
        self._marks[-1] += len(labels)
        self._since[-1] = _narrow(self._since[-1] + added.reshape(2, m), self.n - self._marks[0])

    def mark(self) -> None:
        """Add a boundary after the latest label, and from time to time drop those that no window needs."""
        self._marks.append(self.n)
        self._since.append(self._since[-1])
        if len(self._marks) % _THIN_EVERY == 0:
            self._thin()

    def merge(self, other: NestedWindows) -> None:
        """Add the labels of the other object as later labels."""
        level = max(self.level, other.level)
        self._coarsen(level)
        self._add_cells(np.unique(other.cells >> np.int32(level - other.level)))
        columns = np.searchsorted(self.cells, other.cells >> np.int32(self.level - other.level))
        m, n = len(self.cells), self.n
        theirs = [_spread(counts, columns, m) for counts in other._since]
        marks = [n + mark for mark in other._marks]
        if other._marks[0]:
            # The other object has already dropped a boundary, so it alone covers every window.
            self._forgotten = self.counts + _spread(other._forgotten, columns, m)
            self._since, self._marks = theirs, marks
        else:
            # Keep a boundary between the labels of the two.
            last = self._since.pop()
            self._since += [np.add(last, counts, dtype=np.int32) for counts in theirs]
            self._marks[-1:] = marks

    def to_state(self) -> WindowState:
        """Return the state. Equal states give equal bytes."""
        panes = np.diff(np.stack(self._since), axis=0)
        return WindowState(
            self.level,
            list(self._marks),
            self.cells.astype("<i4").tobytes(),
            pack_counts(self._forgotten),
            [pack_counts(pane) for pane in panes],
        )

    def restore(self, state: WindowState) -> Self:
        """Replace the contents by the state from `to_state`.

        Raises
        ------
        DamagedStateError
            if the state is not valid.
        """
        if len(state.cells) % 4:
            raise DamagedStateError(f"the cells of windows take 4 bytes each, got {len(state.cells)} bytes")
        cells = np.frombuffer(state.cells, "<i4").astype(np.int32)
        m, marks = len(cells), state.marks
        check_cells(cells, state.level, self._max_cells)
        if len(marks) < 2 or len(state.panes) != len(marks) - 1:
            raise DamagedStateError(f"{len(state.panes)} panes of windows do not fit {len(marks)} boundaries")
        panes = np.stack([unpack_counts(part, (2, m)) for part in (state.forgotten, *state.panes)])
        sizes = panes.sum(axis=(1, 2), dtype=np.float64)  # of counts of any size, exact up to 2⁵³
        if (panes < 0).any() or (sizes.cumsum() != marks).any():
            raise DamagedStateError("the counts of windows are negative or do not add up")
        first, n = marks[0], marks[-1]
        if n - first > _MOST_SINCE or (first and n - first < self._lengths[-1]):
            raise DamagedStateError(f"windows of {n} labels begin at label {first}")
        self.level, self.cells, self._marks = state.level, cells, list(marks)
        self._forgotten = panes[0].copy()
        panes[0] = 0
        self._since = list(_narrow(panes.cumsum(axis=0), n - first))
        return self

    def _thin(self) -> None:
        """Drop the boundaries that no window needs any more."""
        marks, n = self._marks, self.n
        kept = [max(0, bisect_right(marks, n - self._lengths[-1]) - 1)]
        for i in range(kept[0] + 1, len(marks) - 1):
            # Without boundary i, only windows that reach back beyond boundary i + 1 begin in the gap.
            longer = next((length for length in self._lengths if length > n - marks[i + 1]), None)
            if longer is not None and marks[i + 1] - marks[kept[-1]] > longer // STEPS_PER_WINDOW:
                kept.append(i)
        kept.append(len(marks) - 1)
        first = self._since[kept[0]]
        self._forgotten = self._forgotten + first
        self._since = [_narrow(self._since[i] - first, n - marks[kept[0]]) for i in kept]
        self._marks = [marks[i] for i in kept]

    def _start(self, length: int) -> int:
        """Return the index of the boundary at which the window of this length begins."""
        return max(0, bisect_right(self._marks, self.n - length) - 1)

    def _columns(self, cells: Cells) -> npt.NDArray[np.int64]:
        """Return the column of counts of each cell of the finest grid; add the columns that are missing."""
        coarse = cells >> np.int32(self.level - grid.MIN_LEVEL)
        columns: npt.NDArray[np.int64] = np.searchsorted(self.cells, coarse)
        if len(cells) and (np.append(self.cells, np.int32(-1))[columns] != coarse).any():
            self._add_cells(np.unique(coarse))
            columns = np.searchsorted(self.cells, cells >> np.int32(self.level - grid.MIN_LEVEL))
        return columns

    def _add_cells(self, cells: Cells) -> None:
        """Add a column of counts for each of these cells of this level; coarsen until all fit."""
        both = np.union1d(self.cells, cells)
        columns = np.searchsorted(both, self.cells)
        self._forgotten = _spread(self._forgotten, columns, len(both))
        since = np.zeros((len(self._since), 2, len(both)), self._since[-1].dtype)
        since[:, :, columns] = self._since
        self._since = list(since)
        self.cells = both
        while len(self.cells) > self._max_cells:
            self._coarsen(self.level + 1)

    def _coarsen(self, level: int) -> None:
        """Coarsen the grid to this level."""
        stacked = np.stack(self._since)
        cells, self._forgotten = coarsen(self.cells, self._forgotten, level - self.level)
        self._since = list(coarsen(self.cells, stacked, level - self.level)[1])
        self.cells, self.level = cells, level


def _narrow(counts: npt.NDArray[Any], labels: int) -> _Cumulative:
    """Return counts that add up to at most so many labels in the narrower of both types."""
    if labels < _FEW_SINCE:
        return counts.astype(np.int16, copy=False)
    return counts.astype(np.int32, copy=False)


def _spread(counts: npt.NDArray[Any], columns: npt.NDArray[np.int64], m: int) -> npt.NDArray[Any]:
    """Return counts, [2, k], moved to these of m columns; counts that meet in a column add up."""
    spread = np.zeros((2, m), counts.dtype)
    for row, given in zip(spread, counts, strict=True):
        np.add.at(row, columns, given)
    return spread
