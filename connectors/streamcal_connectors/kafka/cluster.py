"""A Kafka cluster: makes clients of it, and is patient while it is away.

kafka-python 3.0 makes clients that recover by themselves when a broker restarts. Three things it leaves open:

* A client whose construction fails leaves a thread behind. So a connection of our own first finds out whether
  a broker lets us in (`login`).
* It cannot always tell a refusal from an absent broker. That connection can.
* It logs every failed attempt to reconnect as an error. So its log is held back, and `Cluster` logs once that
  the cluster is away, and once that it is back. Only that log tells why, so the reason is taken from it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from streamcal.run.ports import StoppedError
from streamcal_connectors.kafka.client import Consumer, Producer
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.errors import INSTALLED, KafkaError, brief, error_names, is_permanent
from streamcal_connectors.kafka.kafka_python import (
    KafkaPythonConsumer,
    KafkaPythonProducer,
    kafka_consumer,
    kafka_producer,
    topic_configs,
)
from streamcal_connectors.kafka.login import connect, log_in

if TYPE_CHECKING:
    from streamcal_connectors.kafka.confluent import Confluent

__all__ = ["TRANSACTION_SECONDS", "Cluster", "RefusedError", "TopicSettings", "require"]

log = logging.getLogger("streamcal_connectors")

_NOT_OF_ADMINS: Final = ("allow_auto_create_topics", "metrics_enabled")  # options of the other clients
_PAUSES: Final = (0.1, 2.0)  # shortest and longest, in seconds, between two attempts
_SLICE_SECONDS: Final = 0.1  # of a pause: how often to check whether the run is to stop
_MISSING_SECONDS: Final = 2.0  # a broker that has just started may not know its topics for so long

TRANSACTION_SECONDS: Final = 60.0
"""How long a transaction may be open before the broker aborts it."""

_FETCH_WAIT_MS: Final = 250
_LINGER_MS: Final = 1000  # only full batches before a commit, which flushes
_FETCH_BYTES: Final = 32 << 20  # from one broker at a time, unless a single batch of records is larger
_PARTITION_FETCH_BYTES: Final = 4 << 20  # of that, for one partition
_BATCH_BYTES: Final = 1 << 18  # of records to one partition that are sent together
_REQUEST_BYTES: Final = 64 << 20  # above any topic's limit: the broker knows that better than the client
_RECORD_BYTES: Final = 1_048_588  # max.message.bytes by default

T = TypeVar("T")


class TopicSettings(NamedTuple):
    """How a topic keeps records."""

    max_bytes: int = _RECORD_BYTES
    """The most that a batch of records may take; Kafka's default where this client may not ask."""
    compacted: bool = False
    """Whether a record replaces those before it that have the same key."""


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
            if telling and (self._error is None or not is_permanent(self._error)):
                self._error = cast("BaseException", each)

    def take(self) -> BaseException | None:
        """Return that error, and forget it."""
        error, self._error = self._error, None
        return error


_last_words: Final = _LastWords()


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
    """

    def __init__(
        self, hosts: Sequence[str], config: KafkaConfig, stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.hosts = tuple(hosts)
        self.config = config
        self.stop = stop
        self._options = config.client_options()
        self._confluent = None if config.client == "kafka-python" else _confluent(self.hosts, config)
        self._away = False
        self._id: str | None = None

    def __str__(self) -> str:
        return ",".join(self.hosts)

    def consumer(self, group: str | None = None) -> Consumer:
        """Make a consumer of committed records and offsets; waits for the cluster, as `call` does."""
        return self.call(lambda: self.new_consumer(group), patient=False)

    def new_consumer(self, group: str | None, *, stable: bool = True) -> Consumer:
        """Make a consumer, without waiting for the cluster.

        One that is not ``stable`` sees records and offsets of any transaction, without waiting for its end.

        Raises
        ------
        KafkaError, OSError
            if the cluster is away or refuses.
        """
        self.log_in()
        level = "read_committed" if stable else "read_uncommitted"
        client = kafka_consumer(
            **self._common(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level=level,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            fetch_max_bytes=_FETCH_BYTES,
            max_partition_fetch_bytes=_PARTITION_FETCH_BYTES,
        )
        seconds = self.config.request_seconds
        if self._confluent is None:
            return KafkaPythonConsumer(client, seconds)
        return self._confluent.consumer(
            client,
            seconds,
            {
                "isolation.level": level,
                "fetch.wait.max.ms": _FETCH_WAIT_MS,
                "fetch.max.bytes": _FETCH_BYTES,
                "queued.max.messages.kbytes": _FETCH_BYTES >> 10,
                # It hands out records in the order of the answers: a partition waits for those before it.
                "max.partition.fetch.bytes": _PARTITION_FETCH_BYTES >> 2,
            },
        )

    def cluster_id(self) -> str:
        """Return what tells this cluster from any other: its own id, or else the hosts it was reached by."""
        if self._id is None:
            consumer = self.consumer()
            try:
                self._id = consumer.cluster_id() or str(self)
            finally:
                consumer.close()
        return self._id

    def topic_settings(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        """Return the settings of topics; waits for the cluster, as `call` does."""
        wanted = sorted(topics)
        names = ["max.message.bytes", "cleanup.policy"]

        def ask() -> dict[str, dict[str, str]]:
            self.log_in()
            shared = {name: value for name, value in self._common().items() if name not in _NOT_OF_ADMINS}
            return topic_configs(wanted, names, **shared)

        found = self.call(ask, patient=False)
        settings = {}
        for topic in wanted:
            configs = found.get(topic, {})
            limit, policy = (configs.get(name) for name in names)
            settings[topic] = TopicSettings(
                _RECORD_BYTES if limit is None else int(limit), policy is not None and "compact" in policy
            )
        return settings

    def producer(self, transactional_id: str, batch_bytes: int) -> Producer:
        """Make a producer that sends at most so many bytes at once to a partition, if a record allows it.

        Does not wait for the cluster.

        Raises
        ------
        KafkaError, OSError
            if the cluster is away or refuses.
        """
        self.log_in()
        seconds, compression = self.config.request_seconds, self.config.compression
        delivery, transaction = int(seconds * 1500), int(TRANSACTION_SECONDS * 1000)
        batch_bytes = min(_BATCH_BYTES, batch_bytes)
        if self._confluent is not None:
            return self._confluent.producer(
                {
                    "transactional.id": transactional_id,
                    "delivery.timeout.ms": delivery,
                    "transaction.timeout.ms": transaction,
                    "linger.ms": _LINGER_MS,
                    "batch.size": batch_bytes,
                    "message.max.bytes": _REQUEST_BYTES,
                    "compression.type": compression,
                },
                seconds,
                self.stop,
            )
        client = kafka_producer(
            **self._common(),
            transactional_id=transactional_id,
            delivery_timeout_ms=delivery,
            max_block_ms=int(seconds * 1000),
            transaction_timeout_ms=transaction,
            linger_ms=_LINGER_MS,
            # kafka-python splits a batch that is too large, but loses its records if in a transaction.
            batch_size=batch_bytes,
            max_request_size=_REQUEST_BYTES,
            compression_type=None if compression == "none" else compression,
        )
        return KafkaPythonProducer(client, seconds, self.stop)

    def call(self, request: Callable[[], T], *, patient: bool) -> T:
        """Make a request, again and again while the cluster is away.

        Parameters
        ----------
        patient
            wait for as long as it takes, and not only for ``connect_seconds``.

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
                self.probe()
                done = request()
            except (RefusedError, StoppedError):
                raise
            except (KafkaError, OSError) as met:
                said = _last_words.take()
                ours = not isinstance(met, KafkaError) or is_permanent(met)  # it says why
                error = met if said is None or ours else said
                self.refused(error)
                self.away(error)
                if self.stop():
                    raise StoppedError(f"Kafka at {self} is away: {brief(error)}") from None
                if not patient and time.monotonic() > deadline:
                    waited = f"{self.config.connect_seconds:g} s"
                    raise OSError(f"Kafka at {self} was away for {waited}: {brief(error)}") from None
            else:
                self.back()
                return done
            again = time.monotonic() + pause
            while time.monotonic() < again and not self.stop():
                time.sleep(_SLICE_SECONDS)
            pause = min(2 * pause, _PAUSES[1])

    def probe(self) -> None:
        """Return if the cluster can be reached.

        While it counts as away, logging in as well tells whether what seems to be its absence is a refusal.

        Raises
        ------
        KafkaError, OSError
            if it cannot be reached, or refuses.
        """
        if self._away:
            self.log_in()
        else:
            connect(self.hosts)

    def log_in(self) -> None:
        """Return if a broker lets this client in.

        Raises
        ------
        KafkaError, OSError
            if none does.
        """
        log_in(self.hosts, self._options, self.config.request_seconds)

    def topic_partitions(self, consumer: Consumer, topic: str) -> set[int]:
        """Return the partitions of a topic; waits for the cluster, as `call` does.

        Raises
        ------
        ValueError
            if there is no topic of that name.
        """
        deadline = time.monotonic() + _MISSING_SECONDS
        while True:
            found = self.call(lambda: consumer.partitions(topic, refresh=True), patient=False)
            if found:
                return found
            if time.monotonic() > deadline:
                raise ValueError(
                    f"there is no topic {topic!r} at {self}, or this user may not see it: create it first,"
                    " or grant Describe (see docs/kafka.md)"
                )
            time.sleep(_PAUSES[0])

    def refused(self, error: BaseException, advice: str = "") -> None:
        """Raise RefusedError if an error is one that waiting and trying again cannot help."""
        if is_permanent(error):
            if "UnsupportedCodecError" in error_names(error):
                advice = ": pip install lz4, zstandard or python-snappy, whichever it names"
            raise RefusedError(f"Kafka at {self} refuses: {brief(error)}{advice}") from None

    def check(self, request: Callable[[], object]) -> None:
        """After some silence, find out whether the cluster is there, and log a change.

        Raises
        ------
        RefusedError
            if it refuses.
        """
        try:
            self.probe()
            request()
        except (KafkaError, OSError) as error:
            self.refused(error)
            self.away(error)
            time.sleep(_PAUSES[0])
        else:
            self.back()

    def away(self, why: BaseException) -> None:
        """Log, once, that the cluster is away."""
        if not self._away:
            self._away = True
            log.warning("Kafka at %s is away (%s): waiting for it", self, brief(why))

    def back(self) -> None:
        """Log that the cluster is back, if it was away."""
        if self._away:
            self._away = False
            log.info("Kafka at %s is back: going on", self)

    @property
    def is_away(self) -> bool:
        """Whether the cluster was away when it was last asked."""
        return self._away

    def _common(self) -> dict[str, Any]:
        config = self.config
        return {
            "bootstrap_servers": list(self.hosts),
            "client_id": "streamcal",
            "bootstrap_timeout_ms": int(config.request_seconds * 1000),
            "request_timeout_ms": int(config.request_seconds * 1000),
            "retry_backoff_ms": 5,
            "reconnect_backoff_max_ms": 500,
            "metadata_max_age_ms": int(config.refresh_seconds * 1000),
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
            **self._options,
        }


def _confluent(hosts: Sequence[str], config: KafkaConfig) -> Confluent:
    try:
        from streamcal_connectors.kafka.confluent import Confluent
    except ImportError:
        raise ValueError(
            'client = "confluent" of the [kafka] options needs confluent-kafka: pip install'
            ' "streamcal-engine[kafka-confluent]", or leave the option out'
        ) from None
    return Confluent(hosts, config)


def require() -> None:
    """Hold kafka-python's log back, unless the application has set it up.

    Raises
    ------
    ValueError
        if kafka-python is not installed.
    """
    if not INSTALLED:
        raise ValueError("kafka:// needs kafka-python: pip install '.[kafka]' in a checkout of streamcal")
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.addHandler(_last_words)
