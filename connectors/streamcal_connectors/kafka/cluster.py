"""A Kafka cluster: clients of it, and patience while it is away.

kafka-python 3.0 makes clients that recover by themselves from a broker that restarts. What it does not do is
kept here: a client whose construction fails leaves a thread behind, so the port is tried first; each refused
attempt to reconnect is logged as an error, so its log is kept back, and `Cluster` says once that the cluster
is away, and once that it is back. Why a client could not be made stands in that log alone.
"""

from __future__ import annotations

import logging
import socket
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

__all__ = ["Cluster", "RefusedError", "require"]

log = logging.getLogger("streamcal_connectors")

_PROBE_SECONDS: Final = 2.0
_PAUSES: Final = (0.1, 2.0)  # least and most seconds between attempts
_SLICE_SECONDS: Final = 0.1  # of a pause, between looks whether the run is to stop
_MISSING_SECONDS: Final = 2.0  # that a broker which has just started may not know its topics

T = TypeVar("T")


class RefusedError(OSError):
    """The cluster refuses, and waiting cannot help."""


class _LastWords(logging.Handler):
    """Keeps kafka-python's log back, but for the error that says most of why there is no connection.

    A broker that refuses a password at times drops the connection before its answer has come through.
    """

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
    """A cluster: makes clients, waits while it is away, and says so once.

    Parameters
    ----------
    hosts
        ``host:port`` of some of its brokers.
    config
        how to connect.
    stop
        whether the run is to stop: nothing is waited for then.
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
        """Make a consumer; wait for the cluster, as `call` does."""
        return self.call(lambda: self._consumer(group), patient=patient)

    def producer(self, transactional_id: str) -> Producer:
        """Make a producer; the cluster must be there.

        Raises
        ------
        KafkaError, OSError
            if it is not.
        """
        self.probe()
        seconds = self.config.request_seconds
        client = kafka_producer(
            **self._common(),
            transactional_id=transactional_id,
            delivery_timeout_ms=int(seconds * 1500),
            max_block_ms=int(seconds * 1000),
            linger_ms=1000,  # a commit flushes anyhow: until then, full batches only
            batch_size=1 << 18,
            compression_type=None if self.config.compression == "none" else self.config.compression,
        )
        return Producer(client, seconds, self.stop)

    def call(self, request: Callable[[], T], *, patient: bool) -> T:
        """Do what needs the cluster, again and again while it is away.

        Parameters
        ----------
        patient
            wait for as long as it takes, rather than ``connect_seconds``.

        Raises
        ------
        StoppedError
            if it failed, and the run is to stop.
        OSError
            if that helps nothing, or the time is over.
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
                error = _last_words.take() or met
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
        """Raise OSError unless one of the hosts takes connections."""
        for host in self.hosts:
            name, _, port = host.rpartition(":")
            try:
                with socket.create_connection((name.strip("[]"), int(port)), timeout=_PROBE_SECONDS):
                    return
            except OSError as error:
                refused = error
        raise refused

    def topic_partitions(self, consumer: Consumer, topic: str) -> set[int]:
        """Return the partitions of a topic; wait for the cluster, as `call` does.

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
                    f"there is no topic {topic!r} at {self}: make it first (docs/kafka.md says how)"
                )
            time.sleep(_PAUSES[0])

    def refused(self, error: BaseException) -> None:
        """Raise RefusedError if waiting and trying again cannot help against an error."""
        if is_permanent(error):
            raise RefusedError(f"Kafka at {self} refuses: {brief(error)}") from None

    def check(self, request: Callable[[], object]) -> None:
        """After some silence: find out whether the cluster is there, and say so."""
        try:
            self.probe()
            request()
        except (KafkaError, OSError) as error:
            self.away(error)
            time.sleep(_PAUSES[0])
        else:
            self.back()

    def away(self, why: BaseException) -> None:
        """Say that the cluster is away, once."""
        if not self._away:
            self._away = True
            log.warning("Kafka at %s is away (%s): waiting for it", self, brief(why))

    def back(self) -> None:
        """Say that the cluster is back, if it was away."""
        if self._away:
            self._away = False
            log.info("Kafka at %s is back: going on", self)

    @property
    def is_away(self) -> bool:
        """Whether it was away when last looked at."""
        return self._away

    def _consumer(self, group: str | None) -> Consumer:
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
    """Raise ValueError unless kafka-python is installed; keep its log back, unless somebody has set it up."""
    if not INSTALLED:
        raise ValueError("kafka:// needs kafka-python: pip install 'streamcal-engine[kafka]'")
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.addHandler(_last_words)
