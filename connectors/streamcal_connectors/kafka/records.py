"""Records that were read from a partition, as a batch of events."""

from __future__ import annotations

from typing import Final

from streamcal.events import RAW_BYTES, Origin
from streamcal.run.ports import Position
from streamcal_connectors.kafka.client import Chunk
from streamcal_connectors.kafka.positions import position_at
from streamcal_connectors.kafka.values import Values

__all__ = ["Records"]

_KEPT_BYTES: Final = RAW_BYTES + 1  # of a value: an origin sees that there was more


class Records:
    """Events of consecutive records of a partition; see `streamcal.run.ports.Batch`.

    Keeps of each record what `origin` shows of it.
    """

    def __init__(
        self,
        topic: str,
        topic_id: str | None,
        partition: int,
        start: int,
        records: Chunk,
        decoder: Values,
    ) -> None:
        self.partition = str(partition)
        self._topic = topic
        self._topic_id = topic_id
        self._start = start
        self._offsets, values = records
        self.events = decoder.decode(values)
        if max((len(value) for value in values if value is not None), default=0) > _KEPT_BYTES:
            values = [None if value is None else value[:_KEPT_BYTES] for value in values]
        self._values = values

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index: topic and partition, offset."""
        return Origin(f"{self._topic}/{self.partition}", self._offsets[index], self._values[index] or b"")

    def position(self, count: int) -> Position:
        """Return the offset after the first ``count`` events."""
        offset = self._offsets[count - 1] + 1 if count else self._start
        return position_at(int(self.partition), offset, self._topic_id)
