"""Streams of scores and labels, and a caller that hands them to a tracker as an engine does."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from streamcal.priors.history import BLOCK
from streamcal.priors.likelihood import likeliest_prior
from streamcal.priors.trackers import PriorTracker, make_tracker

# A source whose scores take six values, each with a bin of its own: so what a tracker makes of them is exact.
VALUES = np.array([0.03, 0.2, 0.35, 0.6, 0.8, 0.97])
EDGES = (0.0, 0.1, 0.25, 0.5, 0.7, 0.9, 1.0)
MEANS = np.array([0.02, 0.15, 0.4, 0.65, 0.85, 0.99])
PRIOR = float(MEANS.mean())
ONE, ZERO = MEANS / MEANS.sum(), (1.0 - MEANS) / (1.0 - MEANS).sum()

MANY = 10**6
"""A window longer than every stream."""


def scores_and_labels(n: int, q: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    labels = (rng.random(n) < q).astype(np.int8)
    values = np.where(labels == 1, rng.choice(6, n, p=ONE), rng.choice(6, n, p=ZERO))
    return VALUES[values], labels


def with_source(kind: Any = "scores", window: Any = MANY, smoothing: float = 0.5) -> PriorTracker:
    tracker = make_tracker(kind, window, smoothing)
    tracker.set_source(EDGES, MEANS, PRIOR)
    return tracker


def up_to_date(tracker: PriorTracker) -> float | None:
    """Return the prior from everything taken in: after a change of the source, it is estimated again."""
    tracker.set_source(EDGES, MEANS, PRIOR / 2.0)
    tracker.set_source(EDGES, MEANS, PRIOR)
    return tracker.prior


def oracle(scores: np.ndarray, smoothing: float = 0.5) -> float | None:
    masses = (scores[:, None] == VALUES).sum(axis=0)
    return likeliest_prior(masses, MEANS, PRIOR, smoothing)


class Event(NamedTuple):
    what: Literal["score", "label"]
    score: float
    label: int = 0


def events(n: int, seed: int) -> list[Event]:
    """Return a stream of n predictions: labels come late, at once or never."""
    rng = np.random.default_rng(seed)
    stream: list[Event] = []
    late: list[tuple[int, Event]] = []
    pairs = zip(*scores_and_labels(n, 0.2 if seed % 2 else 0.5, rng), strict=True)
    for observed, (score, label) in enumerate(pairs):
        stream += [event for due, event in late if due <= observed]
        late = [(due, event) for due, event in late if due > observed]
        stream.append(Event("score", float(score)))
        fate, told = rng.random(), Event("label", float(score), int(label))
        if fate < 0.3:
            stream.append(told)
        elif fate < 0.8:
            late.append((observed + int(rng.integers(1, 400)), told))
    return stream


class Caller:
    """Buffers labels and scores for a tracker, and hands them over when it has to.

    Parameters
    ----------
    tracker
        to hand them to.
    heeds_due
        whether to hand over labels when `PriorTracker.labels_until_due` of them came; if not, only before
        blocks of scores.
    """

    def __init__(self, tracker: PriorTracker, *, heeds_due: bool = True) -> None:
        self.tracker = tracker
        self._heeds_due = heeds_due
        self._observed = 0
        self._scores: list[float] = []
        self._labels: list[int] = []

    def add(self, event: Event) -> None:
        if event.what == "label":
            self._labels.append(event.label)
            if self._heeds_due and len(self._labels) >= self.tracker.labels_until_due:
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
        self.tracker.take_labels(np.array(self._labels, np.int8))
        self._labels = []

    def hand_over(self) -> None:
        """Hand over everything, scores of an incomplete block included: what a merge needs."""
        self.hand_over_labels()
        self.tracker.take_scores(np.array(self._scores))
        self._scores = []
