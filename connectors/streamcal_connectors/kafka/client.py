"""The steps that both client libraries share, and the interface of what each does in its own way.

Each library writes records: `kafka_python` and `confluent` implement `Producer`. Whichever library reads the
records, a consumer asks about topics, offsets and groups through kafka-python, because a run does so seldom:
so positions, errors and refusals are the same, and a store goes on with the other library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata

from streamcal_connectors.kafka.errors import is_permanent

__all__ = ["Chunk", "OffsetAndMetadata", "Producer", "Row", "TopicPartition", "wait_until", "worst"]

_STOP_SECONDS: Final = 5.0  # for a pending request once the run is to stop
_SLICE_SECONDS: Final = 0.25  # between two checks whether the run is to stop

Row: TypeAlias = tuple[str, bytes | None, bytes]
"""Topic, key and value of a record to write."""


class Chunk(NamedTuple):
    """Records of one partition, in its order; at least one."""

    offsets: list[int]
    values: list[bytes | None]
    times: list[int] | None = None
    """Timestamps in milliseconds since the epoch, negative where there is none; None: not asked for."""


class Producer(Protocol):
    """A transactional producer with a time limit on every call; its methods raise KafkaError.

    After any error the outcome of the transaction is in doubt: `discard` the producer and make another.
    """

    def init(self) -> None:
        """Fence earlier producers of this transactional id, and end their open transaction."""

    def begin(self) -> None:
        """Begin a transaction; this sends nothing yet."""

    def send(self, rows: Sequence[Row]) -> None:
        """Begin to send rows, each to the partition that its key names; to any if it has none."""

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
