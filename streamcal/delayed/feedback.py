"""DelayedFeedback: counts of predictions and early positives by pane of time, from which rates are estimated.

A pane is a `PANES`-th of the time after which a label is final. Predictions and positives are counted by the
pane of the prediction and by cells of the score; delays, in panes, by pane and by octave of the score. So the
counts are a function of the multiset of events, and add up. The clock is the latest time of an event.

Memory: 16 bytes for every pane and cell, and every pane, octave and delay, that occurs, in at most two times
`PANES` panes; all older predictions count by their cell alone.
"""

from __future__ import annotations

import math
from array import array
from typing import Annotated, Final

import msgspec
import numpy as np

from streamcal.base.values import NO_COUNTS, Counts, Floats
from streamcal.delayed.delays import BINS, PANES, fit_delays
from streamcal.delayed.estimate import LEVEL, Estimate, estimate
from streamcal.sketch import grid
from streamcal.sketch.decoding import Part

_CELLS: Final = (grid.LAST_KEY >> LEVEL) + 1
_OCTAVE: Final = 52 - LEVEL
_OCTAVES: Final = ((_CELLS - 1) >> _OCTAVE) + 1
_KEPT: Final = 2 * PANES  # panes whose delays count
_WAITING: Final = 4096  # events that may wait before they are counted
_MOST_PANE: Final = 1 << 40


class Table(msgspec.Struct, array_like=True):
    """Number of times that each key occurred, as sorted columns; the fields are the state."""

    keys: Counts = NO_COUNTS
    """Keys, int64[m], ascending."""
    counts: Counts = NO_COUNTS
    """Counts of the keys, int64[m], positive."""

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


class DelayedFeedback(Part, dict=True):
    """Counts of predictions, and of their positives so far; after `count`, its fields are its state."""

    label_delay_limit: Annotated[float, msgspec.Meta(gt=0.0)]
    """Seconds after its prediction at which a label is final, at least 1: a later positive counts as 0."""
    pane: Annotated[int, msgspec.Meta(ge=-_MOST_PANE, le=_MOST_PANE)] | None = None
    """The open one; None before the first event."""
    tables: tuple[Table, Table, Table, Table, Table] = msgspec.field(
        default_factory=lambda: (Table(), Table(), Table(), Table(), Table())
    )
    """Predictions and positives by pane and cell, delays, and those older by cell."""

    def __post_init__(self) -> None:
        self._width = self.label_delay_limit / PANES
        self._end = -math.inf  # of the open pane
        self._predictions = array("d")  # scores and times that wait to be counted, in turn
        self._early = array("d")  # scores, times of the prediction, times of the positive
        if self.pane is not None:
            self._begin(self.pane)

    def predict(self, score: float, time: float) -> bool:
        """Count a prediction, its score checked, at this event time; return whether that closes a pane.

        A pane that closes is not yet estimated: see `estimate`.
        """
        closes = time >= self._end and self._reach(time)
        waiting = self._predictions
        waiting.append(score)
        waiting.append(time)
        if len(waiting) >= 2 * _WAITING:
            self.count()
        return closes

    def observe_early(self, score: float, predicted_at: float, labelled_at: float) -> bool:
        """Count a positive of an earlier prediction; return the same as `predict`.

        A positive later than ``label_delay_limit`` is not counted.
        """
        now = max(predicted_at, labelled_at)
        closes = now >= self._end and self._reach(now)
        if labelled_at - predicted_at <= self.label_delay_limit:
            self._early.extend((score, predicted_at, now))
            if len(self._early) >= 3 * _WAITING:
                self.count()
        return closes

    def estimate(self) -> Estimate | None:
        """Estimate the rate as of the beginning of the open pane; None if there are too few positives.

        Call it when the pane before has closed: events of the open pane do not count.
        """
        pane = self.pane
        if pane is None:
            return None
        self.count()
        predicted, positive, delayed, *older = self.tables
        rest, delays = np.divmod(delayed.keys, BINS)
        panes, octaves = np.divmod(rest, _OCTAVES)
        ages = pane - 1 - panes
        closed = (ages >= 0) & (delays <= ages)
        bands, band = np.unique(octaves, return_inverse=True)
        came = np.zeros((_KEPT, max(len(bands), 1), BINS), np.int64)
        came[ages[closed], band[closed], delays[closed]] = delayed.counts[closed]
        fitted = fit_delays(came)
        if not fitted.known:
            return None
        cells = np.unique(np.concatenate([table.keys % _CELLS for table in (predicted, positive, *older)]))
        sums = np.zeros((2, len(cells)))
        for row, table in zip(sums, older, strict=True):
            row[cells.searchsorted(table.keys)] = table.counts
        # A score of an octave without an early positive has the delays of the next.
        nearest = np.abs((cells >> _OCTAVE)[:, np.newaxis] - bands).argmin(axis=1)
        triangle = came[:PANES, :, :PANES].sum(axis=1).astype(np.float64)
        by_pane = _by_pane(predicted, pane, cells), _by_pane(positive, pane, cells)
        return estimate(cells.astype(np.int32), sums, *by_pane, triangle, fitted, nearest)

    def _reach(self, time: float) -> bool:
        """Open the pane of this time, if it is a later one; return whether that closes another."""
        pane, before = math.floor(time / self._width), self.pane
        if before is not None and pane <= before:
            return False
        self.count()
        self._begin(pane)
        self._retire()
        return before is not None

    def _begin(self, pane: int) -> None:
        self.pane, self._end = pane, (pane + 1) * self._width

    def count(self) -> None:
        """Count the buffered events."""
        by_pane, positive, delayed = self.tables[:3]
        if self._predictions:
            scores, times = np.array(self._predictions).reshape(-1, 2).T
            by_pane.add(self._panes_of(times) * _CELLS + _cells_of(scores))
            self._predictions = array("d")
        if self._early:
            scores, predicted, labelled = np.array(self._early).reshape(-1, 3).T
            panes, cells = self._panes_of(predicted), _cells_of(scores)
            delays = np.minimum(self._panes_of(labelled) - panes, PANES)  # one more by rounding at most
            positive.add(panes * _CELLS + cells)
            delayed.add((panes * _OCTAVES + (cells >> _OCTAVE)) * BINS + delays)
            self._early = array("d")
        self._retire()

    def _panes_of(self, times: Floats) -> Counts:
        return np.floor(times / self._width).astype(np.int64)

    def _retire(self) -> None:
        """Count what is older than all panes by its cell alone, and drop delays that are too old."""
        if self.pane is None:
            return
        predicted, positive, delayed, *older = self.tables
        for table, by_cell in zip((predicted, positive), older, strict=True):
            old = table.take_below((self.pane - PANES) * _CELLS)
            by_cell.add(old.keys % _CELLS, old.counts)
        delayed.take_below((self.pane - _KEPT) * _OCTAVES * BINS)


def _by_pane(table: Table, pane: int, cells: Counts) -> Floats:
    """Return the counts of closed panes by age and cell, float64[`PANES`, m]."""
    rows, columns = np.divmod(table.keys, _CELLS)
    sums, ages = np.zeros((PANES, len(cells))), pane - 1 - rows
    closed = ages >= 0
    sums[ages[closed], cells.searchsorted(columns[closed])] = table.counts[closed]
    return sums


def _cells_of(scores: Floats) -> Counts:
    return grid.keys_of(scores) >> LEVEL
