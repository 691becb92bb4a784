"""A Kafka cluster: makes clients of it, and is patient while it is away.

kafka-python 3.0 makes clients that recover by themselves when a broker restarts. It logs every failed attempt
as an error. So its log is held back, and `Cluster` logs once that the cluster is away, and once that it is
back. Only that log tells why, so the reason is taken from it.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from streamcal.run.ports import StoppedError
from streamcal_connectors.kafka.client import Chunk, Producer, TopicPartition
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.errors import KafkaError, brief, error_names, is_out_of_range, is_permanent
from streamcal_connectors.kafka.kafka_python import (
    Consumer,
    KafkaPythonProducer,
    TopicSettings,
    check_codec,
    connection_options,
    topic_settings,
)

log = logging.getLogger("streamcal_connectors")

_PAUSES: Final = (0.1, 2.0)  # shortest and longest, in seconds, between two attempts
_SLICE_SECONDS: Final = 0.1  # of a pause: how often to check whether the run is to stop
_MISSING_SECONDS: Final = 2.0  # a broker that has just started may not know its topics for so long
_ASK_SECONDS: Final = 2.0  # without records, after which to check that the cluster is there
_KNOCK_SECONDS: Final = 2.0
_ADVICE: Final = ". If its brokers are up, correct security_protocol of [kafka.client] (docs/kafka.md)"
_BATCH_BYTES: Final = 1 << 18  # of records to one partition that are sent together

T = TypeVar("T")


class RefusedError(OSError):
    """The cluster refuses this client; waiting does not help."""


class _LastWords(logging.Handler):
    """Holds kafka-python's log back, and keeps the error in it that says most about a failed connection."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        for each in record.args if isinstance(record.args, tuple) else ():
            telling = isinstance(each, BaseException) and type(each).__name__ != "KafkaTimeoutError"
            if telling and not is_permanent(self._error):
                self._error = cast("BaseException", each)

    def take(self) -> BaseException | None:
        """Return that error, and forget it."""
        error, self._error = self._error, None
        return error


_last_words: Final = _LastWords()


def hold_log_back() -> None:
    """Hold kafka-python's log back, unless the application has set it up."""
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.addHandler(_last_words)


class Cluster:
    """A cluster: makes clients, waits while it is away, and logs that once.

    Parameters
    ----------
    hosts
        ``host:port`` of some of its brokers.
    config
        how to connect.
    stop
        whether the run is to stop; if so, nothing waits.

    Raises
    ------
    ValueError
        if the client library is not installed, or a secret or a TLS file cannot be read.
    """

    def __init__(
        self, hosts: Sequence[str], config: KafkaConfig, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.hosts = tuple(hosts)
        self.config = config
        self.stop = stop
        self.is_away = False
        """Whether the cluster was away when it was last asked."""
        self._options = connection_options(hosts, config)
        self._consumer: Callable[..., Consumer] = partial(Consumer, self._options)
        self._producer: Callable[..., Producer] = partial(KafkaPythonProducer, self._options)
        if config.library == "confluent":
            self._use_confluent()
        else:
            check_codec(self._options)

    def _use_confluent(self) -> None:
        try:
            import streamcal_connectors.kafka.confluent as confluent
        except ImportError:
            raise ValueError(
                'library = "confluent" of the [kafka] options needs confluent-kafka: pip install'
                ' "streamcal-engine[kafka-confluent]", or leave the option out'
            ) from None
        options = confluent.connection_options(self.hosts, self.config)
        self._consumer = partial(confluent.ConfluentConsumer, options, self._options)
        self._producer = partial(confluent.ConfluentProducer, options)

    def __str__(self) -> str:
        return ",".join(self.hosts)

    def consumer(self) -> Consumer:
        """Make a consumer of committed records; waits for the cluster, as `call` does."""
        return self.call(self.new_consumer)

    def new_consumer(self, group: str | None = None, *, stable: bool = True) -> Consumer:
        """Make a consumer of committed records and offsets, for a `call`.

        One that is not ``stable`` sees records and offsets of any transaction, without waiting for its end.
        """
        level = "read_committed" if stable else "read_uncommitted"
        return self._consumer(group, level, self.config.request_seconds)

    def new_producer(self, transactional_id: str, batch_bytes: int) -> Producer:
        """Make a producer, for a `call`; it sends at most so many bytes at once to a partition."""
        return self._producer(transactional_id, min(_BATCH_BYTES, batch_bytes), self.config, self.stop)

    def topic_settings(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        """Return the settings of topics; waits for the cluster, as `call` does."""
        return self.call(lambda: topic_settings(topics, self._options))

    def topic_partitions(self, consumer: Consumer, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic in their order; waits for the cluster, as `call` does.

        Raises
        ------
        ValueError
            if there is no topic of that name.
        """
        deadline = time.monotonic() + _MISSING_SECONDS
        while not (found := self.call(lambda: consumer.partitions(topic, refresh=True))):
            if time.monotonic() > deadline:
                raise ValueError(
                    f"there is no topic {topic!r} at {self}, or this user may not see it: create it first,"
                    " or grant Describe (see docs/kafka.md)"
                )
            time.sleep(_PAUSES[0])
        return sorted(found)

    def call(self, request: Callable[[], T], *, patient: bool = False) -> T:
        """Make a request, again and again while the cluster is away.

        Parameters
        ----------
        request
            what to do; it may make clients.
        patient
            whether to wait without limit, in place of ``connect_seconds``.

        Raises
        ------
        StoppedError
            if the request failed and the run is to stop.
        OSError
            if the cluster refuses, or ``connect_seconds`` are over.
        """
        deadline = time.monotonic() + self.config.connect_seconds
        pause = _PAUSES[0]
        while True:
            _last_words.take()
            try:
                self._knock()
                done = request()
            except (RefusedError, StoppedError):
                raise
            except (KafkaError, OSError) as met:
                error = self._failed(met)
                if self.stop():
                    raise StoppedError(f"Kafka at {self} is away: {brief(error)}") from None
                if not patient and time.monotonic() > deadline:
                    waited = f"{self.config.connect_seconds:g} s"
                    raise OSError(f"Kafka at {self} was away for {waited}: {brief(error)}{_ADVICE}") from None
            else:
                self.back()
                return done
            again = time.monotonic() + pause
            while time.monotonic() < again and not self.stop():
                time.sleep(_SLICE_SECONDS)
            pause = min(2 * pause, _PAUSES[1])

    def poll(
        self, consumer: Consumer, timeout: float, count: Callable[[], int], request: Callable[[], object]
    ) -> dict[TopicPartition, Chunk]:
        """Return records, waiting for some; after some silence, ask whether the cluster is there.

        Parameters
        ----------
        consumer, timeout
            what reads, and how long it may wait, in seconds.
        count
            says at most how many; asks the consumer only.
        request
            what to ask.

        Raises
        ------
        RefusedError
            if it refuses.
        KafkaError
            if an offset to read does not exist; see `is_out_of_range`.
        """
        try:
            found = consumer.poll(timeout, count())
        except KafkaError as error:
            if is_out_of_range(error):
                raise
            self.refused(error)
            self.away(error)
            time.sleep(timeout)
            return {}
        if found:
            self.back()
        elif time.monotonic() - consumer.heard < _ASK_SECONDS:
            return {}
        else:
            self._check(request)
        consumer.heard = time.monotonic()
        return found

    def _check(self, request: Callable[[], object]) -> None:
        """Find out by a request whether the cluster is there, and log a change."""
        _last_words.take()
        try:
            request()
        except (KafkaError, OSError) as met:
            self._failed(met)
            time.sleep(_PAUSES[0])
        else:
            self.back()

    def _failed(self, met: Exception) -> BaseException:
        """Take note of a failed request: raise RefusedError, or log that the cluster is away; return why."""
        said = _last_words.take()
        says_why = not isinstance(met, KafkaError) or is_permanent(met)
        error = met if said is None or says_why else said
        self.refused(error)
        self.away(error)
        return error

    def _knock(self) -> None:
        """Raise OSError if no host accepts a connection; a client would try for seconds."""
        met: OSError | None = None
        for host in self.hosts if "proxy_url" not in self._options else ():
            name, _, port = host.rpartition(":")
            try:
                socket.create_connection((name.strip("[]"), int(port)), _KNOCK_SECONDS).close()
            except OSError as error:
                met = error
            else:
                return
        if met is not None:
            raise met

    def refused(self, error: BaseException, advice: str = "") -> None:
        """Raise RefusedError if an error is one that waiting and trying again cannot help."""
        if is_permanent(error):
            if "UnsupportedCodecError" in error_names(error):
                advice = ': take library = "confluent" (pip install "streamcal-engine[kafka-confluent]")'
            raise RefusedError(f"Kafka at {self} refuses: {brief(error)}{advice}") from None

    def away(self, why: BaseException) -> None:
        """Log, once, that the cluster is away."""
        if not self.is_away:
            self.is_away = True
            log.warning("Kafka at %s is away (%s): waiting for it", self, brief(why))

    def back(self) -> None:
        """Log that the cluster is back, if it was away."""
        if self.is_away:
            self.is_away = False
            log.info("Kafka at %s is back: going on", self)
