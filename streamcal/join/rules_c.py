"""JoinRules: the rules of the join for one event.

The **clock** is the latest event time that is believed (`streamcal.events.clock_c`). The time of a row counts
from what the clock showed when it came, so rows expire in order of arrival; that of a row in doubt, which the
clock has passed since, from its own time. It ends when both the clock and the watermark have passed it: where
one partition is read ahead of another, the watermark is the time up to which all of them have been read.

Compiled where there is a C compiler; `rules_c.pxd` has the types.
"""

from __future__ import annotations

from typing import Any, Final

from streamcal.events import DOMAINS, LabelEvent
from streamcal.events.clock_c import Clock, ClockState
from streamcal.join import id_table_c
from streamcal.join.entries import Memo, Pending
from streamcal.join.id_table_c import hashed
from streamcal.join.outcomes import Joined

__all__ = ["DONE", "MATURE", "JoinRules"]

DONE, MATURE, REJECT = 0, 1, 2
"""Tasks that `JoinRules.expire` leaves to its caller: none, the oldest prediction, or the oldest label."""

# As C has them.
_DONE, _MATURE, _REJECT = DONE, MATURE, REJECT
_WAITING, _ENDED, _EARLY = id_table_c.WAITING, id_table_c.ENDED, id_table_c.EARLY
_FREE, _WAITS, _COMES = id_table_c.FREE, id_table_c.WAITS, id_table_c.COMES
_EXPIRED, _LABELLED = id_table_c.EXPIRED, id_table_c.LABELLED
_DOMAIN, _HELD = id_table_c.DOMAIN, id_table_c.HELD
_REAL, _PAIR = id_table_c.REAL, id_table_c.PAIR
_NEVER: Final = float("-inf")
_FOREVER: Final = float("inf")
_NONE: Final = float("nan")
_MANY: Final = 1 << 62
_DOUBTED: Final = 0.25  # of the shortest time that anything waits: an event farther ahead is in doubt


class JoinRules(id_table_c.IdTable):
    """The rules of the join over its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.expired: int = 0
        """Number of expired predictions that are not counted yet."""
        self.keeps_answers = False
        """Whether answers are kept, to be given again."""
        self.answer_size = 0
        """Length of the first part of what the engine wanted back, which is part of an answer."""
        self._hash = 0
        self.begin(_FOREVER, None, _MANY, ClockState(), None)

    def begin(
        self, ttl: float, label_delay_limit: float | None, most: int, clock: ClockState, start: float | None
    ) -> None:
        """Set the options, and the clock: its state, and the first time that it showed."""
        self._ttl, self._most = ttl, min(most, _MANY)
        self.matures: bool = label_delay_limit is not None
        self._wait = ttl if label_delay_limit is None else label_delay_limit
        self.clock: Clock = Clock(_DOUBTED * min(ttl, self._wait), clock)
        self.again: bool = False
        """Whether the next event was given to `move` before."""
        self._start = _NONE if start is None else start
        self._watermark = _FOREVER
        self._due = self._next_look = _NEVER
        self._looks = self._begun = False

    # The clock

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
            self.clock.move(time)
            self._look()
        return self._looks

    def move_to(self, time: float) -> bool:
        """Move the clock to a time that is beyond doubt; return whether `expire` is to be called."""
        self.clock.now = max(self.clock.now, time)
        self._look()
        return self._looks

    def _look(self) -> None:
        """Let `expire` be called once the clock has passed the next time at which anything may end."""
        if self.clock.now > self._next_look:
            self._looks = True

    def set_watermark(self, watermark: float) -> bool:
        """Let nothing beyond a watermark expire until the next one; return whether to call `expire`."""
        self._watermark = watermark
        if self._due < watermark or self._start != self._start:
            self._next_look = self._due
        else:
            self._next_look = _FOREVER
        self._look()
        return self._looks

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

    def matured_at(self, row: int) -> float:
        """Return the time at which the prediction of a row matures."""
        return self._end(row, self._wait)

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

    def expire(self) -> int:
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
        end = self._end(row, ttl)
        if min(self.clock.now, self._watermark) > end:
            return True
        self._due = min(self._due, end)
        return False

    def _expire_oldest(self) -> None:
        """Let the prediction expire that has waited longest."""
        self.expired += 1
        self.settle(self.oldest(_WAITING), _EXPIRED)

    # One event

    def add(self, id_: str) -> int:
        """Return a new row for an id that has none."""
        data = id_.encode("utf-8", "surrogatepass")
        return self._add(hashed(data, 0, len(data)), data, 0, len(data))

    def hold(
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
        if answer is not None or weight is not None:
            held = self.held(row)
            held.answer, held.weight, held.memo = answer, weight, memo
        elif memo is not None:
            self.hold_object(row, memo)
        if self._state[row] != _COMES:
            self._enqueue(row, _WAITS)
            if self._counts[_WAITING] > self._most:
                self._expire_oldest()

    def meet(self, row: int, label: int, time: float | None, weight: float | None) -> Joined:
        """Join a prediction that waits with its label."""
        joined = self.joined(row, label, time, weight, None)
        self.settle(row, _LABELLED + label)
        return joined

    def wait_early(self, event: LabelEvent) -> None:
        """Hold a label whose prediction has not come: its id has no row."""
        row = self.add(event.id)
        self.hold_object(row, event)
        self._stamp(row)
        self._enqueue(row, _COMES)

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

    def mature(self, row: int) -> Joined:
        """Join a matured prediction with the label that came last, or with 0 if none came."""
        held = self.held(row)
        label, told_at = (0, None) if held.told is None else held.told
        joined = self.joined(row, label, told_at, None, self.matured_at(row))
        self.settle(row, _LABELLED + label)
        return joined

    def joined(
        self, row: int, label: int, time: float | None, weight: float | None, matured_at: float | None
    ) -> Joined:
        """Return a row's prediction with a label of this time and weight."""
        memo: Memo | None = None
        if self._flags[row] & _HELD:
            held = self.objects[row]
            if type(held) is not Pending:
                memo = held
            else:
                memo = held.memo
                if matured_at is None and weight is None:
                    weight = held.weight
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
        )

    def _stamp(self, row: int) -> None:
        """Write the time of the clock as that at which a row came to its queue."""
        self._real[_REAL * row] = _NONE if self.clock.now == _NEVER else self.clock.now

    # One event, by the bytes of its id

    def row_of(self, data: Any, start: int, size: int) -> int:
        """Return the row of an id, 0 if it has none."""
        self._hash = hashed(data, start, size)
        return self._find(self._hash, data, start, size)

    def new_row(self, data: Any, start: int, size: int) -> int:
        """Return a new row for the id that `row_of` was asked for last, and has none."""
        return self._add(self._hash, data, start, size)

    def waits_plainly(self, row: int, is_target: bool) -> bool:
        """Whether a row is a prediction of this domain that waits, with no weight or answer of its own."""
        if self._state[row] != _WAITS or self._flags[row] & _DOMAIN != is_target:
            return False
        if not self._flags[row] & _HELD:
            return True
        held = self.objects[row]
        return type(held) is not Pending or (held.weight is None and held.answer is None)

    def memo_of(self, row: int) -> Memo | None:
        """Return what the engine wants back with a label."""
        if not self._flags[row] & _HELD:
            return None
        held = self.objects[row]
        return held.memo if type(held) is Pending else held

    def score_of(self, row: int) -> float:
        """Return the score of a prediction."""
        return self._real[_REAL * row + 1]  # type: ignore[no-any-return]

    def forecast_of(self, row: int) -> float:
        """Return the map's forecast for a prediction."""
        return self._real[_REAL * row + 2]  # type: ignore[no-any-return]

    def time_of(self, row: int) -> float:
        """Return the event time of a prediction in seconds; NaN if it has none."""
        return self._real[_REAL * row + 3]  # type: ignore[no-any-return]

    def prediction_index_of(self, row: int) -> int:
        """Return the number of target scores observed before a prediction."""
        return self._whole[_PAIR * row]  # type: ignore[no-any-return]

    def key_of(self, row: int) -> int:
        """Return the number of the key of a prediction."""
        return self._key[row]  # type: ignore[no-any-return]
