"""Batches of a topic: the events of records, where each was, and records that are lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from streamcal.events import RAW_BYTES, Event, Origin
from streamcal.events.blocks import Block
from streamcal.events.fields import Malformed, with_time
from streamcal.run.ports import Position
from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.positions import offset_of, position_at, topic_id_of
from streamcal_connectors.kafka.values import Values

_KEPT_BYTES: Final = RAW_BYTES + 1  # of a value: an origin sees that there was more


class Records:
    """Events of consecutive records of a partition; see `streamcal.run.ports.Batch`.

    Keeps of each record what `origin` shows of it.
    """

    def __init__(
        self, partition: TopicPartition, topic_id: str | None, start: int, records: Chunk, decoder: Values
    ) -> None:
        self.partition = str(partition.partition)
        self._place = partition
        self._topic_id = topic_id
        self._start = start
        self._offsets, values, times = records
        self.events = _with_times(decoder.decode(values), times or ())
        if max(map(len, filter(None, values)), default=0) > _KEPT_BYTES:
            values = [None if value is None else value[:_KEPT_BYTES] for value in values]
        self._values = values

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index: topic and partition, offset."""
        topic = self._place.topic
        return Origin(f"{topic}/{self.partition}", self._offsets[index], self._values[index] or b"")

    def position(self, count: int) -> Position:
        """Return the offset after the first ``count`` events."""
        offset = self._offsets[count - 1] + 1 if count else self._start
        return position_at(offset, self._topic_id)


class LostRecords:
    """Records of a partition that were deleted before they were read, as one `Malformed`; see `Records`."""

    def __init__(self, place: TopicPartition, start: Position, end: Position) -> None:
        self.partition = str(place.partition)
        self._topic, self._ends = place.topic, (start, end)
        fields = {"start": offset_of(start), "next": offset_of(end)}
        if topic_id_of(start) == topic_id_of(end) and fields["start"] < fields["next"]:
            fields["count"] = fields["next"] - fields["start"]
        self.events = [Malformed("lost_records", fields)]

    def origin(self, index: int) -> Origin:  # noqa: ARG002  # there is one
        """Return topic and partition, and the offset at which records are missing."""
        return Origin(f"{self._topic}/{self.partition}", offset_of(self._ends[0]), b"")

    def position(self, count: int) -> Position:
        """Return the position before the lost records, or behind them."""
        return self._ends[count]


def _with_times(events: Sequence[Event | Malformed], times: Sequence[int]) -> Sequence[Event | Malformed]:
    """Return events, those without a time with that of their record, if there is one."""
    if not times:
        return events
    seconds = np.array(times, np.float64) / 1000.0
    seconds[seconds < 0.0] = np.nan
    if isinstance(events, Block):
        return events.with_times(np.where(np.isnan(events.times), seconds, events.times), {})
    return [
        with_time(event, time) if event.time is None and not math.isnan(time) else event
        for event, time in zip(events, seconds.tolist(), strict=True)
    ]
