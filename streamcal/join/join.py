"""The join of predictions and labels under delay: late, out of order, twice, early, or never.

The first label wins. A duplicate is counted and dropped. An early label waits for its prediction. An event
that is not matched within ``label_ttl`` of event time expires. Every outcome is counted.

Where no label means 0 (``missing_labels = "negative"``), a prediction is held until it is *matured*: until no
label within ``label_delay_limit`` of it can come. It is joined then, with the label that came last, or with
0. So labels are learned in the order of their predictions, not in the order in which they came.

The join calls no other part. Each method takes one step of an event, and returns its outcome:

* a prediction: `Join.admit`, then, once it is answered, `Join.hold`;
* a label: `Join.match`;
* before either, `Join.move` to the event's time, and `Join.finalize` the prediction of a label.

At most ``max_pending`` entries of each kind wait. The rules of one event are in `streamcal.join.rules_c`.
"""

from __future__ import annotations

import math
from typing import Self

import msgspec

from streamcal.base.errors import DamagedStateError
from streamcal.events import Event, LabelEvent
from streamcal.events.codes import Refusal
from streamcal.events.guard import TimeGuard
from streamcal.join.config import JoinConfig
from streamcal.join.entries import Pending
from streamcal.join.id_table_c import EARLY, ENDED, WAITING
from streamcal.join.outcomes import (
    Contradicted,
    EarlyPositive,
    Joined,
    JoinState,
    OriginOf,
    Rejected,
    rejected,
)
from streamcal.join.rules_c import JoinRules


class Join(JoinRules):
    """Match labels with predictions; parameters as of `JoinRules`."""

    def __init__(self, config: JoinConfig | None = None, state: JoinState | None = None) -> None:
        super().__init__(config, state)
        self.guard: TimeGuard = TimeGuard(self.max_jump)
        """Guard of the times of events from `Recalibrator.step`; a run has a guard for each partition."""

    @property
    def max_jump(self) -> float:
        """Largest jump of an event's time over the times before it, in seconds."""
        return float("inf") if self.config.max_jump is None else self.config.max_jump

    @property
    def shortest_wait(self) -> float:
        """Shortest time that a prediction or a label waits, in seconds."""
        return min(self.config.label_ttl, self.config.label_delay_limit or math.inf)

    @property
    def pending(self) -> int:
        """Number of predictions that wait for their label."""
        return self.count(WAITING)

    @property
    def longest_wait(self) -> float | None:
        """Seconds that the oldest pending prediction has waited; None without one, or without times."""
        oldest, clock = self.oldest(WAITING), self.time
        since = self.since(oldest) if oldest else None
        return None if since is None or clock is None else clock - since

    @property
    def next_expiry(self) -> float | None:
        """Event time in seconds beyond which a present entry expires; None if none expires by time."""
        ends = (self.end_of_oldest(queue) for queue in (WAITING, ENDED, EARLY))
        return min((end for end in ends if end is not None and math.isfinite(end)), default=None)

    def close(self) -> tuple[Rejected, ...]:
        """End the stream: labels that still wait for their prediction are rejected."""
        return tuple(self._reject_early() for _ in range(self.count(EARLY)))

    def refuses(self, event: Event) -> Refusal | None:
        """Return why an event is refused, None if it is not.

        A prediction that is held until it is matured needs a time. One that comes with its label and without
        an id needs none: it is joined at once.
        """
        if event.time is not None or self.config.label_delay_limit is None or event.id is None:
            return None
        kind = "a label" if isinstance(event, LabelEvent) else "a prediction"
        return Refusal("missing_time", {"kind": kind, "label_delay_limit": self.config.label_delay_limit})

    def finalize(self, event: LabelEvent) -> Joined | None:
        """Join the prediction of a label that is too late for it, if the clock has not joined it yet.

        Where partitions are read one ahead of another, such a label may come before the clock and the
        watermark have passed its prediction's time. The label that a prediction is joined with depends on
        times alone.
        """
        after, row = self.config.label_delay_limit, self.known(event.id)
        if after is None or event.time is None or not row or not self.is_waiting(row):
            return None
        predicted_at = self.held(row).time
        is_late = predicted_at is not None and event.time > predicted_at + after
        return self._mature(row) if is_late else None

    def take_early(self, id_: str) -> LabelEvent | None:
        """Return the label that waited for a prediction which is to be held until it is matured, if one did.

        Pass it to `match` once the prediction is held.
        """
        row = self.known(id_)
        if not row:
            return None
        early: LabelEvent = self.take_object(row)
        self.remove(row)
        return early

    # State

    def to_bytes(self) -> bytes:
        """Return the state as MessagePack; equal states give equal bytes."""
        return msgspec.msgpack.encode(
            JoinState(self.clock.state, self.start, self.counts, self.packs(), self.guard.state)
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
            state = msgspec.msgpack.decode(data, type=JoinState)
            join = cls(config, state)
            join.classes = classes
            join.load(state.packs)
        except (ValueError, RecursionError) as error:  # of msgspec, of UTF-8, of nesting, of an id twice
            raise DamagedStateError(f"not the state of a join: {error}") from None
        join.guard = TimeGuard(join.max_jump, state.guard)
        return join

    # Inside

    def _tell(
        self, row: int, event: LabelEvent, origin_of: OriginOf | None
    ) -> EarlyPositive | Rejected | None:
        """Take a label of a prediction that is held until it is matured: the last one counts."""
        held, label, time = self.held(row), event.label, event.time
        if held.told is not None:
            if held.told[0] == label:
                self.counts.duplicate += 1
                return rejected(event, origin_of, "duplicate_label")
            self.counts.conflicting += 1
        held.told = label, time
        self.note(row)
        if not label or held.time is None or time is None:
            return None
        return EarlyPositive(held.score, held.time, time, held.domain, held.key)

    def _mature(self, row: int) -> Joined:
        """Join a matured prediction."""
        if self.held(row).told is None:
            self.counts.implied += 1
        else:
            self.counts.joined += 1
        return self.join_matured(row)

    def _contradict(
        self, row: int, event: LabelEvent, held: Pending, origin_of: OriginOf | None
    ) -> Contradicted | Rejected:
        """Take a label of a prediction that was joined with 0 for want of one, and still counts as 0."""
        if event.label:
            self.counts.contradicted += 1
        self.counts.late += 1
        limit = self.config.label_delay_limit
        refused = rejected(event, origin_of, "implied_label", label_delay_limit=limit)
        if not event.label or held.told is not None:
            return refused
        held.told = 1, event.time  # so that it contradicts once, however often it is told
        self.note(row)
        return Contradicted(held.domain, held.key, refused)

    def _reject_early(self) -> Rejected:
        """Reject the label that has waited longest, saying how long ago its prediction may have ended."""
        row = self.oldest(EARLY)
        since: float | None = self.since(row)
        event: LabelEvent = self.take_object(row)
        self.remove(row)
        self.counts.unmatched += 1
        before = None if since is None else since - self.config.label_ttl
        fields: dict[str, float] = {}
        if before is not None and self.start is not None and self.start < before:
            fields = {"before": before, **self.bounds}
        elif self.count(ENDED) >= self.config.max_pending:
            fields = self.bounds
        return rejected(event, None, "unmatched_label", **fields)
