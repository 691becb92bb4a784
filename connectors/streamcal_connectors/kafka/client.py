"""The part of kafka-python that streamcal uses, with types and time limits."""

from __future__ import annotations

import re
import ssl
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple, Protocol, cast

try:
    with warnings.catch_warnings():
        # It reads its schemas with importlib.resources.read_text, which Python 3.11 and 3.12 deprecate.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import (  # type: ignore[import-untyped]
            KafkaAdminClient,
            KafkaConsumer,
            KafkaProducer,
            TopicPartition,
        )
        from kafka import errors as kafka_errors
        from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
        from kafka.net.sasl import get_sasl_mechanism  # type: ignore[import-untyped]
        from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]
except ImportError:
    INSTALLED = False
    KafkaError: type[Exception] = OSError  # never raised: `require` comes first
else:
    INSTALLED = True
    KafkaError = kafka_errors.KafkaError

__all__ = [
    "INSTALLED",
    "Committed",
    "Consumer",
    "Future",
    "KafkaError",
    "Partition",
    "Producer",
    "Record",
    "SaslClient",
    "WrongProtocolError",
    "authentication_error",
    "brief",
    "error_names",
    "is_out_of_range",
    "is_permanent",
    "kafka_consumer",
    "kafka_producer",
    "sasl_client",
    "topic_configs",
]

_CLOSE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 5.0  # for a pending request once the run is to stop
_SLICE_SECONDS: Final = 0.25  # between two checks whether the run is to stop

_PERMANENT: Final = frozenset(
    {
        "AuthorizationError",
        "InvalidRecordError",
        "InvalidTimestampError",
        "InvalidTopicError",
        "InvalidTransactionTimeoutError",
        "MessageSizeTooLargeError",
        "OffsetMetadataTooLargeError",
        "PolicyViolationError",
        "RecordListTooLargeError",
        "SaslAuthenticationFailedError",
        "SecurityDisabledError",
        "UnsupportedCodecError",
        "UnsupportedForMessageFormatError",
        "UnsupportedSaslMechanismError",
        "UnsupportedVersionError",
        "WrongProtocolError",
    }
)  # waiting does not help
_OUT_OF_RANGE: Final = frozenset({"LogTruncationError", "NoOffsetForPartitionError", "OffsetOutOfRangeError"})
_NAMED: Final = re.compile(r"\w+Error\b")

_PASSING_TLS: Final = (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError)


class Partition(NamedTuple):
    """A partition of a topic; equal to kafka-python's TopicPartition, a named tuple of the same fields."""

    topic: str
    partition: int


class Record(Protocol):
    """A record that was read."""

    offset: int
    key: bytes | None
    value: bytes | None


class Committed(NamedTuple):
    """An offset that a group has committed, with its metadata, a text."""

    offset: int
    metadata: str


class Future(Protocol):
    """The outcome of a record that was sent."""

    exception: BaseException | None

    def succeeded(self) -> bool:
        """Whether the broker has accepted the record."""


class WrongProtocolError(OSError):
    """The broker's listener speaks another security protocol than this client."""


class SaslClient(Protocol):
    """One side of a SASL exchange."""

    def auth_bytes(self) -> bytes:
        """Return what to send next."""

    def receive(self, auth_bytes: bytes) -> object:
        """Take an answer; ValueError if it is not the right one."""

    def is_done(self) -> bool:
        """Whether nothing is left to send."""


class Consumer:
    """A consumer with assigned partitions; its methods raise KafkaError."""

    def __init__(self, client: Any, seconds: float) -> None:
        self._client = client
        self._milliseconds = int(seconds * 1000)

    def partitions(self, topic: str, *, refresh: bool = False) -> set[int]:
        """Return the partitions of a topic as of the last refresh; empty if there is no such topic."""
        if refresh:
            self._client.topics()
        return set(self._client.partitions_for_topic(topic))

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic as of the last refresh; None if the broker tells none, or has no topic."""
        found = self._client._cluster.topic_id(topic)
        return str(found) if found is not None and found.int else None

    def cluster_id(self) -> str | None:
        """Return the id of the cluster as of the last refresh."""
        return cast("str | None", self._client._cluster.cluster_id)

    def assign(self, partitions: Mapping[Partition, int]) -> None:
        """Read from these partitions, starting at these offsets."""
        self._client.assign([_real(partition) for partition in partitions])
        for partition, offset in partitions.items():
            self.seek(partition, offset)

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue at an offset."""
        self._client.seek(_real(partition), offset)

    def pause(self, partition: Partition) -> None:
        """Stop reading a partition until `resume`."""
        self._client.pause(_real(partition))

    def resume(self, partition: Partition) -> None:
        """Undo `pause`."""
        self._client.resume(_real(partition))

    def poll(self, timeout: float, count: int) -> dict[Partition, list[Record]]:
        """Return records, waiting for some; empty while the cluster is away."""
        found = self._client.poll(timeout_ms=max(int(timeout * 1000), 0), max_records=max(count, 1))
        return cast("dict[Partition, list[Record]]", found)

    def position(self, partition: Partition) -> int:
        """Return the next offset to read: after the records, aborted records and markers that were passed."""
        return int(self._client.position(_real(partition), timeout_ms=1) or 0)

    def high_water(self, partition: Partition) -> int | None:
        """Return the end of a partition, including open transactions, as of the last response."""
        return cast("int | None", self._client.highwater(_real(partition)))

    def ends(self, partitions: Sequence[Partition], seconds: float | None = None) -> dict[Partition, int]:
        """Ask the cluster for the offsets after the last readable records."""
        limit = self._milliseconds if seconds is None else int(seconds * 1000)
        found = self._client.end_offsets([_real(partition) for partition in partitions], timeout_ms=limit)
        return cast("dict[Partition, int]", found)

    def beginnings(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Ask the cluster for the offsets of the first records that are kept."""
        found = self._client.beginning_offsets(
            [_real(partition) for partition in partitions], timeout_ms=self._milliseconds
        )
        return cast("dict[Partition, int]", found)

    def committed(self, partition: Partition) -> Committed | None:
        """Return the committed offset of the group.

        Waits for pending transactions that write one, unless the consumer was not made ``stable``.
        """
        found = self._client.committed(_real(partition), metadata=True, timeout_ms=self._milliseconds)
        return None if found is None else Committed(found.offset, found.metadata)

    def close(self) -> None:
        """Release; never raises."""
        with suppress(Exception):
            self._client.close(autocommit=False, timeout_ms=int(_CLOSE_SECONDS * 1000))


class Producer:
    """A transactional producer with a time limit on every call; its methods raise KafkaError.

    After any error the outcome of the transaction is in doubt: `discard` the producer and make another.

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
        # Bound once: sending is the hot path.
        self.send: Callable[..., Future] = client.send

    def init(self) -> None:
        """Fence earlier producers of this transactional id, and end their open transaction."""
        self._bounded(self._client._transaction_manager.initialize_transactions)

    def begin(self) -> None:
        """Begin a transaction; this sends nothing yet."""
        self._client.begin_transaction()

    def send_offsets(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        """Add offsets of a group to the transaction."""
        real = {
            _real(partition): OffsetAndMetadata(each.offset, each.metadata, -1)
            for partition, each in offsets.items()
        }
        self._bounded(lambda: self._client._transaction_manager.send_offsets_to_transaction(real, group))

    def flush(self) -> None:
        """Wait until every record was accepted or refused."""

        def flushed(seconds: float) -> bool:
            try:
                self._client.flush(seconds)
            except kafka_errors.KafkaTimeoutError:
                return False
            return True

        self._wait(flushed, self._seconds * 2)

    def commit(self) -> None:
        """Commit the transaction; if this raises, the outcome is in doubt."""
        self._bounded(self._client._transaction_manager.begin_commit)

    def discard(self) -> None:
        """Release the producer in any state; never raises. The next `init` ends an open transaction."""
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
        self._wait(lambda seconds: bool(result.wait(timeout_ms=int(seconds * 1000))), self._seconds)

    def _wait(self, done: Callable[[float], bool], seconds: float) -> None:
        """Wait in slices until ``done``, which waits for a number of seconds, returns True."""
        begun = time.monotonic()
        until = begun + seconds
        stopping = False
        while not done(_SLICE_SECONDS):
            now = time.monotonic()
            if now > until:
                raise kafka_errors.KafkaTimeoutError(f"no answer within {now - begun:.3g} s")
            if not stopping and self._stop():
                stopping, until = True, min(until, now + _STOP_SECONDS)


def kafka_consumer(**options: object) -> Any:
    """Make a consumer of kafka-python."""
    return KafkaConsumer(**options)


def kafka_producer(**options: object) -> Any:
    """Make a producer of kafka-python."""
    return KafkaProducer(**options)


def sasl_client(mechanism: str, options: Mapping[str, Any]) -> SaslClient:
    """Make kafka-python's side of a SASL exchange."""
    return cast("SaslClient", get_sasl_mechanism(mechanism)(**options))


def authentication_error(text: str) -> Exception:
    """Return the error of a broker that refuses SASL credentials; it is a KafkaError."""
    return cast("Exception", kafka_errors.SaslAuthenticationFailedError(text))


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


def error_names(error: BaseException | None) -> set[str]:
    """Return the names of an error's classes, and of the error whose text the client has wrapped, if any."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return names | set(_NAMED.findall(str(error))) if type(error) is KafkaError else names


def is_permanent(error: BaseException | None) -> bool:
    """Whether the error is one that waiting and trying again cannot help."""
    if isinstance(error, ssl.SSLError):
        # The two sides spoke and did not agree: a certificate, a protocol version. An end in mid-handshake
        # and an internal error may pass.
        return not isinstance(error, _PASSING_TLS) and "INTERNAL_ERROR" not in str(error)
    return not _PERMANENT.isdisjoint(error_names(error))


def is_out_of_range(error: BaseException) -> bool:
    """Whether the error says that an offset to read does not exist."""
    return not _OUT_OF_RANGE.isdisjoint(error_names(error))


def brief(error: BaseException) -> str:
    """Format an error on one line."""
    name, text = type(error).__name__, " ".join(str(error).split())
    if not text:
        return name
    return text if name in text else f"{name}: {text}"


def _real(partition: Partition) -> Any:
    return TopicPartition(partition.topic, partition.partition)
