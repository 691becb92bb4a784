"""The join of predictions and labels in buckets of ids, each a `Join` of its own kept by Spark.

A bucket's clock is Spark's watermark, the latest event time of all earlier micro-batches, and then the times
of its own events, which it takes in the order of time. So each event meets the clock that it would meet in
one join of all events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from streamcal.base.times import LIMIT
from streamcal.engine.config import EngineOptions
from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.engine.stepping_c import Outcome, step
from streamcal.events import Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.codes import Code, FieldError
from streamcal.join.config import JoinConfig
from streamcal.join.join import Join
from streamcal.join.outcomes import Contradicted, EarlyPositive, JoinCounts, Joined, Rejected
from streamcal.maps.shift import NO_SHIFT
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.spark.answering import Answered, Learned, answer, engines_of_task, event_of

PREDICTION: Final = "prediction"
"""A row of a prediction that was taken."""
REJECT: Final = "reject"
"""A row of an event that changed nothing; ``key`` is the code, ``payload`` the reason."""
LABELS: Final = "labels"
"""A row of labels that met their predictions; ``payload`` is a sketch."""
SCORES: Final = "scores"
"""A row of target scores of predictions that were taken; ``payload`` is a sketch."""
LEARNED: Final = "learned"
"""A row of labels that met their predictions, where buckets answer; ``payload`` is a list of `Learned`."""
COUNTS: Final = "counts"
"""A row of what was counted; ``payload`` is `JoinCounts` as JSON."""

OUTCOMES: Final = (
    "kind string, id string, time double, score double, key string, domain string, payload binary,"
    " answer array<double>"
)
"""The columns that come out of `Buckets`; ``answer`` is that of a prediction, where buckets answer, and its
``payload`` the memo."""

_COLUMNS: Final = [column.split()[0] for column in OUTCOMES.split(", ")]
_LARGEST: Final = (1 << 62) // 1_000_000  # seconds; Spark keeps timers as 64-bit integers


class Buckets(StatefulProcessor):
    """The joins of all buckets of a partition.

    Parameters
    ----------
    join
        options of each bucket's join.
    options
        options of the engines.
    answers
        whether the buckets answer; if not, the driver's maps do, and engines learn sketches.
    """

    def __init__(self, join: JoinConfig, options: EngineOptions, *, answers: bool) -> None:
        self._config = join
        self._options, self._answers = options, answers

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: the bytes of the join, and when its timer is due, −1 for never."""
        self._handle = handle
        self._state = handle.getValueState("join", "state binary, timer long")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Take the events of a micro-batch."""
        del key
        yield self._take(pd.concat(list(rows)), timerValues)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Let expire what is due."""
        del key, expiredTimerInfo
        yield self._take(None, timerValues)

    def _take(self, frame: pd.DataFrame | None, timers: TimerValues) -> pd.DataFrame:
        kept = self._state.get() if self._state.exists() else None
        join = Join(self._config)
        if kept is not None:
            join = Join.from_bytes(bytes(kept[0]), self._config, max(2, len(self._options.classes)))
        timer = -1 if kept is None else int(kept[1])
        began = timers.getCurrentProcessingTimeInMs() / 1000.0
        work = _Work(join, self._options, began, answers=self._answers)
        watermark = timers.getCurrentWatermarkInMs()
        if watermark > 0:  # 0: Spark has seen no event yet
            work.rejected(join.move_to(watermark / 1000.0))
        if frame is not None:
            work.take(frame)
        end = join.next_expiry
        due = -1 if end is None else math.floor(min(end, _LARGEST) * 1000.0) + 1
        if due != timer:
            if timer > watermark:
                self._handle.deleteTimer(timer)
            if due >= 0:
                self._handle.registerTimer(due)
        self._state.update((join.to_bytes(), due))
        return work.outcomes()


class _Work:
    """Work of a micro-batch on one bucket. In place of an engine that learns, it only takes note."""

    def __init__(
        self, join: Join, options: EngineOptions, began: float = math.inf, *, answers: bool = False
    ) -> None:
        self._join = join
        join.classes = max(2, len(options.classes))
        self._began = began  # of a micro-batch that runs again: when it ran first
        self._options, self._answering = options, answers
        self._before = msgspec.structs.astuple(join.counts)
        self._rows: list[tuple[Any, ...]] = []
        self._scores: dict[str | None, list[float]] = {}
        self._labels: dict[tuple[str | None, str], tuple[list[float], list[int]]] = {}
        self._answers: dict[int, Answered] = {}  # by the identity of their events
        self._learned: dict[str | None, list[Learned]] = {}
        self._at = False, 0.0, False, ""  # the event that is taken, in the order of events

    # As a learner

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, bytes | None, tuple[Emission, ...]]:
        """Take note of a prediction; the driver's map answers it later, if that of a plain engine."""
        id_, score, key, time = event.id, event.score, event.key, event.time
        made, memo = self._answers.get(id(event), (None, None))
        self._rows.append((PREDICTION, id_, time, score, key, event.domain, memo, made))
        if made is None and event.domain == "target":
            self._scores.setdefault(key, []).append(score)
        return Recalibrated(id_, score, score, 0, NO_SHIFT, key, time), 0, memo, ()

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Take note of a label that met its prediction."""
        if isinstance(joined.memo, bytes):
            told = joined.domain, *self._at, joined.score, joined.label, joined.labelled_at, joined.memo
            self._learned.setdefault(joined.key, []).append(Learned(*told))
            return ()
        scores, labels = self._labels.setdefault((joined.key, joined.domain), ([], []))
        scores.append(joined.score)
        labels.append(joined.label)
        return ()

    def observe_early(self, positive: EarlyPositive) -> tuple[Emission, ...]:
        """Do nothing: no prediction is held until it matures, see `recalibrate_stream`."""
        del positive
        return ()

    def contradict(self, contradicted: Contradicted) -> None:
        """Do nothing: no prediction is held until it matures, see `recalibrate_stream`."""

    # Events

    def take(self, frame: pd.DataFrame) -> None:
        """Take events, in an order that does not depend on how Spark delivers them."""
        frame = frame.assign(alone=frame["score"].isna()).sort_values(
            ["time", "alone", "id", "score", "label"], na_position="first"
        )
        names = ("id", "time", "score", "label", "key", "domain", "given", "alone")
        taken: list[tuple[Event, bool]] = []
        for row in zip(*(frame[name].tolist() for name in names), strict=True):
            *columns, alone = (None if value != value else value for value in row)
            try:
                self._check_time(columns[1])
                taken.append((event_of(columns, self._options), bool(alone)))
            except ValueError as error:
                code = error.refusal.code if isinstance(error, FieldError) else "malformed"
                self._reject(columns[0], columns[1], code, str(error))
        if self._answering:
            self._answer_many([event for event, _ in taken if not isinstance(event, LabelEvent)])
        for event, alone in taken:
            self._at = event.time is not None, event.time or 0.0, alone, str(event.id)
            self.rejected(step(event, self._join, lambda _: self))

    def _answer_many(self, events: list[PredictionEvent | LabelledEvent]) -> None:
        """Answer predictions by the engines of the micro-batch before."""
        by_key: dict[str | None, list[PredictionEvent | LabelledEvent]] = {}
        for event in events:
            by_key.setdefault(event.key, []).append(event)
        engines = engines_of_task(self._options) if events else {}
        for key, its in by_key.items():
            answers = answer(engines[key], its)
            self._answers |= {id(event): answered for event, answered in zip(its, answers, strict=True)}

    def rejected(self, outcomes: Iterable[Outcome]) -> None:
        """Take note of the rejects among what came out of the join."""
        for each in outcomes:
            if isinstance(each, Rejected):
                self._reject(each.event.id, each.event.time, each.code, each.reason)

    def outcomes(self) -> pd.DataFrame:
        """Return the rows that come out of it."""
        rows = self._rows
        for key, scores in self._scores.items():
            seen = ScoreSketch(labelled=False)
            seen.add_checked(np.array(scores), None)
            rows.append((SCORES, None, None, None, key, None, seen.to_bytes(), None))
        for (key, domain), (scores, labels) in self._labels.items():
            sketch = ScoreSketch()
            sketch.add_checked(np.array(scores), np.array(labels, np.int8))
            rows.append((LABELS, None, None, None, key, domain, sketch.to_bytes(), None))
        for key, learned in self._learned.items():
            rows.append((LEARNED, None, None, None, key, None, msgspec.msgpack.encode(learned), None))
        after = msgspec.structs.astuple(self._join.counts)
        if after != self._before:
            counted = JoinCounts(*(b - a for a, b in zip(self._before, after, strict=True)))
            rows.append((COUNTS, None, None, None, None, None, msgspec.json.encode(counted), None))
        return pd.DataFrame(rows, columns=_COLUMNS).astype({"time": "float64", "score": "float64"})

    def _check_time(self, time: float | None) -> None:
        if time is None:
            return
        if not -LIMIT < time < LIMIT:
            raise FieldError("bad_time", value=time)
        most = self._join.max_jump
        if time > self._began + most:
            raise FieldError("too_far_ahead", time=time, limit=most, begun=self._began)

    def _reject(self, id_: object, time: float | None, code: Code, reason: str) -> None:
        shown = None if id_ is None else str(id_)
        self._rows.append((REJECT, shown, time, None, code, None, reason.encode(), None))
