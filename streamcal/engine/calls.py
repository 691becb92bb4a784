"""Calls of a user on an engine: inputs are checked, then the engine is called. A class for each kind.

`streamcal.engine.recalibrator.Recalibrator` speaks to `Calls` alone. A class of calls says what a score is,
which labels there are and what a memo holds: for two classes here, for the others in
`streamcal.engine.segments.calls` and `streamcal.engine.multiclass.calls`.

A **memo** is what a late label needs of its prediction: the number of target scores observed before it, in 8
bytes, and what the engine lets a join keep with the prediction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from streamcal.base.values import Counts, Floats, Labels, shown
from streamcal.engine.event_rules_c import INDEX_BYTES
from streamcal.engine.stepping_c import checked
from streamcal.events import Domain, Event, LabelledEvent, PredictionEvent
from streamcal.maps.rate_limits import LEAST, MOST
from streamcal.sketch import checks

if TYPE_CHECKING:
    from streamcal.engine.engine import Engine

R = TypeVar("R")
"""Checked scores of several events, as an engine takes them; it has a length, and slices."""


class Answer(NamedTuple):
    """An answer to a prediction, and the memo that its late label needs."""

    probability: Any
    """As of `Recalibrator.predict_one`."""
    memo: bytes


class Answers(NamedTuple):
    """Answers to n predictions, and the memos that their late labels need."""

    probabilities: Floats
    """As of `Recalibrator.predict_many`."""
    memos: list[bytes]


class Intervals(NamedTuple):
    """Probabilities of n scores, each with an interval for the rate of label 1 at that score."""

    probabilities: Floats
    """As of `Recalibrator.predict_many`, float64[n]."""
    low: Floats
    """Lower ends in [0, 1], at most the probabilities, float64[n]."""
    high: Floats
    """Upper ends in [0, 1], at least the probabilities, float64[n]."""


class Calls(Generic[R]):
    """Calls on one engine.

    Parameters
    ----------
    engine
        engine of the kind.
    """

    class_count = 2
    """Number of classes."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Any = engine
        self.alone: Any = self
        """Object whose ``predict_one`` answers a score without segments."""

    def __str__(self) -> str:
        return ""

    # Inputs

    @abstractmethod
    def one(self, score: Any, segments: Any, memo: bytes | None = None) -> R:
        """Return the checked score of one event, as one row; with a memo, segments may be None."""

    @abstractmethod
    def many(self, scores: Any, segments: Any, memos: Sequence[bytes] | None = None) -> R:
        """Return the checked scores of n events; with memos, segments may be None."""

    @abstractmethod
    def of_events(self, events: Sequence[PredictionEvent | LabelledEvent]) -> R:
        """Return the scores of checked events."""

    @abstractmethod
    def of_memos(self, scores: Floats, memos: Sequence[bytes]) -> R:
        """Return the scores of predictions, by the score and the memo of each; ValueError if one is none."""

    @abstractmethod
    def scores(self, rows: R) -> Floats:
        """Return the scores of rows, float64[n] or float64[n, K]."""

    def label(self, label: object, positive: object) -> int:
        """Return a checked label."""
        return checks.check_label(label, positive)

    def labels(self, labels: Any, positive: object) -> Any:
        """Return checked labels, int8[n], or int64[n] of many classes."""
        return checks.as_labels(labels, positive)

    def event(self, event: Event) -> Event:
        """Return a checked event."""
        return checked(event)

    # The engine

    @abstractmethod
    def predict(self, rows: R) -> Floats:
        """Return the probabilities of rows, float64[n] or float64[n, K]."""

    @abstractmethod
    def forecast(self, rows: R) -> tuple[Floats, list[bytes]]:
        """Return what `predict` returns, and what a join would keep with each prediction."""

    @abstractmethod
    def observe(self, rows: R) -> None:
        """Note rows of the target."""

    @abstractmethod
    def learn(
        self,
        rows: R,
        labels: Any,
        domain: Domain,
        times: Floats | None,
        weights: Floats | None,
        memos: Sequence[bytes] | None,
    ) -> None:
        """Learn checked labels; ValueError if a memo is none of such an engine, and nothing is learned then.

        Parameters
        ----------
        rows, labels, domain, times
            n rows, their labels, their domain, their times in seconds; None: they have none.
        weights
            weights of the labels; None: all are 1.
        memos
            of predictions of the target; None: labels came at once.
        """

    def shown(self, probability: Any, score: Any) -> Any:  # noqa: ARG002
        """Return a row of `predict` in the form in which a user gave the score."""
        return float(probability)

    # Calls

    def predict_one(self, score: Any, segments: Any = None) -> Any:
        """See `Recalibrator.predict_one`."""
        return self.shown(self.predict(self.one(score, segments))[0], score)

    def predict_many(self, scores: Any, segments: Any) -> Floats:
        """See `Recalibrator.predict_many`."""
        return self.predict(self.many(scores, segments))

    def intervals(self, scores: Any, segments: Any, interval: float) -> Intervals:  # noqa: ARG002
        """See `Recalibrator.predict_many`."""
        raise ValueError(
            f"interval={shown(interval)} is for one score and two classes: leave it out with classes or"
            " segments"
        )

    def answer_one(self, score: Any, segments: Any) -> Answer:
        """See `Recalibrator.answer_one`."""
        rows, index = self.one(score, segments), self.engine.prediction_count
        probabilities, (memo,) = self.forecast(rows)
        self.observe(rows)
        return Answer(self.shown(probabilities[0], score), _index(index) + memo)

    def answer_many(self, scores: Any, segments: Any, *, observes: bool) -> Answers:
        """See `Recalibrator.answer_many`."""
        return self.answer(self.many(scores, segments), observes=observes)

    def answer(self, rows: R, *, observes: bool) -> Answers:
        """Answer checked rows, with memos."""
        index, step = self.engine.prediction_count, int(observes)
        probabilities, memos = self.forecast(rows)
        if observes:
            self.observe(rows)
        return Answers(probabilities, [_index(index + step * at) + memo for at, memo in enumerate(memos)])

    def observe_one(self, score: Any, segments: Any) -> None:
        """See `Recalibrator.observe_one`."""
        self.observe(self.one(score, segments))

    def split(self, memos: Sequence[Any]) -> tuple[Counts, list[bytes]]:
        """Return the number of scores observed before each prediction, int64[n], and the rest of its memo.

        Raises
        ------
        ValueError
            if one is no memo of this engine.
        """
        most, indices, rest = self.engine.prediction_count, np.empty(len(memos), np.int64), list[bytes]()
        for at, memo in enumerate(memos):
            if not isinstance(memo, bytes) or len(memo) < INDEX_BYTES:
                raise ValueError(_wrong(memo, "it is none"))
            index = int.from_bytes(memo[:INDEX_BYTES], "little")
            if index > most:
                raise ValueError(_wrong(memo, f"of prediction {index:,}, and there were {most:,}"))
            indices[at] = index
            rest.append(memo[INDEX_BYTES:])
            if (why := self.refuses(rest[-1])) is not None:
                raise ValueError(_wrong(memo, why))
        return indices, rest

    def refuses(self, memo: bytes) -> str | None:
        """Return why what a join would keep is none of this engine; None if it is."""
        return f"it has {len(memo)} bytes too many" if memo else None


class BinaryCalls(Calls[Floats]):
    """Calls on an engine of two classes: a score is a number in [0, 1]."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.alone = engine.served

    def one(self, score: Any, segments: Any, memo: bytes | None = None) -> Floats:
        """See `Calls.one`."""
        del memo
        refuse_segments(segments)
        return np.array([checks.check_score(score)])

    def many(self, scores: Any, segments: Any, memos: Sequence[bytes] | None = None) -> Floats:
        """See `Calls.many`."""
        del memos
        refuse_segments(segments)
        return checks.as_scores(scores)

    def of_events(self, events: Sequence[PredictionEvent | LabelledEvent]) -> Floats:
        """See `Calls.of_events`."""
        return np.array([event.score for event in events], np.float64)

    def of_memos(self, scores: Floats, memos: Sequence[bytes]) -> Floats:
        """See `Calls.of_memos`."""
        self.split(memos)
        return scores

    def scores(self, rows: Floats) -> Floats:
        """See `Calls.scores`."""
        return rows

    def predict(self, rows: Floats) -> Floats:
        """See `Calls.predict`."""
        probabilities: Floats = self.engine.served.predict_many(rows)
        return probabilities

    def intervals(self, scores: Any, segments: Any, interval: float) -> Intervals:
        """See `Recalibrator.predict_many`."""
        rows, limits = self.many(scores, segments), self.engine.rate_limits(check_interval(interval))
        probabilities = self.predict(rows)
        return Intervals(probabilities, *limits.at(rows, probabilities))

    def forecast(self, rows: Floats) -> tuple[Floats, list[bytes]]:
        """See `Calls.forecast`."""
        return self.predict(rows), [b""] * len(rows)

    def observe(self, rows: Floats) -> None:
        """See `Calls.observe`."""
        self.engine.observe_many(rows)

    def learn(
        self,
        rows: Floats,
        labels: Labels,
        domain: Domain,
        times: Floats | None,
        weights: Floats | None,
        memos: Sequence[bytes] | None,
    ) -> None:
        """See `Calls.learn`."""
        indices = None if memos is None else self.split(memos)[0]
        self.engine.learn_many(rows, np.asarray(labels, np.int8), domain, times, indices, weights)

    # One event at a time, without arrays

    def answer_one(self, score: Any, segments: Any) -> Answer:
        """See `Calls.answer_one`."""
        if segments is not None or type(score) is not float or not 0.0 <= score <= 1.0:
            score = self.one(score, segments)[0].item()
        engine = self.engine
        memo = engine.prediction_count.to_bytes(INDEX_BYTES, "little")
        answer: Answer = tuple.__new__(Answer, (engine.served.forecast(score), memo))  # in half of the time
        engine.observe_one(score)
        return answer

    def observe_one(self, score: Any, segments: Any) -> None:
        """See `Calls.observe_one`."""
        if segments is not None or type(score) is not float or not 0.0 <= score <= 1.0:
            score = self.one(score, segments)[0].item()
        self.engine.observe_one(score)


def check_interval(interval: object) -> float:
    """Return the probability of an interval.

    Raises
    ------
    ValueError
        if it is not a number from 0.5 to 0.99.
    """
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not LEAST <= interval <= MOST:
        raise ValueError(
            f"interval must be a number from {LEAST} to {MOST}, such as 0.9, got {shown(interval)}"
        )
    return float(interval)


def refuse_segments(segments: object) -> None:
    """Raise ValueError if there are segments."""
    if segments is not None:
        raise ValueError(
            f"segments={shown(segments)}, and the engine has none: name their fields,"
            " Recalibrator(segments=…)"
        )


def _index(index: int) -> bytes:
    return index.to_bytes(INDEX_BYTES, "little")


def _wrong(memo: object, why: str) -> str:
    return (
        f"a memo must be one that answer_one or answer_many of this engine returned, got {shown(memo)}: {why}"
    )
