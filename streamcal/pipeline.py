"""The main job: finite sources merged by event time, through join and engine, to sinks.

One engine a ``key``; one join for all, since a label names only its prediction's id.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from streamcal.codec import Malformed
from streamcal.config import JoinConfig, RecalibratorConfig
from streamcal.engine import Recalibrator
from streamcal.join import Join, JoinCounts, Joined
from streamcal.types import (
    Emission,
    Event,
    LabelledEvent,
    Origin,
    PredictionEvent,
    Recalibrated,
    Rejected,
)

__all__ = ["Pipeline", "RejectRow", "Tally", "merge_by_time"]


class RejectRow(msgspec.Struct, frozen=True):
    """One line of the rejects: bad input, where it was, and why it was refused."""

    source: str
    line: int
    reason: str
    raw: str


class Tally(msgspec.Struct):
    """What a run counted."""

    events: int = 0
    """Events read, of all sources, bad ones among them."""
    source_labels: int = 0
    """Labelled events learned from the source of calibration."""
    rejected: int = 0
    """Events that changed nothing: bad input, duplicates, labels without a prediction in time."""
    squares_before: float = 0.0
    """Sum of (score − label)² over the joined labels."""
    squares_after: float = 0.0
    """Sum of (probability − label)² over the joined labels, each with the probability of its time."""
    joined: int = 0
    """How many labels those sums are over."""

    @property
    def brier_before(self) -> float | None:
        """Brier score of the scores; None without joined labels."""
        return self.squares_before / self.joined if self.joined else None

    @property
    def brier_after(self) -> float | None:
        """Brier score of the recalibrated probabilities; None without joined labels."""
        return self.squares_after / self.joined if self.joined else None


class _Scored:
    """An engine whose forecasts are scored before it learns from their labels."""

    __slots__ = ("_tally", "engine", "observer")

    def __init__(self, engine: Recalibrator, tally: Tally, observer: Callable[[Joined], None] | None) -> None:
        self.engine = engine
        self.observer = observer
        self._tally = tally

    def answer(self, event: PredictionEvent | LabelledEvent) -> Recalibrated:
        return self.engine.answer(event)

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        tally = self._tally
        tally.joined += 1
        tally.squares_before += (joined.score - joined.label) ** 2
        tally.squares_after += (joined.probability - joined.label) ** 2
        if self.observer is not None:
            self.observer(joined)
        return self.engine.learn(joined)


class Pipeline:
    """Join, engines and counts of one run.

    Parameters
    ----------
    config, join
        options of the engines and of the join.
    observer
        called with every joined label before it is learned.
    """

    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        join: JoinConfig | None = None,
        observer: Callable[[Joined], None] | None = None,
    ) -> None:
        self._config = config or RecalibratorConfig()
        self._observer = observer
        self._join = Join(join)
        self._learners: dict[str | None, _Scored] = {}
        self.tally = Tally()

    @property
    def counts(self) -> JoinCounts:
        """The outcomes of the join so far."""
        return self._join.counts

    @property
    def pending(self) -> int:
        """How many predictions wait for their label."""
        return self._join.pending

    @property
    def engines(self) -> dict[str | None, Recalibrator]:
        """The engine of every key seen."""
        return {key: learner.engine for key, learner in self._learners.items()}

    def calibrate(self, item: Event | Malformed) -> RejectRow | None:
        """Learn one labelled event of the source of calibration; return why not, if not."""
        self.tally.events += 1
        if isinstance(item, Malformed):
            return self._reject(item.origin, item.reason)
        if not isinstance(item, LabelledEvent):
            return self._reject(item.origin, "an event of the source of calibration needs score and label")
        self.tally.source_labels += 1
        self._learner(item.key).engine.learn_one(item.score, item.label, item.domain)
        return None

    def step(self, item: Event | Malformed) -> tuple[Sequence[Recalibrated], Sequence[RejectRow]]:
        """Take one event of the deployment: return the answers and the rejects that follow."""
        self.tally.events += 1
        if isinstance(item, Malformed):
            return (), (self._reject(item.origin, item.reason),)
        return self._sort(self._join.step(item, self._learner))

    def close(self) -> Sequence[RejectRow]:
        """End the stream: return a reject for every label that still waits for its prediction."""
        return self._sort(self._join.close())[1]

    def _learner(self, key: str | None) -> _Scored:
        learner = self._learners.get(key)
        if learner is None:
            learner = _Scored(Recalibrator(self._config), self.tally, self._observer)
            self._learners[key] = learner
        return learner

    def _sort(self, emissions: Sequence[Emission]) -> tuple[Sequence[Recalibrated], Sequence[RejectRow]]:
        answers: list[Recalibrated] = []
        rejects: list[RejectRow] = []
        for emission in emissions:
            if isinstance(emission, Recalibrated):
                answers.append(emission)
            elif isinstance(emission, Rejected):
                rejects.append(self._reject(emission.event.origin, emission.reason))
        return answers, rejects

    def _reject(self, origin: Origin | None, reason: str) -> RejectRow:
        self.tally.rejected += 1
        if origin is None:
            return RejectRow("", 0, reason, "")
        return RejectRow(origin.source, origin.line, reason, origin.raw.decode("utf-8", "backslashreplace"))


def merge_by_time(*sources: Iterable[Event | Malformed]) -> Iterator[Event | Malformed]:
    """Merge finite sources by event time; of equal times, the source named first comes first.

    An item without a time, or malformed, keeps its place behind its predecessor of the same source. The
    result depends on the contents alone, so a run is reproducible.
    """
    return (item for _, item in heapq.merge(*map(_timed, sources), key=lambda pair: pair[0]))


def _timed(items: Iterable[Event | Malformed]) -> Iterator[tuple[float, Event | Malformed]]:
    time = float("-inf")
    for item in items:
        if not isinstance(item, Malformed) and item.time is not None:
            time = item.time
        yield time, item
