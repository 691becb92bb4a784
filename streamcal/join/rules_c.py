"""JoinRules: the clock of a stream, and the rules of the join for one event.

The **clock** is the latest event time that is believed (`Clock`). The time of a row counts
from what the clock showed when it came, so rows expire in order of arrival; that of a row in doubt, which the
clock has passed since, from its own time. It ends when both the clock and the watermark have passed it: where
one partition is read ahead of another, the watermark is the time up to which all of them have been read.

Compiled where there is a C compiler; `rules_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from streamcal.base.values import Floats
from streamcal.events import DOMAINS, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.guard import ClockState
from streamcal.join import id_table_c
from streamcal.join.config import JoinConfig
from streamcal.join.entries import Memo, Pending
from streamcal.join.id_table_c import hashed
from streamcal.join.outcomes import (
    Contradicted,
    EarlyPositive,
    JoinCounts,
    Joined,
    JoinState,
    OriginOf,
    Rejected,
    rejected,
    with_origin,
)

SURE, FEWEST = 32, 5
"""Largest number of votes for a clock, and the number below which it goes on to a time in doubt."""

GAPS = 16.0
"""Number of mean distances of events that one may be ahead of the clock."""

AHEAD: Final = 32
"""Number of events whose rows are read before they are needed."""

DONE, MATURE, REJECT = 0, 1, 2
"""Tasks that `JoinRules.expire_rows` leaves to its caller: none, the oldest prediction, the oldest label."""

# As C has them.
_SURE, _FEWEST, _GAPS = SURE, FEWEST, GAPS
_DONE, _MATURE, _REJECT = DONE, MATURE, REJECT
_WAITING, _ENDED, _EARLY = id_table_c.WAITING, id_table_c.ENDED, id_table_c.EARLY
_FREE, _WAITS, _COMES = id_table_c.FREE, id_table_c.WAITS, id_table_c.COMES
_EXPIRED, _LABELLED = id_table_c.EXPIRED, id_table_c.LABELLED
_DOMAIN, _HELD = id_table_c.DOMAIN, id_table_c.HELD
_REAL, _PAIR = id_table_c.REAL, id_table_c.PAIR
_ROW, _SIZE_BITS = id_table_c.ROW, id_table_c.SIZE_BITS
_NEVER: Final = -math.inf
_FOREVER: Final = math.inf
_NONE: Final = math.nan
_DOUBTED: Final = 0.25  # of the shortest time that anything waits: an event farther ahead is in doubt


class Clock:
    """Event time that a stream has reached, which one wrong time does not move.

    An event whose time is more than a tolerance ahead of the clock is in doubt: it does not move the clock.
    The tolerance is at least `GAPS` times the mean distance of the events before. Each other event is a vote
    for the clock, up to `SURE`, and each event in doubt takes one away. When fewer than `FEWEST` are left, as
    after a pause, the clock goes on to the earliest time that was in doubt. Before `FEWEST` events are
    believed, none is trusted more than the next: the clock also goes back, to one that is more than the
    tolerance behind.

    Parameters
    ----------
    tolerance
        seconds that an event may be ahead of the clock, above 0; inf: every time is believed.
    state
        state to continue from.
    """

    def __init__(self, tolerance: float, state: ClockState | None = None) -> None:
        state = state or ClockState()
        self.tolerance: float = tolerance
        self.now: float = _NEVER if state.time is None else state.time
        """Time that was reached; -inf before the first."""
        self.votes: int = state.votes
        """Votes for it."""
        self.gap: float = state.gap
        self.seen: int = state.seen
        self.ahead: float = _FOREVER if state.ahead is None else state.ahead
        self.doubted: int = state.doubted
        """Number of events in doubt."""
        self.decided: int = state.decided
        self.wrong: int = state.wrong
        """Events in doubt after which enough others came that agree with the clock."""
        self.far: float = state.doubt[0]
        self.near: float = state.doubt[1]

    @property
    def state(self) -> ClockState:
        """State, to continue from later."""
        time = None if self.now == _NEVER else self.now
        ahead = None if self.ahead == _FOREVER else self.ahead
        votes = self.votes, ahead, self.gap, self.seen
        return ClockState(time, *votes, self.doubted, self.decided, self.wrong, self.doubt)

    @property
    def doubt(self) -> tuple[float, float]:
        """Latest time in doubt, and the time of the clock then; 0 if there was none."""
        return self.far, self.near

    def move(self, time: float) -> bool:
        """Take the time of the next event, not NaN; return whether it is believed."""
        limit = max(self.tolerance, _GAPS * self.gap)
        if time < self.now - limit and self.seen < _FEWEST:
            self.now, self.gap, self.votes, self.ahead = time, 0.0, 0, _FOREVER
        if time <= self.now + limit:
            if self.votes < _SURE:
                self.votes += 1
            else:
                self.ahead = _FOREVER
                self.wrong += self.doubted - self.decided
                self.decided = self.doubted
            self._step(time, limit)
            return True
        self.ahead = min(self.ahead, time)
        if self.votes >= _FEWEST:
            self.votes -= 1
            self.doubted += 1
            self.far, self.near = time, self.now
            return False
        self.decided = self.doubted
        if self.now == _NEVER:
            self.now = self.ahead
        self._step(self.ahead, limit)
        self.ahead = _FOREVER
        return time <= self.now + limit

    def _step(self, time: float, limit: float) -> None:
        """Move on to a time, of which the mean distance of events counts no more than the tolerance."""
        step = max(0.0, time - self.now)
        if self.seen < _SURE:
            self.seen += 1
        self.gap += (min(step, limit) - self.gap) / self.seen
        self.now = max(self.now, time)

    def believed(self, times: Floats) -> Floats:
        """Take the times of the next events, float64[n], NaN for none; return those that are believed.

        Returns
        -------
        The times, float64[n], with the clock in place of each that is in doubt.
        """
        found = times.copy()
        view: Any = found.data  # of which Python reads floats of its own, where this is not compiled
        for index in range(len(view)):
            time = view[index]
            if time == time and not self.move(time):
                view[index] = self.now
        return found


class JoinRules(id_table_c.IdTable):
    """The rules of the join over its rows; `streamcal.join.join.Join` adds those for what is rare, and state.

    Parameters
    ----------
    config
        time to live and bounds.
    state
        state to continue from; the entries of the same moment have to be put, too.
    """

    def __init__(self, config: JoinConfig | None = None, state: JoinState | None = None) -> None:
        super().__init__()
        self.config: JoinConfig = config or JoinConfig()
        """Options that the join was made with."""
        state = state or JoinState()
        ttl, limit = self.config.label_ttl, self.config.label_delay_limit
        self._ttl, self._most = ttl, min(self.config.max_pending, 1 << 62)
        self.matures: bool = limit is not None
        """Whether predictions are held until they are matured."""
        self._wait = ttl if limit is None else limit
        self.clock: Clock = Clock(_DOUBTED * min(ttl, self._wait), state.clock)
        self._outcomes = state.counts
        self._expired = self._predictions = self._labels = self._joined = 0  # not among the counts yet
        self.keeps_answers = False
        """Whether answers are kept, to be given again."""
        self.answer_size = 0
        """Length of the first part of what the engine wanted back, which is part of an answer."""
        self._hash = self._first = self._read = 0
        self._hashes = np.zeros(AHEAD, np.uint64).data  # of the next events
        self._near = np.zeros(AHEAD, np.uint64).data  # their slots, then their rows
        self.again: bool = False
        """Whether the next event was given to `move` before."""
        self._start = _NONE if state.start is None else state.start
        self._watermark = _FOREVER
        self._due = self._next_look = _NEVER
        self._looks = self._begun = False

    @property
    def counts(self) -> JoinCounts:
        """Counts of outcomes so far."""
        counts = self._outcomes
        counts.expired += self._expired
        counts.predictions += self._predictions
        counts.labels += self._labels
        counts.joined += self._joined
        self._expired = self._predictions = self._labels = self._joined = 0
        return counts

    @property
    def state(self) -> JoinState:
        """State of the join without its entries."""
        return JoinState(self.clock.state, self.start, self.counts)

    # Time

    @property
    def time(self) -> float | None:
        """The time of the clock; None before the first."""
        return None if self.clock.now == _NEVER else self.clock.now

    @property
    def start(self) -> float | None:
        """The first time that the clock showed; None before it."""
        return None if self._start != self._start else self._start

    def move(self, time: float) -> bool:
        """Take the time of the next event, NaN: none; return whether `expire` is to be called."""
        if self.again:
            self.again = False
        elif time == time:
            before = self.clock.now
            self.clock.move(time)
            if self.clock.now < before:
                self._go_back()
            self._look()
        return self._looks

    def _go_back(self) -> None:
        """Let all rows come at the time of the clock, which goes back among the first events."""
        self._start = self.clock.now
        self._next_look = self._due = _NEVER
        for row in range(1, self._rows + 1):
            if self._state[row] != _FREE and self._real[_REAL * row] > self._start:
                self._real[_REAL * row] = self._start
                held = self.object_of(row)
                if type(held) is Pending:
                    held.since = self._start
                self.note(row)

    def _look(self) -> None:
        """Let `expire` be called once the clock has passed the next time at which anything may end."""
        if self.clock.now > self._next_look:
            self._looks = True

    def move_to(self, time: float) -> tuple[Joined | Rejected, ...]:
        """Move the clock to a time, which is believed; return matured predictions, and rejects of labels."""
        self.clock.now = max(self.clock.now, time)
        self._look()
        return self.expire() if self._looks else ()

    def advance(self, watermark: float) -> tuple[Joined | Rejected, ...]:
        """Expire entries due by a watermark, and none beyond it until the next call.

        Parameters
        ----------
        watermark
            event time in seconds up to which every event has been taken; inf, as before the first call, if
            events come in the order of time; -inf if nothing is known.

        Returns
        -------
        The predictions that mature by it, and the rejects of labels that expire by it.
        """
        if watermark == self._watermark:
            return ()
        self._watermark = watermark
        if self._due < watermark or self._start != self._start:
            self._next_look = self._due
        else:
            self._next_look = _FOREVER
        self._look()
        return self.expire() if self._looks else ()

    def expire(self) -> tuple[Joined | Rejected, ...]:
        """Join matured predictions, and drop expired entries, by the time of the clock."""
        left = list[Joined | Rejected]()
        while (due := self.expire_rows()) != _DONE:
            left.append(self._mature(self.oldest(_WAITING)) if due == _MATURE else self._reject_early())
        return tuple(left)

    def end_of(self, since: float, ttl: float) -> float:
        """Return the expiry time of a row that came at clock time ``since``; NaN if it does not expire."""
        if since != since:
            since = _NEVER if self._start != self._start else self._start
        return since + ttl

    def end_of_oldest(self, queue: int) -> float | None:
        """Return the expiry time of a queue's oldest row; None if there is none."""
        row = self.oldest(queue)
        if not row:
            return None
        return self._end(row, self._wait if queue == _WAITING else self._ttl)

    def _end(self, row: int, ttl: float) -> float:
        """Return the expiry time of a row."""
        since = self._real[_REAL * row]
        if self.clock.now > since + ttl and (self._state[row] == _WAITS or self._state[row] == _COMES):
            time = self._real[_REAL * row + 3]
            if self._state[row] == _COMES:
                event_time = self.objects[row].time
                time = _NONE if event_time is None else event_time
            if since < time <= self.clock.now:  # it came while its time was in doubt
                since = time
        return self.end_of(since, ttl)

    def expire_rows(self) -> int:
        """Expire due rows; return `DONE`, or a task for the caller, who calls again after it."""
        if not self._begun:
            self._begun = True
            if self._start != self._start:
                self._start = self.clock.now
            # of what arrives from now on
            self._due = min(self.clock.now, self._watermark) + min(self._ttl, self._wait)
        while True:
            if self._is_due(_WAITING, self._wait):
                if self.matures:
                    return _MATURE
                self._expire_oldest()
            elif self._is_due(_ENDED, self._ttl):
                self.remove(self.oldest(_ENDED))
            elif self._is_due(_EARLY, self._ttl):
                return _REJECT
            else:
                break
        self._next_look = self._due if self._due < self._watermark else _FOREVER
        self._looks = self._begun = False
        return _DONE

    def _is_due(self, queue: int, ttl: float) -> bool:
        row = self.oldest(queue)
        if not row:
            return False
        if min(self.clock.now, self._watermark) > self._end(row, ttl):
            return True
        # a row in doubt may end later, those behind it do not end earlier
        self._due = min(self._due, self.end_of(self._real[_REAL * row], ttl))
        return False

    def _expire_oldest(self) -> None:
        """Let the prediction expire that has waited longest."""
        self._expired += 1
        self.settle(self.oldest(_WAITING), _EXPIRED)

    # One event

    def admit(
        self, event: PredictionEvent | LabelledEvent, origin_of: OriginOf | None = None
    ) -> Rejected | None:
        """Take a prediction that has an id: `hold` it once it is answered, unless it is rejected here."""
        if self.is_prediction(event.id):  # type: ignore[arg-type]
            self._outcomes.duplicate += 1
            return rejected(event, origin_of, "duplicate_prediction")
        self._predictions += 1
        return None

    def hold(
        self,
        event: PredictionEvent | LabelledEvent,
        probability: float,
        prediction_index: int,
        answer: tuple[int, float, float] | None = None,
        memo: Memo | None = None,
    ) -> Joined | None:
        """Hold an answered prediction until its label comes, or join it with a label that came before it.

        Parameters
        ----------
        event
            that `admit` has taken.
        probability
            forecast of the map, in [0, 1].
        prediction_index
            number of target scores that its engine had observed before the answer.
        answer
            the map's version and weights, as in `Pending.answer`, if the join keeps answers.
        memo
            what the engine wants back with the label; None: nothing.
        """
        id_, time, key = event.id, event.time, event.key
        row, early = self.known(id_), None  # type: ignore[arg-type]
        if row:
            early = self.take_object(row)
        else:
            row = self.add(id_)  # type: ignore[arg-type]
        self.hold_row(
            row,
            event.score,
            probability,
            _NONE if time is None else time,
            prediction_index,
            event.domain == "target",
            0 if key is None else self.code_of(key),
            answer,
            event.weight,
            memo,
        )
        if early is None:
            return None
        self._joined += 1
        return self.meet(row, early.label, early.time, early.weight)

    def join(
        self,
        event: LabelledEvent,
        probability: float,
        prediction_index: int,
        memo: Memo | None = None,
    ) -> Joined:
        """Join a score and a label that came together without an id; parameters as in `hold`."""
        self._predictions += 1
        self._labels += 1
        self._joined += 1
        return Joined(
            event.score,
            probability,
            event.label,
            event.domain,
            event.time,
            event.time,
            prediction_index,
            event.key,
            weight=1.0 if event.weight is None else event.weight,
            memo=memo,
        )

    def match(
        self, event: LabelEvent, origin_of: OriginOf | None = None, *, is_new: bool = True
    ) -> Joined | EarlyPositive | Contradicted | Rejected | None:
        """Match a label with its prediction; None if one of them waits for the other, or for its time.

        The reject may be of an earlier label, if the largest number of labels waits already. A label from
        `take_early` is not counted again.
        """
        self._labels += is_new
        row = self.known(event.id)
        if not row:
            self._outcomes.early += 1
            row = self.add(event.id)
            self.hold_object(row, with_origin(event, origin_of))
            self._stamp(row)
            self._enqueue(row, _COMES)
            return self._reject_early() if self._counts[_EARLY] > self._most else None
        if self.is_waiting(row):
            if self.matures:
                return self._tell(row, event, origin_of)
            self._joined += 1
            return self.meet(row, event.label, event.time, event.weight)
        if self.is_early(row):
            early: LabelEvent = self.objects[row]
            first: int | None = early.label
            if first != event.label and self.matures:
                self._outcomes.conflicting += 1
                self.objects[row] = with_origin(event, origin_of)
                self.note(row)
                return None
        else:
            first = self.label_of(row)
            if first is None:
                self._outcomes.late += 1
                since = self.since(row)
                fields = {} if since is None else {"since": since, **self.bounds}
                return rejected(event, origin_of, "late_label", **fields)
            held: Pending | None = self.object_of(row)
            if held is not None and self.matures and (held.told is None or held.told[0] != first):
                return self._contradict(row, event, held, origin_of)
        self._outcomes.duplicate += 1
        if event.label == first:
            return rejected(event, origin_of, "duplicate_label")
        self._outcomes.conflicting += 1
        return rejected(event, origin_of, "conflicting_label", first=first, label=event.label)

    # What `Join` adds

    def _mature(self, row: int) -> Joined:
        raise NotImplementedError

    def _reject_early(self) -> Rejected:
        raise NotImplementedError

    def _tell(
        self, row: int, event: LabelEvent, origin_of: OriginOf | None
    ) -> EarlyPositive | Rejected | None:
        raise NotImplementedError

    def _contradict(
        self, row: int, event: LabelEvent, held: Pending, origin_of: OriginOf | None
    ) -> Contradicted | Rejected:
        raise NotImplementedError

    @property
    def bounds(self) -> dict[str, float]:
        """Bounds of what is remembered, as the fields of a reject."""
        return {"label_ttl": self.config.label_ttl, "max_pending": self.config.max_pending}

    # Rows

    def add(self, id_: str) -> int:
        """Return a new row for an id that has none."""
        data = id_.encode("utf-8", "surrogatepass")
        return self._add(hashed(data, 0, len(data)), data, 0, len(data))

    def hold_row(
        self,
        row: int,
        score: float,
        probability: float,
        time: float,
        prediction_index: int,
        is_target: bool,
        code: int,
        answer: tuple[int, float, float] | None,
        weight: float | None,
        memo: Memo | None,
    ) -> None:
        """Hold an answered prediction in a new row, or in that of a label that waited for it.

        Parameters
        ----------
        time
            event time in seconds; NaN: none.
        code
            number of its key.
        answer, weight, memo
            as in `streamcal.join.entries.Pending`, which has them where there are any.
        """
        self._write(row, score, probability, time, prediction_index, is_target, code)
        self._stamp(row)
        if answer is not None or (weight is not None and memo is not None):
            held = self.held(row)
            held.answer, held.weight, held.memo = answer, weight, memo
        elif weight is not None or memo is not None:
            self.hold_object(row, memo if weight is None else float(weight))  # type: ignore[arg-type]
        if self._state[row] != _COMES:
            self._enqueue(row, _WAITS)
            if self._counts[_WAITING] > self._most:
                self._expire_oldest()

    def meet(self, row: int, label: int, time: float | None, weight: float | None) -> Joined:
        """Join a prediction that waits with its label."""
        joined = self.joined(row, label, time, weight, None)
        self.settle(row, _LABELLED + label)
        return joined

    def settle(self, row: int, state: int) -> None:
        """End a prediction, with a label or without; keep its row to detect duplicates and late labels."""
        if self.matures:
            held = self.held(row)
            if held.memo is not None:
                held.memo = held.memo[: self.answer_size] or None
        elif self._flags[row] & _HELD:
            held = self.objects[row]
            if type(held) is not Pending or held.answer is None or not self.keeps_answers:
                self.take_object(row)
            elif held.memo is not None:
                held.memo = held.memo[: self.answer_size] or None
        if self._state[row] != _FREE:
            self._leave(row)
        self._stamp(row)
        self._enqueue(row, state)
        if self._counts[_ENDED] > self._most:
            self.remove(self.oldest(_ENDED))

    def join_matured(self, row: int) -> Joined:
        """Join a matured prediction with the label that came last, or with 0 if none came."""
        held = self.held(row)
        label, told_at = (0, None) if held.told is None else held.told
        joined = self.joined(row, label, told_at, None, self._end(row, self._wait))
        self.settle(row, _LABELLED + label)
        return joined

    def joined(
        self, row: int, label: int, time: float | None, weight: float | None, matured_at: float | None
    ) -> Joined:
        """Return a row's prediction with a label of this time and weight."""
        memo: Memo | None = None
        decided = 0
        if self._flags[row] & _HELD:
            memo = self.memo_of(row)
            held = self.objects[row]
            if type(held) is Pending and held.decided is not None:
                decided = held.decided
            if matured_at is None and weight is None:
                weight = self.weight_of(row) or None
        real = _REAL * row
        predicted_at = self._real[real + 3]
        return Joined(
            self._real[real + 1],
            self._real[real + 2],
            label,
            DOMAINS[self._flags[row] & _DOMAIN],
            None if predicted_at != predicted_at else predicted_at,
            time,
            self._whole[_PAIR * row],
            self.names[self._key[row]],
            matured_at,
            1.0 if weight is None else weight,
            memo,
            decided,
        )

    def _stamp(self, row: int) -> None:
        """Write the time of the clock as that at which a row came to its queue."""
        self._real[_REAL * row] = _NONE if self.clock.now == _NEVER else self.clock.now

    # Rows by the bytes of their ids

    def look_ahead(self, data: Any, starts: Any, sizes: Any, at: int, end: int) -> None:
        """Hash the ids of at most `AHEAD` next events, and read their rows, to wait for none alone."""
        read, text = 0, self._text
        for i in range(end - at):
            self._hashes[i] = hashed(data, starts[at + i], sizes[at + i])
        for i in range(end - at):
            self._near[i] = self._slots[self._hashes[i] >> 32 & self._mask]
        for i in range(end - at):
            row = self._near[i] & _ROW if self._near[i] >> 32 == self._hashes[i] >> 32 else 0
            self._near[i] = row
            read += self._state[row] + self._flags[row] + self._key[row] + self._links[_PAIR * row]
            if row:
                read += text[self._whole[_PAIR * row + 1] >> _SIZE_BITS]
            read += self._pack[row] + (self._real[_REAL * row + 1] > 0.0)
        for i in range(end - at):  # when it leaves its queue
            row = _PAIR * self._near[i]
            read += self._links[_PAIR * self._links[row]] + self._links[_PAIR * self._links[row + 1]]
        self._read, self._first = read, at

    def row_of(self, data: Any, at: int, start: int, size: int) -> int:
        """Return the row of the id of an event that was looked ahead to, 0 if it has none."""
        self._hash = self._hashes[at - self._first]
        return self._find(self._hash, data, start, size)

    def new_row(self, data: Any, start: int, size: int) -> int:
        """Return a new row for the id that `row_of` was asked for last, and has none."""
        return self._add(self._hash, data, start, size)

    def waits_plainly(self, row: int, is_target: bool) -> bool:
        """Whether a row is a prediction of this domain that waits."""
        return bool(self._state[row] == _WAITS and self._flags[row] & _DOMAIN == is_target)

    def weight_of(self, row: int) -> float:
        """Return the weight that a prediction gives its label; 0: none."""
        if not self._flags[row] & _HELD:
            return 0.0
        held = self.objects[row]
        weight = held.weight if type(held) is Pending else held
        return weight if type(weight) is float else 0.0

    def weigh(self, row: int, weight: float) -> None:
        """Let a prediction that waits give its label a weight."""
        if self._flags[row] & _HELD:
            self.held(row).weight = weight
        else:
            self.hold_object(row, weight)
        self.note(row)

    def memo_of(self, row: int) -> Memo | None:
        """Return what the engine wants back with a label."""
        if not self._flags[row] & _HELD:
            return None
        held = self.objects[row]
        memo = held.memo if type(held) is Pending else held
        return None if type(memo) is float else memo
