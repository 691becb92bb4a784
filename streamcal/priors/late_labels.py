"""WaitingLabels: labels that cannot count yet, because the scores of their predictions are not counted.

Scores are counted a block at a time. So a label that comes soon after its prediction is here before its
score: it waits until the block with that score arrives. A label enters only when the tracker takes it, and
leaves as soon as its score is counted.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np

from streamcal.sketch import checks
from streamcal.sketch.decoding import MOST, Count, Probability, require, within
from streamcal.values import Counts, Flags, Floats, Labels

__all__ = ["WaitingLabels", "WaitingState"]

_UNKNOWN: Final = -1  # ``seen`` of a label that came at once
_UNOBSERVED: Final = -1.0  # score of a prediction whose score was never observed


class WaitingState(msgspec.Struct):
    """The state of `WaitingLabels`."""

    labels: Labels
    scores: Floats
    seen: Counts
    last: tuple[Count, Probability] | None
    """The latest score that was taken in, if it has no label: how many came before it, and its value."""


NOTHING: Final = WaitingState(np.empty(0, np.int8), np.empty(0), np.empty(0, np.int64), None)
"""The state where no label waits."""


class WaitingLabels:
    """Labels with the scores and the ``seen`` of their predictions, in the order in which they came.

    ``seen`` is the number of scores observed before the prediction; −1 for a label that came at once, until
    `match` finds its score. They go on from a state.
    """

    __slots__ = ("_labels", "_last", "_scores", "_seen")

    def __init__(self, state: WaitingState = NOTHING) -> None:
        labels, scores = checks.as_labels(state.labels), state.scores
        checks.as_scores(scores[scores != _UNOBSERVED])
        require(len(scores) == len(labels), f"{len(labels)} labels wait, and {len(scores)} scores")
        self._labels: Labels = labels
        self._scores: Floats = scores
        self._seen = within(state.seen, _UNKNOWN, MOST, "scores seen before waiting labels", len(labels))
        self._last: tuple[int, float] | None = state.last

    def __len__(self) -> int:
        return len(self._labels)

    def append(self, labels: Labels, scores: Floats, seen: Counts) -> None:
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

    def match(self, scores: Floats, start: int) -> None:
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

    def take_ready(self, observed: int) -> tuple[Counts, Labels, Floats]:
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
        """Return the state."""
        return WaitingState(self._labels, self._scores, self._seen, self._last)

    def _keep(self, kept: Flags) -> None:
        self._labels, self._scores, self._seen = self._labels[kept], self._scores[kept], self._seen[kept]
