"""The join of predictions and labels under delay: late, out of order, twice, early, or never.

First label wins; a duplicate is counted and dropped; an early label waits for its prediction; what is not
matched within ``label_ttl`` of event time expires. Every outcome is counted, none is silent.

The join's clock is the latest event time seen. An entry's time to live counts from what the clock showed
when it arrived, so expiry follows the order of arrival and costs O(1) an event. Memory: at most
``max_pending`` entries of each kind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, Self

import msgspec

from streamcal.config import JoinConfig
from streamcal.errors import DamagedStateError
from streamcal.types import (
    Domain,
    Emission,
    Event,
    LabelEvent,
    LabelledEvent,
    PredictionEvent,
    Recalibrated,
    Rejected,
)

__all__ = ["Join", "JoinCounts", "Joined", "Learner"]


class Joined(msgspec.Struct, frozen=True):
    """A prediction with its label, and what was forecast when the prediction was made."""

    score: float
    probability: float
    label: int
    domain: Domain


class JoinCounts(msgspec.Struct):
    """How many events met which end."""

    predictions: int = 0
    """Predictions taken, those that came together with their label among them."""
    labels: int = 0
    """Labels read, whatever became of them."""
    joined: int = 0
    """Predictions that met their label."""
    early: int = 0
    """Labels that came before their prediction."""
    late: int = 0
    """Labels that came after their prediction had expired."""
    duplicate: int = 0
    """Predictions and labels whose id had one already."""
    corrected: int = 0
    """Those of the duplicates that are labels unlike the first."""
    expired: int = 0
    """Predictions whose label did not come in time."""
    unmatched: int = 0
    """Labels whose prediction did not come in time."""


class Learner(Protocol):
    """What the join drives: it answers predictions and learns from joined labels."""

    def answer(self, event: PredictionEvent | LabelledEvent) -> Recalibrated:
        """Return the probability of a prediction."""

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Learn from a prediction that met its label."""


class _Pending(msgspec.Struct, frozen=True):
    since: float | None
    score: float
    probability: float
    domain: Domain
    key: str | None


class _Early(msgspec.Struct, frozen=True):
    since: float | None
    event: LabelEvent


class _Settled(msgspec.Struct, frozen=True):
    since: float | None
    label: int | None  # None: the prediction expired without one


class _State(msgspec.Struct):
    """Every table in the order of arrival; ``since`` is the clock at arrival."""

    clock: float | None
    start: float | None  # the first time the clock showed
    counts: JoinCounts
    pending: dict[str, _Pending]
    early: dict[str, _Early]
    settled: dict[str, _Settled]


class Join:
    """Match labels with predictions, in memory.

    Parameters
    ----------
    config
        time to live and bounds.
    """

    __slots__ = ("_clock", "_config", "_counts", "_early", "_pending", "_settled", "_start")

    def __init__(self, config: JoinConfig | None = None) -> None:
        self._config = config or JoinConfig()
        self._clock: float | None = None
        self._start: float | None = None
        self._counts = JoinCounts()
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._early: OrderedDict[str, _Early] = OrderedDict()
        self._settled: OrderedDict[str, _Settled] = OrderedDict()

    @property
    def config(self) -> JoinConfig:
        """The options it was made with."""
        return self._config

    @property
    def counts(self) -> JoinCounts:
        """The outcomes so far."""
        return self._counts

    @property
    def pending(self) -> int:
        """How many predictions wait for their label."""
        return len(self._pending)

    def step(self, event: Event, learner_of: Callable[[str | None], Learner]) -> tuple[Emission, ...]:
        """Take one event, in the order of arrival.

        Parameters
        ----------
        event
            a prediction, a label, or both in one.
        learner_of
            gives the learner for an event's ``key``.

        Returns
        -------
        The rejects of earlier events that expire by this one's time, then the answer to a prediction,
        what its label taught, or the reject of this event.
        """
        expired: tuple[Emission, ...] = ()
        if event.time is not None and (self._clock is None or event.time > self._clock):
            self._clock = event.time
            expired = self._expire()
        if isinstance(event, LabelEvent):
            emissions = self._label(event, learner_of)
        elif isinstance(event, PredictionEvent):
            emissions = self._prediction(event, learner_of(event.key))
        else:
            emissions = self._labelled(event, learner_of)
        return expired + emissions if expired else emissions

    def close(self) -> tuple[Rejected, ...]:
        """End the stream: labels that still wait for their prediction are rejected."""
        return tuple(self._reject_early(id_) for id_ in list(self._early))

    def to_bytes(self) -> bytes:
        """Return the state as JSON; equal states give equal bytes."""
        state = _State(self._clock, self._start, self._counts, self._pending, self._early, self._settled)
        return msgspec.json.encode(state)

    @classmethod
    def from_bytes(cls, data: bytes, config: JoinConfig | None = None) -> Self:
        """Restore a join from `to_bytes`.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        try:
            state = msgspec.json.decode(data, type=_State)
        except msgspec.DecodeError as error:
            raise DamagedStateError(f"not the state of a join: {error}") from None
        join = cls(config)
        join._clock, join._start, join._counts = state.clock, state.start, state.counts
        join._pending = OrderedDict(state.pending)
        join._early = OrderedDict(state.early)
        join._settled = OrderedDict(state.settled)
        return join

    def _prediction(self, event: PredictionEvent | LabelledEvent, learner: Learner) -> tuple[Emission, ...]:
        id_ = str(event.id)
        if id_ in self._pending or id_ in self._settled:
            return self._duplicate(event, "prediction")
        self._counts.predictions += 1
        answer = learner.answer(event)
        early = self._early.pop(id_, None)
        if early is not None:
            self._settle(id_, early.event.label)
            self._counts.joined += 1
            joined = Joined(event.score, answer.probability, early.event.label, event.domain)
            return (answer, *learner.learn(joined))
        self._pending[id_] = _Pending(self._clock, event.score, answer.probability, event.domain, event.key)
        if len(self._pending) > self._config.max_pending:
            self._expire_prediction(next(iter(self._pending)))
        return (answer,)

    def _label(self, event: LabelEvent, learner_of: Callable[[str | None], Learner]) -> tuple[Emission, ...]:
        self._counts.labels += 1
        waiting = self._pending.pop(event.id, None)
        if waiting is not None:
            self._settle(event.id, event.label)
            self._counts.joined += 1
            joined = Joined(waiting.score, waiting.probability, event.label, waiting.domain)
            return learner_of(waiting.key).learn(joined)
        settled = self._settled.get(event.id)
        early = self._early.get(event.id)
        if early is not None:
            first = early.event.label
        elif settled is None:
            self._counts.early += 1
            self._early[event.id] = _Early(self._clock, event)
            full = len(self._early) > self._config.max_pending
            return (self._reject_early(next(iter(self._early))),) if full else ()
        elif settled.label is None:
            self._counts.late += 1
            return (Rejected(event, f"late label: the prediction with id {event.id!r} has expired"),)
        else:
            first = settled.label
        self._counts.corrected += event.label != first
        return self._duplicate(event, "label")

    def _labelled(
        self, event: LabelledEvent, learner_of: Callable[[str | None], Learner]
    ) -> tuple[Emission, ...]:
        """Take prediction and label in turn; of a prediction that came before, only the label."""
        learner = learner_of(event.key)
        if event.id is not None:
            known = event.id in self._pending or event.id in self._settled
            label = LabelEvent(event.id, event.label, event.time, event.origin)
            return (() if known else self._prediction(event, learner)) + self._label(label, learner_of)
        self._counts.predictions += 1
        self._counts.labels += 1
        self._counts.joined += 1
        answer = learner.answer(event)
        joined = Joined(event.score, answer.probability, event.label, event.domain)
        return (answer, *learner.learn(joined))

    def _duplicate(self, event: Event, what: str) -> tuple[Rejected]:
        self._counts.duplicate += 1
        return (Rejected(event, f"duplicate {what}: there was one with id {event.id!r} before"),)

    def _settle(self, id_: str, label: int | None) -> None:
        """Remember how a prediction ended, to tell duplicates and late labels."""
        self._settled[id_] = _Settled(self._clock, label)
        if len(self._settled) > self._config.max_pending:
            self._settled.popitem(last=False)

    def _expire(self) -> tuple[Emission, ...]:
        """Drop what has outlived its time by the clock."""
        if self._start is None:
            self._start = self._clock
        while self._pending and self._over(next(iter(self._pending.values()))):
            self._expire_prediction(next(iter(self._pending)))
        while self._settled and self._over(next(iter(self._settled.values()))):
            self._settled.popitem(last=False)
        rejects: list[Emission] = []
        while self._early and self._over(next(iter(self._early.values()))):
            rejects.append(self._reject_early(next(iter(self._early))))
        return tuple(rejects)

    def _over(self, entry: _Pending | _Early | _Settled) -> bool:
        since = self._start if entry.since is None else entry.since
        return self._clock is not None and since is not None and self._clock - since > self._config.label_ttl

    def _expire_prediction(self, id_: str) -> None:
        del self._pending[id_]
        self._counts.expired += 1
        self._settle(id_, None)

    def _reject_early(self, id_: str) -> Rejected:
        event = self._early.pop(id_).event
        self._counts.unmatched += 1
        return Rejected(event, f"unmatched label: no prediction with id {id_!r} has come")
