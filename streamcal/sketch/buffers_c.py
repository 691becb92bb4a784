"""Buffers of scores, and of labels with their scores, in order of arrival, in front of their readers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from streamcal.sketch.weighing import ONE
from streamcal.values import Floats

__all__ = ["AT_ONCE", "IN_CALL", "LabelBuffer", "ScoreBuffer"]

AT_ONCE: Final = -1
"""Stand-in for the number of scores observed before a prediction: its label came together with it."""

IN_CALL: Final = -2
"""Stand-in like `AT_ONCE` for a label that came in one call with the label before it: both were predicted
before the call."""

_FEWEST: Final = 16  # that there is memory for at first: of many keys most have few labels
_HEAVY: Final = 64  # memory that is let go when nothing is buffered
_ONE: Final = ONE


class Buffer:
    """Columns of one length that grow at the end and are dropped at the front.

    Parameters
    ----------
    *types
        type of the numbers of each column.
    """

    def __init__(self, *types: Any) -> None:
        self.n = 0
        """Number of rows that came, in the buffer or not."""
        self._types, self._held = types, 0
        self._clear()

    def _part(self, column: int, first: int) -> Any:
        """Return a view of the rows of a column from this place on: do not keep it."""
        return self._columns[column][first : self._held]

    def _put(self, *parts: Any) -> None:
        """Append rows that `n` already counts; values for a column that there is not are left out."""
        end = self._held + len(parts[0])
        if end > self._limit:
            self._widen(end)
        for column, part in zip(self._columns, parts, strict=False):
            column[self._held : end] = part
        self._held = end

    def _drop(self, count: int) -> None:
        """Forget this many rows at the front."""
        kept = [column[count : self._held].copy() for column in self._columns]
        self._held = 0
        if not len(kept[0]) and self._limit > _HEAVY:
            self._clear()
        self._put(*kept)

    def _clear(self) -> None:
        """Forget all rows."""
        self._held = 0
        self._hold([np.empty(0, kind) for kind in self._types])

    def _widen(self, length: int) -> None:
        """Make memory for so many rows, and some more."""
        limit = max(_FEWEST, self._limit + (self._limit >> 1), length)
        longer = [np.empty(limit, kind) for kind in self._types]
        for column, before in zip(longer, self._columns, strict=True):
            column[: self._held] = before[: self._held]
        self._hold(longer)

    def _hold(self, columns: Any) -> None:
        """Take columns as memory: as arrays, and for single rows as views, which are not made anew."""
        self._columns, self._limit = columns, len(columns[0])
        self._scores = columns[0]
        if len(columns) > 1:
            self._labels, self._units = columns[1:3]
        if len(columns) > 3:
            self._index = columns[3]


class ScoreBuffer(Buffer):
    """Scores in order of arrival, and their number."""

    def __init__(self, remaining: int) -> None:
        super().__init__(np.float64)
        self.remaining = remaining
        """Number of scores that may still be appended before a reader must read, at least 1."""

    def append(self, score: float) -> bool:
        """Take one checked score; return whether none remains to be appended."""
        if self._held == self._limit:
            self._widen(self._held + 1)
        self._scores[self._held] = score
        self._held += 1
        self.n += 1
        self.remaining -= 1
        return self.remaining == 0

    def extend(self, scores: Floats) -> bool:
        """Take at most `remaining` checked scores, float64[k]; return whether none remains."""
        self._put(scores)
        self.n += len(scores)
        self.remaining -= len(scores)
        return self.remaining == 0

    def _since(self, first: int) -> Any:
        """Return a copy of the buffered scores from this place on."""
        return self._part(0, first).copy()


class LabelBuffer(Buffer):
    """Labels with their scores and weights in order of arrival, by number.

    The columns are scores, labels, units of weights, and the numbers of the predictions if a reader asks for
    them.

    Parameters
    ----------
    keeps_index
        whether a reader asks how many scores had been observed at each prediction.
    """

    def __init__(self, keeps_index: bool) -> None:
        super().__init__(np.float64, np.int8, np.int32, *((np.int64,) if keeps_index else ()))
        self.positives = 0
        """Number of labels 1."""
        self.windowed = False
        """Whether the log is a sliding window: the pane is then checked before every label."""
        self.weighted = False
        """Whether a label had a weight other than 1: labels without a weight are then no fair sample
        either."""
        self.start = 0
        """Number of the first label that is still buffered; `end` if none is."""
        self._keeps_index = keeps_index

    @property
    def end(self) -> int:
        """Number of the next label."""
        return self.start + self._held

    def append(self, score: float, label: int, prediction_index: int, units: int) -> int:
        """Take one checked label with the units of its weight; return the number of labels."""
        if self._held == self._limit:
            self._widen(self._held + 1)
        self._scores[self._held] = score
        self._labels[self._held] = label
        self._units[self._held] = units
        if units != _ONE:
            self._weigh(label, units)
        if self._keeps_index:
            self._index[self._held] = prediction_index
        self._held += 1
        self.positives += label
        self.n += 1
        return self.n

    def _weigh(self, _label: int, _units: int) -> None:
        """Count the weight of a label."""
        self.weighted = True
