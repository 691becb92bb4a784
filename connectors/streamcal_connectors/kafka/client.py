"""The steps that both client libraries share, and the interface of what each does in its own way.

Each library reads and writes records: `kafka_python` and `confluent` implement `Reader` and `Producer`.
Whichever library reads the records, a `Consumer` asks about topics, offsets and groups through kafka-python,
because a run does so seldom: so positions, errors and refusals are the same, and a store goes on with the
other library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata

from streamcal_connectors.kafka.errors import is_permanent

__all__ = [
    "Chunk",
    "Consumer",
    "OffsetAndMetadata",
    "Producer",
    "Reader",
    "Row",
    "TopicPartition",
    "wait_until",
    "worst",
]

CLOSE_SECONDS: Final = 5.0
"""Longest time that a client may take to close."""
FETCH_WAIT_MS: Final = 250
"""Longest time that a broker waits for records to send."""
FETCH_BYTES: Final = 32 << 20
"""Records that are held of one broker, in bytes, unless a single batch of records is larger."""
PARTITION_FETCH_BYTES: Final = 4 << 20
"""Records of one partition among them, in bytes."""
LINGER_MS: Final = 1000
"""Longest time that a batch waits to be full; the flush before a commit sends those that are not."""
REQUEST_BYTES: Final = 64 << 20
"""Largest request: above any topic's limit, because the broker knows that better than the client."""
TRANSACTION_SECONDS: Final = 60.0
"""Longest time that a transaction may be open before the broker aborts it."""

_STOP_SECONDS: Final = 5.0  # for a pending request once the run is to stop
_SLICE_SECONDS: Final = 0.25  # between two checks whether the run is to stop

Row: TypeAlias = tuple[str, bytes | None, bytes]
"""Topic, key and value of a record to write."""


class Chunk(NamedTuple):
    """Records of one partition, in its order; at least one."""

    offsets: list[int]
    values: list[bytes | None]


class Reader(Protocol):
    """Reads the records of assigned partitions; its methods raise KafkaError."""

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read from these partitions, starting at these offsets; `pause` again what is to rest."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset."""

    def pause(self, partition: TopicPartition) -> None:
        """Stop reading a partition until `resume`."""

    def resume(self, partition: TopicPartition) -> None:
        """Undo `pause`."""

    def poll(self, timeout: float, count: int) -> dict[TopicPartition, Chunk]:
        """Return at most ``count`` records, waiting for some; empty while the cluster is away."""

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset to read: after the records, aborted records and markers that were passed."""

    def high_water(self, partition: TopicPartition) -> int | None:
        """Return the end of a partition, including open transactions, as of the last response."""

    def close(self) -> None:
        """Release."""


class Producer(Protocol):
    """A transactional producer with a time limit on every call; its methods raise KafkaError.

    After any error the outcome of the transaction is in doubt: `discard` the producer and make another.
    """

    def init(self) -> None:
        """Fence earlier producers of this transactional id, and end their open transaction."""

    def begin(self) -> None:
        """Begin a transaction; this sends nothing yet."""

    def send(self, rows: Sequence[Row], keyed: Set[str]) -> None:
        """Begin to send rows: by their key to a partition of a ``keyed`` topic, of others to partition 0."""

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Add offsets of a group to the transaction."""

    def flush(self) -> None:
        """Wait until every record was accepted; raise if one was not."""

    def failures(self) -> list[Exception]:
        """Return why records were refused so far."""

    def commit(self) -> None:
        """Commit the transaction; if this raises, the outcome is in doubt."""

    def discard(self) -> None:
        """Release the producer in any state; never raises. The next `init` ends an open transaction."""


class Consumer:
    """Asks about topics, offsets and a group through kafka-python, and has a `reader` of records.

    Parameters
    ----------
    client
        kafka-python's consumer.
    reader
        what reads the records.
    seconds
        how long a request may take.
    """

    def __init__(self, client: Any, reader: Reader, seconds: float) -> None:
        self.reader = reader
        self._client = client
        self._milliseconds = int(seconds * 1000)

    def partitions(self, topic: str, *, refresh: bool = False) -> set[TopicPartition]:
        """Return the partitions of a topic as of the last refresh; empty if there is no such topic."""
        if refresh:
            self._client.topics()
        return {TopicPartition(topic, number) for number in self._client.partitions_for_topic(topic)}

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic as of the last refresh; None if the broker tells none, or has no topic."""
        found = self._client._cluster.topic_id(topic)
        return str(found) if found is not None and found.int else None

    def cluster_id(self) -> str | None:
        """Return the id of the cluster as of the last refresh."""
        return cast("str | None", self._client._cluster.cluster_id)

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

        Waits for pending transactions that write one, unless the consumer was not made ``stable``.
        """
        found = self._client.committed(partition, metadata=True, timeout_ms=self._milliseconds)
        # confluent-kafka 2 writes the zero byte behind the text, too.
        return found and found._replace(metadata=found.metadata.rstrip("\0"))

    def close(self) -> None:
        """Release; never raises."""
        with suppress(Exception):
            self.reader.close()
        with suppress(Exception):
            self._client.close(autocommit=False, timeout_ms=int(CLOSE_SECONDS * 1000))


def worst(failures: Iterable[Exception], error: Exception) -> Exception:
    """Return the first of the failures for which waiting does not help; the error if there is none."""
    return next(filter(is_permanent, failures), error)


def wait_until(done: Callable[[float], bool], seconds: float, stop: Callable[[], bool]) -> None:
    """Wait in slices until ``done``, which waits for a number of seconds, returns True.

    Once ``stop`` says that the run is to stop, it takes at most a few seconds more.

    Raises
    ------
    KafkaError
        if it takes longer than ``seconds``.
    """
    begun = time.monotonic()
    until = begun + seconds
    stopping = False
    while not done(_SLICE_SECONDS):
        now = time.monotonic()
        if now > until:
            raise KafkaTimeoutError(f"no answer within {now - begun:.3g} s")
        if not stopping and stop():
            stopping, until = True, min(until, now + _STOP_SECONDS)
