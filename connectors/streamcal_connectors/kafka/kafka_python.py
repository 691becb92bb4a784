"""kafka-python as a client, with time limits."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import codec as codecs
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaTimeoutError, RecordListTooLargeError
from kafka.net.compat import KafkaNetClient
from kafka.partitioner import murmur2
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.memory_records import MemoryRecordsBuilder

from streamcal_connectors.kafka import limits
from streamcal_connectors.kafka.client import Chunk, OffsetAndMetadata, Row, TopicPartition, wait_until, worst
from streamcal_connectors.kafka.config import KafkaConfig

_BOOTSTRAP_SECONDS: Final = 5.0  # in which a client that was just made reaches the cluster, at most
_MAX_BYTES, _POLICY = "max.message.bytes", "cleanup.policy"


class TopicSettings(NamedTuple):
    """Settings of a topic; Kafka's defaults where this client may not ask."""

    max_bytes: int = 1_048_588
    """Most bytes that a batch of records may take."""
    compacted: bool = False
    """Whether a record replaces those before it that have the same key."""


def connection_options(hosts: Sequence[str], config: KafkaConfig) -> dict[str, Any]:
    """Return kafka-python's options of a connection, with the secrets.

    Raises
    ------
    ValueError
        if a secret or a TLS file cannot be read.
    """
    milliseconds = int(config.request_seconds * 1000)
    found = {
        "client_id": "streamcal",
        "request_timeout_ms": milliseconds,
        "retry_backoff_ms": 5,
        "reconnect_backoff_max_ms": 500,
        "metadata_max_age_ms": int(config.refresh_seconds * 1000),
        "ssl_password": "",  # without one, OpenSSL would ask for it on the terminal
        **config.client_options(),
        "bootstrap_servers": list(hosts),
        "bootstrap_timeout_ms": min(milliseconds, int(_BOOTSTRAP_SECONDS * 1000)),
        "allow_auto_create_topics": False,
        "metrics_enabled": False,
    }
    kinds = (KafkaAdminClient, KafkaConsumer, KafkaProducer)
    if unknown := sorted(found.keys() - set().union(*(kind.DEFAULT_CONFIG for kind in kinds))):
        raise ValueError(f"client: kafka-python has no option {', '.join(unknown)}")
    return found


def check_codec(options: Mapping[str, Any]) -> None:
    """Refuse options of a codec for what is written that is not there: a ValueError that names an extra."""
    codec = options.get("compression_type")
    if codec not in (None, "none") and not getattr(codecs, f"has_{codec}", bool)():
        raise ValueError(
            f"client: kafka-python has no compression_type = {codec!r} here: take library = 'confluent' (pip"
            ' install "streamcal-engine[kafka-confluent]"), which has gzip, snappy, lz4 and zstd'
        )


def _made(kind: Any, options: Mapping[str, Any], **ours: Any) -> Any:
    """Make a client of those options that it knows; if that fails, stop the thread that it has begun."""
    begun: list[KafkaNetClient] = []

    def begin(**config: Any) -> KafkaNetClient:
        begun.append(KafkaNetClient(**config))
        return begun[0]

    known = {name: value for name, value in options.items() if name in kind.DEFAULT_CONFIG}
    try:
        return kind(**{"kafka_client": begin, **known, **ours})
    except BaseException:
        for each in begun:
            each.close()
        raise


def topic_settings(topics: Iterable[str], options: Mapping[str, Any]) -> dict[str, TopicSettings]:
    """Ask a cluster for the settings of topics."""
    wanted = sorted(topics)
    with closing(_made(KafkaAdminClient, options)) as admin:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic, [_MAX_BYTES, _POLICY]) for topic in wanted]
        found = admin.describe_configs(asked, config_filter="all").get("topic", {})
    settings = {}
    for topic in wanted:
        told = {name: str(each["value"]) for name, each in found.get(topic, {}).items()}
        limit = int(told.get(_MAX_BYTES, TopicSettings().max_bytes))
        settings[topic] = TopicSettings(limit, "compact" in told.get(_POLICY, ""))
    return settings


class Consumer:
    """Reads records, and asks about topics, offsets and a group; its methods raise KafkaError.

    Parameters
    ----------
    options
        kafka-python's options of a connection.
    group
        name of the group to ask about; None: it asks about none.
    level
        isolation level of records and offsets.
    seconds
        how long a request may take.
    """

    def __init__(self, options: Mapping[str, Any], group: str | None, level: str, seconds: float) -> None:
        self._client: Any = _made(
            KafkaConsumer,
            {
                "fetch_max_wait_ms": limits.FETCH_WAIT_MS,
                "fetch_max_bytes": limits.FETCH_BYTES,
                "max_partition_fetch_bytes": limits.PARTITION_FETCH_BYTES,
                **options,
            },
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level=level,
        )
        self._milliseconds = int(seconds * 1000)
        self.with_times = False
        """Whether `poll` is asked for timestamps."""
        self.heard = time.monotonic()
        """When the cluster last answered; `Cluster.poll` keeps it."""

    # Topics and groups

    def partitions(self, topic: str, *, refresh: bool = False) -> set[TopicPartition]:
        """Return the partitions of a topic as of the last refresh; empty if there is no such topic."""
        if refresh:
            self._client.topics()
        return {TopicPartition(topic, number) for number in self._client.partitions_for_topic(topic)}

    def topic_id(self, topic: str, *, fresh: bool = False) -> str | None:
        """Return the id of a topic as of the last refresh; None if the broker tells none, or has no topic.

        ``fresh``: as the cluster answers now.
        """
        cluster, run = self._client._cluster, self._client._net.run
        if fresh:
            cluster.add_topic(topic)
            for _ in range(1 + cluster.metadata_refresh_in_progress):  # which may have been asked before
                run(self._client._manager.wait_for, cluster.request_update(), self._milliseconds)
        found = cluster.topic_id(topic)
        return str(found) if found is not None and found.int else None

    def ends(
        self, partitions: Iterable[TopicPartition], seconds: float | None = None
    ) -> dict[TopicPartition, int]:
        """Ask the cluster for the offsets after the last readable records."""
        limit = self._milliseconds if seconds is None else int(seconds * 1000)
        return dict(self._client.end_offsets(list(partitions), timeout_ms=limit))

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask the cluster for the offsets of the first records that are kept."""
        return dict(self._client.beginning_offsets(list(partitions), timeout_ms=self._milliseconds))

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the committed offset of the group.

        Waits for pending transactions that write one, unless the isolation level is ``read_uncommitted``.
        """
        found = self._client.committed(partition, metadata=True, timeout_ms=self._milliseconds)
        # confluent-kafka 2 writes the zero byte behind the text, too.
        return found and found._replace(metadata=found.metadata.rstrip("\0"))

    def close(self) -> None:
        """Release; never raises."""
        with suppress(Exception):
            self._client.close(autocommit=False, timeout_ms=int(limits.CLOSE_SECONDS * 1000))

    # Records

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read from these partitions, starting at these offsets; `pause` again what is to rest."""
        self._client.assign(list(offsets))
        for partition, offset in offsets.items():
            self.resume(partition)
            self._client.seek(partition, offset)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset."""
        self._client.seek(partition, offset)

    def pause(self, partition: TopicPartition) -> None:
        """Stop reading a partition until `resume`."""
        self._client.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Undo `pause`; what was fetched before it is fetched again.

        Of what it fetched of several paused partitions, kafka-python 3.0 gives back one partition's records,
        and fetches the others no more.
        """
        for fetched in ("_paused_completed_fetches", "_paused_partition_records"):
            getattr(self._client._fetcher, fetched, {}).pop(partition, None)
        self._client.resume(partition)

    def poll(self, timeout: float, count: int) -> dict[TopicPartition, Chunk]:
        """Return at most ``count`` records, waiting for some; empty while the cluster is away."""
        found = self._client.poll(timeout_ms=max(int(timeout * 1000), 0), max_records=max(count, 1))
        return {
            partition: Chunk(
                [record.offset for record in records],
                [record.value for record in records],
                [record.timestamp for record in records] if self.with_times else None,
            )
            for partition, records in found.items()
        }

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset to read: after the records, aborted records and markers that were passed."""
        return int(self._client.position(partition, timeout_ms=1) or 0)

    def high_water(self, partition: TopicPartition) -> int | None:
        """Return the end of a partition, including open transactions, as of the last response."""
        return cast("int | None", self._client.highwater(partition))


class KafkaPythonProducer:
    """A `Producer` of kafka-python.

    Parameters
    ----------
    options
        kafka-python's options of a connection.
    transactional_id
        name of its transactions.
    batch_bytes
        most bytes that it sends at once to a partition, if a record allows it.
    config
        how long a request may take.
    stop
        whether the run is to stop; if so, a request takes at most a few seconds more.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        transactional_id: str,
        batch_bytes: int,
        config: KafkaConfig,
        stop: Callable[[], bool],
    ) -> None:
        self._client: Any = _made(
            KafkaProducer,
            {
                "delivery_timeout_ms": int(config.request_seconds * 1500),
                "max_block_ms": int(config.request_seconds * 1000),
                "linger_ms": limits.LINGER_MS,
                "max_request_size": limits.REQUEST_BYTES,
                **options,
            },
            transactional_id=transactional_id,
            transaction_timeout_ms=int(limits.TRANSACTION_SECONDS * 1000),
            # kafka-python splits a batch that is too large, but loses its records if in a transaction.
            batch_size=batch_bytes,
        )
        self._seconds = config.request_seconds
        self._stop = stop
        self._batches: list[Any] = []

    def init(self) -> None:
        """See `Producer`."""
        self._bounded(self._client._transaction_manager.initialize_transactions)

    def begin(self) -> None:
        """See `Producer`."""
        self._batches = []
        self._client.begin_transaction()

    def send(self, rows: Sequence[Row]) -> None:
        """Put rows into batches, and those into kafka-python's queue.

        Its own ``send`` does that for one record at a time, with a future for each: five times the work.
        """
        counts = {topic: len(self._client.partitions_for(topic)) for topic in {row[0] for row in rows}}
        places: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
        for row in rows:
            places[row[0], _place(row[1], counts[row[0]])].append(row)
        for place, each in places.items():
            self._enqueue(TopicPartition(*place), each)

    def _enqueue(self, partition: TopicPartition, rows: Sequence[Row]) -> None:
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

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See `Producer`."""
        manager = self._client._transaction_manager
        self._bounded(lambda: manager.send_offsets_to_transaction(dict(offsets), group))

    def flush(self) -> None:
        """Wait for every batch, and look at each.

        ``commit_transaction`` returns normally even if a record expired, or if the broker timed the
        transaction out while a batch was in flight.
        """

        def flushed(seconds: float) -> bool:
            try:
                self._client.flush(seconds)
            except KafkaTimeoutError:
                return False
            return True

        wait_until(flushed, self._seconds * 2, self._stop)
        for batch in self._batches:
            if not batch.is_done:  # split because it is too large, which loses its records in a transaction
                raise RecordListTooLargeError(f"a batch of {batch.topic_partition.topic}")
        if failures := self.failures():
            raise worst(failures, failures[0])

    def failures(self) -> list[Exception]:
        """See `Producer`."""
        return [
            reason(number)
            for batch in self._batches
            if batch.is_done and (reason := batch.produce_future.value[2]) is not None
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
            self._client._sender.join(limits.CLOSE_SECONDS)
        with suppress(Exception):
            self._client.close(timeout=0)

    def _bounded(self, request: Callable[[], Any]) -> None:
        """Do what the client's own method does, with a time limit: a lost request is never answered."""
        result = request()
        self._client._sender.wakeup()
        wait_until(
            lambda seconds: bool(result.wait(timeout_ms=int(seconds * 1000))), self._seconds, self._stop
        )


def _place(key: bytes | None, count: int) -> int:
    """Return which of so many partitions a key belongs to, as every client of Kafka does."""
    if count == 1:
        return 0
    return random.randrange(count) if key is None else (murmur2(key) & 0x7FFFFFFF) % count  # noqa: S311
