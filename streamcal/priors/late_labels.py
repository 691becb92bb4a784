"""WaitingLabels: labels that cannot count yet, because the scores of their predictions are not counted.

Scores are counted a block at a time. So a label that comes soon after its prediction is here before its
score: it waits until the block with that score arrives. A label enters only when the tracker takes it, and
leaves as soon as its score is counted.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.sketch import checks
from streamcal.sketch.decoding import MOST, Count, Probability

__all__ = ["WaitingLabels", "WaitingState"]

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Seen = npt.NDArray[np.int64]

_UNKNOWN: Final = -1  # ``seen`` of a label that came at once
_UNOBSERVED: Final = -1.0  # score of a prediction whose score was never observed


class WaitingState(msgspec.Struct):
    """The state of `WaitingLabels`."""

    labels: bytes
    scores: bytes
    seen: bytes
    last: tuple[Count, Probability] | None


class WaitingLabels:
    """Labels with the scores and the ``seen`` of their predictions, in the order in which they came.

    ``seen`` is the number of scores observed before the prediction; −1 for a label that came at once, until
    `match` finds its score.
    """

    __slots__ = ("_labels", "_last", "_scores", "_seen")

    def __init__(self) -> None:
        self._labels: Labels = np.empty(0, np.int8)
        self._scores: Scores = np.empty(0)
        self._seen: Seen = np.empty(0, np.int64)
        # The latest score that was taken in, if it has no label: how many came before it, and its value.
        self._last: tuple[int, float] | None = None

    def __len__(self) -> int:
        return len(self._labels)

    def append(self, labels: Labels, scores: Scores, seen: Seen) -> None:
        """Add labels, int8[n], with the scores, float64[n], and ``seen``, int64[n], of their predictions."""
        if self._last is not None:
            # A label that comes at once may be the first after the block that ends with its score.
            own = np.flatnonzero((seen == _UNKNOWN) & (scores == self._last[1]))[:1]
            if len(own):
                seen = seen.copy()
                seen[own] = self._last[0]
                self._last = None
        self._labels = np.concatenate((self._labels, labels))
        self._scores = np.concatenate((self._scores, scores))
        self._seen = np.concatenate((self._seen, seen))

    def match(self, scores: Scores, start: int) -> None:
        """Find the scores of labels that came at once in the latest block.

        Labels whose score is not there belong to predictions whose scores were not observed.

        Parameters
        ----------
        scores
            float64[n ≥ 1], the block.
        start
            number of scores observed before the block.
        """
        values = scores.tolist()
        self._last = start + len(values) - 1, values[-1]
        at_once = np.flatnonzero(self._seen == _UNKNOWN).tolist()
        if not at_once:
            return
        free: dict[float, list[int]] = {}
        for seen, score in enumerate(values, start):
            free.setdefault(score, []).append(seen)
        for i in at_once:
            candidates = free.get(float(self._scores[i]))
            if candidates:
                self._seen[i] = candidates.pop(0)
            else:
                self._scores[i] = _UNOBSERVED
        if self._last[0] not in free[values[-1]]:
            self._last = None

    @property
    def at_once(self) -> Labels:
        """Labels that came at once and whose scores may still come, int8[n]."""
        at_once: Labels = self._labels[self._seen == _UNKNOWN]
        return at_once

    def take_ready(self, observed: int) -> tuple[Seen, Labels, Scores]:
        """Remove the labels whose ``seen`` is known and less than ``observed``.

        Returns
        -------
        ``seen``, labels, and scores of the predictions: int64[n], int8[n], float64[n].
        """
        ready = (self._seen >= 0) & (self._seen < observed)
        taken = self._seen[ready], self._labels[ready], self._scores[ready]
        self._keep(~ready)
        return taken

    def take_unobserved(self) -> Labels:
        """Remove and return the labels of predictions whose scores were not observed, int8[n]."""
        unobserved = self._scores == _UNOBSERVED
        taken: Labels = self._labels[unobserved]
        if len(taken):
            self._keep(~unobserved)
        return taken

    def take_all(self) -> Labels:
        """Remove and return all labels, int8[n]."""
        taken = self._labels
        self._keep(np.zeros(len(taken), np.bool_))
        return taken

    def merge(self, other: Self, shift: int) -> None:
        """Add the other's labels as later ones, with ``seen`` raised by ``shift``."""
        seen = np.where(other._seen == _UNKNOWN, _UNKNOWN, other._seen + shift)
        self._labels = np.concatenate((self._labels, other._labels))
        self._scores = np.concatenate((self._scores, other._scores))
        self._seen = np.concatenate((self._seen, seen))
        self._last = None if other._last is None else (other._last[0] + shift, other._last[1])

    def to_state(self) -> WaitingState:
        """Return the state; equal states are equal in every byte."""
        return WaitingState(
            self._labels.tobytes(),
            self._scores.astype("<f8").tobytes(),
            self._seen.astype("<i8").tobytes(),
            self._last,
        )

    def restore(self, state: WaitingState) -> Self:
        """Replace the state by one from `to_state`.

        Raises
        ------
        DamagedStateError
            if it is damaged; nothing has changed then.
        """
        n = len(state.labels)
        if len(state.scores) != 8 * n or len(state.seen) != 8 * n:
            raise DamagedStateError(f"{n} labels wait, but not as many predictions")
        scores = np.frombuffer(state.scores, "<f8").astype(np.float64)
        seen = np.frombuffer(state.seen, "<i8").astype(np.int64)
        try:
            labels = checks.as_labels(np.frombuffer(state.labels, np.int8))
            checks.as_scores(scores[scores != _UNOBSERVED])
        except ValueError as error:
            raise DamagedStateError(f"waiting labels are damaged: {error}") from None
        if ((seen < _UNKNOWN) | (seen > MOST)).any():
            raise DamagedStateError("a waiting label belongs to no prediction")
        self._labels, self._scores, self._seen, self._last = labels, scores, seen, state.last
        return self

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        self._labels, self._scores, self._seen = self._labels[kept], self._scores[kept], self._seen[kept]
