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
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Final

import confluent_kafka as library
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import KafkaException, TopicPartition

from streamcal_connectors.kafka.client import Chunk, Committed, Partition, Row, wait_until
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.errors import KafkaError, error_of, is_out_of_range, is_permanent
from streamcal_connectors.kafka.kafka_python import KafkaPythonConsumer

__all__ = ["Confluent", "ConfluentConsumer", "ConfluentProducer", "connection_options"]

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
_PASSING: Final = frozenset(
    {
        LibraryError._ALL_BROKERS_DOWN,
        LibraryError._RESOLVE,
        LibraryError._TIMED_OUT,
        LibraryError._TRANSPORT,
        LibraryError._UNKNOWN_TOPIC,
        LibraryError.UNKNOWN_TOPIC_OR_PART,
    }
)  # of a consumer: the cluster is away, or the topic is, which the silence tells

_NO_COORDINATOR: Final = frozenset(
    {
        LibraryError.COORDINATOR_LOAD_IN_PROGRESS,
        LibraryError.COORDINATOR_NOT_AVAILABLE,
        LibraryError.NOT_COORDINATOR,
        LibraryError._WAIT_COORD,
    }
)  # the first group of a cluster, or one whose broker has just started

_STILL_ENDING: Final = frozenset({LibraryError.CONCURRENT_TRANSACTIONS})

# librdkafka logs every attempt to reconnect. Why a cluster is away is asked by a connection of our own.
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
    milliseconds = int(config.request_seconds * 1000)
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(hosts),
        "client.id": "streamcal",
        "security.protocol": config.security_protocol,
        "socket.timeout.ms": milliseconds,
        "topic.metadata.refresh.interval.ms": int(config.refresh_seconds * 1000),
        "allow.auto.create.topics": False,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 5,
    }
    if config.security_protocol.endswith("SSL"):
        options["ssl.ca.location"] = str(config.ssl_cafile or _system_authorities())
        options["ssl.endpoint.identification.algorithm"] = "https" if config.ssl_check_hostname else "none"
        if config.ssl_certfile is not None:
            options["ssl.certificate.location"] = str(config.ssl_certfile)
            options["ssl.key.location"] = str(config.ssl_keyfile or config.ssl_certfile)
        if (secret := config.ssl_key_password()) is not None:
            options["ssl.key.password"] = secret.get_secret_value()
    if config.sasl_mechanism is not None:
        password = config.sasl_password()
        options |= {
            "sasl.mechanism": config.sasl_mechanism,
            "sasl.username": config.sasl_username,
            "sasl.password": None if password is None else password.get_secret_value(),
        }
    return options


class Confluent:
    """Makes clients for one cluster; see `connection_options`."""

    def __init__(self, hosts: Sequence[str], config: KafkaConfig) -> None:
        self._common = connection_options(hosts, config)

    def consumer(self, client: Any, seconds: float, options: Mapping[str, Any]) -> ConfluentConsumer:
        """Make a consumer with options of its own."""
        return ConfluentConsumer(client, seconds, {**self._common, **options})

    def producer(
        self, options: Mapping[str, Any], seconds: float, stop: Callable[[], bool]
    ) -> ConfluentProducer:
        """Make a producer with options of its own."""
        return ConfluentProducer(self._common, options, seconds, stop)


class ConfluentConsumer(KafkaPythonConsumer):
    """A `Consumer` that reads through librdkafka, and asks about topics and offsets through kafka-python.

    Parameters
    ----------
    client
        kafka-python's consumer.
    seconds
        how long a request may take.
    options
        librdkafka's options of the consumer.
    """

    def __init__(self, client: Any, seconds: float, options: Mapping[str, Any]) -> None:
        super().__init__(client, seconds)
        self._options = {
            **options,
            "group.id": "streamcal.readers",  # librdkafka wants one; nobody joins it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.error.backoff.ms": 50,
        }
        self._reader: Any = None
        self._next: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._error: Exception | None = None  # to raise once the records before it were returned

    def assign(self, partitions: Mapping[Partition, int]) -> None:
        """See `Consumer`."""
        if self._reader is None:
            self._reader = _made(library.Consumer, self._options)
        self._next, self._paused, self._error = dict(partitions), set(), None
        self._reader.assign([_real(partition, offset) for partition, offset in partitions.items()])

    def seek(self, partition: Partition, offset: int) -> None:
        """See `Consumer`."""
        self._next[partition] = offset
        if partition not in self._paused:
            self.pause(partition)
            self.resume(partition)

    def pause(self, partition: Partition) -> None:
        """See `Consumer`."""
        self._paused.add(partition)
        self._reader.incremental_unassign([_real(partition)])

    def resume(self, partition: Partition) -> None:
        """See `Consumer`."""
        self._paused.remove(partition)
        self._reader.incremental_assign([_real(partition, self._next[partition])])

    def poll(self, timeout: float, count: int) -> dict[Partition, Chunk]:
        """See `Consumer`."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        chunks: dict[tuple[str, int], Chunk] = {}
        broken: set[tuple[str, int]] = set()
        for message in self._consume(timeout, min(max(count, 1), _MOST_AT_ONCE)):
            error, place = message.error(), (message.topic(), message.partition())
            if place in broken:
                continue
            if error is None:
                chunk = chunks.get(place)
                if chunk is None:
                    chunk = chunks[place] = Chunk([], [])
                chunk.offsets.append(message.offset())
                chunk.values.append(message.value())
            elif error.code() == LibraryError._PARTITION_EOF:
                self._pass(place, message.offset())
            elif place[0] is not None and error.code() not in _PASSING:
                # Of no topic, it is of the group, which nobody joins, or the cluster is away.
                where = f"topic {place[0]}, partition {place[1]}, offset {message.offset()}"
                met = _translated(error, where)
                broken.add(place)
                # Out of range may be where librdkafka went on behind a batch that it could not read.
                if not is_out_of_range(met) or message.offset() == self._next[Partition(*place)]:
                    self._error = met
        for place, chunk in chunks.items():
            self._pass(place, chunk.offsets[-1] + 1)
        for place in broken:  # librdkafka would go on behind what it could not read
            partition = Partition(*place)
            self.seek(partition, self._next[partition])
        if self._error is not None and not chunks:
            return self.poll(0.0, count)  # which raises it
        return {Partition(*place): chunk for place, chunk in chunks.items()}

    def position(self, partition: Partition) -> int:
        """See `Consumer`."""
        return self._next[partition]

    def high_water(self, partition: Partition) -> int | None:
        """See `Consumer`."""
        known = self._reader.get_watermark_offsets(_real(partition), cached=True)
        return int(known[1]) if known and known[1] >= 0 else None

    def close(self) -> None:
        """See `Consumer`."""
        if self._reader is not None:
            with suppress(Exception):
                self._reader.close()
            self._reader = None
        super().close()

    def _consume(self, timeout: float, count: int) -> list[Any]:
        """Return messages, waiting for one: asked for many, librdkafka waits for all of them."""
        messages: list[Any] = _call(lambda: self._reader.consume(1, timeout))
        if messages and count > 1:
            try:
                messages += _call(lambda: self._reader.consume(count - 1, 0))
            except KafkaError as error:
                self._error = error
        return messages

    def _pass(self, place: tuple[str, int], offset: int) -> None:
        partition = Partition(*place)
        self._next[partition] = max(self._next[partition], offset)


class ConfluentProducer:
    """A `Producer` of librdkafka.

    Parameters
    ----------
    common
        librdkafka's options of a connection.
    options
        and those of the producer.
    seconds
        how long a request may take.
    stop
        whether the run is to stop; if so, a request takes at most a few seconds more.
    """

    def __init__(
        self,
        common: Mapping[str, Any],
        options: Mapping[str, Any],
        seconds: float,
        stop: Callable[[], bool],
    ) -> None:
        self._failures: list[Exception] = []
        self._common = common
        self._groups: dict[str, Any] = {}
        self._client: Any = _made(
            library.Producer,
            {
                **common,
                **options,
                "partitioner": "murmur2_random",  # as kafka-python's
                "queue.buffering.max.messages": 10_000_000,  # above any micro-batch: its rows are in memory
                "queue.buffering.max.kbytes": 2_147_483_647,
                "delivery.report.only.error": True,
                "on_delivery": self._failed,
            },
        )
        self._seconds = seconds
        self._stop = stop

    def init(self) -> None:
        """See `Producer`."""
        # The broker says so while it ends what an earlier producer left open, and librdkafka passes it on.
        self._bounded(self._client.init_transactions, _STILL_ENDING)

    def begin(self) -> None:
        """See `Producer`."""
        self._failures.clear()
        _call(self._client.begin_transaction)

    def send(self, rows: Sequence[Row], keyed: Set[str]) -> None:
        """See `Producer`."""
        produce, by_key = self._client.produce, -1  # by the key

        def produce_all() -> None:
            for topic, key, value in rows:
                produce(topic, value, key, by_key if topic in keyed else 0)

        _call(produce_all)

    def send_offsets(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        """See `Producer`."""
        real = [
            TopicPartition(partition.topic, partition.partition, each.offset, each.metadata)
            for partition, each in offsets.items()
        ]
        if group not in self._groups:
            self._groups[group] = self._metadata(group, real)
        client, metadata = self._client, self._groups[group]
        outcome: list[BaseException | None] = []

        def send() -> None:
            try:
                client.send_offsets_to_transaction(real, metadata, self._seconds)
            except BaseException as error:  # raised below
                outcome.append(error)
            else:
                outcome.append(None)

        worker = threading.Thread(target=send, name="streamcal-offsets", daemon=True)
        worker.start()

        def sent(seconds: float) -> bool:
            worker.join(seconds)
            return bool(outcome)

        wait_until(sent, self._seconds, self._stop)
        if outcome[0] is not None:
            raise _kafka_error(outcome[0]) from None

    def flush(self) -> None:
        """See `Producer`."""

        def flushed(seconds: float) -> bool:
            left: int = _call(lambda: self._client.flush(seconds))
            return not left

        wait_until(flushed, self._seconds * 2, self._stop)
        if self._failures:
            raise self.cause(self._failures[0])

    def cause(self, error: Exception) -> Exception:
        """See `Producer`."""
        return next(filter(is_permanent, self._failures), error)

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
                raise _kafka_error(error) from None
            return True

        wait_until(done, self._seconds, self._stop)

    def _metadata(self, group: str, partitions: Sequence[Any]) -> Any:
        """Return what a transaction has to know of a group without members, once its coordinator is there."""
        level = {"isolation.level": "read_uncommitted"}  # waits for no transaction
        nobody = _made(library.Consumer, {**self._common, **level, "group.id": group})
        try:
            self._bounded(lambda seconds: nobody.committed(partitions[:1], seconds), _NO_COORDINATOR)
            return nobody.consumer_group_metadata()
        finally:
            nobody.close()

    def _failed(self, error: Any, message: Any) -> None:
        where = f"topic {message.topic()}, partition {message.partition()}"
        self._failures.append(_translated(error, where))


def _made(kind: Any, options: Mapping[str, Any]) -> Any:
    try:
        return kind(dict(options), logger=_log)
    except KafkaException as error:
        raise _kafka_error(error) from None


def _real(partition: Partition, offset: int = library.OFFSET_INVALID) -> Any:
    return TopicPartition(partition.topic, partition.partition, offset)


def _system_authorities() -> str:
    """Return where Python finds the authorities of the system; librdkafka looks elsewhere."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or "probe"


def _call(request: Callable[[], Any]) -> Any:
    try:
        return request()
    except (KafkaException, SystemError) as error:
        raise _kafka_error(error) from None


def _met(error: BaseException | None) -> Any:
    """Return librdkafka's error.

    After a fatal one, confluent-kafka calls back with that exception set, which Python calls a SystemError.
    """
    if isinstance(error, SystemError):
        error = error.__cause__
    if not isinstance(error, KafkaException):
        raise error or SystemError
    return error.args[0]


def _kafka_error(error: BaseException) -> Exception:
    return _translated(_met(error))


def _translated(error: Any, where: str = "") -> Exception:
    """Return kafka-python's error for one of librdkafka."""
    code, text = error.code(), f"{where}: {error.str()}" if where else error.str()
    if code > 0:
        return error_of(code, text)
    return error_of(_LOCAL[code], text) if code in _LOCAL else KafkaError(f"{error.name()}: {text}")
