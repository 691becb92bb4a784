"""Exposure: counts of predictions and early positives by pane of time, and the rate when a pane closes.

A pane is a `PANES`-th of the time after which a label is final. Predictions and positives are counted by the
pane of the prediction and by cells of the score; delays, in panes, by pane and by octave of the score. So the
counts are a function of the multiset of events, and add up. The clock is the latest time of an event.

Memory: 16 bytes for every pane and cell, and every pane, octave and delay, that occurs, in at most two times
`PANES` panes; all older predictions count by their cell alone.
"""

from __future__ import annotations

import math
from array import array
from typing import Annotated, Final, Self

import msgspec
import numpy as np

from streamcal.exposure.delays import BINS, PANES, fit_delays
from streamcal.exposure.estimate import LEVEL, Estimate, estimate
from streamcal.exposure.tables import Table, TableState
from streamcal.sketch import grid
from streamcal.values import Counts, Floats

__all__ = ["Exposure", "ExposureState"]

_CELLS: Final = (grid.LAST_KEY >> LEVEL) + 1
_OCTAVE: Final = 52 - LEVEL
_OCTAVES: Final = ((_CELLS - 1) >> _OCTAVE) + 1
_KEPT: Final = 2 * PANES  # panes whose delays count
_WAITING: Final = 4096  # events that may wait before they are counted
_MOST_PANE: Final = 1 << 40


class ExposureState(msgspec.Struct):
    """The state of an `Exposure`."""

    pane: Annotated[int, msgspec.Meta(ge=-_MOST_PANE, le=_MOST_PANE)] | None
    """The open one; None before the first event."""
    tables: tuple[TableState, TableState, TableState, TableState, TableState]
    """Predictions and positives by pane and cell, delays, and those older by cell."""


class Exposure:
    """Counts of predictions, and of their positives so far.

    Parameters
    ----------
    label_delay_limit
        seconds after its prediction at which a label is final, at least 1: a later positive counts as 0.
    """

    __slots__ = (
        "_delays",
        "_end",
        "_label_delay_limit",
        "_pane",
        "_predicted",
        "_predictions",
        "_settled",
        "_tellings",
        "_told",
        "_width",
    )

    def __init__(self, label_delay_limit: float) -> None:
        self._label_delay_limit = label_delay_limit
        self._width = label_delay_limit / PANES
        self._pane: int | None = None  # the open one; None before the first event
        self._end = -math.inf  # of the open pane
        self._predictions = array("d")  # scores and times that wait to be counted, in turn
        self._tellings = array("d")  # scores, times of prediction, times of telling
        self._predicted, self._told = Table(), Table()  # by pane and cell
        self._delays = Table()  # by pane, octave and delay
        self._settled = Table(), Table()  # predictions and positives that are older, by cell

    def predict(self, score: float, time: float) -> bool:
        """Count a prediction, its score checked, at this event time; return whether that closes a pane.

        A pane that closes is not yet estimated: see `estimate`.
        """
        closes = time >= self._end and self._reach(time)
        waiting = self._predictions
        waiting.append(score)
        waiting.append(time)
        if len(waiting) >= 2 * _WAITING:
            self._count()
        return closes

    def tell(self, score: float, predicted_at: float, told_at: float) -> bool:
        """Count a positive of an earlier prediction; return the same as `predict`.

        A positive later than ``label_delay_limit`` is not counted.
        """
        now = max(predicted_at, told_at)
        closes = now >= self._end and self._reach(now)
        if told_at - predicted_at <= self._label_delay_limit:
            self._tellings.extend((score, predicted_at, now))
            if len(self._tellings) >= 3 * _WAITING:
                self._count()
        return closes

    def estimate(self) -> Estimate | None:
        """Estimate the rate as of the beginning of the open pane; None if there are too few positives.

        Call it when the pane before has closed: events of the open pane do not count.
        """
        pane = self._pane
        if pane is None:
            return None
        self._count()
        panes, octaves, delays = _split(self._delays.keys, _OCTAVES, BINS)
        ages = pane - 1 - panes
        closed = (ages >= 0) & (delays <= ages)
        bands, band = np.unique(octaves, return_inverse=True)
        told = np.zeros((_KEPT, max(len(bands), 1), BINS), np.int64)
        told[ages[closed], band[closed], delays[closed]] = self._delays.counts[closed]
        fitted = fit_delays(told)
        if not fitted.known:
            return None
        old = self._predicted, self._told
        cells = np.unique(np.concatenate([table.keys % _CELLS for table in (*old, *self._settled)]))
        predicted, positives = (self._by_pane(table, pane, cells) for table in old)
        settled = [np.zeros(len(cells)) for _ in self._settled]
        for sums, table in zip(settled, self._settled, strict=True):
            sums[cells.searchsorted(table.keys)] = table.counts
        # A score of an octave without a told positive has the delays of the next.
        nearest = np.abs((cells >> _OCTAVE)[:, np.newaxis] - bands).argmin(axis=1)
        triangle = told[:PANES, :, :PANES].sum(axis=1).astype(np.float64)
        return estimate(
            cells.astype(np.int32), (settled[0], settled[1]), predicted, positives, triangle, fitted, nearest
        )

    def merge(self, other: Exposure) -> None:
        """Add the counts of another with the same ``label_delay_limit``."""
        self._count()
        other._count()
        for mine, theirs in zip(self._tables, other._tables, strict=True):
            mine.add(theirs.keys, theirs.counts)
        if other._pane is not None and (self._pane is None or other._pane > self._pane):
            self._begin(other._pane)
        self._settle()

    def to_state(self) -> ExposureState:
        """Return the state."""
        self._count()
        predicted, told, delays, *settled = (TableState(table.keys, table.counts) for table in self._tables)
        return ExposureState(self._pane, (predicted, told, delays, settled[0], settled[1]))

    def restore(self, state: ExposureState) -> Self:
        """Replace the state by another."""
        pane = state.pane
        ends = [(0, 0)] * 3
        if pane is not None:
            sizes = (PANES, _CELLS), (PANES, _CELLS), (_KEPT, _OCTAVES * BINS)
            ends = [((pane - kept) * size, (pane + 2) * size) for kept, size in sizes]
            self._begin(pane)
        ends += [(0, _CELLS)] * 2
        tables = [Table.restored(part, *each) for part, each in zip(state.tables, ends, strict=True)]
        self._predicted, self._told, self._delays, *settled = tables
        self._settled = settled[0], settled[1]
        return self

    @property
    def _tables(self) -> tuple[Table, ...]:
        return self._predicted, self._told, self._delays, *self._settled

    def _reach(self, time: float) -> bool:
        """Open the pane of this time, if it is a later one; return whether that closes another."""
        pane, before = math.floor(time / self._width), self._pane
        if before is not None and pane <= before:
            return False
        self._count()
        self._begin(pane)
        self._settle()
        return before is not None

    def _begin(self, pane: int) -> None:
        self._pane, self._end = pane, (pane + 1) * self._width

    def _count(self) -> None:
        """Count the buffered events."""
        if self._predictions:
            scores, times = np.array(self._predictions).reshape(-1, 2).T
            self._predicted.add(self._panes_of(times) * _CELLS + _cells_of(scores))
            self._predictions = array("d")
        if self._tellings:
            scores, predicted, told = np.array(self._tellings).reshape(-1, 3).T
            panes, cells = self._panes_of(predicted), _cells_of(scores)
            delays = np.minimum(self._panes_of(told) - panes, PANES)  # one more by rounding at most
            self._told.add(panes * _CELLS + cells)
            octaves = panes * _OCTAVES + (cells >> _OCTAVE)
            self._delays.add(octaves * BINS + delays)
            self._tellings = array("d")
        self._settle()

    def _panes_of(self, times: Floats) -> Counts:
        return np.floor(times / self._width).astype(np.int64)

    def _settle(self) -> None:
        """Drop the panes that are too old."""
        if self._pane is None:
            return
        for table, settled in zip((self._predicted, self._told), self._settled, strict=True):
            old = table.take_below((self._pane - PANES) * _CELLS)
            settled.add(old.keys % _CELLS, old.counts)
        self._delays.take_below((self._pane - _KEPT) * _OCTAVES * BINS)

    def _by_pane(self, table: Table, pane: int, cells: Counts) -> Floats:
        """Return the counts of closed panes by age and cell, float64[`PANES`, m]."""
        rows, columns = np.divmod(table.keys, _CELLS)
        sums, ages = np.zeros((PANES, len(cells))), pane - 1 - rows
        closed = ages >= 0
        sums[ages[closed], cells.searchsorted(columns[closed])] = table.counts[closed]
        return sums


def _cells_of(scores: Floats) -> Counts:
    return grid.keys_of(scores) >> LEVEL


def _split(keys: Counts, *sizes: int) -> tuple[Counts, ...]:
    """Return the numbers that keys are made of; the first of them has no upper limit."""
    parts = []
    for size in reversed(sizes):
        keys, part = np.divmod(keys, size)
        parts.append(part)
    return (keys, *reversed(parts))
