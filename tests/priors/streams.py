"""Streams of predictions with late labels, and a caller that hands them to a tracker as an engine does."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from streamcal.priors.factory import make_tracker
from streamcal.priors.likelihood import fused_prior
from streamcal.priors.tracker import BLOCK, PriorTracker

# A source whose scores take six values, each with a bin of its own: so what a tracker makes of them is exact.
VALUES = np.array([0.03, 0.2, 0.35, 0.6, 0.8, 0.97])
EDGES = (0.0, 0.1, 0.25, 0.5, 0.7, 0.9, 1.0)
MEANS = np.array([0.02, 0.15, 0.4, 0.65, 0.85, 0.99])
PRIOR = float(MEANS.mean())
ONE, ZERO = MEANS / MEANS.sum(), (1.0 - MEANS) / (1.0 - MEANS).sum()

UNOBSERVED = 0.55
"""A score that is in no block: of predictions that are labelled at once and never observed."""


def scores_and_labels(n: int, q: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    labels = (rng.random(n) < q).astype(np.int8)
    values = np.where(labels == 1, rng.choice(6, n, p=ONE), rng.choice(6, n, p=ZERO))
    return VALUES[values], labels


def with_source(kind: Any = "both", window: Any = None, smoothing: float = 0.5) -> PriorTracker:
    tracker = make_tracker(kind, window, smoothing)
    tracker.set_source(EDGES, MEANS, PRIOR)
    return tracker


def up_to_date(tracker: PriorTracker) -> float | None:
    """Return the prior from everything taken in: after a change of the source, it is estimated again."""
    tracker.set_source(EDGES, MEANS, PRIOR / 2.0)
    tracker.set_source(EDGES, MEANS, PRIOR)
    return tracker.prior


def oracle(scores: np.ndarray, labels: list[int], smoothing: float = 0.5) -> float | None:
    masses = (scores[:, None] == VALUES).sum(axis=0)
    return fused_prior(masses, MEANS, PRIOR, sum(labels) + smoothing, len(labels) + 2.0 * smoothing)


class Event(NamedTuple):
    what: Literal["score", "label"]
    score: float
    label: int = 0
    seen: int = -1


def events(n: int, seed: int) -> list[Event]:
    """Return a stream of n predictions: labels come late, at once or never; some scores are not observed."""
    rng = np.random.default_rng(seed)
    stream: list[Event] = []
    late: list[tuple[int, Event]] = []
    seen = 0
    for score, label in zip(*scores_and_labels(n, 0.2 if seed % 2 else 0.5, rng), strict=True):
        stream += [event for due, event in late if due <= seen]
        late = [(due, event) for due, event in late if due > seen]
        fate = rng.random()
        if fate < 0.1:
            stream.append(Event("label", UNOBSERVED, int(label)))
            continue
        stream.append(Event("score", float(score)))
        if fate < 0.3:
            stream.append(Event("label", float(score), int(label)))
        elif fate < 0.8:
            late.append((seen + int(rng.integers(1, 400)), Event("label", float(score), int(label), seen)))
        seen += 1
    return stream


class Caller:
    """Buffers labels and scores for a tracker, and hands them over when it has to.

    Parameters
    ----------
    tracker
        to hand them to.
    heeds_room
        whether to hand over labels when `PriorTracker.room` is used up; if not, only before blocks of scores.
    """

    def __init__(self, tracker: PriorTracker, *, heeds_room: bool = True) -> None:
        self.tracker = tracker
        self._heeds_room = heeds_room
        self._observed = 0
        self._scores: list[float] = []
        self._labels: list[Event] = []

    def add(self, event: Event) -> None:
        if event.what == "label":
            self._labels.append(event)
            if self._heeds_room and len(self._labels) >= self.tracker.room:
                self.hand_over_labels()
        else:
            self._scores.append(event.score)
            self._observed += 1
            if self._observed % BLOCK == 0:
                self.hand_over()

    def feed(self, stream: list[Event], cuts: set[int] = frozenset()) -> PriorTracker:
        """Add all events; hand labels over early before each event whose index is in ``cuts``."""
        for i, event in enumerate(stream):
            if i in cuts:
                self.hand_over_labels()
            self.add(event)
        self.hand_over_labels()
        return self.tracker

    def hand_over_labels(self) -> None:
        self.tracker.take_labels(
            np.array([event.label for event in self._labels], np.int8),
            np.array([event.score for event in self._labels], np.float64),
            np.array([event.seen for event in self._labels], np.int64),
        )
        self._labels = []

    def hand_over(self) -> None:
        """Hand over everything, scores of an incomplete block included: what a merge needs."""
        self.hand_over_labels()
        self.tracker.take_scores(np.array(self._scores))
        self._scores = []
