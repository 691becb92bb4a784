"""What streamcal asks of a Kafka client: a consumer and a transactional producer, whichever library they are.

`kafka_python` and `confluent` implement both. What a run asks seldom (topics, offsets, groups, a login) goes
through kafka-python with either client: so positions, errors and refusals are the same, and a store goes on
with the other client. What it does for every record is the client's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, NamedTuple, Protocol, TypeAlias

from streamcal_connectors.kafka.errors import timeout_error

__all__ = ["Chunk", "Committed", "Consumer", "Partition", "Producer", "Row", "wait_until"]

_STOP_SECONDS: Final = 5.0  # for a pending request once the run is to stop
_SLICE_SECONDS: Final = 0.25  # between two checks whether the run is to stop

Row: TypeAlias = tuple[str, bytes | None, bytes]
"""Topic, key and value."""


class Partition(NamedTuple):
    """A partition of a topic; equal to kafka-python's TopicPartition, a named tuple of the same fields."""

    topic: str
    partition: int


class Chunk(NamedTuple):
    """Records of one partition, in its order; at least one."""

    offsets: list[int]
    values: list[bytes | None]


class Committed(NamedTuple):
    """An offset that a group has committed, with its metadata, a text."""

    offset: int
    metadata: str


class Consumer(Protocol):
    """A consumer with assigned partitions; its methods raise KafkaError."""

    def partitions(self, topic: str, *, refresh: bool = False) -> set[int]:
        """Return the partitions of a topic as of the last refresh; empty if there is no such topic."""

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic as of the last refresh; None if the broker tells none, or has no topic."""

    def cluster_id(self) -> str | None:
        """Return the id of the cluster as of the last refresh."""

    def assign(self, partitions: Mapping[Partition, int]) -> None:
        """Read from these partitions, starting at these offsets; `pause` again what is to rest."""

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at an offset."""

    def pause(self, partition: Partition) -> None:
        """Stop reading a partition until `resume`."""

    def resume(self, partition: Partition) -> None:
        """Undo `pause`."""

    def poll(self, timeout: float, count: int) -> dict[Partition, Chunk]:
        """Return at most ``count`` records, waiting for some; empty while the cluster is away."""

    def position(self, partition: Partition) -> int:
        """Return the next offset to read: after the records, aborted records and markers that were passed."""

    def high_water(self, partition: Partition) -> int | None:
        """Return the end of a partition, including open transactions, as of the last response."""

    def ends(self, partitions: Sequence[Partition], seconds: float | None = None) -> dict[Partition, int]:
        """Ask the cluster for the offsets after the last readable records."""

    def beginnings(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Ask the cluster for the offsets of the first records that are kept."""

    def committed(self, partition: Partition) -> Committed | None:
        """Return the committed offset of the group.

        Waits for pending transactions that write one, unless the consumer was not made ``stable``.
        """

    def close(self) -> None:
        """Release; never raises."""


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

    def send_offsets(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        """Add offsets of a group to the transaction."""

    def flush(self) -> None:
        """Wait until every record was accepted; raise if one was not."""

    def cause(self, error: Exception) -> Exception:
        """Return why a record was refused for good, if one was: every other call then fails for it."""

    def commit(self) -> None:
        """Commit the transaction; if this raises, the outcome is in doubt."""

    def discard(self) -> None:
        """Release the producer in any state; never raises. The next `init` ends an open transaction."""


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
            raise timeout_error(now - begun)
        if not stopping and stop():
            stopping, until = True, min(until, now + _STOP_SECONDS)
