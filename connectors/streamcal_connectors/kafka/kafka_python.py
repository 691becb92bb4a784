"""kafka-python as a client, with types and time limits."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import closing, suppress
from itertools import islice
from typing import Any, Final, Protocol, cast

from streamcal_connectors.kafka.client import Chunk, Committed, Partition, Row, wait_until
from streamcal_connectors.kafka.errors import INSTALLED, is_permanent

if INSTALLED:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # see `errors`
        from kafka import (  # type: ignore[import-untyped]
            KafkaAdminClient,
            KafkaConsumer,
            KafkaProducer,
            TopicPartition,
        )
        from kafka import errors as kafka_errors
        from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
        from kafka.net.sasl import get_sasl_mechanism  # type: ignore[import-untyped]
        from kafka.partitioner import murmur2  # type: ignore[import-untyped]
        from kafka.producer.producer_batch import ProducerBatch  # type: ignore[import-untyped]
        from kafka.record.memory_records import MemoryRecordsBuilder  # type: ignore[import-untyped]
        from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

__all__ = [
    "KafkaPythonConsumer",
    "KafkaPythonProducer",
    "SaslClient",
    "kafka_consumer",
    "kafka_producer",
    "sasl_client",
    "topic_configs",
]

_CLOSE_SECONDS: Final = 5.0


class SaslClient(Protocol):
    """One side of a SASL exchange."""

    def auth_bytes(self) -> bytes:
        """Return what to send next."""

    def receive(self, auth_bytes: bytes) -> object:
        """Take an answer; ValueError if it is not the right one."""

    def is_done(self) -> bool:
        """Whether nothing is left to send."""


class KafkaPythonConsumer:
    """A `Consumer` of kafka-python.

    Parameters
    ----------
    client
        kafka-python's consumer.
    seconds
        how long a request may take.
    """

    def __init__(self, client: Any, seconds: float) -> None:
        self._client = client
        self._milliseconds = int(seconds * 1000)

    def partitions(self, topic: str, *, refresh: bool = False) -> set[int]:
        """See `Consumer`."""
        if refresh:
            self._client.topics()
        return set(self._client.partitions_for_topic(topic))

    def topic_id(self, topic: str) -> str | None:
        """See `Consumer`."""
        found = self._client._cluster.topic_id(topic)
        return str(found) if found is not None and found.int else None

    def cluster_id(self) -> str | None:
        """See `Consumer`."""
        return cast("str | None", self._client._cluster.cluster_id)

    def assign(self, partitions: Mapping[Partition, int]) -> None:
        """See `Consumer`."""
        self._client.assign([_real(partition) for partition in partitions])
        for partition, offset in partitions.items():
            self.seek(partition, offset)

    def seek(self, partition: Partition, offset: int) -> None:
        """See `Consumer`."""
        self._client.seek(_real(partition), offset)

    def pause(self, partition: Partition) -> None:
        """See `Consumer`."""
        self._client.pause(_real(partition))

    def resume(self, partition: Partition) -> None:
        """See `Consumer`."""
        self._client.resume(_real(partition))

    def poll(self, timeout: float, count: int) -> dict[Partition, Chunk]:
        """See `Consumer`."""
        found = self._client.poll(timeout_ms=max(int(timeout * 1000), 0), max_records=max(count, 1))
        return {
            partition: Chunk([record.offset for record in records], [record.value for record in records])
            for partition, records in found.items()
        }

    def position(self, partition: Partition) -> int:
        """See `Consumer`."""
        return int(self._client.position(_real(partition), timeout_ms=1) or 0)

    def high_water(self, partition: Partition) -> int | None:
        """See `Consumer`."""
        return cast("int | None", self._client.highwater(_real(partition)))

    def ends(self, partitions: Sequence[Partition], seconds: float | None = None) -> dict[Partition, int]:
        """See `Consumer`."""
        limit = self._milliseconds if seconds is None else int(seconds * 1000)
        found = self._client.end_offsets([_real(partition) for partition in partitions], timeout_ms=limit)
        return cast("dict[Partition, int]", found)

    def beginnings(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """See `Consumer`."""
        found = self._client.beginning_offsets(
            [_real(partition) for partition in partitions], timeout_ms=self._milliseconds
        )
        return cast("dict[Partition, int]", found)

    def committed(self, partition: Partition) -> Committed | None:
        """See `Consumer`."""
        found = self._client.committed(_real(partition), metadata=True, timeout_ms=self._milliseconds)
        # confluent-kafka 2 writes the zero byte behind the text, too.
        return None if found is None else Committed(found.offset, found.metadata.rstrip("\0"))

    def close(self) -> None:
        """See `Consumer`."""
        with suppress(Exception):
            self._client.close(autocommit=False, timeout_ms=int(_CLOSE_SECONDS * 1000))


class KafkaPythonProducer:
    """A `Producer` of kafka-python.

    Parameters
    ----------
    client
        kafka-python's producer.
    seconds
        how long a request may take.
    stop
        whether the run is to stop; if so, a request takes at most a few seconds more.
    """

    def __init__(self, client: Any, seconds: float, stop: Callable[[], bool]) -> None:
        self._client = client
        self._seconds = seconds
        self._stop = stop
        self._batches: list[Any] = []

    def init(self) -> None:
        """See `Producer`."""
        self._bounded(self._client._transaction_manager.initialize_transactions)

    def begin(self) -> None:
        """See `Producer`."""
        self._batches = []
        self._client.begin_transaction()

    def send(self, rows: Sequence[Row], keyed: Set[str]) -> None:
        """Put rows into batches, and those into kafka-python's queue.

        Its own ``send`` does that for one record at a time, with a future for each: five times the work.
        """
        records: dict[Partition, list[Row]] = {}
        for topic in {row[0] for row in rows}:
            numbers = sorted(self._client.partitions_for(topic))
            lists: list[list[Row]] = [[] for _ in numbers]
            if topic in keyed:
                for row in rows:
                    if row[0] == topic:
                        lists[_place(row[1], len(lists))].append(row)
            else:
                lists[0] = [row for row in rows if row[0] == topic]
            records |= {Partition(topic, number): each for number, each in zip(numbers, lists, strict=True)}
        for partition, each in records.items():
            if each:
                self._enqueue(_real(partition), each)

    def _enqueue(self, partition: Any, rows: Sequence[Row]) -> None:
        self._client._transaction_manager.maybe_add_partition_to_transaction(partition)
        queue, now = self._client._accumulator, int(time.time() * 1000)
        start = 0
        while start < len(rows):
            records = MemoryRecordsBuilder(2, queue.config["compression_attrs"], queue.config["batch_size"])
            append = records.append
            for _, key, value in islice(rows, start, None):
                if append(now, key, value) is None:  # it is full
                    break
            start += records.next_offset()
            batch = ProducerBatch(partition, records)
            with queue._tp_lock(partition):
                queue._batches[partition].append(batch)
                queue._incomplete.add(batch)
            self._batches.append(batch)
            self._client._sender.wakeup()

    def send_offsets(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        """See `Producer`."""
        real = {
            _real(partition): OffsetAndMetadata(each.offset, each.metadata, -1)
            for partition, each in offsets.items()
        }
        self._bounded(lambda: self._client._transaction_manager.send_offsets_to_transaction(real, group))

    def flush(self) -> None:
        """Wait for every batch, and look at each.

        ``commit_transaction`` returns normally even if a record expired, or if the broker timed the
        transaction out while a batch was in flight.
        """

        def flushed(seconds: float) -> bool:
            try:
                self._client.flush(seconds)
            except kafka_errors.KafkaTimeoutError:
                return False
            return True

        wait_until(flushed, self._seconds * 2, self._stop)
        for batch in self._batches:
            if not batch.is_done:  # split because it is too large, which loses its records in a transaction
                raise kafka_errors.RecordListTooLargeError(f"a batch of {batch.topic_partition.topic}")
        if failures := self._failures():
            raise self.cause(failures[0])

    def cause(self, error: Exception) -> Exception:
        """See `Producer`."""
        return next(filter(is_permanent, self._failures()), error)

    def _failures(self) -> list[Exception]:
        """Return why records were refused so far."""
        reasons = [(batch.produce_future.value[2], batch) for batch in self._batches if batch.is_done]
        return [
            reason(number)
            for reason, batch in reasons
            if reason is not None
            for number in range(batch.record_count)
        ]

    def commit(self) -> None:
        """See `Producer`."""
        self._bounded(self._client._transaction_manager.begin_commit)

    def discard(self) -> None:
        """See `Producer`."""
        # close() alone flushes first and, if that fails, closes nothing.
        with suppress(Exception):
            self._client._sender.force_close()
            self._client._sender.join(_CLOSE_SECONDS)
        with suppress(Exception):
            self._client.close(timeout=0)

    def _bounded(self, request: Callable[[], Any]) -> None:
        """Do what the client's own method does, with a time limit: a lost request is never answered."""
        result = request()
        self._client._sender.wakeup()
        wait_until(
            lambda seconds: bool(result.wait(timeout_ms=int(seconds * 1000))), self._seconds, self._stop
        )


def kafka_consumer(**options: object) -> Any:
    """Make a consumer of kafka-python."""
    return KafkaConsumer(**options)


def kafka_producer(**options: object) -> Any:
    """Make a producer of kafka-python."""
    return KafkaProducer(**options)


def sasl_client(mechanism: str, options: Mapping[str, Any]) -> SaslClient:
    """Make kafka-python's side of a SASL exchange."""
    return cast("SaslClient", get_sasl_mechanism(mechanism)(**options))


def topic_configs(
    topics: Sequence[str], names: Sequence[str], **options: object
) -> dict[str, dict[str, str]]:
    """Ask a cluster for settings of topics; those that this client may not read are missing."""
    with closing(KafkaAdminClient(**options)) as admin:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic, list(names)) for topic in topics]
        found = admin.describe_configs(asked, config_filter="all").get("topic", {})
    return {
        topic: {name: str(each["value"]) for name, each in configs.items()}
        for topic, configs in found.items()
    }


def _place(key: bytes | None, count: int) -> int:
    """Return which of so many partitions a key belongs to, as every client of Kafka does."""
    return random.randrange(count) if key is None else (murmur2(key) & 0x7FFFFFFF) % count  # noqa: S311


def _real(partition: Partition) -> Any:
    return TopicPartition(partition.topic, partition.partition)
