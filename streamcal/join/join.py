"""The join of predictions and labels under delay: late, out of order, twice, early, or never.

The first label wins. A duplicate is counted and dropped. An early label waits for its prediction. What is not
matched within ``label_ttl`` of event time expires (`streamcal.join.clock`). Every outcome is counted.

Where no label means 0 (``unlabelled = "negative"``), a prediction is held until it is *matured*: until no
label within ``matured_after`` of it can come. Only then it is joined, with the label told last, or else with
0. So labels are learned in the order of their predictions, whatever is told sooner.

With ``corrections``, a label that differs from the one that was learned takes its place (`Relabelled`).

The join calls nobody. Each method takes one step of an event, and returns what became of it:

* a prediction: `Join.admit`, then, once it is answered, `Join.hold`;
* a label: `Join.match`;
* before either, `Join.move_to` the event's time, and `Join.ripen` the prediction of a label.

At most ``max_pending`` entries of each kind wait, in memory or in a store (`streamcal.join.tables`,
`streamcal.join.stored_table`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Final, Self, TypeAlias, TypeVar

import msgspec

from streamcal.errors import DamagedStateError
from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, Origin, PredictionEvent
from streamcal.join.clock import ExpiryClock
from streamcal.join.config import JoinConfig
from streamcal.join.dense_tables import DenseTables
from streamcal.join.entry_tables import EntryTables
from streamcal.join.guard import GuardState, TimeGuard
from streamcal.join.outcomes import Contradicted, JoinCounts, Joined, Rejected, Relabelled, Told
from streamcal.join.stretches import Answered, BulkTables, Floats, Labels, Mask, Stretch, look, take
from streamcal.join.tables import E, Early, MemoryTable, MemoryTables, Pending, Settled, Table, Tables
from streamcal.texts import Texts
from streamcal.times import show_duration, show_time

__all__ = ["Join", "JoinConfig", "JoinState", "OriginOf"]

PORTION: Final = 16_384
"""So many entries may expire in a micro-batch, or more in a large one (`PER_EVENT`), before they are flushed
to the store: where time jumps, all that is pending may expire in one."""

PER_EVENT: Final = 2
"""So many entries may expire for each event of a micro-batch: as many as do where the stream is steady."""

OriginOf: TypeAlias = Callable[[], Origin | None]
"""Gives the origin of an event that does not hold it; asked only when it is needed."""

T = TypeVar("T", PredictionEvent, LabelEvent, LabelledEvent, PredictionEvent | LabelledEvent, Event)


class _State(msgspec.Struct, omit_defaults=True):
    """Every table in the order of arrival; ``since`` is the clock at arrival."""

    clock: float | None
    start: float | None
    counts: JoinCounts
    pending: dict[str, Pending]
    early: dict[str, Early]
    settled: dict[str, Settled]
    guard: GuardState = GuardState()


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
        "_corrects",
        "_counts",
        "_matured_after",
        "_portion",
        "_room",
        "_settled_room",
        "_tables",
        "_unflushed",
        "_watermark",
        "guard",
        "keeps_answers",
        "matures",
        "prefetches_parts",
        "takes_stretches",
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
        self._matured_after = self._config.matured_after
        self._corrects = self._config.corrections
        self.matures = self._matured_after is not None
        """Whether predictions are held until they are matured."""
        self.takes_stretches = not (self.matures or self._corrects)
        """Whether `look` and `take` know all its rules: labels that wait and corrections come one by one."""
        self._clock = ExpiryClock(self._config.label_ttl, state.clock, state.start, self._matured_after)
        self._counts = state.counts
        self._watermark = float("inf")  # that holds now
        self.keeps_answers = False
        """Whether the answer to a prediction is kept for as long as its id is remembered: of events that are
        taken one at a time."""
        self.prefetches_parts = False
        """Whether the ids of single events have to be prefetched right before them."""
        self.guard = TimeGuard(self.max_jump)
        """Judges the times of events that come by `Recalibrator.step`; a run judges each partition's own."""
        self._unflushed = 0  # entries that expired since the last flush or prefetch
        self._portion = PORTION
        self._room = self._settled_room = 0  # entries that may be put before the bound has to be looked at

    @property
    def config(self) -> JoinConfig:
        """The options it was made with."""
        return self._config

    @property
    def max_jump(self) -> float:
        """By how many seconds an event's time may be past those before it."""
        return float("inf") if self._config.max_jump is None else self._config.max_jump

    @property
    def counts(self) -> JoinCounts:
        """The outcomes so far."""
        return self._counts

    @property
    def pending(self) -> int:
        """How many predictions wait for their label."""
        return len(self._tables.pending)

    @property
    def longest_wait(self) -> float | None:
        """How many seconds the oldest pending prediction has waited; None without one, or without times."""
        oldest, clock = self._tables.pending.oldest(), self._clock.time
        since = None if oldest is None else oldest[1].since
        return None if since is None or clock is None else clock - since

    @property
    def clock(self) -> float | None:
        """The latest event time seen; None before the first."""
        return self._clock.time

    @property
    def next_expiry(self) -> float | None:
        """The event time beyond which something that is there now expires; None if nothing does by time."""
        tables = self._tables
        held = tables.pending.oldest()
        oldest = [table.oldest() for table in (tables.settled, tables.early)]
        ends = [self._clock.end_of(entry[1].since) for entry in oldest if entry is not None]
        if held is not None:
            ends.append(self._clock.end_of(held[1].since, self._matured_after))
        return min(filter(math.isfinite, ends), default=None)

    @property
    def state(self) -> JoinState:
        """All but the tables."""
        return JoinState(self._clock.time, self._clock.start, self._counts)

    # Time

    def prefetch(self, ids: Collection[str]) -> None:
        """Make ready for events with these ids; without it, tables in a store look empty."""
        self._unflushed, self._portion = 0, max(PORTION, PER_EVENT * len(ids))
        self._tables.prefetch(ids)

    def advance(self, watermark: float) -> tuple[Joined | Rejected, ...]:
        """Let expire what is due by a watermark, and nothing beyond it until this is called again.

        Parameters
        ----------
        watermark
            event time up to which every event has been taken; inf, which is what holds before the first
            call, where events come in the order of time; -inf where nothing is known.

        Returns
        -------
        The predictions that mature by it, and the rejects of labels that expire by it.
        """
        if watermark == self._watermark:
            return ()
        self._watermark = watermark
        return self._expire() if self._clock.set_watermark(watermark) else ()

    def move_to(self, time: float) -> tuple[Joined | Rejected, ...]:
        """Move the clock to an event's time; return what matures, and the rejects of what expires, by it."""
        return self._expire() if self._clock.move(time) else ()

    def close(self) -> tuple[Rejected, ...]:
        """End the stream: labels that still wait for their prediction are rejected."""
        return tuple(self._reject_early() for _ in range(len(self._tables.early)))

    def refuses(self, event: Event) -> str | None:
        """Return why an event is refused, None if it is not.

        Without a time nobody can tell when a prediction is matured. What comes with its label and without an
        id needs none: it is joined at once. A label that counts for more than one cannot be corrected.
        """
        if self._corrects and event.weight is not None and event.weight != 1.0:
            return f"a label must not have a weight other than 1, got {event.weight:g}: corrections = true"
        if event.time is not None or self._matured_after is None or event.id is None:
            return None
        what = "a label" if isinstance(event, LabelEvent) else "a prediction"
        after = show_duration(self._matured_after)
        return f"{what} needs a time: predictions without a label count as 0 after {after} of event time"

    def ripen(self, event: LabelEvent) -> Joined | None:
        """Join the prediction of a label that comes too late for it, if only the clock has not told so yet.

        Where partitions are read one ahead of another, such a label may come before the clock and the
        watermark have passed its prediction's time. What a prediction is joined with depends on times alone.
        """
        after = self._matured_after
        if after is None:
            return None
        waiting = self._tables.pending.entries.get(event.id)
        if waiting is None or waiting.time is None or event.time is None:
            return None
        if event.time <= waiting.time + after:
            return None
        del self._tables.pending.entries[event.id]
        return self._mature(event.id, waiting)

    # Predictions

    def knows(self, id_: str) -> bool:
        """Whether a prediction with this id is pending or settled."""
        return id_ in self._tables.pending.entries or id_ in self._tables.settled.entries

    def admit(
        self, event: PredictionEvent | LabelledEvent, origin_of: OriginOf | None = None
    ) -> Rejected | None:
        """Take a prediction that has an id: `hold` it once it is answered, unless it is rejected here."""
        id_ = str(event.id)
        if id_ in self._tables.pending.entries or id_ in self._tables.settled.entries:
            return self._duplicate(event, "prediction", origin_of)
        self._counts.predictions += 1
        return None

    def hold(
        self,
        event: PredictionEvent | LabelledEvent,
        probability: float,
        seen: int,
        answer: tuple[int, float, float] | None = None,
    ) -> Joined | None:
        """Let an answered prediction wait for its label, or join it with a label that came before it.

        Parameters
        ----------
        event
            that `admit` has taken.
        probability
            the answer.
        seen
            how many target scores its engine had observed before the answer.
        answer
            of a join that keeps answers: the map's version and weights, as in `Pending.answer`.
        """
        tables, id_ = self._tables, str(event.id)
        entry = Pending(
            self._clock.time,
            event.score,
            probability,
            event.domain,
            event.key,
            event.time,
            seen,
            answer,
            weight=event.weight,
        )
        if id_ in tables.early.entries and not self.matures:
            early = tables.early.entries.pop(id_).event
            if self._corrects:
                entry.told = early.label, early.time
            self._settle(id_, early.label, entry)
            self._counts.joined += 1
            return _joined(event, probability, seen, early.label, early.time, early.weight)
        pending = tables.pending
        pending.entries[id_] = entry
        if self._room:
            self._room -= 1
        else:
            room = self._config.max_pending - len(pending)
            if room < 0:
                self._expire_prediction()
            self._room = max(room, 0)
        return None

    def take_early(self, id_: str) -> LabelEvent | None:
        """Return the label that waited for a prediction which is now held until it is matured, if one did.

        It is then to be matched as any other.
        """
        early = self._tables.early.entries.pop(id_, None)
        return None if early is None else early.event

    def join(self, event: LabelledEvent, probability: float, seen: int) -> Joined:
        """Join a score and a label that came together without an id; parameters as in `hold`."""
        self._counts.predictions += 1
        self._counts.labels += 1
        self._counts.joined += 1
        return _joined(event, probability, seen, event.label, event.time, None)

    # Labels

    def match(
        self, event: LabelEvent, origin_of: OriginOf | None = None, *, is_new: bool = True
    ) -> Joined | Told | Relabelled | Contradicted | Rejected | None:
        """Match a label with its prediction; None if one of them waits for the other, or for its time.

        The reject may be of an earlier label, if as many wait as may. A label that `take_early` gave is not
        new: it was counted when it came.
        """
        self._counts.labels += is_new
        tables = self._tables
        if self.matures and event.id in tables.pending.entries:
            return self._tell(event, origin_of)
        waiting = tables.pending.entries.pop(event.id, None)
        if waiting is not None:
            if self._corrects:
                waiting.told = event.label, event.time
            self._settle(event.id, event.label, waiting)
            self._counts.joined += 1
            return Joined(
                waiting.score,
                waiting.probability,
                event.label,
                waiting.domain,
                waiting.time,
                event.time,
                waiting.seen,
                waiting.key,
                weight=_weight(event.weight, waiting.weight),
            )
        settled = tables.settled.entries.get(event.id)
        early = tables.early.entries.get(event.id)
        if early is not None:
            first = early.event.label
            if first != event.label and (self._corrects or self.matures):
                self._counts.corrected += 1
                early.event = _with_origin(event, origin_of)
                tables.early.note(event.id)
                return None
        elif settled is None:
            self._counts.early += 1
            tables.early.entries[event.id] = Early(self._clock.time, _with_origin(event, origin_of))
            return self._reject_early() if len(tables.early) > self._config.max_pending else None
        elif settled.label is None:
            self._counts.late += 1
            when = "" if settled.since is None else f" by {show_time(settled.since)} ({self._bounds()})"
            reason = f"late label: the prediction with id {event.id!r} has expired{when}"
            return Rejected(_with_origin(event, origin_of), reason)
        else:
            first, held = settled.label, settled.answered
            if held is not None and self.matures and (held.told is None or held.told[0] != first):
                return self._contradict(event, settled, held, origin_of)
            if first != event.label and self._corrects and held is not None:
                self._counts.corrected += 1
                return self._relabel(event, settled, held)
        self._counts.corrected += event.label != first
        return self._duplicate(event, "label", origin_of)

    # Many events at a time

    def lay_out(self) -> None:
        """Keep what is in memory as columns from now on: `prefetch` must be called before single events."""
        if isinstance(self._tables, MemoryTables):
            self._tables = DenseTables(self._tables)
            self.prefetches_parts = True

    @property
    def _bulk(self) -> BulkTables:
        tables = self._tables
        if not isinstance(tables, DenseTables):
            return EntryTables(tables)
        tables.settle()
        return tables

    def look(self, ids: Texts, predicted: Mask, labelled: Mask, times: Floats, domain: Domain) -> Stretch:
        """Return the stretch of the common case that events begin with; see `streamcal.join.stretches`."""
        most = self._config.max_pending
        return look(ids, predicted, labelled, times, domain, self._bulk, self._clock, most)

    def take(self, stretch: Stretch, answered: Answered, labels: Labels) -> None:
        """Take the events of a stretch that `look` gave, answered: as each in turn would be.

        Parameters
        ----------
        stretch, answered
            nothing has changed since.
        labels
            int8[k], 0 or 1, one for each label of the stretch.
        """
        counts = self._counts
        counts.predictions += len(stretch.at)
        counts.labels += len(labels)
        counts.joined += len(labels)
        counts.expired += 0 if stretch.expired is None else int(stretch.expired[-1])
        take(stretch, answered, labels, self._bulk, self._clock.time)
        self._room = self._settled_room = 0
        if stretch.clock is not None and self._clock.move(float(stretch.clock[-1])):
            self._expire()  # all that was due has gone: it works out when to look again

    # State

    def to_bytes(self) -> bytes:
        """Return the state as JSON; equal states give equal bytes."""
        tables = self._tables
        return msgspec.json.encode(
            _State(
                self._clock.time,
                self._clock.start,
                self._counts,
                _entries(tables.pending),
                _entries(tables.early),
                _entries(tables.settled),
                self.guard.state,
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
        except (ValueError, RecursionError) as error:  # of msgspec, of UTF-8, of nesting
            raise DamagedStateError(f"not the state of a join: {error}") from None
        tables = MemoryTables()
        tables.pending = MemoryTable(state.pending)
        tables.early = MemoryTable(state.early)
        tables.settled = MemoryTable(state.settled)
        join = cls(config, tables, JoinState(state.clock, state.start, state.counts))
        join.guard = TimeGuard(join.max_jump, state.guard)
        return join

    # Inside

    def _duplicate(self, event: Event, what: str, origin_of: OriginOf | None) -> Rejected:
        self._counts.duplicate += 1
        reason = f"duplicate {what}: there was one with id {event.id!r} before"
        return Rejected(_with_origin(event, origin_of), reason)

    def _tell(self, event: LabelEvent, origin_of: OriginOf | None) -> Told | Rejected | None:
        """Take a label of a prediction that is held until it is matured: the one told last counts."""
        pending = self._tables.pending
        held, label, time = pending.entries[event.id], event.label, event.time
        if held.told is not None:
            if held.told[0] == label:
                return self._duplicate(event, "label", origin_of)
            self._counts.corrected += 1
        held.told = label, time
        pending.note(event.id)
        if not label or held.time is None or time is None:
            return None
        return Told(held.score, held.time, time, held.domain, held.key)

    def _mature(self, id_: str, held: Pending) -> Joined:
        """Join a prediction that was held long enough, and has gone from its table."""
        if held.told is None:
            self._counts.implied += 1
            label, told_at = 0, None
        else:
            self._counts.joined += 1
            label, told_at = held.told
        self._settle(id_, label, held)
        return Joined(
            held.score,
            held.probability,
            label,
            held.domain,
            held.time,
            told_at,
            held.seen,
            held.key,
            matured_at=self._clock.end_of(held.since, self._matured_after),
        )

    def _contradict(
        self, event: LabelEvent, settled: Settled, held: Pending, origin_of: OriginOf | None
    ) -> Contradicted | Rejected:
        """Take a label of a prediction that was joined with 0 for want of one, and still counts as 0."""
        if event.label:
            self._counts.contradicted += 1
            if self._corrects:
                return Contradicted(held.domain, held.key, self._relabel(event, settled, held))
        self._counts.late += 1
        after = show_duration(self._matured_after or 0.0)
        reason = f"late label: the prediction with id {event.id!r} counts as 0, it had none for {after}"
        if event.label:
            reason += "; [join] corrections = true would correct it"
        rejected = Rejected(_with_origin(event, origin_of), reason)
        if not event.label or held.told is not None:
            return rejected
        held.told = 1, event.time  # so that it contradicts once, however often it is told
        self._tables.settled.note(event.id)
        return Contradicted(held.domain, held.key, rejected)

    def _relabel(self, event: LabelEvent, settled: Settled, held: Pending) -> Relabelled:
        """Let a label take the place of the one that was learned."""
        after = self._matured_after
        counted = (held.told and held.told[1]) if after is None else self._clock.end_of(held.since, after)
        settled.label = event.label
        held.told = event.label, counted
        self._tables.settled.note(event.id)
        return Relabelled(held.score, event.label, held.domain, held.time, counted, held.seen, held.key)

    def _settle(self, id_: str, label: int | None, prediction: Pending) -> None:
        """Remember how a prediction ended, to tell duplicates and late labels."""
        settled = self._tables.settled
        wanted = self._corrects or self.matures
        kept = prediction if wanted or (self.keeps_answers and prediction.answer is not None) else None
        settled.entries[id_] = Settled(self._clock.time, label, kept)
        if self._settled_room:
            self._settled_room -= 1
            return
        room = self._config.max_pending - len(settled)
        if room < 0:
            settled.pop_oldest()
        self._settled_room = max(room, 0)

    def _expire(self) -> tuple[Joined | Rejected, ...]:
        """Join what is matured, and drop what has outlived its time."""
        clock, tables, after = self._clock, self._tables, self._matured_after
        left: list[Joined | Rejected] = []
        clock.begin_look()
        while (pending := tables.pending.oldest()) is not None and clock.has_passed(pending[1].since, after):
            if after is None:
                self._expire_prediction()
            else:
                left.append(self._mature(*tables.pending.pop_oldest()))
            self._count_expired()
        while (settled := tables.settled.oldest()) is not None and clock.has_passed(settled[1].since):
            tables.settled.pop_oldest()
            self._count_expired()
        while (early := tables.early.oldest()) is not None and clock.has_passed(early[1].since):
            left.append(self._reject_early())
            self._count_expired()
        clock.end_look()
        return tuple(left)

    def _count_expired(self) -> None:
        """Flush when so many entries have expired as may before it."""
        self._unflushed += 1
        if self._unflushed >= self._portion:
            self._unflushed = 0
            self._tables.flush()

    def _expire_prediction(self) -> None:
        id_, prediction = self._tables.pending.pop_oldest()
        self._counts.expired += 1
        self._settle(id_, None, prediction)

    def _reject_early(self) -> Rejected:
        """Reject the label that has waited longest, saying how long ago its prediction may have ended."""
        id_, early = self._tables.early.pop_oldest()
        self._counts.unmatched += 1
        reason = f"unmatched label: no prediction with id {id_!r} has come"
        start, since = self._clock.start, early.since
        remembered = None if since is None else since - self._config.label_ttl
        if remembered is not None and start is not None and start < remembered:
            reason += f", or it was settled before {show_time(remembered)} ({self._bounds()})"
        elif len(self._tables.settled) >= self._config.max_pending:
            reason += f", or it was settled and is forgotten ({self._bounds()})"
        return Rejected(early.event, reason)

    def _bounds(self) -> str:
        ttl, most = show_duration(self._config.label_ttl), self._config.max_pending
        return f"label_ttl is {ttl}, max_pending {most:,}"


def _entries(table: Table[E]) -> dict[str, E]:
    return table.entries if isinstance(table, MemoryTable) else dict(table.first(len(table)))


def _with_origin(event: T, origin_of: OriginOf | None) -> T:
    if origin_of is None or event.origin is not None:
        return event
    return msgspec.structs.replace(event, origin=origin_of())


def _joined(
    event: PredictionEvent | LabelledEvent,
    probability: float,
    seen: int,
    label: int,
    time: float | None,
    weight: float | None,
) -> Joined:
    return Joined(
        event.score,
        probability,
        label,
        event.domain,
        event.time,
        time,
        seen,
        event.key,
        weight=_weight(weight, event.weight),
    )


def _weight(of_label: float | None, of_prediction: float | None) -> float:
    """Return what a label counts for: as it says, else as its prediction says."""
    weight = of_prediction if of_label is None else of_label
    return 1.0 if weight is None else weight
