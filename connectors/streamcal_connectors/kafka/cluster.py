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
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from streamcal.run.ports import StoppedError
from streamcal_connectors.kafka.client import (
    INSTALLED,
    Consumer,
    KafkaError,
    Producer,
    brief,
    is_permanent,
    kafka_consumer,
    kafka_producer,
)
from streamcal_connectors.kafka.config import KafkaConfig
from streamcal_connectors.kafka.login import connect, log_in

__all__ = ["Cluster", "RefusedError", "require"]

log = logging.getLogger("streamcal_connectors")

_PAUSES: Final = (0.1, 2.0)  # shortest and longest, in seconds, between two attempts
_SLICE_SECONDS: Final = 0.1  # of a pause: how often to check whether the run is to stop
_MISSING_SECONDS: Final = 2.0  # a broker that has just started may not know its topics for so long

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
        self._away = False

    def __str__(self) -> str:
        return ",".join(self.hosts)

    def consumer(self, group: str | None = None, *, patient: bool = False) -> Consumer:
        """Make a consumer; waits for the cluster, as `call` does."""
        return self.call(lambda: self._consumer(group), patient=patient)

    def producer(self, transactional_id: str) -> Producer:
        """Make a producer, without waiting for the cluster.

        Raises
        ------
        KafkaError, OSError
            if the cluster is away or refuses.
        """
        self.log_in()
        seconds = self.config.request_seconds
        client = kafka_producer(
            **self._common(),
            transactional_id=transactional_id,
            delivery_timeout_ms=int(seconds * 1500),
            max_block_ms=int(seconds * 1000),
            linger_ms=1000,  # only full batches before a commit, which flushes
            batch_size=1 << 18,
            compression_type=None if self.config.compression == "none" else self.config.compression,
        )
        return Producer(client, seconds, self.stop)

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
                error = met if said is None or is_permanent(met) else said
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
        if self.config.security_protocol == "PLAINTEXT":
            connect(self.hosts)
        else:
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
                    f"there is no topic {topic!r} at {self}: create it first (see docs/kafka.md)"
                )
            time.sleep(_PAUSES[0])

    def refused(self, error: BaseException) -> None:
        """Raise RefusedError if an error is one that waiting and trying again cannot help."""
        if is_permanent(error):
            raise RefusedError(f"Kafka at {self} refuses: {brief(error)}") from None

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

    def _consumer(self, group: str | None) -> Consumer:
        self.log_in()
        client = kafka_consumer(
            **self._common(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            fetch_max_wait_ms=250,
            max_partition_fetch_bytes=4 << 20,
        )
        return Consumer(client, self.config.request_seconds)

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
