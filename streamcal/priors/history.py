"""PredictionHistory: scores and labels of the target's latest predictions, in panes.

A pane is a run of consecutive predictions. It holds how many scores were observed, how they spread over the
cells of a dyadic grid, which of them have no label yet, and the labels of the others. So every prediction
counts once, however late its label comes, and in the pane in which it was made, not where its label arrived.

Memory: 8 bytes per cell and pane, with at most `MAX_CELLS` cells. With ADWIN there are about 60 panes for a
million predictions.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np

from streamcal.priors.adwin import change_point, grouped
from streamcal.priors.tracker import BLOCK, PriorWindow
from streamcal.sketch import grid
from streamcal.sketch.cells import check_cells, coarsen, pack_numbers, unpack_numbers
from streamcal.sketch.decoding import MOST, Count, require, within
from streamcal.values import Cells, Counts, Flags, Floats, Labels

__all__ = ["MAX_CELLS", "HistoryState", "PredictionHistory"]

MAX_CELLS: Final = 256
"""Number of cells that may be occupied before the grid is coarsened."""

_FINEST: Final = 16  # predictions in a new pane with ADWIN: the precision to which a recent change is located
_PARTS: Final = 16  # a window of fixed size slides by this fraction of itself
_LONGEST: Final = 1 << 30  # predictions in a pane: counts per cell are int32
_DELTA: Final = 0.05  # nominal, see `adwin`; measured: less than one false alarm in ten million predictions

# Rows of the panes: scores observed before the pane, its scores, its labels without a score, labels 0 and 1.
_FIELDS: Final = 5


class HistoryState(msgspec.Struct):
    """The state of a `PredictionHistory`."""

    observed: Count
    level: int
    cells: Cells
    panes: Counts
    """Arrays of `_FIELDS`, one row after the other."""
    counts: bytes


class PredictionHistory:
    """Scores and labels of the latest predictions, in panes.

    Parameters
    ----------
    window
        number of predictions to keep, give or take a sixteenth; None: all. With ``"adwin"``: all as well, but
        a pane is at most a quarter as long as everything newer, so that a change can be located.
    """

    __slots__ = (
        "_counts",
        "_finest",
        "_longest",
        "_panes",
        "_size",
        "adaptive",
        "cells",
        "level",
        "observed",
    )

    def __init__(self, window: PriorWindow) -> None:
        self.adaptive = window == "adwin"
        """Whether the panes can show a change."""
        self._size: int | None = window if isinstance(window, int) else None
        self._longest = _LONGEST if self._size is None else min(max(1, self._size // _PARTS), _LONGEST)
        self._finest = _FINEST if self.adaptive else min(BLOCK, self._longest)
        self.observed = 0
        """Number of scores observed, including forgotten ones."""
        self.level = grid.MIN_LEVEL
        """Level of the grid."""
        self.cells: Cells = np.empty(0, np.int32)
        """Cells, int32[m], ascending; a new array whenever they change."""
        self._panes: Counts = np.zeros((_FIELDS, 0), np.int64)
        # Per pane and cell: all scores, and those without a label.
        self._counts: Cells = np.zeros((2, 0, 0), np.int32)

    @property
    def labels(self) -> Counts:
        """Labels of each class in each pane, int64[2, J], oldest pane first."""
        return self._panes[3:]

    @property
    def label_counts(self) -> tuple[int, int]:
        """Labels of each class: negatives, positives."""
        negatives, positives = self.labels.sum(axis=1).tolist()
        return negatives, positives

    @property
    def scores(self) -> Counts:
        """Number of scores in each pane, int64[J], oldest pane first."""
        scores: Counts = self._panes[1]
        return scores

    @property
    def unlabelled(self) -> Counts:
        """Number of scores without a label in each cell, int64[m]."""
        unlabelled: Counts = self._counts[1].sum(axis=0, dtype=np.int64)
        return unlabelled

    @property
    def predictions(self) -> int:
        """Number of predictions in the panes."""
        return int(self._panes[1:3].sum())

    # Adding

    def observe(self, scores: Floats) -> None:
        """Add the scores of the next predictions, float64[n] in [0, 1]."""
        starts = np.arange(0, len(scores), self._finest)
        if not len(starts):
            return
        cells = grid.cells_of(scores, self.level)
        columns, known = self._columns(cells)
        if not known.all():
            self._add_cells(cells)
            columns, _ = self._columns(grid.cells_of(scores, self.level))
        m, panes = len(self.cells), np.zeros((_FIELDS, len(starts)), np.int64)
        panes[0] = self.observed + starts
        panes[1] = np.minimum(len(scores) - starts, self._finest)
        pane_of = np.arange(len(scores)) // self._finest
        spread = np.bincount(pane_of * m + columns, minlength=len(starts) * m).reshape(-1, m).astype(np.int32)
        self._append(panes, np.stack((spread, spread)))
        self.observed += len(scores)

    def add_labels(self, labels: Labels) -> None:
        """Add labels of predictions whose scores are not observed, int8[n], as the latest predictions."""
        starts = np.arange(0, len(labels), self._finest)
        if not len(starts):
            return
        panes = np.zeros((_FIELDS, len(starts)), np.int64)
        panes[0] = self.observed
        panes[2] = np.minimum(len(labels) - starts, self._finest)
        panes[4] = np.add.reduceat(labels, starts, dtype=np.int64)
        panes[3] = panes[2] - panes[4]
        self._append(panes, np.zeros((2, len(starts), len(self.cells)), np.int32))

    def settle(self, seen: Counts, labels: Labels, scores: Floats) -> None:
        """Count predictions by their labels from now on, and no longer by their scores.

        Parameters
        ----------
        seen
            int64[n], less than `observed`: the number of scores observed when each prediction was made. Its
            own score is the first from there on in the same cell without a label.
        labels, scores
            labels, int8[n], and scores, float64[n], of the predictions. Predictions before the first pane do
            not count.
        """
        panes = np.searchsorted(self._panes[0], seen, side="right") - 1
        held = panes >= 0
        panes, labels, scores = panes[held], labels[held], scores[held]
        columns, known = self._columns(grid.cells_of(scores, self.level))
        unlabelled, own = self._counts[1], (panes[known], columns[known])
        np.subtract.at(unlabelled, own, 1)
        if not (unlabelled[own] < 0).any():
            np.add.at(self._panes, (3 + labels, panes), 1)
            return
        # A score lies in a later pane than its ``seen``: search for each, one by one.
        np.add.at(unlabelled, own, 1)
        for first, column, is_known, label in zip(
            panes.tolist(), columns.tolist(), known.tolist(), labels.tolist(), strict=True
        ):
            pane = first
            if is_known:
                later = unlabelled[first:, column]
                ahead = int(np.argmax(later > 0))
                later[ahead] -= min(later[ahead], 1)
                pane += ahead
            self._panes[3 + label, pane] += 1

    def merge(self, other: Self) -> None:
        """Add the predictions of another history with the same window as later ones."""
        level = max(self.level, other.level)
        self._coarsen(level)
        self._add_cells(other.cells >> np.int32(level - other.level))
        cells, theirs = coarsen(other.cells, other._counts, self.level - other.level)
        panes = other._panes.copy()
        panes[0] += self.observed
        counts = np.zeros((2, panes.shape[1], len(self.cells)), np.int32)
        counts[..., np.searchsorted(self.cells, cells)] = theirs
        self._append(panes, counts)
        self.observed += other.observed

    # Forgetting

    def compact(self) -> None:
        """Merge neighbouring panes that are shorter than needed, and forget panes outside the window."""
        self._merge_panes()
        if self._size is not None:
            newer = self.predictions - np.cumsum(self._panes[1:3].sum(axis=0))
            self.drop(int(np.count_nonzero(newer >= self._size)))

    def drop(self, panes: int) -> None:
        """Forget this many panes, the oldest."""
        self._panes = self._panes[:, panes:]
        self._counts = self._counts[:, panes:]

    # Changes

    def label_change(self) -> int:
        """Return the number of panes before the last change of the mean label; 0 if there is none."""
        positives = self.labels[1].astype(np.float64)
        return change_point(self.labels.sum(axis=0), positives, positives, _DELTA)

    def score_change(self, values: Floats) -> int:
        """Return the number of panes before the last change of the scores' mean value; 0 if there is none.

        Parameters
        ----------
        values
            float64[m] in [0, 1]: the value of a score in each cell.
        """
        sums = self._counts[0].astype(np.float64) @ np.stack((values, values * values), axis=1)
        return change_point(self.scores, sums[:, 0], sums[:, 1], _DELTA)

    # State

    def to_state(self) -> HistoryState:
        """Return the state."""
        counts = pack_numbers(self._counts.ravel())
        return HistoryState(self.observed, self.level, self.cells, self._panes, counts)

    def restore(self, state: HistoryState) -> None:
        """Replace the state by another."""
        cells = state.cells
        check_cells(cells, state.level, MAX_CELLS)
        panes = within(state.panes, 0, MOST, "counts of a history").reshape(_FIELDS, -1)
        require(panes[1:].sum(dtype=np.float64) <= MOST, "a history of too many predictions")
        first, scores = panes[0], panes[1]
        require((np.diff(first) >= 0).all(), "panes of a history are out of order")
        counts = unpack_numbers(state.counts)[0].reshape(2, len(scores), len(cells))
        observed, unlabelled = within(counts, 0, _LONGEST, "scores of a history")
        right = (observed.sum(axis=1) == scores).all() and (first + scores <= state.observed).all()
        require(right, f"scores of a history do not add up, of {state.observed} observed")
        require((unlabelled <= observed).all(), "a history has more scores without a label than scores")
        self.observed, self.level, self.cells = state.observed, state.level, cells
        self._panes, self._counts = panes, counts.astype(np.int32)

    # Inside

    def _columns(self, cells: Cells) -> tuple[Counts, Flags]:
        """Return the column of each cell of this level, and whether it has one."""
        columns = np.searchsorted(self.cells, cells)
        if not len(self.cells):
            return columns, np.zeros(len(cells), np.bool_)
        columns = np.minimum(columns, len(self.cells) - 1)
        return columns, self.cells[columns] == cells

    def _append(self, panes: Counts, counts: Cells) -> None:
        self._panes = np.concatenate((self._panes, panes), axis=1)
        self._counts = np.concatenate((self._counts, counts), axis=1)

    def _add_cells(self, cells: Cells) -> None:
        """Make a column for each of these cells of this level; coarsen the grid until all fit."""
        used = self._counts[0].any(axis=0)
        held = self.cells[used]
        both = np.union1d(held, cells)
        counts = np.zeros((2, self._panes.shape[1], len(both)), np.int32)
        counts[..., np.searchsorted(both, held)] = self._counts[..., used]
        self.cells, self._counts = both, counts
        while len(self.cells) > MAX_CELLS:
            self._coarsen(self.level + 1)

    def _coarsen(self, level: int) -> None:
        self.cells, self._counts = coarsen(self.cells, self._counts, level - self.level)
        self.level = level

    def _merge_panes(self) -> None:
        """Merge neighbouring panes that are shorter than needed."""
        starts = grouped(
            self._panes[1:3].sum(axis=0).tolist(), self._finest, self._longest, adaptive=self.adaptive
        )
        if len(starts) == self._panes.shape[1]:
            return
        panes, counts = self._panes, self._counts
        self._panes, self._counts = panes[:, starts], counts[:, starts]
        # Few of many are merged at a time: adding those one by one is faster than a pass over all panes.
        into = np.searchsorted(starts, np.arange(panes.shape[1]), side="right") - 1
        for i in np.flatnonzero(np.bincount(starts, minlength=len(into)) == 0).tolist():
            self._panes[1:, into[i]] += panes[1:, i]
            self._counts[:, into[i]] += counts[:, i]
