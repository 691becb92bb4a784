"""WaitingLabels: labels of predictions whose scores have not been taken in yet.

Scores are taken in a block at a time, labels come one by one: a label that comes at once is here before the
score of its prediction.
"""

from __future__ import annotations

from array import array
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.sketch import checks

__all__ = ["WaitingLabels", "WaitingState"]

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Positions = npt.NDArray[np.int64]

_UNKNOWN = -1  # position of a label that came at once
_NO_SCORE = -1.0


class WaitingState(msgspec.Struct):
    """The state of `WaitingLabels`."""

    labels: bytes
    seen: bytes
    scores: bytes
    last: tuple[int, float] | None


class WaitingLabels:
    """Labels with the positions and scores of their predictions, in the order in which they came."""

    __slots__ = ("_labels", "_last", "_scores", "_seen")

    def __init__(self) -> None:
        self._labels = bytearray()
        self._seen = array("q")
        self._scores = array("d")
        # Position and value of the latest score that was taken in, if it has no label.
        self._last: tuple[int, float] | None = None

    def __len__(self) -> int:
        return len(self._labels)

    def append(self, label: int, seen: int | None, score: float | None) -> None:
        """Take one label; ``seen`` None: it came at once; ``score`` None: its score was not observed."""
        if seen is None and self._last is not None and score == self._last[1]:
            seen, self._last = self._last[0], None
        self._labels.append(label)
        self._seen.append(_UNKNOWN if seen is None else seen)
        self._scores.append(_NO_SCORE if score is None else score)

    def match(self, scores: array[float], start: int) -> None:
        """Find the scores of labels that came at once among the latest, at positions from ``start`` on.

        Those that are not there were not observed.
        """
        self._last = start + len(scores) - 1, scores[-1]
        if _UNKNOWN in self._seen:
            free: dict[float, list[int]] = {}
            for position, score in enumerate(scores, start):
                free.setdefault(score, []).append(position)
            for i, seen in enumerate(self._seen):
                if seen == _UNKNOWN:
                    positions = free.get(self._scores[i])
                    if positions:
                        self._seen[i] = positions.pop(0)
                    else:
                        self._scores[i] = _NO_SCORE
            if self._last[0] not in free[scores[-1]]:
                self._last = None

    @property
    def at_once(self) -> Labels:
        """Those whose scores may still come: int8[n]."""
        seen, labels, _ = self._arrays()
        at_once: Labels = labels[seen == _UNKNOWN]
        return at_once

    def take_ready(self, end: int) -> tuple[Positions, Labels, Scores]:
        """Return those whose position is known and before ``end``, with their scores; they wait no longer."""
        seen, labels, scores = self._arrays()
        ready = (seen >= 0) & (seen < end)
        self._hold(seen[~ready], labels[~ready], scores[~ready])
        return seen[ready], labels[ready], scores[ready]

    def take_unobserved(self) -> Labels:
        """Return those of predictions whose scores were not observed; they wait no longer."""
        if _NO_SCORE not in self._scores:
            return np.empty(0, np.int8)
        seen, labels, scores = self._arrays()
        unobserved = scores == _NO_SCORE
        taken: Labels = labels[unobserved]
        self._hold(seen[~unobserved], labels[~unobserved], scores[~unobserved])
        return taken

    def take_all(self) -> Labels:
        """Return all labels; none waits any longer."""
        labels = np.frombuffer(bytes(self._labels), np.int8)
        self._labels, self._seen, self._scores = bytearray(), array("q"), array("d")
        return labels

    def merge(self, other: WaitingLabels, shift: int) -> None:
        """Take those of another as later ones, with positions raised by ``shift``."""
        self._labels += other._labels
        self._seen.extend(array("q", [seen + shift if seen >= 0 else seen for seen in other._seen]))
        self._scores.extend(other._scores)
        self._last = None if other._last is None else (other._last[0] + shift, other._last[1])

    def to_state(self) -> WaitingState:
        """Return the state; equal states are equal in every byte."""
        seen, labels, scores = self._arrays()
        return WaitingState(
            labels.tobytes(), seen.astype("<i8").tobytes(), scores.astype("<f8").tobytes(), self._last
        )

    def restore(self, state: WaitingState) -> Self:
        """Take on the state that `to_state` gave.

        Raises
        ------
        DamagedStateError
            if it is none.
        """
        n = len(state.labels)
        if len(state.seen) != 8 * n or len(state.scores) != 8 * n:
            raise DamagedStateError(f"{n} labels wait, but not as many predictions")
        seen = np.frombuffer(state.seen, "<i8").astype(np.int64)
        scores = np.frombuffer(state.scores, "<f8").astype(np.float64)
        try:
            labels = checks.as_labels(np.frombuffer(state.labels, np.int8))
            checks.as_scores(scores[scores != _NO_SCORE])
            if state.last is not None:
                checks.check_score(state.last[1])
        except ValueError as error:
            raise DamagedStateError(f"labels that wait are damaged: {error}") from None
        if (seen < _UNKNOWN).any() or (state.last is not None and not 0 <= state.last[0] < 1 << 62):
            raise DamagedStateError("a label that waits is of no prediction")
        self._last = state.last
        self._hold(seen, labels, scores)
        return self

    def _arrays(self) -> tuple[Positions, Labels, Scores]:
        labels = np.frombuffer(bytes(self._labels), np.int8)
        return np.array(self._seen, np.int64), labels, np.array(self._scores, np.float64)

    def _hold(self, seen: Positions, labels: Labels, scores: Scores) -> None:
        self._labels = bytearray(labels.tobytes())
        self._seen, self._scores = array("q", seen.tobytes()), array("d", scores.tobytes())
