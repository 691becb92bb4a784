"""Replay of a stream: predict in blocks, learn labels as they arrive; and the losses of the forecasts.

A label that is d events late arrives once so many events after its own have been predicted. Labels are
learned in the order of their arrival, after the block in which they arrive: with blocks of one event, each as
soon as it is there.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from peers import Floats, Labels, Method, Places

from streamcal import Recalibrator
from streamcal.engine.config import Mode

__all__ = [
    "LATE_BLOCK",
    "Raw",
    "Streamcal",
    "arrivals",
    "brier_losses",
    "exponential",
    "log_losses",
    "replay",
]

LEAST: Final = 1e-6  # log loss: probabilities are clipped to [1e-6, 1 − 1e-6]
LATE_BLOCK: Final = 100
"""Events of a block where labels are late: they are that late, and at most a block more."""


class Raw:
    """The score as it came."""

    def predict(self, scores: Floats) -> Floats:
        """Return the scores."""
        return scores

    def learn(self, scores: Floats, labels: Labels, places: Places | None = None, /) -> None:
        """Learn nothing."""


class Streamcal:
    """An engine with default options but for the mode, told of every label when its score was predicted."""

    def __init__(self, mode: Mode | None = None) -> None:
        self.engine = Recalibrator() if mode is None else Recalibrator(mode=mode)
        self._seen: list[int] = []  # by prediction

    def predict(self, scores: Floats) -> Floats:
        """Return the probabilities of scores, float64[n], and let the engine observe them."""
        engine = self.engine
        self._seen += [engine.prediction_count] * len(scores)
        if len(scores) == 1:
            score = scores.item()
            probability = engine.predict_one(score)
            engine.observe_one(score)
            return np.array([probability])
        probabilities = engine.predict_many(scores)
        engine.observe_many(scores)
        return probabilities

    def learn(self, scores: Floats, labels: Labels, places: Places | None = None, /) -> None:
        """Learn n scores with their labels."""
        if places is None:
            self.engine.learn_many(scores, labels, "source")
            return
        # One call takes labels whose scores were predicted together.
        seen = np.array([self._seen[place] for place in places.tolist()])
        starts = np.flatnonzero(np.diff(seen, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(seen)], strict=True):
            then = int(seen[start])
            if end - start == 1:
                self.engine.learn_one(scores[start].item(), labels[start].item(), prediction_index=then)
            else:
                self.engine.learn_many(scores[start:end], labels[start:end], prediction_index=then)


def replay(
    method: Method, scores: Floats, labels: Labels, delays: ArrayLike = 0, block: int | None = None
) -> Floats:
    """Return the forecast of every event, float64[n].

    Parameters
    ----------
    method
        what predicts and learns.
    scores, labels
        float64[n] in [0, 1]; int8[n], 0 or 1.
    delays
        how many events late the labels are, ≥ 0: one number, or int64[n].
    block
        how many events are predicted, and then learned, at a time; None: 1 if all labels come at once, else
        `LATE_BLOCK`.
    """
    size = block or (LATE_BLOCK if np.any(delays) else 1)
    order, known = arrivals(len(scores), delays, size)
    forecasts = np.empty(len(scores))
    learned = 0
    for begin in range(0, len(scores), size):
        if known[begin] > learned:
            places = order[learned : known[begin]]
            method.learn(scores[places], labels[places], places)
            learned = known[begin]
        forecasts[begin : begin + size] = method.predict(scores[begin : begin + size])
    return forecasts


def arrivals(n: int, delays: ArrayLike, block: int) -> tuple[Places, Places]:
    """Return the events in the order in which their labels arrive, and how many are known to each forecast.

    Both are int64[n]. All events of a block are forecast before labels that arrive in it are known.
    """
    times = np.arange(n) + np.asarray(delays)
    order = np.argsort(times, kind="stable")
    starts = np.arange(n) // block * block
    return order, np.searchsorted(times[order], starts)


def exponential(n: int, mean: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return exponential delays of n labels, int64[n] events."""
    return rng.exponential(mean, n).astype(np.int64)


def log_losses(forecasts: Floats, labels: Labels, least: float = LEAST) -> Floats:
    """Return the log loss of every event in nats, probabilities clipped to [least, 1 − least]."""
    inside = np.clip(forecasts, least, 1.0 - least)
    return -np.log(np.where(labels, inside, 1.0 - inside))


def brier_losses(forecasts: Floats, labels: Labels) -> Floats:
    """Return the Brier loss of every event."""
    return np.square(forecasts - labels)
