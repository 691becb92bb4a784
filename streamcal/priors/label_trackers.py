"""Trackers of the prior from labels alone: from all labels, from the latest, or since the last change.

Memory: none for all labels, one byte per label of a window, and a `PredictionHistory` with ADWIN.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Self

import msgspec
import numpy as np

from streamcal.maps.shift import class_prior
from streamcal.priors.history import HistoryState, PredictionHistory
from streamcal.priors.tracker import BLOCK, PriorEvidence, PriorKind, PriorTracker, PriorWindow
from streamcal.sketch import checks, weighing
from streamcal.sketch.decoding import Count, require
from streamcal.sketch.weighing import NONE, ONE, Mass
from streamcal.values import Counts, Floats, Labels

__all__ = ["AllLabels", "AllState", "ChangeState", "LabelsSinceChange", "RecentLabels", "RecentState"]


class _LabelTracker(PriorTracker):
    """Tracker of the share of ones among the labels that count, always up to date."""

    kind: ClassVar[PriorKind] = "labels"
    takes_scores: ClassVar[bool] = False
    __slots__ = ("_mass", "_n", "_positives")

    def __init__(self, window: PriorWindow, smoothing: float) -> None:
        super().__init__(window, smoothing)
        self._n = self._positives = 0
        self._mass = NONE  # what these labels count for beyond one each

    @property
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None before the first label."""
        if not self._n:
            return None
        return class_prior(*self._mass.effective(self._positives, self._n), self._smoothing)

    @property
    def evidence(self) -> PriorEvidence:
        """Numbers of labels and scores that `prior` is estimated from."""
        return PriorEvidence(self._n, self._positives, 0, 0)

    def take_labels(
        self,
        labels: Labels,
        scores: Floats,  # noqa: ARG002  # unlike others
        seen: Counts,  # noqa: ARG002
        units: Counts | None = None,
    ) -> None:
        """Take the next labels, int8[n] of 0 and 1, with the units of their weights."""
        self._add(labels.tobytes(), units)

    def take_scores(self, scores: Floats) -> None:
        """Do nothing: scores are not used."""

    def set_source(self, edges: Any, values: Any, prior: float) -> None:
        """Do nothing: the source is not used."""

    @abstractmethod
    def _add(self, later: bytes, units: Counts | None) -> None:
        """Add later labels, one byte each, with the units of their weights."""


class AllState(msgspec.Struct, tag="all", omit_defaults=True):
    """The state of `AllLabels`."""

    n: Count
    positives: Count
    mass: Mass = NONE


class AllLabels(_LabelTracker):
    """Tracker of the prior from all labels.

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
        self._mass = self._mass.plus(other._mass)

    def _add(self, later: bytes, units: Counts | None) -> None:
        self._n += len(later)
        self._positives += later.count(1)
        self._mass = self._mass.plus(_mass(later, units))

    def to_state(self) -> AllState:
        """Return the state."""
        return AllState(self._n, self._positives, self._mass if any(self._mass) else NONE)

    def restore(self, state: AllState) -> None:
        """Replace the state by another."""
        require(state.positives <= state.n, f"{state.positives} of {state.n} labels are 1")
        self._n, self._positives, self._mass = state.n, state.positives, state.mass


class RecentState(msgspec.Struct, tag="recent", omit_defaults=True):
    """The state of `RecentLabels`."""

    recent: bytes
    units: Counts | None = None


class RecentLabels(_LabelTracker):
    """Tracker of the prior from the latest labels.

    Parameters
    ----------
    window
        number of labels that count, at least 1.
    smoothing
        see `PriorTracker`.
    """

    __slots__ = ("_labels", "_size", "_units")

    def __init__(self, window: int, smoothing: float) -> None:
        super().__init__(window, smoothing)
        self._size = window
        self._labels = bytearray()
        self._units: Counts | None = None  # of the labels; None: all weights are 1

    def merge(self, other: Self) -> None:
        """Add the other's labels as later ones."""
        self._add(bytes(other._labels), other._units)

    def _add(self, later: bytes, units: Counts | None) -> None:
        labels, later = self._labels, later[-self._size :]
        excess = max(0, len(labels) + len(later) - self._size)
        if units is not None or self._units is not None:
            parts = (len(labels), self._units), (len(later), units)
            each = [np.full(n, ONE) if own is None else own[len(own) - n :] for n, own in parts]
            both = np.concatenate(each)[excess:]
            self._units = None if (both == ONE).all() else both
        self._positives += later.count(1) - labels.count(1, 0, excess)
        del labels[:excess]
        labels += later
        self._n = len(labels)
        if self._units is not None or self._mass is not NONE:
            self._mass = _mass(labels, self._units)

    def to_state(self) -> RecentState:
        """Return the state."""
        return RecentState(bytes(self._labels), self._units)

    def restore(self, state: RecentState) -> None:
        """Replace the state by another."""
        labels, units = state.recent, state.units
        require(len(labels) <= self._size, f"{len(labels)} labels in a window of {self._size}")
        checks.as_labels(np.frombuffer(labels, np.int8))
        if units is not None:
            weighing.check_units(units, len(labels))
        self._labels, self._units = bytearray(labels), units
        self._n, self._positives, self._mass = len(labels), labels.count(1), _mass(labels, units)


class ChangeState(msgspec.Struct, tag="change"):
    """The state of `LabelsSinceChange`."""

    changes: Count
    history: HistoryState
    gathered: Annotated[bytes, msgspec.Meta(max_length=BLOCK - 1)]


class LabelsSinceChange(_LabelTracker):
    """Tracker of the prior from the labels since the last change. It tests for one at every 64th label.

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
        """Number of labels until the next test for a change."""
        return BLOCK - len(self._gathered)

    @property
    def evidence(self) -> PriorEvidence:
        """Numbers of labels and scores that `prior` is estimated from."""
        return PriorEvidence(self._n, self._positives, 0, self._changes)

    def merge(self, other: Self) -> None:
        """Add the other's labels as later ones."""
        self._look()
        self._history.merge(other._history)
        self._gathered += other._gathered
        self._changes += other._changes
        self._look()

    def _add(self, later: bytes, units: Counts | None) -> None:
        if units is not None:
            raise ValueError("labels with weights for a prior that looks for changes")
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
        """Test for a change, and forget the labels before it."""
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

    def to_state(self) -> ChangeState:
        """Return the state."""
        return ChangeState(self._changes, self._history.to_state(), bytes(self._gathered))

    def restore(self, state: ChangeState) -> None:
        """Replace the state by another."""
        checks.as_labels(np.frombuffer(state.gathered, np.int8))
        self._history.restore(state.history)
        self._changes, self._gathered = state.changes, bytearray(state.gathered)
        self._count()


def _mass(labels: bytes | bytearray, units: Counts | None) -> Mass:
    return NONE if units is None else Mass.of(np.frombuffer(labels, np.int8), units)
