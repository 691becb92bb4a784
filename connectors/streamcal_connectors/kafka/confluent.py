"""confluent-kafka (librdkafka) as a client: it reads and writes records at a fraction of the processor time.

Four things of librdkafka 2 shape this module:

* A position tells only of the records that were handed out, not of the markers and aborted records behind
  them. Its "end of partition" does, so positions are kept here.
* Seeking, pausing and resuming lose or repeat records in some orders (issues 2593, 3471, 4637 of
  confluentinc/librdkafka). So a partition that is paused leaves the assignment, and comes back at an offset.
* A batch that cannot be read is reported once, then skipped: to an offset that is made of its bytes. Here it
  is read again, until it can be.
* ``send_offsets_to_transaction`` keeps no time limit (issues 5456, 5511), and waits for ever for the
  coordinator of a group if that was not there when it began. So the coordinator is asked first, and the call
  has a thread of its own.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, wait
from contextlib import suppress
from itertools import groupby
from threading import Thread
from typing import Any, Final

import confluent_kafka as library
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException
from kafka import errors as kafka_errors

from streamcal_connectors.kafka import limits
from streamcal_connectors.kafka.client import Chunk, OffsetAndMetadata, Row, TopicPartition, wait_until, worst
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.errors import KafkaError, error_names, is_out_of_range
from streamcal_connectors.kafka.kafka_python import Consumer

_PAUSE_SECONDS: Final = 0.05  # between two questions for a coordinator
_MOST_AT_ONCE: Final = 100_000  # records of a poll

_LOCAL: Final = {
    LibraryError._ALL_BROKERS_DOWN: "KafkaConnectionError",
    LibraryError._AUTHENTICATION: "SaslAuthenticationFailedError",
    LibraryError._AUTO_OFFSET_RESET: "OffsetOutOfRangeError",
    LibraryError._BAD_COMPRESSION: "CorruptRecordError",
    LibraryError._BAD_MSG: "CorruptRecordError",
    LibraryError._FENCED: "ProducerFencedError",
    LibraryError._MSG_TIMED_OUT: "KafkaTimeoutError",
    LibraryError._RESOLVE: "KafkaConnectionError",
    LibraryError._TIMED_OUT: "KafkaTimeoutError",
    LibraryError._TRANSPORT: "KafkaConnectionError",
    LibraryError._UNKNOWN_TOPIC: "UnknownTopicOrPartitionError",
}  # kafka-python's names of errors that librdkafka raises itself

Message: Any = library.Message  # it says that parts of a record may be missing

# Errors of a reader while the cluster is away, or the topic, which the silence tells.
_PASSING: Final = {"KafkaConnectionError", "KafkaTimeoutError", "UnknownTopicOrPartitionError"}

_NO_COORDINATOR: Final = frozenset(
    {
        LibraryError.COORDINATOR_LOAD_IN_PROGRESS,
        LibraryError.COORDINATOR_NOT_AVAILABLE,
        LibraryError.NOT_COORDINATOR,
        LibraryError._WAIT_COORD,
    }
)  # the first group of a cluster, or one whose broker has just started

_STILL_ENDING: Final = frozenset({LibraryError.CONCURRENT_TRANSACTIONS})

# librdkafka logs every attempt to reconnect. Why a cluster is away is asked of kafka-python.
_log: Final = logging.getLogger("confluent_kafka")
_log.addHandler(logging.NullHandler())
_log.propagate = False


def connection_options(hosts: Sequence[str], config: KafkaConfig) -> dict[str, Any]:
    """Return librdkafka's options of a connection, with the secrets.

    Raises
    ------
    ValueError
        if a secret cannot be read.
    """
    options = config.librdkafka_options()
    if certificate := options.get("ssl.certificate.location"):
        options.setdefault("ssl.key.location", certificate)
    return {
        "client.id": "streamcal",
        "socket.timeout.ms": int(config.request_seconds * 1000),
        "topic.metadata.refresh.interval.ms": int(config.refresh_seconds * 1000),
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 5,
        "ssl.ca.location": _system_authorities(),
        **options,
        "bootstrap.servers": ",".join(hosts),
        "allow.auto.create.topics": False,
    }


class ConfluentConsumer(Consumer):
    """Reads records through librdkafka; asks all else through kafka-python.

    Parameters
    ----------
    library_options
        librdkafka's options of a connection.
    options, group, level, seconds
        as of `Consumer`.
    """

    def __init__(
        self,
        library_options: Mapping[str, Any],
        options: Mapping[str, Any],
        group: str | None,
        level: str,
        seconds: float,
    ) -> None:
        super().__init__(options, group, level, seconds)
        self._options = {
            "fetch.wait.max.ms": limits.FETCH_WAIT_MS,
            "fetch.max.bytes": limits.FETCH_BYTES,
            "queued.max.messages.kbytes": limits.FETCH_BYTES >> 10,
            # It hands out records in the order of the answers: a partition waits for those before it.
            "max.partition.fetch.bytes": limits.PARTITION_FETCH_BYTES >> 2,
            "check.crcs": True,
            "fetch.error.backoff.ms": 50,
            **library_options,
            "isolation.level": level,
            "group.id": "streamcal.readers",  # librdkafka wants one; nobody joins it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
        self._reader: Any = None
        self._next: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._errors: list[Exception] = []  # the last, to raise once the records before it were returned

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `Consumer`."""
        if self._reader is None:
            self._reader = _made(library.Consumer, self._options)
        self._next, self._paused, self._errors = dict(offsets), set(), []
        self._reader.assign([_real(place, offset) for place, offset in offsets.items()])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """See `Consumer`."""
        self._next[partition] = offset
        if partition not in self._paused:
            self.pause(partition)
            self.resume(partition)

    def pause(self, partition: TopicPartition) -> None:
        """See `Consumer`."""
        self._paused.add(partition)
        self._reader.incremental_unassign([_real(partition)])

    def resume(self, partition: TopicPartition) -> None:
        """See `Consumer`."""
        self._paused.remove(partition)
        self._reader.incremental_assign([_real(partition, self._next[partition])])

    def poll(self, timeout: float, count: int) -> dict[TopicPartition, Chunk]:
        """See `Consumer`."""
        if self._errors:
            raise self._errors.pop()
        chunks: dict[TopicPartition, Chunk] = {}
        broken: set[TopicPartition] = set()
        messages = self._consume(timeout, min(max(count, 1), _MOST_AT_ONCE))
        if any(error is not None for error in map(Message.error, messages)):
            messages = self._records(messages, broken)
        for number, run in groupby(messages, Message.partition):
            records = list(run)
            place = TopicPartition(records[0].topic(), number)
            chunk = chunks.setdefault(place, Chunk([], [], [] if self.with_times else None))
            chunk.offsets.extend(map(Message.offset, records))
            chunk.values.extend(map(Message.value, records))
            if chunk.times is not None:
                chunk.times.extend(time for _, time in map(Message.timestamp, records))
        for partition, chunk in chunks.items():
            self._next[partition] = max(self._next[partition], chunk.offsets[-1] + 1)
        for partition in broken:  # librdkafka would go on behind what it could not read
            self.seek(partition, self._next[partition])
        if self._errors and not chunks:
            return self.poll(0.0, count)  # which raises it
        return chunks

    def position(self, partition: TopicPartition) -> int:
        """See `Consumer`."""
        return self._next[partition]

    def high_water(self, partition: TopicPartition) -> int | None:
        """See `Consumer`."""
        known = self._reader.get_watermark_offsets(_real(partition), cached=True)
        return int(known[1]) if known and known[1] >= 0 else None

    def close(self) -> None:
        """Release; never raises."""
        with suppress(Exception):
            if self._reader is not None:
                self._reader.close()
        super().close()

    def _records(self, messages: Sequence[Any], broken: set[TopicPartition]) -> list[Any]:
        """Return the messages that are records, up to an error of their partition, and add that as broken."""
        records = []
        for message in messages:
            error, place = message.error(), (message.topic(), message.partition())
            if place in broken:
                continue
            if error is None:
                records.append(message)
            elif error.code() == LibraryError._PARTITION_EOF:
                self._next[place] = max(self._next[place], message.offset())
            elif place[0] is not None:  # otherwise it is of the group, which nobody joins
                where = f"topic {place[0]}, partition {place[1]}, offset {message.offset()}"
                met = _translated(error, where)
                if not _PASSING.isdisjoint(error_names(met)):
                    continue
                broken.add(TopicPartition(*place))
                # Out of range may be where librdkafka went on behind a batch that it could not read.
                if not is_out_of_range(met) or message.offset() == self._next[place]:
                    self._errors = [met]
        return records

    def _consume(self, timeout: float, count: int) -> list[Any]:
        """Return messages, waiting for one: asked for many, librdkafka waits for all of them."""
        messages: list[Any] = _call(self._reader.consume, 1, timeout)
        if messages and count > 1:
            try:
                messages += _call(self._reader.consume, count - 1, 0)
            except KafkaError as error:
                self._errors = [error]
        return messages


class ConfluentProducer:
    """A `Producer` of librdkafka.

    Parameters
    ----------
    options
        librdkafka's options of a connection.
    transactional_id, batch_bytes, config, stop
        as of `KafkaPythonProducer`.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        transactional_id: str,
        batch_bytes: int,
        config: KafkaConfig,
        stop: Callable[[], bool],
    ) -> None:
        self._failures: list[Exception] = []
        self._options = options
        self._groups: dict[str, Any] = {}
        self._client: Any = _made(
            library.Producer,
            {
                "delivery.timeout.ms": int(config.request_seconds * 1500),
                "linger.ms": limits.LINGER_MS,
                "message.max.bytes": limits.REQUEST_BYTES,
                "partitioner": "murmur2_random",  # as kafka-python's
                **options,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": int(limits.TRANSACTION_SECONDS * 1000),
                "batch.size": batch_bytes,
                "queue.buffering.max.messages": 10_000_000,  # above any micro-batch: its rows are in memory
                "queue.buffering.max.kbytes": 2_147_483_647,
                "delivery.report.only.error": True,
                "on_delivery": self._failed,
            },
        )
        self._seconds = config.request_seconds
        self._stop = stop

    def init(self) -> None:
        """See `Producer`."""
        # The broker says so while it ends what an earlier producer left open, and librdkafka passes it on.
        self._bounded(self._client.init_transactions, _STILL_ENDING)

    def begin(self) -> None:
        """See `Producer`."""
        self._failures.clear()
        _call(self._client.begin_transaction)

    def send(self, rows: Sequence[Row]) -> None:
        """See `Producer`."""
        produce = self._client.produce

        def produce_all() -> None:
            for topic, key, value in rows:
                produce(topic, value, key)

        _call(produce_all)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See `Producer`."""
        places = [_real(partition, each.offset, each.metadata) for partition, each in offsets.items()]
        if group not in self._groups:
            self._groups[group] = self._metadata(group, places[:1])
        request, metadata = self._client.send_offsets_to_transaction, self._groups[group]
        outcome: Future[None] = Future()

        def send() -> None:
            try:
                request(places, metadata, self._seconds)
            except BaseException as error:  # raised below
                outcome.set_exception(error)
            else:
                outcome.set_result(None)

        Thread(target=send, name="streamcal-offsets", daemon=True).start()
        wait_until(lambda seconds: bool(wait([outcome], seconds).done), self._seconds, self._stop)
        _call(outcome.result)

    def flush(self) -> None:
        """See `Producer`."""
        wait_until(lambda seconds: not _call(self._client.flush, seconds), self._seconds * 2, self._stop)
        if self._failures:
            raise worst(self._failures, self._failures[0])

    def failures(self) -> list[Exception]:
        """See `Producer`."""
        return self._failures

    def commit(self) -> None:
        """See `Producer`."""
        self._bounded(self._client.commit_transaction)

    def discard(self) -> None:
        """See `Producer`."""
        with suppress(Exception):
            self._client.purge(in_queue=True, in_flight=True, blocking=False)
        self._client = None  # which destroys it; close() would abort the transaction, and wait for that

    def _bounded(self, request: Callable[[float], object], awaited: Set[int] = frozenset()) -> None:
        """Make a request that goes on where it was, if it is made again after a time-out.

        An error whose code is ``awaited`` counts as one, too.
        """

        def done(seconds: float) -> bool:
            try:
                request(seconds)
            except (KafkaException, SystemError) as error:
                met = _met(error)
                if met.code() == LibraryError._TIMED_OUT and not (met.fatal() or met.txn_requires_abort()):
                    return False
                if met.code() in awaited:
                    time.sleep(_PAUSE_SECONDS)
                    return False
                raise _translated(met) from None
            return True

        wait_until(done, self._seconds, self._stop)

    def _metadata(self, group: str, partitions: list[Any]) -> Any:
        """Return what a transaction has to know of a group without members, once its coordinator is there."""
        level = {"isolation.level": "read_uncommitted"}  # waits for no transaction
        nobody = _made(library.Consumer, {**self._options, **level, "group.id": group})
        try:
            self._bounded(lambda seconds: nobody.committed(partitions, seconds), _NO_COORDINATOR)
            return nobody.consumer_group_metadata()
        finally:
            nobody.close()

    def _failed(self, error: Any, message: Any) -> None:
        where = f"topic {message.topic()}, partition {message.partition()}"
        self._failures.append(_translated(error, where))


def _made(kind: Any, options: Mapping[str, Any]) -> Any:
    return _call(lambda: kind(dict(options), logger=_log))


def _real(partition: TopicPartition, offset: int = library.OFFSET_INVALID, metadata: str = "") -> Any:
    return library.TopicPartition(partition.topic, partition.partition, offset, metadata)


def _system_authorities() -> str:
    """Return where Python finds the authorities of the system; librdkafka looks elsewhere."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or "probe"


def _call(request: Callable[..., Any], *arguments: object) -> Any:
    try:
        return request(*arguments)
    except (KafkaException, SystemError) as error:
        raise _translated(_met(error)) from None


def _met(error: BaseException | None) -> Any:
    """Return librdkafka's error.

    After a fatal one, confluent-kafka calls back with that exception set, which Python calls a SystemError.
    """
    if isinstance(error, SystemError):
        error = error.__cause__
    if not isinstance(error, KafkaException):
        raise error or SystemError
    return error.args[0]


def _translated(error: Any, where: str = "") -> Exception:
    """Return kafka-python's error for one of librdkafka."""
    code, text = error.code(), f"{where}: {error.str()}" if where else error.str()
    if code > 0:
        kind: Any = kafka_errors.for_code(code)
    elif code in _LOCAL:
        kind = getattr(kafka_errors, _LOCAL[code])
    else:
        kind, text = KafkaError, f"{error.name()}: {text}"
    made: Exception = kind(text)
    return made
