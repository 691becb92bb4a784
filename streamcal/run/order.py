"""The order of events from several sources: by event time, the same in every run.

Each partition of each source is a lane, and the events of a lane keep their order. An event without a time, a
malformed one, one with an earlier time than its predecessor, or one whose time is in doubt
(`streamcal.join.rules_c`) follows directly behind its predecessor. Of events with equal times, that of the
lane added first comes first. An event whose time cannot be right (`streamcal.events.guard`) is malformed, so
that it neither moves its lane nor the clock.

If all sources are finite, the order is that of the whole inputs: `Merge.take` returns the events that no
later one can precede. Otherwise it returns all events that were read, in an order that depends on them alone,
and one lane may be read far ahead of another. `watermark` then says up to which event time all lanes have
been read.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.times import LIMIT
from streamcal.base.values import Floats
from streamcal.events import Event, LabelEvent, Origin
from streamcal.events.blocks import Block
from streamcal.events.codes import Refusal
from streamcal.events.fields import Malformed, with_time
from streamcal.events.guard import ClockState, GuardState, TimeGuard
from streamcal.events.input_checks import untimed
from streamcal.join import rules_c
from streamcal.run.ports import Batch, Position, Source

BACKWARDS: Final = 60.0
"""An event goes back if its time is so many seconds before the latest one of its lane."""

_FIRST: Final = 64  # times at the beginning of a finite lane that are looked at before any event is taken …
_LOOKED_AT: Final = 256  # … among so many events
_FALLING: Final = 0.9  # of the times of a lane that differ from the one before, if its newest comes first
_FEW: Final = 32  # times of which that is not said

_BEGINNING: Final = float("-inf")
_END: Final = float("inf")

LaneName = tuple[str, str]
"""The names of a source and of one of its partitions."""


class TimesRead(msgspec.Struct):
    """Event times of some events, as they were taken."""

    converted: int = 0
    """Times in milliseconds, microseconds or nanoseconds."""
    mistimed: int = 0
    """Events rejected for their time: in another unit than the others, or far beyond them."""
    backwards: int = 0
    """Events with a time more than `BACKWARDS` before the latest one of their lane."""
    untimed: int = 0
    """Events of the target without a time."""


@dataclass
class MicroBatch:
    """Events in the order in which they are processed."""

    events: Sequence[Event | Malformed]
    positions: dict[str, dict[str, Position]]
    """Positions after this batch, by source and partition, of the partitions that moved."""
    times: dict[str, dict[str, float]]
    """Event time that each lane has reached, by source and partition; `Merge` resumes there."""
    guards: dict[str, dict[str, GuardState]]
    """Guards of the times of each lane's next events, by source and partition."""
    times_read: TimesRead
    _chunks: Sequence[tuple[Batch, int]]
    _starts: Sequence[int]
    _order: npt.NDArray[np.intp] | None
    watermark: float = _END
    """Predictions due by this event time may expire; inf: due by the time of each event."""
    begun: dict[str, dict[str, GuardState]] = field(default_factory=dict)
    """Guards with which lanes begin that have their first events in this batch, by source and partition."""

    def origin(self, index: int) -> Origin:
        """Return where the event at an index came from."""
        read = index if self._order is None else int(self._order[index])
        which = bisect_right(self._starts, read) - 1
        batch, first = self._chunks[which]
        return batch.origin(first + read - self._starts[which])


class _Chunk(NamedTuple):
    """Consecutive events of one batch."""

    batch: Batch
    first: int
    """Index of the first of them in the batch."""
    events: Sequence[Event | Malformed]
    times: Floats
    """As they were given; NaN: none."""
    seconds: Floats
    """As they were taken; NaN: none, or refused."""
    keys: Floats
    """The latest time of the lane that is believed up to each event."""
    before: GuardState
    """State of the lane before the first of them."""

    def cut(self, count: int, max_jump: float, tolerance: float) -> tuple[Self, Self]:
        """Return the first ``count`` events, and the others."""
        head = self._part(0, count)
        guard = TimeGuard(max_jump, self.before)
        clock = rules_c.Clock(tolerance, self.before.clock)
        clock.believed(guard.take_many(head.times)[0])
        before = msgspec.structs.replace(guard.state, clock=clock.state)
        return head, self._part(count, len(self.events))._replace(before=before)

    def _part(self, start: int, end: int) -> Self:
        return self._replace(
            first=self.first + start,
            events=self.events[start:end],
            times=self.times[start:end],
            seconds=self.seconds[start:end],
            keys=self.keys[start:end],
        )

    def count_times(self, read: TimesRead, reached: float) -> None:
        """Count how the times were taken, where the lane had reached a time before."""
        if (lacks := np.isnan(self.times)).any():
            events = self.events
            others: Iterable[Any] = events
            if isinstance(events, Block):
                lacks[[*events.others]] = False
                read.untimed += int(np.count_nonzero(lacks)) * (events.domain == "target")
                others = events.others.values()
            read.untimed += sum(map(_is_untimed, others))
        refused = np.isnan(self.seconds) & ~np.isnan(self.times)
        read.converted += int(np.count_nonzero((np.abs(self.times) >= LIMIT) & ~refused))
        read.mistimed += int(np.count_nonzero(refused))
        read.backwards += int(np.count_nonzero(self.seconds < np.maximum(self.keys, reached) - BACKWARDS))


class _Lane:
    """One partition: its events that were read but not taken yet."""

    def __init__(
        self, source: str, reached: float, guard: GuardState, max_jump: float, tolerance: float
    ) -> None:
        self.open = True
        self.reached = reached  # the latest time among the events taken
        self.read = reached  # … and among those read
        self.chunks: list[_Chunk] = []
        self.timed: bool | None = None  # whether first events have times; None: not known
        self.source = source
        self._guard = guard  # of the next events that are read
        self._max_jump, self._tolerance = max_jump, tolerance
        self._ahead: list[Batch] | None = None  # read, but not looked at yet

    def __len__(self) -> int:
        return sum(len(chunk.events) for chunk in self.chunks) + sum(
            len(batch.events) for batch in self._ahead or ()
        )

    @property
    def guard(self) -> GuardState:
        """Guard of the times of the events that were not taken yet."""
        return self.chunks[0].before if self.chunks else self._guard

    @property
    def looks_ahead(self) -> bool:
        """Whether its first times were not looked at yet."""
        return self._ahead is not None

    def look_ahead(self) -> None:
        """Look at the first times before any event is taken, if none was looked at before."""
        if not self._guard.begun:
            self._ahead = []

    def start_near(self, times: tuple[float, ...]) -> None:
        """Let times of another lane be the neighbours of the first events."""
        self._guard = msgspec.structs.replace(self._guard, begun=True, recent=times)

    def end(self) -> None:
        """Mark it as ended: it has no more events."""
        self.open = False
        if self._ahead:
            self._begin(self._ahead)

    def forget_times(self) -> None:
        """Order the next events by their own times, not behind those read before."""
        self.read = _BEGINNING

    def add(self, batch: Batch) -> None:
        """Add events that were read.

        Raises
        ------
        ValueError
            if a lane that is looked at ahead has its newest events first.
        """
        if self._ahead is None:
            self._take_in(batch)
            return
        self._ahead.append(batch)
        if len(self) >= _LOOKED_AT or np.count_nonzero(np.isfinite(self._first_times())) >= _FIRST:
            self._begin(self._ahead)

    def _begin(self, ahead: Sequence[Batch]) -> None:
        times = self._first_times()
        first = times[np.isfinite(times)][:_FIRST]
        steps = np.diff(first)
        changes, falls = np.count_nonzero(steps), np.count_nonzero(steps < 0)
        if changes >= _FEW and falls > _FALLING * changes:
            raise ValueError(
                f"the newest events of {self.source} come first ({falls} of its first {changes} times that"
                " differ from the one before are earlier): sort it by time, oldest first"
            )
        guard = TimeGuard(self._max_jump, self._guard)
        guard.begin(first)
        kinds = {type(event) for batch in ahead for event in islice(batch.events, _LOOKED_AT)}
        self._ahead, timed = None, len(first) > 0
        self.timed = timed if timed or kinds - {Malformed} else None
        alone = kinds <= {LabelEvent, Malformed}
        clock = self._first_clock(first)
        self._guard = msgspec.structs.replace(guard.state, of_labels=timed and alone, clock=clock)
        for batch in ahead:
            self._take_in(batch)

    def _first_clock(self, first: Floats) -> ClockState:
        """Return a clock that begins near most of the first times, so that not even the first is believed."""
        if len(first) < rules_c.FEWEST or np.ptp(first) <= self._tolerance:
            return ClockState()
        ordered = np.sort(first)
        steps = np.diff(ordered)
        gap = float(np.median(steps))
        apart = np.flatnonzero(steps[: len(first) // 2] > max(self._tolerance, rules_c.GAPS * gap))
        start = float(ordered[apart[-1] + 1 if len(apart) else 0])
        votes = min(len(first), rules_c.SURE)
        return ClockState(start, votes, None, gap, votes)

    def _first_times(self) -> Floats:
        events = chain.from_iterable(batch.events for batch in self._ahead or ())
        return np.array([event.time for event in islice(events, _LOOKED_AT)], np.float64)

    def _take_in(self, batch: Batch) -> None:
        before, events, times = self._guard, batch.events, _times(batch.events)
        guard = TimeGuard(self._max_jump, before)
        seconds, refused = guard.take_many(times)
        untimed = np.isnan(times)
        changed = np.flatnonzero((seconds != times) & ~untimed).tolist()
        if before.of_labels and untimed.any():
            bare = [index for index in np.flatnonzero(untimed).tolist() if _is_untimed(events[index])]
            changed += bare
            refused |= dict.fromkeys(bare, Refusal("missing_time", {"source": self.source}))
        if changed:
            events = _with_times(events, changed, seconds, refused)
        clock = rules_c.Clock(self._tolerance, before.clock)
        keys = np.concatenate(([self.read], clock.believed(seconds)))
        self._guard = msgspec.structs.replace(guard.state, clock=clock.state)
        np.fmax.accumulate(keys, out=keys)
        self.read = float(keys[-1])
        self.chunks.append(_Chunk(batch, 0, events, times, seconds, keys[1:], before))

    def take(self, until: float, *, inclusive: bool) -> list[_Chunk]:
        """Remove and return the events before the time ``until``; if inclusive, also those at it."""
        taken = []
        while self.chunks:
            chunk = self.chunks[0]
            count = int(np.searchsorted(chunk.keys, until, "right" if inclusive else "left"))
            if not count:
                break
            if count < len(chunk.events):
                head, self.chunks[0] = chunk.cut(count, self._max_jump, self._tolerance)
                taken.append(head)
                break
            taken.append(chunk)
            del self.chunks[0]
        return taken


class Merge:
    """Puts the batches of several lanes into one order.

    Parameters
    ----------
    lanes
        the name of each lane and the event time it has reached, -inf at its beginning.
    whole
        whether the inputs are finite, and are merged as a whole. The first times of a lane are then looked at
        before any of its events is taken.
    max_jump, tolerance
        of the guard of each lane's times, and of its clock, see `streamcal.events.guard` and
        `streamcal.join.rules_c`.
    guards
        where each of them goes on, by source and partition; new where there is none.
    trickling
        names of finite sources whose next events may be long in coming, such as standard input: these are not
        looked at ahead.
    """

    def __init__(
        self,
        lanes: Iterable[tuple[LaneName, float]],
        *,
        whole: bool,
        max_jump: float = _END,
        tolerance: float = _END,
        guards: Mapping[str, Mapping[str, GuardState]] | None = None,
        trickling: Collection[str] = (),
    ) -> None:
        self.whole = whole
        self._trickling = trickling
        self._max_jump, self._tolerance = max_jump, tolerance
        self._guards = {source: dict(each) for source, each in (guards or {}).items()}  # as of what was taken
        self._lanes = {name: self._lane(name, reached) for name, reached in lanes}
        if not whole:
            for lane in self._lanes.values():
                lane.forget_times()

    def _lane(self, name: LaneName, reached: float) -> _Lane:
        source, partition = name
        guard = self._guards.get(source, {}).get(partition) or GuardState()
        lane = _Lane(source, reached, guard, self._max_jump, self._tolerance)
        if self.whole and source not in self._trickling:
            lane.look_ahead()
        return lane

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def waits_for(self, source: str) -> bool:
        """Whether no event can be taken until more of this source is read."""
        return any(lane.open and not lane.chunks for (name, _), lane in self._lanes.items() if name == source)

    def add(self, source: str, batches: Iterable[Batch], *, ended: bool | Collection[str] = False) -> int:
        """Add batches that were read from a source; return how many events wait in all.

        Once it has ``ended``, or so have some of its partitions, these have no more events.

        Raises
        ------
        ValueError
            if inputs are merged as a whole, and this one has its newest events first.
        """
        for batch in batches:
            if batch.events:
                lane_name = (source, batch.partition)
                if lane_name not in self._lanes:
                    self._lanes[lane_name] = self._lane(lane_name, _BEGINNING)
                lane = self._lanes[lane_name]
                if not (lane.guard.begun or lane.looks_ahead):
                    lane.start_near(self._farthest())
                lane.add(batch)
        if ended:
            for (name, partition), lane in self._lanes.items():
                if name == source and (ended is True or partition in ended):
                    lane.end()
        return len(self)

    def take(self, watermark: float = _END, most: int = sys.maxsize) -> MicroBatch | None:
        """Return the events that come next, or None if that cannot be told yet.

        Inputs that are merged as a whole come in the order of time and ignore the watermark; ``most`` of them
        at a time, and those at the time of the last.
        """
        self._check_times()
        bound, holder = self._bound()
        keys = [chunk.keys for lane in self._lanes.values() for chunk in lane.chunks]
        if self.whole and sum(map(len, keys)) > most:
            end = float(np.partition(np.concatenate(keys), most)[most])
            bound, holder = (end, len(self._lanes)) if end < bound else (bound, holder)
        pieces: list[_Chunk] = []
        positions: dict[str, dict[str, Position]] = {}
        times: dict[str, dict[str, float]] = {}
        guards: dict[str, dict[str, GuardState]] = {}
        begun: dict[str, dict[str, GuardState]] = {}
        times_read = TimesRead()
        for rank, (name, lane) in enumerate(self._ordered()):
            taken = lane.take(bound, inclusive=rank <= holder)
            if not taken:
                continue
            pieces += taken
            source, partition = name
            if partition not in self._guards.get(source, {}):
                begun.setdefault(source, {})[partition] = taken[0].before
            for chunk in taken:
                chunk.count_times(times_read, lane.reached)
                lane.reached = max(lane.reached, float(chunk.keys[-1]))
            positions.setdefault(source, {})[partition] = chunk.batch.position(
                chunk.first + len(chunk.events)
            )
            times.setdefault(source, {})[partition] = lane.reached
            guards.setdefault(source, {})[partition] = lane.guard
            self._guards.setdefault(source, {})[partition] = lane.guard
            if not self.whole:
                lane.forget_times()
        if not pieces:
            return None
        parts = [chunk.events for chunk in pieces]
        starts = np.cumsum([0, *map(len, parts)])[:-1].tolist()
        chunks = [(chunk.batch, chunk.first) for chunk in pieces]
        events: Sequence[Event | Malformed] = parts[0]
        order = None
        if len(parts) > 1:
            order = np.argsort(np.concatenate([chunk.keys for chunk in pieces]), kind="stable")
            events = _ordered(parts, order)
        until = _END if self.whole else watermark
        return MicroBatch(events, positions, times, guards, times_read, chunks, starts, order, until, begun)

    def _check_times(self) -> None:
        """Refuse inputs of which only some have times: which labels a prediction knows would be a guess."""
        begun = {lane.timed: lane.source for lane in self._lanes.values() if lane.timed is not None}
        if len(begun) > 1:
            raise untimed(begun[True], begun[False])

    def _farthest(self) -> tuple[float, ...]:
        """Return the latest times of the lane that is farthest ahead, as of what was taken, if any."""
        guards = (self._guards.get(source, {}).get(partition) for source, partition in self._lanes)
        recent = [guard.recent for guard in guards if guard is not None and guard.recent]
        return max(recent, key=lambda times: sorted(times)[len(times) // 2], default=())

    def _ordered(self) -> list[tuple[LaneName, _Lane]]:
        """Return the lanes by source, and within a source by partition name."""
        rank = {source: index for index, (source, _) in reversed(list(enumerate(self._lanes)))}
        return sorted(self._lanes.items(), key=lambda item: (rank[item[0][0]], item[0][1]))

    def _bound(self) -> tuple[float, int]:
        """Return the time before which no unread event can come, and the rank of the lane that sets it.

        The open lane with the earliest time read sets it. Its next event may have just that time; it would
        then precede events of that time in lanes of higher rank.
        """
        lanes = self._ordered()
        if self.whole:
            held = [(lane.read, rank) for rank, (_, lane) in enumerate(lanes) if lane.open]
            if held:
                return min(held)
        return _END, len(lanes)


def _times(events: Sequence[Event | Malformed]) -> Floats:
    """Return the times of events, NaN where there is none."""
    return (
        events.times if isinstance(events, Block) else np.array([event.time for event in events], np.float64)
    )


def _is_untimed(event: Any) -> bool:
    is_event = not isinstance(event, Malformed)
    return is_event and event.time is None and getattr(event, "domain", "target") == "target"


def _ordered(
    parts: Sequence[Sequence[Event | Malformed]], order: npt.NDArray[np.intp]
) -> Sequence[Event | Malformed]:
    """Return the events of several parts in one order: columns, if a part of them is."""
    if any(isinstance(part, Block) for part in parts):
        return Block.joined(parts).take(order)
    unordered = list(chain.from_iterable(parts))
    return [unordered[index] for index in order.tolist()]


def _with_times(
    events: Sequence[Event | Malformed],
    indices: Iterable[int],
    seconds: Floats,
    refused: Mapping[int, Refusal],
) -> Sequence[Event | Malformed]:
    """Return the events, those at some indices with their times in seconds, or malformed."""
    malformed = {index: Malformed(each.code, each.fields) for index, each in refused.items()}
    if isinstance(events, Block):
        return events.with_times(seconds, malformed)
    changed: list[Event | Malformed] = list(events)
    for index in indices:
        changed[index] = malformed.get(index) or with_time(changed[index], float(seconds[index]))
    return changed


def watermark(
    sources: Iterable[Source], times: Mapping[str, Mapping[str, float]], clock: float | None
) -> float:
    """Return the event time up to which every lane has been read, or -inf if that is unknown.

    It is the minimum of the times that the lanes have reached. A lane that has been read to its end does not
    count; if all have, the watermark is the clock. If each lane is in the order of time, every available
    event up to the watermark has been read.

    Parameters
    ----------
    sources
        are asked for their lag. A finite source counts until it has ended; one that cannot tell its lag never
        counts.
    times
        by source and partition: the latest event time read, if any.
    clock
        the latest event time of all, None before the first.
    """
    held = [_BEGINNING if clock is None else clock]
    for source in sources:
        if source.ended:
            continue
        reached = times.get(source.name, {})
        held += [
            reached.get(partition, _BEGINNING)
            for partition, left in source.lag().items()
            if left != 0.0 or not source.endless
        ]
    return min(held)
