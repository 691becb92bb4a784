"""JoinRules: the rules of the join for one event, and the loop over many.

The **clock** is the latest event time seen. The time of a row counts from what the clock showed when it came,
so rows expire in order of arrival. It ends when both the clock and the watermark have passed it: where one
partition is read ahead of another, the watermark is the time up to which all of them have been read.

Compiled where there is a C compiler; `rules_c.pxd` has the types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streamcal.events import DOMAINS, LabelEvent
from streamcal.join import id_table_c
from streamcal.join.entries import Pending
from streamcal.join.outcomes import Joined

__all__ = ["ASKS", "DONE", "DUE", "EVENT", "EXPIRES", "FLUSH", "MATURE", "JoinRules"]

DONE, FLUSH, MATURE, REJECT = 0, 1, 2, 3
"""What `JoinRules.expire` leaves to its caller: nothing, to flush, the oldest prediction or label."""

END, EVENT, DUE, EXPIRES, ASKS = 0, 1, 2, 3, 4
"""Why `JoinRules.take` stops: at the end, before an event for `streamcal.join.join.Join`, behind a label with
which something is due, before an event by whose time something expires, or to be told a limit."""

# As C has them.
_DONE: Final = DONE
_FLUSH: Final = FLUSH
_MATURE: Final = MATURE
_REJECT: Final = REJECT
_END: Final = END
_EVENT: Final = EVENT
_DUE: Final = DUE
_EXPIRES: Final = EXPIRES
_ASKS: Final = ASKS
_WAITING: Final = id_table_c.WAITING
_ENDED: Final = id_table_c.ENDED
_EARLY: Final = id_table_c.EARLY
_FREE: Final = id_table_c.FREE
_WAITS: Final = id_table_c.WAITS
_COMES: Final = id_table_c.COMES
_EXPIRED: Final = id_table_c.EXPIRED
_LABELLED: Final = id_table_c.LABELLED
_DOMAIN: Final = id_table_c.DOMAIN
_LINKED: Final = id_table_c.LINKED
_HELD: Final = id_table_c.HELD
_REAL: Final = id_table_c.REAL
_PAIR: Final = id_table_c.PAIR
_COUNT: Final = id_table_c.COUNT
_NEVER: Final = float("-inf")
_FOREVER: Final = float("inf")
_NONE: Final = float("nan")
_LATER: Final = -1  # the key of a label is that of its prediction
_MANY: Final = 1 << 62


class JoinRules(id_table_c.IdTable):
    """The rules of the join over its rows.

    Parameters
    ----------
    read_ahead
        as of `streamcal.join.id_table_c.IdTable`.
    """

    def __init__(self, read_ahead: Callable[[int], None] | None = None) -> None:
        super().__init__(read_ahead)
        self.expired = 0
        """How many predictions have expired that nobody has counted."""
        self.unflushed = 0
        """How many rows have expired since the last flush …"""
        self.portion = _MANY
        """… which is due when there are so many."""
        self.keeps = False
        """Whether a prediction that has ended is kept as an object."""
        self.keeps_answers = False
        """Whether it is where its answer is to be given again."""
        self.predictions = self.joins = self.at = self.asked = 0
        self.begin(_FOREVER, None, _MANY, None, None)

    def begin(
        self, ttl: float, matured_after: float | None, most: int, time: float | None, start: float | None
    ) -> None:
        """Set the options, and the clock: the latest event time, and the first that it showed."""
        self._ttl, self._most = ttl, min(most, _MANY)
        self.matures = matured_after is not None
        self._wait = ttl if matured_after is None else matured_after
        self._now = _NEVER if time is None else time
        self._start = _NONE if start is None else start
        self._watermark = _FOREVER
        self._due = self._next_look = _NEVER
        self._looks = self._begun = False

    # The clock

    @property
    def time(self) -> float | None:
        """The latest event time seen; None before the first."""
        return None if self._now == _NEVER else self._now

    @property
    def start(self) -> float | None:
        """The first time that the clock showed; None before it."""
        return None if self._start != self._start else self._start

    def move(self, time: float) -> bool:
        """Move the clock on to an event time; return whether `expire` is to be called."""
        if time > self._now:
            self._now = time
            if time > self._next_look:
                self._looks = True
        return self._looks

    def set_watermark(self, watermark: float) -> bool:
        """Let nothing beyond a watermark expire until the next one; return whether to call `expire`."""
        self._watermark = watermark
        if self._due < watermark or self._start != self._start:
            self._next_look = self._due
        else:
            self._next_look = _FOREVER
        if self._now > self._next_look:
            self._looks = True
        return self._looks

    def end_of(self, since: float, ttl: float) -> float:
        """Return when the time of a row is up that came when the clock showed ``since``; NaN: no time."""
        if since != since:
            since = _NEVER if self._start != self._start else self._start
        return since + ttl

    def end_of_oldest(self, queue: int) -> float | None:
        """Return when the time of a queue's oldest row is up; None without one."""
        row = self.oldest(queue)
        if not row:
            return None
        return self.end_of(self._real[_REAL * row], self._wait if queue == _WAITING else self._ttl)

    def matured_at(self, since: float | None) -> float:
        """Return when a prediction is matured that came when the clock showed ``since``."""
        return self.end_of(_NONE if since is None else since, self._wait)

    def expire(self) -> int:
        """Let what is due expire; return `DONE`, or what is the caller's part, to call again after it."""
        if not self._begun:
            self._begun = True
            if self._start != self._start:
                self._start = self._now
            # of what arrives from now on
            self._due = min(self._now, self._watermark) + min(self._ttl, self._wait)
        while True:
            if self.unflushed >= self.portion:
                return _FLUSH
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
            self.unflushed += 1
        self._next_look = self._due if self._due < self._watermark else _FOREVER
        self._looks = self._begun = False
        return _DONE

    def _is_due(self, queue: int, ttl: float) -> bool:
        row = self.oldest(queue)
        if not row:
            return False
        end = self.end_of(self._real[_REAL * row], ttl)
        if min(self._now, self._watermark) > end:
            return True
        self._due = min(self._due, end)
        return False

    def _expire_oldest(self) -> None:
        """Let the prediction expire that has waited longest."""
        self.expired += 1
        self.settle(self.oldest(_WAITING), _EXPIRED)

    # One event

    def hold(
        self,
        id_: str,
        score: float,
        probability: float,
        time: float | None,
        seen: int,
        domain: str,
        key: str | None,
        held: Pending | None,
    ) -> LabelEvent | None:
        """Let an answered prediction wait; or end it with the label that waited for it, which is returned.

        Parameters
        ----------
        held
            the prediction, where more is to be remembered than there are columns for.
        """
        data = id_.encode("utf-8", "surrogatepass")
        found = id_table_c.hashed(data, 0, len(data))
        row = self._find(found, data, 0, len(data))
        early: LabelEvent | None = None
        if row:
            early = self.take_object(row)
        else:
            row = self._add(found, data, 0, len(data))
        real = _REAL * row
        self._real[real + 1] = score
        self._real[real + 2] = probability
        self._real[real + 3] = _NONE if time is None else time
        self._whole[_PAIR * row] = seen
        self._flags[row] = (self._flags[row] & _LINKED) | (domain == "target")
        self._key[row] = 0 if key is None else self.code_of(key)
        if held is not None:
            self.hold_object(row, held)
        if early is not None:
            self.settle(row, _LABELLED + early.label)
        else:
            self._begin_wait(row)
        return early

    def meet(self, row: int, label: int, time: float | None, weight: float | None) -> Joined:
        """Join a prediction that waits with its label."""
        joined = self.joined(row, label, time, weight, None)
        self.settle(row, _LABELLED + label)
        return joined

    def wait_early(self, event: LabelEvent) -> None:
        """Let a label wait for its prediction, whose id has no row."""
        data = event.id.encode("utf-8", "surrogatepass")
        row = self._add(id_table_c.hashed(data, 0, len(data)), data, 0, len(data))
        self._flags[row] = 0
        self.hold_object(row, event)
        self._real[_REAL * row] = _NONE if self._now == _NEVER else self._now
        self._enqueue(row, _COMES)

    def settle(self, row: int, state: int) -> None:
        """End a prediction, with a label or without; keep its row to tell duplicates and late labels."""
        if self.keeps:
            self.held(row)
        elif self._flags[row] & _HELD:
            held = self.objects[row]
            if held.answer is None or not self.keeps_answers:
                self.take_object(row)
        if self._state[row] != _FREE:
            self._leave(row)
        self._real[_REAL * row] = _NONE if self._now == _NEVER else self._now
        self._enqueue(row, state)
        if self._queues[_COUNT + _ENDED] > self._most:
            self.remove(self.oldest(_ENDED))

    def mature(self, row: int) -> Joined:
        """Join a prediction that was held long enough: with the label told last, or else with 0."""
        held = self.held(row)
        label, told_at = (0, None) if held.told is None else held.told
        joined = self.joined(row, label, told_at, None, self.matured_at(held.since))
        self.settle(row, _LABELLED + label)
        return joined

    def joined(
        self, row: int, label: int, time: float | None, weight: float | None, matured_at: float | None
    ) -> Joined:
        """Return a row's prediction with a label of this time and weight."""
        if matured_at is None and weight is None:
            weight = self.objects[row].weight if self._flags[row] & _HELD else None
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
        )

    def _begin_wait(self, row: int) -> None:
        self._real[_REAL * row] = _NONE if self._now == _NEVER else self._now
        self._enqueue(row, _WAITS)
        if self._queues[_COUNT + _WAITING] > self._most:
            self._expire_oldest()

    # Many events

    def take(
        self,
        at: int,
        end: int,
        data: bytes,
        starts: Any,
        sizes: Any,
        scores: Any,
        labels: Any,
        times: Any,
        odd: Any,
        codes: Any,
        domain: int,
        limits: Any,
        whole: Any,
        real: Any,
    ) -> int:
        """Take events of a block in turn, from one on; return why it stopped.

        The answers to its predictions are still to be told (`answer`). What it took is in ``whole`` and
        ``real``, of which it has filled so many columns as `predictions` and `joins` say.

        Parameters
        ----------
        at, end
            from this event to before that.
        data, starts, sizes
            the ids, as `streamcal.texts.Texts`; of size 0: none. This and what follows are memoryviews.
        scores, labels, times
            float64[n], int8[n], float64[n], as in `streamcal.blocks.Block`.
        odd
            bool[n]: events that are not of the common case; of length 0: none is.
        codes
            int32[n], the number of each prediction's key; of length 0: none has one.
        domain
            number of the domain.
        limits
            int64[2 k], of each key: how many labels come until something is due, and how many predictions
            may come before; -1: not known yet.
        whole
            int64[5, m]: which event each prediction is, and its row; and of each joined label, which event it
            is, what had been seen before the prediction, or −1 − the number of that among those taken here,
            and the number of its key.
        real
            float64[3, m], of each joined label: score, probability and time of the prediction.
        """
        predictions, joins, why, ids = self.predictions, self.joins, _END, data
        while at < end:
            if len(odd) and odd[at]:
                why = _EVENT
                break
            score, label, size, time, code = scores[at], labels[at], sizes[at], times[at], _LATER
            if score == score:
                code = codes[at] if len(codes) else 0
                if limits[2 * code + 1] == 0:
                    why = _EVENT  # perhaps of one key too many, and then not even its time counts
                    break
                if limits[2 * code] < 0:
                    self.asked, why = code, _ASKS
                    break
            if time > self._now:
                self._now = time
                if time > self._next_look:
                    self._looks = True
            if self._looks and self.expire() != _DONE:
                why = _EXPIRES
                break
            row = 0
            if size:
                found = id_table_c.hashed(ids, starts[at], size)
                row = self._find(found, ids, starts[at], size)
            if code == _LATER:
                if not row or self._state[row] != _WAITS or self._flags[row] & (_HELD | _DOMAIN) != domain:
                    why = _EVENT
                    break
                code = self._key[row]
                if limits[2 * code] < 0:
                    self.asked, why = code, _ASKS
                    break
            elif row:
                why = _EVENT
                break
            if score == score:
                limits[2 * code + 1] -= 1
                if size:
                    row = self._add(found, ids, starts[at], size)
                    first = _REAL * row
                    self._real[first + 1] = score
                    self._real[first + 3] = time
                    self._whole[_PAIR * row] = -1 - predictions
                    self._flags[row] = domain
                    self._key[row] = code
                    self._begin_wait(row)
                whole[0, predictions] = at
                whole[1, predictions] = row
                predictions += 1
            if label >= 0:
                whole[2, joins] = at
                whole[4, joins] = code
                if row:
                    first = _REAL * row
                    whole[3, joins] = self._whole[_PAIR * row]
                    real[0, joins] = self._real[first + 1]
                    real[1, joins] = self._real[first + 2]
                    real[2, joins] = self._real[first + 3]
                    self.settle(row, _LABELLED + label)
                else:
                    whole[3, joins] = -predictions
                    real[0, joins] = score
                    real[2, joins] = time
                joins += 1
                limits[2 * code] -= 1
                if limits[2 * code] == 0:
                    at += 1
                    why = _DUE
                    break
            at += 1
        self.predictions, self.joins, self.at = predictions, joins, at
        return why

    def answer(self, rows: Any, probabilities: Any, seen: Any) -> None:
        """Tell the answers to predictions, which `take` has taken, in order; row 0: one without an id."""
        for i in range(len(rows)):
            row = rows[i]
            self._real[_REAL * row + 2] = probabilities[i]
            self._whole[_PAIR * row] = seen[i]
