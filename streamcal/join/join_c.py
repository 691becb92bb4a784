"""The join of predictions and labels under delay: late, out of order, twice, early, or never.

The first label wins. A duplicate is counted and dropped. An early label waits for its prediction. An event
that is not matched within ``label_ttl`` of event time expires. Every outcome is counted.

Where no label means 0 (``missing_labels = "negative"``), a prediction is held until it is *matured*: until no
label within ``label_delay_limit`` of it can come. It is joined then, with the label that came last, or with
0. So labels are learned in the order of their predictions, not in the order in which they came.

The join calls no other part. Each method takes one step of an event, and returns its outcome:

* a prediction: `Join.admit`, then, once it is answered, `Join.hold`;
* a label: `Join.match`;
* before either, `Join.move_to` the event's time, and `Join.finalize` the prediction of a label.

At most ``max_pending`` entries of each kind wait. The rules of one event are in `streamcal.join.rules_c`,
which also takes blocks of events.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Self, TypeAlias, TypeVar

import msgspec

from streamcal.errors import DamagedStateError
from streamcal.events import Event, LabelEvent, LabelledEvent, Origin, PredictionEvent
from streamcal.events.clock_c import ClockState
from streamcal.events.codes import Code, Refusal
from streamcal.events.guard import GuardState, TimeGuard
from streamcal.join.config import JoinConfig
from streamcal.join.entries import Early, Memo, Pending, Settled
from streamcal.join.id_table_c import EARLY, ENDED, WAITING
from streamcal.join.outcomes import Contradicted, EarlyPositive, JoinCounts, Joined, Rejected
from streamcal.join.rules_c import DONE, MATURE, JoinRules

__all__ = ["Join", "JoinConfig", "JoinState", "OriginOf"]

_NO_TIME: Final = float("nan")

OriginOf: TypeAlias = Callable[[], Origin | None]
"""Function that returns the origin of an event; called only when it is needed."""

T = TypeVar("T", PredictionEvent, LabelEvent, LabelledEvent, PredictionEvent | LabelledEvent, Event)


class JoinState(msgspec.Struct):
    """State of the join without its entries."""

    clock: ClockState
    start: float | None
    """First time that the clock showed, in seconds."""
    counts: JoinCounts


class _State(JoinState, omit_defaults=True):
    """Entries of every queue in order of arrival; ``since`` is the clock at arrival, in seconds."""

    pending: dict[str, Pending]
    early: dict[str, Early]
    settled: dict[str, Settled]
    guard: GuardState = GuardState()


class Join:
    """Match labels with predictions.

    Parameters
    ----------
    config
        time to live and bounds.
    state
        state to continue from; the entries of the same moment have to be put into `rows`.
    """

    def __init__(self, config: JoinConfig | None = None, state: JoinState | None = None) -> None:
        self.config: JoinConfig = config or JoinConfig()
        """Options that the join was made with."""
        state = state or JoinState(ClockState(), None, JoinCounts())
        self._label_delay_limit = self.config.label_delay_limit
        self.matures: bool = self._label_delay_limit is not None
        """Whether predictions are held until they are matured."""
        self.takes_blocks: bool = not self.matures
        """Whether events can be taken in blocks: no options that need a look at each."""
        self.rows: JoinRules = JoinRules()
        """Entries that wait or have ended, with the rules of one event and of blocks."""
        ttl, most = self.config.label_ttl, self.config.max_pending
        self.rows.begin(ttl, self._label_delay_limit, most, state.clock, state.start)
        self._counts, self._most = state.counts, min(most, 1 << 62)
        self._predictions = self._labels = self._joined = 0  # that are not among the counts yet
        self._watermark = float("inf")  # that holds now
        self.guard: TimeGuard = TimeGuard(self.max_jump)
        """Guard of the times of events from `Recalibrator.step`; a run has a guard for each partition."""

    @property
    def max_jump(self) -> float:
        """Largest jump of an event's time over the times before it, in seconds."""
        return float("inf") if self.config.max_jump is None else self.config.max_jump

    @property
    def shortest_wait(self) -> float:
        """Shortest time that a prediction or a label waits, in seconds."""
        return min(self.config.label_ttl, self._label_delay_limit or math.inf)

    @property
    def counts(self) -> JoinCounts:
        """Counts of outcomes so far."""
        counts = self._counts
        counts.expired += self.rows.expired
        counts.predictions += self._predictions
        counts.labels += self._labels
        counts.joined += self._joined
        self.rows.expired = self._predictions = self._labels = self._joined = 0
        return counts

    @property
    def pending(self) -> int:
        """Number of predictions that wait for their label."""
        return self.rows.count(WAITING)

    @property
    def longest_wait(self) -> float | None:
        """Seconds that the oldest pending prediction has waited; None without one, or without times."""
        rows = self.rows
        oldest, clock = rows.oldest(WAITING), rows.time
        since = rows.since(oldest) if oldest else None
        return None if since is None or clock is None else clock - since

    @property
    def clock(self) -> float | None:
        """Latest event time that is believed, in seconds; None before the first."""
        return self.rows.time

    @property
    def next_expiry(self) -> float | None:
        """Event time in seconds beyond which a present entry expires; None if none expires by time."""
        ends = (self.rows.end_of_oldest(queue) for queue in (WAITING, ENDED, EARLY))
        return min((end for end in ends if end is not None and math.isfinite(end)), default=None)

    @property
    def state(self) -> JoinState:
        """State of the join without its entries."""
        return JoinState(self.rows.clock.state, self.rows.start, self.counts)

    # Time

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
        return self.expire() if self.rows.set_watermark(watermark) else ()

    def move_to(self, time: float) -> tuple[Joined | Rejected, ...]:
        """Move the clock to a time, which is believed; return matured predictions, and rejects of labels."""
        return self.expire() if self.rows.move_to(time) else ()

    def expire(self) -> tuple[Joined | Rejected, ...]:
        """Join matured predictions, and drop expired entries, by the time of the clock."""
        rows, left = self.rows, list[Joined | Rejected]()
        while (due := rows.expire()) != DONE:
            left.append(self._mature(rows.oldest(WAITING)) if due == MATURE else self._reject_early())
        return tuple(left)

    def close(self) -> tuple[Rejected, ...]:
        """End the stream: labels that still wait for their prediction are rejected."""
        return tuple(self._reject_early() for _ in range(self.rows.count(EARLY)))

    def refuses(self, event: Event) -> Refusal | None:
        """Return why an event is refused, None if it is not.

        A prediction that is held until it is matured needs a time. One that comes with its label and without
        an id needs none: it is joined at once.
        """
        if event.time is not None or self._label_delay_limit is None or event.id is None:
            return None
        kind = "a label" if isinstance(event, LabelEvent) else "a prediction"
        return Refusal("missing_time", {"kind": kind, "label_delay_limit": self._label_delay_limit})

    def finalize(self, event: LabelEvent) -> Joined | None:
        """Join the prediction of a label that is too late for it, if the clock has not joined it yet.

        Where partitions are read one ahead of another, such a label may come before the clock and the
        watermark have passed its prediction's time. The label that a prediction is joined with depends on
        times alone.
        """
        after, row = self._label_delay_limit, self.rows.known(event.id)
        if after is None or event.time is None or not row or not self.rows.is_waiting(row):
            return None
        predicted_at = self.rows.held(row).time
        is_late = predicted_at is not None and event.time > predicted_at + after
        return self._mature(row) if is_late else None

    # Predictions

    def knows(self, id_: str) -> bool:
        """Whether a prediction with this id is pending or settled."""
        return self.rows.is_prediction(id_)

    def admit(
        self, event: PredictionEvent | LabelledEvent, origin_of: OriginOf | None = None
    ) -> Rejected | None:
        """Take a prediction that has an id: `hold` it once it is answered, unless it is rejected here."""
        if self.rows.is_prediction(event.id):  # type: ignore[arg-type]
            self._counts.duplicate += 1
            return _rejected(event, origin_of, "duplicate_prediction")
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
        rows, id_, time, key = self.rows, event.id, event.time, event.key
        row, early = rows.known(id_), None  # type: ignore[arg-type]
        if row:
            early = rows.take_object(row)
        else:
            row = rows.add(id_)  # type: ignore[arg-type]
        rows.hold(
            row,
            event.score,
            probability,
            _NO_TIME if time is None else time,
            prediction_index,
            event.domain == "target",
            0 if key is None else rows.code_of(key),
            answer,
            event.weight,
            memo,
        )
        if early is None:
            return None
        self._joined += 1
        return rows.meet(row, early.label, early.time, early.weight)

    def take_early(self, id_: str) -> LabelEvent | None:
        """Return the label that waited for a prediction which is to be held until it is matured, if one did.

        Pass it to `match` once the prediction is held.
        """
        row = self.rows.known(id_)
        if not row:
            return None
        early: LabelEvent = self.rows.take_object(row)
        self.rows.remove(row)
        return early

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

    # Labels

    def match(
        self, event: LabelEvent, origin_of: OriginOf | None = None, *, is_new: bool = True
    ) -> Joined | EarlyPositive | Contradicted | Rejected | None:
        """Match a label with its prediction; None if one of them waits for the other, or for its time.

        The reject may be of an earlier label, if the largest number of labels waits already. A label from
        `take_early` is not counted again.
        """
        self._labels += is_new
        rows = self.rows
        row = rows.known(event.id)
        if not row:
            self._counts.early += 1
            rows.wait_early(_with_origin(event, origin_of))
            return self._reject_early() if rows.count(EARLY) > self._most else None
        if rows.is_waiting(row):
            if self.matures:
                return self._tell(row, event, origin_of)
            self._joined += 1
            return rows.meet(row, event.label, event.time, event.weight)
        if rows.is_early(row):
            early: LabelEvent = rows.objects[row]
            first: int | None = early.label
            if first != event.label and self.matures:
                self._counts.conflicting += 1
                rows.objects[row] = _with_origin(event, origin_of)
                rows.note(row)
                return None
        else:
            first = rows.label_of(row)
            if first is None:
                self._counts.late += 1
                since = rows.since(row)
                fields = {} if since is None else {"since": since, **self._bounds}
                return _rejected(event, origin_of, "late_label", **fields)
            held: Pending | None = rows.object_of(row)
            if held is not None and self.matures and (held.told is None or held.told[0] != first):
                return self._contradict(row, event, held, origin_of)
        self._counts.duplicate += 1
        if event.label == first:
            return _rejected(event, origin_of, "duplicate_label")
        self._counts.conflicting += 1
        return _rejected(event, origin_of, "conflicting_label", first=first, label=event.label)

    # State

    def to_bytes(self) -> bytes:
        """Return the state as JSON; equal states give equal bytes."""
        return msgspec.json.encode(
            _State(
                self.rows.clock.state,
                self.rows.start,
                self.counts,
                dict(self.rows.entries(WAITING)),  # type: ignore[arg-type]
                dict(self.rows.entries(EARLY)),  # type: ignore[arg-type]
                dict(self.rows.entries(ENDED)),  # type: ignore[arg-type]
                self.guard.state,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes, config: JoinConfig | None = None, classes: int = 2) -> Self:
        """Restore a join in memory from `to_bytes`; labels are below ``classes``.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        try:
            state = msgspec.json.decode(data, type=_State)
            join = cls(config, state)
            join.rows.classes = classes
            for entries in (state.pending, state.early, state.settled):
                for id_, entry in entries.items():
                    join.rows.put(id_, entry)
        except (ValueError, RecursionError) as error:  # of msgspec, of UTF-8, of nesting, of an id twice
            raise DamagedStateError(f"not the state of a join: {error}") from None
        join.guard = TimeGuard(join.max_jump, state.guard)
        return join

    # Inside

    def _tell(
        self, row: int, event: LabelEvent, origin_of: OriginOf | None
    ) -> EarlyPositive | Rejected | None:
        """Take a label of a prediction that is held until it is matured: the last one counts."""
        held, label, time = self.rows.held(row), event.label, event.time
        if held.told is not None:
            if held.told[0] == label:
                self._counts.duplicate += 1
                return _rejected(event, origin_of, "duplicate_label")
            self._counts.conflicting += 1
        held.told = label, time
        self.rows.note(row)
        if not label or held.time is None or time is None:
            return None
        return EarlyPositive(held.score, held.time, time, held.domain, held.key)

    def _mature(self, row: int) -> Joined:
        """Join a matured prediction."""
        if self.rows.held(row).told is None:
            self._counts.implied += 1
        else:
            self._joined += 1
        return self.rows.mature(row)

    def _contradict(
        self, row: int, event: LabelEvent, held: Pending, origin_of: OriginOf | None
    ) -> Contradicted | Rejected:
        """Take a label of a prediction that was joined with 0 for want of one, and still counts as 0."""
        if event.label:
            self._counts.contradicted += 1
        self._counts.late += 1
        limit = self._label_delay_limit
        rejected = _rejected(event, origin_of, "implied_label", label_delay_limit=limit)
        if not event.label or held.told is not None:
            return rejected
        held.told = 1, event.time  # so that it contradicts once, however often it is told
        self.rows.note(row)
        return Contradicted(held.domain, held.key, rejected)

    def _reject_early(self) -> Rejected:
        """Reject the label that has waited longest, saying how long ago its prediction may have ended."""
        rows = self.rows
        row = rows.oldest(EARLY)
        since: float | None = rows.since(row)
        event: LabelEvent = rows.take_object(row)
        rows.remove(row)
        self._counts.unmatched += 1
        before = None if since is None else since - self.config.label_ttl
        fields: dict[str, float] = {}
        if before is not None and rows.start is not None and rows.start < before:
            fields = {"before": before, **self._bounds}
        elif rows.count(ENDED) >= self.config.max_pending:
            fields = self._bounds
        return _rejected(event, None, "unmatched_label", **fields)

    @property
    def _bounds(self) -> dict[str, float]:
        return {"label_ttl": self.config.label_ttl, "max_pending": self.config.max_pending}


def _rejected(event: Event, origin_of: OriginOf | None, code: Code, **fields: object) -> Rejected:
    return Rejected(code, {"id": event.id, **fields}, event=_with_origin(event, origin_of))


def _with_origin(event: T, origin_of: OriginOf | None) -> T:
    if origin_of is None or event.origin is not None:
        return event
    return msgspec.structs.replace(event, origin=origin_of())
