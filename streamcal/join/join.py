"""The join of predictions and labels under delay: late, out of order, twice, early, or never.

First label wins; a duplicate is counted and dropped; an early label waits for its prediction; what is not
matched within ``label_ttl`` of event time expires. Every outcome is counted, none is silent.

The join's clock is the latest event time seen. An entry's time to live counts from what the clock showed
when it arrived, so expiry follows the order of arrival and costs O(1) an event. It ends when clock and
watermark have both passed it: where one partition is read ahead of another, the watermark (`Join.advance`)
is the time up to which all have been read. At most ``max_pending`` entries of each kind; where they wait, in
memory or in a store, is the affair of `streamcal.tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated, Any, Final, Protocol, Self, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from streamcal.errors import DamagedStateError
from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, Origin, PredictionEvent
from streamcal.join.tables import Early, MemoryTable, MemoryTables, Pending, Settled, Tables

__all__ = ["Join", "JoinConfig", "JoinCounts", "JoinState", "Joined", "Learner", "Rejected"]

PORTION: Final = 16_384
"""So many entries may expire in a micro-batch, or more in a large one (`PER_EVENT`), before they are flushed
to the store: where time jumps, all that is pending may expire in one."""

PER_EVENT: Final = 2
"""So many entries may expire for each event of a micro-batch: as many as do where the stream is steady."""

_NEVER: Final = float("-inf")
_FOREVER: Final = float("inf")

T = TypeVar("T", PredictionEvent, LabelEvent, LabelledEvent, PredictionEvent | LabelledEvent, Event)


class Rejected(msgspec.Struct, frozen=True):
    """An event that changed nothing, and why."""

    event: Event
    reason: str


class JoinConfig(BaseModel):
    """Options of the join of predictions and labels."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    label_ttl: Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=False)] = 30 * 86_400.0
    """Seconds of event time after which a prediction stops waiting for its label, and a label for its
    prediction. Events without a time do not expire by time."""

    max_pending: Annotated[int, Field(ge=1)] = 1_000_000
    """How many predictions, how many early labels, and how many settled ids (kept to tell duplicates)
    are remembered at most; beyond it the oldest go first, counted like those that expire."""


class Joined(msgspec.Struct, frozen=True, gc=False):
    """A prediction with its label, and what was forecast when the prediction was made."""

    score: float
    probability: float
    label: int
    domain: Domain
    predicted_at: float | None = None
    """Event time of the prediction, if it had one."""
    labelled_at: float | None = None
    """Event time of the label, if it had one."""
    seen: int = 0
    """How many target scores the engine had observed before it answered the prediction."""


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

    @property
    def seen(self) -> int:
        """How many target scores were observed so far."""

    def answer(self, event: PredictionEvent | LabelledEvent) -> Any:
        """Return the probability of a prediction."""

    def learn(self, joined: Joined) -> tuple[Any, ...]:
        """Learn from a prediction that met its label."""


class _State(msgspec.Struct):
    """Every table in the order of arrival; ``since`` is the clock at arrival."""

    clock: float | None
    start: float | None
    counts: JoinCounts
    pending: dict[str, Pending]
    early: dict[str, Early]
    settled: dict[str, Settled]


class JoinState(msgspec.Struct):
    """The join's state but for its tables."""

    clock: float | None
    """The latest event time seen; None before the first."""
    start: float | None
    """The first time that the clock showed."""
    counts: JoinCounts


class Join:
    """Match labels with predictions.

    Parameters
    ----------
    config
        time to live and bounds.
    tables
        where predictions and labels wait; in memory if not given.
    state
        to go on from, with the ``tables`` of the same moment.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_counts",
        "_due",
        "_look",
        "_now",
        "_portion",
        "_room",
        "_settled_room",
        "_start",
        "_tables",
        "_unflushed",
        "_watermark",
    )

    def __init__(
        self,
        config: JoinConfig | None = None,
        tables: Tables | None = None,
        state: JoinState | None = None,
    ) -> None:
        self._config = config or JoinConfig()
        self._tables: Tables = tables or MemoryTables()
        state = state or JoinState(None, None, JoinCounts())
        self._clock = state.clock
        self._start = state.start
        self._counts = state.counts
        self._now = _NEVER if state.clock is None else state.clock
        self._watermark = _FOREVER
        self._due = _NEVER  # nothing expires before clock and watermark are beyond this
        self._look = _NEVER  # so long as the watermark is what it is, nothing does before the clock is
        self._unflushed = 0  # entries that expired since the last flush or prefetch
        self._portion = PORTION
        self._room = self._settled_room = 0  # so many may be put before the bound has to be looked at

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
        return len(self._tables.pending)

    @property
    def clock(self) -> float | None:
        """The latest event time seen; None before the first."""
        return self._clock

    @property
    def state(self) -> JoinState:
        """All but the tables."""
        return JoinState(self._clock, self._start, self._counts)

    def prefetch(self, ids: Collection[str]) -> None:
        """Make ready for events with these ids; without it, tables in a store look empty."""
        self._unflushed, self._portion = 0, max(PORTION, PER_EVENT * len(ids))
        self._tables.prefetch(ids)

    def advance(self, watermark: float) -> tuple[Rejected, ...]:
        """Let expire what is due by a watermark, and nothing beyond it until this is called again.

        Parameters
        ----------
        watermark
            event time up to which every event has been taken; inf, which is what holds before the first
            call, where events come in the order of time; -inf where nothing is known.

        Returns
        -------
        The rejects of labels that expire by it.
        """
        self._watermark = watermark
        self._look = self._due if self._due < watermark or self._start is None else _FOREVER
        return self._expire() if self._now > self._look else ()

    def step(
        self,
        event: Event,
        learner_of: Callable[[str | None], Learner],
        origin_of: Callable[[], Origin | None] | None = None,
    ) -> tuple[Any, ...]:
        """Take one event, in the order of arrival.

        Parameters
        ----------
        event
            a prediction, a label, or both in one.
        learner_of
            gives the learner for an event's ``key``.
        origin_of
            gives the event's origin, if it does not hold it; asked only when it is rejected or waits.

        Returns
        -------
        The rejects of earlier events that expire by this one's time, then the answer to a prediction,
        what its label taught, or the reject of this event.
        """
        expired: tuple[Any, ...] = ()
        time = event.time
        if time is not None and time > self._now:
            self._clock = self._now = time
            if time > self._look:
                expired = self._expire()
        if isinstance(event, PredictionEvent):
            emissions = self._prediction(event, event.id, learner_of(event.key), origin_of)
        elif isinstance(event, LabelEvent):
            emissions = self._label(event, learner_of, origin_of)
        else:
            emissions = self._labelled(event, learner_of, origin_of)
        return expired + emissions if expired else emissions

    def close(self) -> tuple[Rejected, ...]:
        """End the stream: labels that still wait for their prediction are rejected."""
        return tuple(self._reject_early() for _ in range(len(self._tables.early)))

    def to_bytes(self) -> bytes:
        """Return the state as JSON; equal states give equal bytes. Of tables in a store, what is at hand."""
        tables = self._tables
        return msgspec.json.encode(
            _State(
                self._clock,
                self._start,
                self._counts,
                tables.pending.entries,
                tables.early.entries,
                tables.settled.entries,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes, config: JoinConfig | None = None) -> Self:
        """Restore a join in memory from `to_bytes`.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        try:
            state = msgspec.json.decode(data, type=_State)
        except msgspec.DecodeError as error:
            raise DamagedStateError(f"not the state of a join: {error}") from None
        tables = MemoryTables()
        tables.pending = MemoryTable(state.pending)
        tables.early = MemoryTable(state.early)
        tables.settled = MemoryTable(state.settled)
        return cls(config, tables, JoinState(state.clock, state.start, state.counts))

    def _prediction(
        self,
        event: PredictionEvent | LabelledEvent,
        id_: str,
        learner: Learner,
        origin_of: Callable[[], Origin | None] | None,
    ) -> tuple[Any, ...]:
        tables = self._tables
        pending = tables.pending
        waiting = pending.entries
        if id_ in waiting or id_ in tables.settled.entries:
            return self._duplicate(event, "prediction", origin_of)
        self._counts.predictions += 1
        seen, answer = learner.seen, learner.answer(event)
        if id_ in tables.early.entries:
            early = tables.early.entries.pop(id_)
            self._settle(id_, early.event.label)
            self._counts.joined += 1
            joined = Joined(
                event.score,
                answer.probability,
                early.event.label,
                event.domain,
                event.time,
                early.event.time,
                seen,
            )
            return (answer, *learner.learn(joined))
        waiting[id_] = Pending(
            self._clock, event.score, answer.probability, event.domain, event.key, event.time, seen
        )
        if self._room:
            self._room -= 1
        else:
            room = self._config.max_pending - len(pending)
            if room < 0:
                self._expire_prediction()
            self._room = max(room, 0)
        return (answer,)

    def _label(
        self,
        event: LabelEvent,
        learner_of: Callable[[str | None], Learner],
        origin_of: Callable[[], Origin | None] | None,
    ) -> tuple[Any, ...]:
        self._counts.labels += 1
        tables = self._tables
        waiting = tables.pending.entries.pop(event.id, None)
        if waiting is not None:
            self._settle(event.id, event.label)
            self._counts.joined += 1
            joined = Joined(
                waiting.score,
                waiting.probability,
                event.label,
                waiting.domain,
                waiting.time,
                event.time,
                waiting.seen,
            )
            return learner_of(waiting.key).learn(joined)
        settled = tables.settled.entries.get(event.id)
        early = tables.early.entries.get(event.id)
        if early is not None:
            first = early.event.label
        elif settled is None:
            self._counts.early += 1
            tables.early.entries[event.id] = Early(self._clock, _with_origin(event, origin_of))
            full = len(tables.early) > self._config.max_pending
            return (self._reject_early(),) if full else ()
        elif settled.label is None:
            self._counts.late += 1
            reason = f"late label: the prediction with id {event.id!r} has expired"
            return (Rejected(_with_origin(event, origin_of), reason),)
        else:
            first = settled.label
        self._counts.corrected += event.label != first
        return self._duplicate(event, "label", origin_of)

    def _labelled(
        self,
        event: LabelledEvent,
        learner_of: Callable[[str | None], Learner],
        origin_of: Callable[[], Origin | None] | None,
    ) -> tuple[Any, ...]:
        """Take prediction and label in turn; of a prediction that came before, only the label."""
        learner = learner_of(event.key)
        if event.id is not None:
            known = event.id in self._tables.pending.entries or event.id in self._tables.settled.entries
            label = LabelEvent(event.id, event.label, event.time, event.origin)
            answered = () if known else self._prediction(event, event.id, learner, origin_of)
            return answered + self._label(label, learner_of, origin_of)
        self._counts.predictions += 1
        self._counts.labels += 1
        self._counts.joined += 1
        seen, answer = learner.seen, learner.answer(event)
        joined = Joined(
            event.score,
            answer.probability,
            event.label,
            event.domain,
            event.time,
            event.time,
            seen,
        )
        return (answer, *learner.learn(joined))

    def _duplicate(
        self, event: Event, what: str, origin_of: Callable[[], Origin | None] | None
    ) -> tuple[Rejected]:
        self._counts.duplicate += 1
        reason = f"duplicate {what}: there was one with id {event.id!r} before"
        return (Rejected(_with_origin(event, origin_of), reason),)

    def _settle(self, id_: str, label: int | None) -> None:
        """Remember how a prediction ended, to tell duplicates and late labels."""
        settled = self._tables.settled
        settled.entries[id_] = Settled(self._clock, label)
        if self._settled_room:
            self._settled_room -= 1
            return
        room = self._config.max_pending - len(settled)
        if room < 0:
            settled.pop_oldest()
        self._settled_room = max(room, 0)

    def _expire(self) -> tuple[Rejected, ...]:
        """Drop what has outlived its time by clock and watermark; work out when that is due again."""
        if self._start is None:
            self._start = self._now
        clock = min(self._now, self._watermark)
        pending, early, settled = self._tables.pending, self._tables.early, self._tables.settled
        ttl = self._config.label_ttl
        due = clock + ttl  # of what comes from now on
        rejects: list[Rejected] = []
        while (oldest := pending.oldest()) is not None:
            if clock <= (end := self._since(oldest[1]) + ttl):
                due = min(due, end)
                break
            self._expire_prediction()
            self._unflushed += 1
            if self._unflushed >= self._portion:
                self._flush()
        while (ended := settled.oldest()) is not None:
            if clock <= (end := self._since(ended[1]) + ttl):
                due = min(due, end)
                break
            settled.pop_oldest()
            self._unflushed += 1
            if self._unflushed >= self._portion:
                self._flush()
        while (first := early.oldest()) is not None:
            if clock <= (end := self._since(first[1]) + ttl):
                due = min(due, end)
                break
            rejects.append(self._reject_early())
            self._unflushed += 1
            if self._unflushed >= self._portion:
                self._flush()
        self._due = due
        self._look = due if due < self._watermark else _FOREVER
        return tuple(rejects)

    def _flush(self) -> None:
        self._unflushed = 0
        self._tables.flush()

    def _since(self, entry: Pending | Early | Settled) -> float:
        """Return when an entry came; what came before the first time counts from then."""
        since = self._start if entry.since is None else entry.since
        return _NEVER if since is None else since

    def _expire_prediction(self) -> None:
        id_, _ = self._tables.pending.pop_oldest()
        self._counts.expired += 1
        self._settle(id_, None)

    def _reject_early(self) -> Rejected:
        id_, early = self._tables.early.pop_oldest()
        self._counts.unmatched += 1
        return Rejected(early.event, f"unmatched label: no prediction with id {id_!r} has come")


def _with_origin(event: T, origin_of: Callable[[], Origin | None] | None) -> T:
    if origin_of is None or event.origin is not None:
        return event
    return msgspec.structs.replace(event, origin=origin_of())
