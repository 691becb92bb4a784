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

from streamcal.engine.checked_c import checked
from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.engine.stepping_c import Outcome, step
from streamcal.events import Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.join.join_c import Join, JoinConfig
from streamcal.join.outcomes import Contradicted, EarlyPositive, JoinCounts, Joined, Rejected, Relabelled
from streamcal.maps.shift import NO_SHIFT
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.times import LIMIT, show_duration, show_time
from streamcal.values import shown

__all__ = ["COUNTS", "LABELS", "OUTCOMES", "PREDICTION", "REJECT", "SCORES", "Buckets"]

PREDICTION: Final = "prediction"
"""A row of a prediction that was taken."""
REJECT: Final = "reject"
"""A row of an event that changed nothing; ``payload`` is the reason."""
LABELS: Final = "labels"
"""A row of labels that met their predictions; ``payload`` is a sketch."""
SCORES: Final = "scores"
"""A row of target scores of predictions that were taken; ``payload`` is a sketch."""
COUNTS: Final = "counts"
"""A row of what was counted; ``payload`` is `JoinCounts` as JSON."""

OUTCOMES: Final = (
    "kind string, id string, time double, score double, key string, domain string, payload binary"
)
"""The columns that come out of `Buckets`."""

_COLUMNS: Final = [column.split()[0] for column in OUTCOMES.split(", ")]
_LARGEST: Final = (1 << 62) // 1_000_000  # seconds; Spark keeps timers as 64-bit integers


class Buckets(StatefulProcessor):
    """The joins of all buckets of a partition.

    Parameters
    ----------
    join
        options of each bucket's join.
    max_cells
        of the sketches of what was joined.
    """

    def __init__(self, join: JoinConfig, max_cells: int) -> None:
        self._config = join
        self._max_cells = max_cells

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
        join = Join(self._config) if kept is None else Join.from_bytes(bytes(kept[0]), self._config)
        timer = -1 if kept is None else int(kept[1])
        work = _Work(join, self._max_cells, timers.getCurrentProcessingTimeInMs() / 1000.0)
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
    """Work of a micro-batch on one bucket. In place of an engine, it only takes note."""

    def __init__(self, join: Join, max_cells: int, began: float = math.inf) -> None:
        self._join = join
        self._began = began  # of a micro-batch that runs again: when it ran first
        self._max_cells = max_cells
        self._before = msgspec.structs.astuple(join.counts)
        self._rows: list[tuple[Any, ...]] = []
        self._scores: dict[str | None, list[float]] = {}
        self._labels: dict[tuple[str | None, str], tuple[list[float], list[int]]] = {}

    # As a learner

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, tuple[Emission, ...]]:
        """Take note of a prediction; the driver's map answers it later."""
        id_, score, key, time = event.id, event.score, event.key, event.time
        self._rows.append((PREDICTION, id_, time, score, key, event.domain, None))
        if event.domain == "target":
            self._scores.setdefault(key, []).append(score)
        return Recalibrated(id_, score, score, 0, NO_SHIFT, key, time), 0, ()

    def forecast(self, answer: Recalibrated) -> float:
        """Return what was answered: there is no guard, see `recalibrate_stream`."""
        return answer.probability

    def carried(self) -> None:
        """Return nothing: there are no segments, see `recalibrate_stream`."""

    def as_answered(self, joined: Joined) -> Joined:
        """Return it as it is."""
        return joined

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Take note of a label that met its prediction."""
        scores, labels = self._labels.setdefault((joined.key, joined.domain), ([], []))
        scores.append(joined.score)
        labels.append(joined.label)
        return ()

    def observe_early(self, positive: EarlyPositive) -> tuple[Emission, ...]:
        """Do nothing: no prediction is held until it matures, see `recalibrate_stream`."""
        del positive
        return ()

    def relabel(self, relabelled: Relabelled) -> None:
        """Do nothing: no label is corrected, see `recalibrate_stream`."""

    def contradict(self, contradicted: Contradicted) -> None:
        """Do nothing: no prediction is held until it matures, see `recalibrate_stream`."""

    # Events

    def take(self, frame: pd.DataFrame) -> None:
        """Take events, in an order that does not depend on how Spark delivers them."""
        frame = frame.assign(alone=frame["score"].isna()).sort_values(
            ["time", "alone", "id", "score", "label"], na_position="first"
        )
        columns = [frame[name].tolist() for name in ("id", "time", "score", "label", "key", "domain")]
        for row in zip(*columns, strict=True):
            id_, time, score, label, key, domain = (None if value != value else value for value in row)
            try:
                self._check_time(time)
                event = checked(_event(id_, time, score, label, key, domain))
            except ValueError as error:
                self._reject(id_, time, str(error))
                continue
            self.rejected(step(event, self._join, lambda _: self))

    def rejected(self, outcomes: Iterable[Outcome]) -> None:
        """Take note of the rejects among what came out of the join."""
        for each in outcomes:
            if isinstance(each, Rejected):
                self._reject(each.event.id, each.event.time, each.reason)

    def outcomes(self) -> pd.DataFrame:
        """Return the rows that come out of it."""
        rows = self._rows
        for key, scores in self._scores.items():
            seen = ScoreSketch(self._max_cells, labelled=False)
            seen.add_checked(np.array(scores), None)
            rows.append((SCORES, None, None, None, key, None, seen.to_bytes()))
        for (key, domain), (scores, labels) in self._labels.items():
            sketch = ScoreSketch(self._max_cells)
            sketch.add_checked(np.array(scores), np.array(labels, np.int8))
            rows.append((LABELS, None, None, None, key, domain, sketch.to_bytes()))
        after = msgspec.structs.astuple(self._join.counts)
        if after != self._before:
            counted = JoinCounts(*(b - a for a, b in zip(self._before, after, strict=True)))
            rows.append((COUNTS, None, None, None, None, None, msgspec.json.encode(counted)))
        return pd.DataFrame(rows, columns=_COLUMNS).astype({"time": "float64", "score": "float64"})

    def _check_time(self, time: float | None) -> None:
        if time is None:
            return
        if not -LIMIT < time < LIMIT:
            raise ValueError(
                f"a time must be seconds since the epoch, before the year 5138, got {shown(time)}"
            )
        most = self._join.max_jump
        if time > self._began + most:
            raise ValueError(
                f"the time {show_time(time)} is more than {show_duration(most)} (max_jump) past"
                f" {show_time(self._began)}, when the micro-batch began"
            )

    def _reject(self, id_: object, time: float | None, reason: str) -> None:
        shown = None if id_ is None else str(id_)
        self._rows.append((REJECT, shown, time, None, None, None, reason.encode()))


def _event(id_: Any, time: Any, score: Any, label: Any, key: Any, domain: Any) -> Event:
    """Return the event of a row; ValueError if it is none."""
    domain = "target" if domain is None else domain
    if score is None:
        if label is None:
            raise ValueError("an event needs a score or a label; NaN is none")
        return LabelEvent(id_, label, time)
    if label is None:
        return PredictionEvent(id_, score, time, key, domain)
    return LabelledEvent(score, label, id_, time, key, domain)
