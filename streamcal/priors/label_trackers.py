"""Trackers of the prior from labels alone: from all labels, from the latest, or since the last change.

Memory: none for all labels, one byte per label of a window, and that of `PredictionHistory` with ADWIN.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from streamcal.maps.shift import class_prior
from streamcal.priors.history import HistoryState, PredictionHistory
from streamcal.priors.tracker import (
    BLOCK,
    Labels,
    PriorEvidence,
    PriorKind,
    PriorTracker,
    PriorWindow,
    Scores,
    Seen,
)
from streamcal.sketch import checks
from streamcal.sketch.decoding import Count

__all__ = ["AllLabels", "LabelsSinceChange", "RecentLabels"]


class _LabelTracker(PriorTracker):
    """The share of ones among the labels that count, always up to date."""

    kind: ClassVar[PriorKind] = "labels"
    takes_scores: ClassVar[bool] = False
    __slots__ = ("_n", "_positives")

    def __init__(self, window: PriorWindow, smoothing: float) -> None:
        super().__init__(window, smoothing)
        self._n = self._positives = 0

    @property
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None before the first label."""
        return class_prior(self._positives, self._n, self._smoothing) if self._n else None

    @property
    def evidence(self) -> PriorEvidence:
        """What `prior` is estimated from."""
        return PriorEvidence(self._n, self._positives, 0, 0)

    def take_labels(self, labels: Labels, scores: Scores, seen: Seen) -> None:  # noqa: ARG002  # unlike others
        """Take the next labels, int8[n] of 0 and 1; the other arguments do not matter."""
        self._add(labels.tobytes())

    def take_scores(self, scores: Scores) -> None:
        """Do nothing: scores do not matter."""

    def set_source(self, edges: Any, values: Any, prior: float) -> None:
        """Do nothing: the source does not matter."""

    @abstractmethod
    def _add(self, later: bytes) -> None:
        """Add later labels, one byte each."""


class _CountState(msgspec.Struct):
    n: Count
    positives: Count


class AllLabels(_LabelTracker):
    """The prior from all labels.

    Parameters
    ----------
    smoothing
        see `PriorTracker`.

    Examples
    --------
    >>> tracker = AllLabels(smoothing=0.5)
    >>> tracker.take_labels(np.array([0, 0, 1], np.int8), np.zeros(3), np.full(3, -1))
    >>> tracker.prior
    0.375
    """

    __slots__ = ()

    def __init__(self, smoothing: float) -> None:
        super().__init__(None, smoothing)

    def merge(self, other: Self) -> None:
        """Add the other's labels."""
        self._n += other._n
        self._positives += other._positives

    def _add(self, later: bytes) -> None:
        self._n += len(later)
        self._positives += later.count(1)

    def _state(self) -> _CountState:
        return _CountState(self._n, self._positives)

    def _set_state(self, data: msgspec.Raw) -> None:
        state = msgspec.msgpack.decode(data, type=_CountState)
        if state.positives > state.n:
            raise ValueError(f"{state.positives} of {state.n} labels are 1")
        self._n, self._positives = state.n, state.positives


class _RecentState(msgspec.Struct):
    labels: bytes


class RecentLabels(_LabelTracker):
    """The prior from the latest labels.

    Parameters
    ----------
    window
        how many labels count, at least 1.
    smoothing
        see `PriorTracker`.
    """

    __slots__ = ("_labels", "_size")

    def __init__(self, window: int, smoothing: float) -> None:
        super().__init__(window, smoothing)
        self._size = window
        self._labels = bytearray()

    def merge(self, other: Self) -> None:
        """Take the other's labels as later ones."""
        self._add(bytes(other._labels))

    def _add(self, later: bytes) -> None:
        labels, later = self._labels, later[-self._size :]
        excess = max(0, len(labels) + len(later) - self._size)
        self._positives += later.count(1) - labels.count(1, 0, excess)
        del labels[:excess]
        labels += later
        self._n = len(labels)

    def _state(self) -> _RecentState:
        return _RecentState(bytes(self._labels))

    def _set_state(self, data: msgspec.Raw) -> None:
        labels = msgspec.msgpack.decode(data, type=_RecentState).labels
        if len(labels) > self._size:
            raise ValueError(f"{len(labels)} labels in a window of {self._size}")
        checks.as_labels(np.frombuffer(labels, np.int8))
        self._labels = bytearray(labels)
        self._n, self._positives = len(labels), labels.count(1)


class _ChangeState(msgspec.Struct):
    changes: Count
    history: HistoryState
    gathered: bytes


class LabelsSinceChange(_LabelTracker):
    """The prior from the labels since the last change that ADWIN found. It looks at every 64th label.

    Parameters
    ----------
    smoothing
        see `PriorTracker`.
    """

    __slots__ = ("_changes", "_gathered", "_history")

    def __init__(self, smoothing: float) -> None:
        super().__init__("adwin", smoothing)
        self._changes = 0
        self._history = PredictionHistory("adwin")
        self._gathered = bytearray()  # labels since the last look: they count, but are not in the history yet

    @property
    def room(self) -> int:
        """How many labels are missing until the next look for a change."""
        return BLOCK - len(self._gathered)

    @property
    def evidence(self) -> PriorEvidence:
        """What `prior` is estimated from."""
        return PriorEvidence(self._n, self._positives, 0, self._changes)

    def merge(self, other: Self) -> None:
        """Take the other's labels as later ones."""
        self._look()
        self._history.merge(other._history)
        self._gathered += other._gathered
        self._changes += other._changes
        self._look()

    def _add(self, later: bytes) -> None:
        start = 0
        while start < len(later):
            part = later[start : start + self.room]
            start += len(part)
            self._gathered += part
            self._n += len(part)
            self._positives += part.count(1)
            if len(self._gathered) == BLOCK:
                self._look()

    def _look(self) -> None:
        """Look for a change, and forget the labels before it."""
        history = self._history
        history.add_labels(np.frombuffer(bytes(self._gathered), np.int8))
        self._gathered.clear()
        history.compact()
        while cut := history.label_change():
            history.drop(cut)
            self._changes += 1
        self._count()

    def _count(self) -> None:
        negatives, positives = self._history.label_counts
        self._positives = positives + self._gathered.count(1)
        self._n = negatives + positives + len(self._gathered)

    def _state(self) -> _ChangeState:
        return _ChangeState(self._changes, self._history.to_state(), bytes(self._gathered))

    def _set_state(self, data: msgspec.Raw) -> None:
        state = msgspec.msgpack.decode(data, type=_ChangeState)
        if len(state.gathered) >= BLOCK:
            raise ValueError(f"{len(state.gathered)} labels since the last look")
        checks.as_labels(np.frombuffer(state.gathered, np.int8))
        self._history.restore(state.history)
        self._changes, self._gathered = state.changes, bytearray(state.gathered)
        self._count()
