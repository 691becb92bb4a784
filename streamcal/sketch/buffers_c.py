"""Buffers of scores, and of labels with their scores, in order of arrival, in front of their readers."""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.values import Counts, Floats, Labels

__all__ = ["AT_ONCE", "IN_CALL", "LabelBuffer", "ScoreBuffer"]

AT_ONCE: Final = -1
"""Stand-in for the number of scores observed before a prediction: its label came together with it."""

IN_CALL: Final = -2
"""Stand-in like `AT_ONCE` for a label that came in one call with the label before it: both were predicted
before the call."""

_FEWEST: Final = 16  # that there is memory for at first: of many keys most have few labels
_HEAVY: Final = 64  # memory that is let go when nothing is buffered


def _longer(column: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Return a copy of a column with more room behind."""
    longer = np.empty(length, column.dtype)
    longer[: len(column)] = column
    return longer


class ScoreBuffer:
    """Scores in order of arrival, and their number."""

    def __init__(self, room: int) -> None:
        self.n = 0
        """Number of scores observed, in the buffer or not."""
        self.room = room
        """Number of scores that may still be appended before a reader must read, at least 1."""
        self._held = 0
        self._hold(np.empty(0))

    def append(self, score: float) -> bool:
        """Take one checked score; return whether there is no more room."""
        if self._held == self._limit:
            self._widen(1)
        self._scores[self._held] = score
        self._held += 1
        self.n += 1
        self.room -= 1
        return self.room == 0

    def extend(self, scores: Floats) -> bool:
        """Take at most `room` checked scores, float64[k]; return whether there is no more room."""
        self._put(scores)
        self.n += len(scores)
        self.room -= len(scores)
        return self.room == 0

    def _put(self, scores: Floats) -> None:
        """Append scores that `n` already counts."""
        if self._held + len(scores) > self._limit:
            self._widen(len(scores))
        self._score_column[self._held : self._held + len(scores)] = scores
        self._held += len(scores)

    def _since(self, first: int) -> Floats:
        """Return a copy of the buffered scores from this place on."""
        return self._score_column[first : self._held].copy()

    def _drop(self, count: int) -> None:
        """Forget this many scores at the front."""
        kept = self._since(count)
        self._held = 0
        if not len(kept) and self._limit > _HEAVY:
            self._hold(np.empty(0))
        self._put(kept)

    def _widen(self, more: int) -> None:
        limit = max(_FEWEST, self._limit + (self._limit >> 1), self._held + more)
        self._hold(_longer(self._score_column, limit))

    def _hold(self, scores: Floats) -> None:
        """Take a column as memory: as an array, and for single scores as a view, which is not made anew."""
        self._limit = len(scores)
        self._score_column = self._scores = scores


class LabelBuffer:
    """Labels with their scores in order of arrival, by number.

    Parameters
    ----------
    keeps_seen
        whether a reader asks how many scores had been observed at each prediction.
    numbers
        set of the numbers of predictions with a label, which takes the number of each; None: no reader asks.
    """

    def __init__(self, keeps_seen: bool, numbers: Any) -> None:
        self.n = 0
        """Number of labels, including those that a window has dropped."""
        self.positives = 0
        """Number of labels 1."""
        self.closed = False
        """Whether no more labels are learned: target labels have replaced the source's, and source labels
        that still come follow another law."""
        self.windowed = False
        """Whether the log is a sliding window: the pane is then checked before every label."""
        self.weighted = False
        """Whether a label had a weight other than 1: labels without a weight are then no fair sample
        either."""
        self.start = 0
        """Number of the first label that is still buffered; `end` if none is."""
        self._keeps_seen, self._numbers = keeps_seen, numbers
        self._again = array("q")  # numbers of labels to settle whose prediction has one, or did long ago
        self._clear()

    @property
    def end(self) -> int:
        """Number of the next label."""
        return self.start + self._held

    def append(self, score: float, label: int, seen: int) -> int:
        """Take one checked label; return the number of labels."""
        if self._numbers is not None and seen >= 0 and not self._numbers.take(seen):
            self._again.append(self.start + self._held)
        if self._held == self._limit:
            self._widen(1)
        self._scores[self._held] = score
        self._labels[self._held] = label
        if self._keeps_seen:
            self._seen[self._held] = seen
        self._held += 1
        self.positives += label
        self.n += 1
        return self.n

    def _put(self, scores: Floats, labels: Labels, seen: Counts | int) -> None:
        """Append labels that `n` already counts."""
        if self._held + len(labels) > self._limit:
            self._widen(len(labels))
        part = slice(self._held, self._held + len(labels))
        self._score_column[part] = scores
        self._label_column[part] = labels
        if self._keeps_seen:
            self._seen_column[part] = seen
        self._held += len(labels)

    def _held_scores(self, first: int) -> Floats:
        """Return a view of the buffered scores from this place on: do not keep it."""
        return self._score_column[first : self._held]

    def _held_labels(self, first: int) -> Labels:
        return self._label_column[first : self._held]

    def _held_seen(self, first: int) -> Counts:
        return self._seen_column[first : self._held if self._keeps_seen else 0]

    def _drop(self, count: int) -> None:
        """Forget this many labels at the front."""
        scores, labels = self._held_scores(count).copy(), self._held_labels(count).copy()
        seen = self._held_seen(count).copy()
        self.start += count
        self._held = 0
        if not len(labels) and self._limit > _HEAVY:
            self._clear()
        self._put(scores, labels, seen)

    def _clear(self) -> None:
        """Forget all that is buffered."""
        self._held = 0
        self._hold(np.empty(0), np.empty(0, np.int8), np.empty(0, np.int64))

    def _widen(self, more: int) -> None:
        limit = max(_FEWEST, self._limit + (self._limit >> 1), self._held + more)
        seen = _longer(self._seen_column, limit) if self._keeps_seen else self._seen_column
        self._hold(_longer(self._score_column, limit), _longer(self._label_column, limit), seen)

    def _hold(self, scores: Floats, labels: Labels, seen: Counts) -> None:
        """Take columns as memory, as `ScoreBuffer._hold` does."""
        self._limit = len(scores)
        self._score_column = self._scores = scores
        self._label_column = self._labels = labels
        self._seen_column = self._seen = seen
