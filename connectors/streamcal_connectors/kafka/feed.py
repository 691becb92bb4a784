"""Reads back the rows that a sink wrote to a topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from streamcal_connectors.kafka.client import TopicPartition
from streamcal_connectors.kafka.cluster import Cluster
from streamcal_connectors.kafka.errors import KafkaError
from streamcal_connectors.kafka.kafka_python import Consumer

_RECORDS: Final = 10_000  # of a poll


class KafkaFeed:
    """Reads back the values of a topic from its first record on; see `streamcal.run.ports.Feed`.

    Returns nothing until it has read everything that the topic held when it was opened, so that a follower of
    maps begins with the newest ones. A compacted topic holds one row per key, or a few. Returns committed
    rows only. While the cluster is away it waits, and logs that once.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._consumer: Consumer | None = None
        self._behind: dict[TopicPartition, int] = {}  # by partition: its end at first, until it is reached
        self._rows: list[bytes] = []  # read but not returned yet

    def poll(self, timeout: float) -> Sequence[bytes]:
        """Return the rows that are there; see `streamcal.run.ports.Feed`.

        Raises
        ------
        OSError, ValueError
            if the cluster stays away at the start or refuses, or the topic does not exist.
        """
        deadline = time.monotonic() + timeout
        consumer = self._consumer or self._open()
        ask = partial(consumer.partitions, self._topic, refresh=True)
        while True:
            wait = 0.0 if self._rows and not self._behind else max(deadline - time.monotonic(), 0.0)
            try:
                found = self._cluster.poll(consumer, wait, lambda: _RECORDS, ask)
            except KafkaError:  # deleted behind us: what is left has the newest maps
                self.close()
                return ()
            for partition in sorted(found):
                self._rows += [value for value in found[partition].values if value is not None]
            self._behind = {p: end for p, end in self._behind.items() if consumer.position(p) < end}
            if not found or time.monotonic() > deadline:
                break
        if self._behind:
            return ()
        rows, self._rows = self._rows, []
        return rows

    def close(self) -> None:
        """Release; may be called twice."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _open(self) -> Consumer:
        consumer = self._consumer = self._cluster.consumer()
        partitions = self._cluster.topic_partitions(consumer, self._topic)
        first = self._cluster.call(lambda: consumer.beginnings(partitions))
        self._behind = self._cluster.call(lambda: consumer.ends(partitions))
        consumer.assign(first)
        return consumer
