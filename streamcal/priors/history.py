"""PriorPanes: what is known of the target's class balance, a stretch of predictions at a time.

A pane is a stretch of predictions in the order in which they were made: how many scores were observed, how
they spread over the cells of one grid, which of them still have no label, and the labels of the others. So a
prediction counts once, however late its label comes, and where it was made, not where its label arrived.

Memory: 8 bytes a cell and pane; at most `MAX_CELLS` cells, and about 60 panes for a million predictions when
their lengths adapt.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.priors.adwin import grouped
from streamcal.sketch import grid
from streamcal.sketch.cells import check_cells, coarsen, pack_counts, unpack_counts

__all__ = ["MAX_CELLS", "PanesState", "PriorPanes"]

MAX_CELLS: Final = 256
"""How many cells may be occupied before the grid is coarsened."""

_LONGEST: Final = 1 << 30  # predictions in a pane: counts per cell are int32
_MOST: Final = 1 << 48  # predictions in all
_FIELDS: Final = (
    5  # of a pane: position of its first score, scores, labels without a score, labels 0, labels 1
)

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Counts = npt.NDArray[np.int64]
Cells = npt.NDArray[np.int32]


class PanesState(msgspec.Struct):
    """The state of `PriorPanes`."""

    end: int
    level: int
    cells: bytes
    panes: bytes
    spread: bytes
    unlabelled: bytes


class PriorPanes:
    """Scores and labels of the latest predictions, in panes.

    Parameters
    ----------
    finest
        predictions in a new pane, at least 1.
    longest
        predictions in the longest; None: a quarter of those that are newer.
    """

    __slots__ = ("_finest", "_longest", "_panes", "_spread", "_unlabelled", "cells", "end", "level")

    def __init__(self, finest: int, longest: int | None) -> None:
        self._finest = finest
        self._longest = longest
        self.end = 0
        """How many scores were observed, those that have been dropped among them."""
        self.level = grid.MIN_LEVEL
        """The level of the grid."""
        self.cells: Cells = np.empty(0, np.int32)
        """The cells, int32[m], ascending; a new array whenever they change."""
        self._panes: Counts = np.zeros((_FIELDS, 0), np.int64)
        self._spread: Cells = np.zeros((0, 0), np.int32)  # per pane and cell
        self._unlabelled: Cells = np.zeros((0, 0), np.int32)  # the same of scores without a label

    @property
    def scores(self) -> Counts:
        """Number of scores in each pane, int64[J], oldest first."""
        scores: Counts = self._panes[1]
        return scores

    @property
    def spread(self) -> Cells:
        """The scores per pane and cell, int32[J, m]."""
        return self._spread

    @property
    def labels(self) -> Counts:
        """The labels of each class in each pane, int64[2, J]."""
        return self._panes[3:]

    @property
    def unlabelled(self) -> Cells:
        """Those of them that have no label, int32[J, m]."""
        return self._unlabelled

    @property
    def predictions(self) -> int:
        """How many predictions the panes hold."""
        return int(self._panes[1:3].sum())

    def observe(self, scores: Scores) -> None:
        """Take the scores of the next predictions, float64[n] in [0, 1]."""
        starts = np.arange(0, len(scores), self._finest)
        if not len(starts):
            return
        cells = grid.cells_of(scores, self.level)
        columns, known = self._columns(cells)
        if not known.all():
            self._make_room(cells)
            columns, _ = self._columns(grid.cells_of(scores, self.level))
        m, panes = len(self.cells), np.zeros((_FIELDS, len(starts)), np.int64)
        panes[0] = self.end + starts
        panes[1] = np.minimum(len(scores) - starts, self._finest)
        pane_of = np.arange(len(scores)) // self._finest
        spread = np.bincount(pane_of * m + columns, minlength=len(starts) * m).reshape(-1, m).astype(np.int32)
        self._append(panes, spread, spread)
        self.end += len(scores)

    def take(self, labels: Labels) -> None:
        """Take labels of predictions whose scores were not observed, int8[n], as the latest predictions."""
        starts = np.arange(0, len(labels), self._finest)
        if not len(starts):
            return
        panes = np.zeros((_FIELDS, len(starts)), np.int64)
        panes[0] = self.end
        panes[2] = np.minimum(len(labels) - starts, self._finest)
        panes[4] = np.add.reduceat(labels, starts, dtype=np.int64)
        panes[3] = panes[2] - panes[4]
        none = np.zeros((len(starts), len(self.cells)), np.int32)
        self._append(panes, none, none)

    def settle(self, seen: Counts, labels: Labels, scores: Scores) -> None:
        """Count predictions by their labels from now on, no longer by their scores.

        Parameters
        ----------
        seen
            int64[n], before `end`: how many scores had been observed when each prediction was made. Its own
            is the first from there on that lies in the cell of its score and has no label.
        labels, scores
            int8[n] and float64[n], of the predictions. Those made before the first pane do not count.
        """
        panes = np.searchsorted(self._panes[0], seen, side="right") - 1
        held = panes >= 0
        panes, labels, scores = panes[held], labels[held], scores[held]
        cells = grid.cells_of(scores, self.level)
        columns, known = self._columns(cells)
        waiting, own = self._unlabelled, (panes[known], columns[known])
        np.subtract.at(waiting, own, 1)
        if not (waiting[own] < 0).any():
            np.add.at(self._panes, (3 + labels, panes), 1)
            return
        np.add.at(waiting, own, 1)
        for pane, column, is_known, label in zip(
            panes.tolist(), columns.tolist(), known.tolist(), labels.tolist(), strict=True
        ):
            place = pane
            if is_known:
                later = waiting[pane:, column]
                place += int(np.argmax(later > 0))
                later[place - pane] -= min(later[place - pane], 1)
            self._panes[3 + label, place] += 1

    def thin(self) -> None:
        """Merge neighbouring panes that are shorter than they need to be."""
        starts = grouped(
            self._panes[1:3].sum(axis=0).tolist(),
            self._finest,
            min(self._longest or _LONGEST, _LONGEST),
            adaptive=self._longest is None,
        )
        if len(starts) == self._panes.shape[1]:
            return
        panes, spread, unlabelled = self._panes, self._spread, self._unlabelled
        self._panes = panes[:, starts]
        self._spread, self._unlabelled = spread[starts], unlabelled[starts]
        # Few of many are merged at a time: to add those up one by one is faster than one pass over all.
        into = np.searchsorted(starts, np.arange(panes.shape[1]), side="right") - 1
        for i in np.flatnonzero(np.bincount(starts, minlength=len(into)) == 0).tolist():
            self._panes[1:, into[i]] += panes[1:, i]
            self._spread[into[i]] += spread[i]
            self._unlabelled[into[i]] += unlabelled[i]

    def drop(self, panes: int) -> None:
        """Forget so many panes, the oldest."""
        self._panes = self._panes[:, panes:]
        self._spread, self._unlabelled = self._spread[panes:], self._unlabelled[panes:]

    def keep(self, predictions: int) -> None:
        """Forget the panes that are not needed to hold so many predictions."""
        newer = self.predictions - np.cumsum(self._panes[1:3].sum(axis=0))
        self.drop(int(np.count_nonzero(newer >= predictions)))

    def merge(self, other: PriorPanes) -> None:
        """Take what the other holds as later predictions."""
        level = max(self.level, other.level)
        self._coarsen(level)
        cells = other.cells >> np.int32(level - other.level)
        self._make_room(cells)
        columns = np.searchsorted(self.cells, cells >> np.int32(self.level - level))
        panes = other._panes.copy()
        panes[0] += self.end
        both = np.zeros((2, panes.shape[1], len(self.cells)), np.int32)
        for mine, theirs in zip(both, (other._spread, other._unlabelled), strict=True):
            np.add.at(mine.T, columns, theirs.T)  # several of theirs may fall into one
        self._append(panes, both[0], both[1])
        self.end += other.end

    def to_state(self) -> PanesState:
        """Return the state; equal states are equal in every byte."""
        return PanesState(
            self.end,
            self.level,
            self.cells.astype("<i4").tobytes(),
            self._panes.astype("<i8").tobytes(),
            pack_counts(self._spread),
            pack_counts(self._unlabelled),
        )

    def restore(self, state: PanesState) -> Self:
        """Take on the state that `to_state` gave.

        Raises
        ------
        DamagedStateError
            if it is none.
        """
        if len(state.cells) % 4 or len(state.panes) % (8 * _FIELDS):
            raise DamagedStateError("panes of a prior are cut")
        cells = np.frombuffer(state.cells, "<i4").astype(np.int32)
        m, level = len(cells), state.level
        check_cells(cells, level, MAX_CELLS)
        panes = np.frombuffer(state.panes, "<i8").astype(np.int64).reshape(_FIELDS, -1)
        firsts, scores = panes[0], panes[1]
        if not 0 <= state.end < _MOST or not ((panes >= 0) & (panes < _MOST)).all():
            raise DamagedStateError("panes of a prior hold more than there can be")
        if (np.diff(firsts) < 0).any():
            raise DamagedStateError("panes of a prior are out of order")
        spread = unpack_counts(state.spread, (len(scores), m)).astype(np.int32)
        unlabelled = unpack_counts(state.unlabelled, (len(scores), m)).astype(np.int32)
        if (firsts + scores > state.end).any() or (spread.sum(axis=1, dtype=np.int64) != scores).any():
            raise DamagedStateError("scores of a prior do not add up")
        if (unlabelled < 0).any() or (unlabelled > spread).any():
            raise DamagedStateError("scores of a prior are not those without a label")
        self.end, self.level, self.cells = state.end, level, cells
        self._panes, self._spread, self._unlabelled = panes, spread, unlabelled
        return self

    def _columns(self, cells: Cells) -> tuple[Counts, npt.NDArray[np.bool_]]:
        """Return the column of each cell of this level, and whether there is one."""
        columns = np.searchsorted(self.cells, cells)
        if not len(self.cells):
            return columns, np.zeros(len(cells), np.bool_)
        columns = np.minimum(columns, len(self.cells) - 1)
        return columns, self.cells[columns] == cells

    def _append(self, panes: Counts, spread: Cells, unlabelled: Cells) -> None:
        self._panes = np.concatenate((self._panes, panes), axis=1)
        self._spread = np.concatenate((self._spread, spread))
        self._unlabelled = np.concatenate((self._unlabelled, unlabelled))

    def _make_room(self, cells: Cells) -> None:
        """Have a column for each of these cells of this level, coarsening until all fit."""
        used = self._spread.any(axis=0)
        self._spread, self._unlabelled = self._spread[:, used], self._unlabelled[:, used]
        held = self.cells[used]
        both = np.union1d(held, cells)
        columns = np.searchsorted(both, held)
        for name in ("_spread", "_unlabelled"):
            counts = np.zeros((self._panes.shape[1], len(both)), np.int32)
            counts[:, columns] = getattr(self, name)
            setattr(self, name, counts)
        self.cells = both
        while len(self.cells) > MAX_CELLS:
            self._coarsen(self.level + 1)

    def _coarsen(self, level: int) -> None:
        """Go up to this level: neighbours 2k and 2k+1 add up."""
        cells, self._spread = coarsen(self.cells, self._spread, level - self.level)
        _, self._unlabelled = coarsen(self.cells, self._unlabelled, level - self.level)
        self.cells, self.level = cells, level
