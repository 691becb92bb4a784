"""What the tests of the Kafka connector share: topics to make, write and read, and the command line."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas with importlib.resources.read_text, which Python 3.11 and
    # 3.12 call deprecated (3.13 does not).
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
from streamcal_connectors.kafka.confluent import ConfluentProducer
from streamcal_connectors.kafka.kafka_python import KafkaPythonProducer
from streamcal_connectors.kafka.positions import offset_of
from streamcal_connectors.kafka.source import KafkaConnector, KafkaSource

from streamcal import RecalibrationMap
from streamcal.engine.emissions import Recalibrated
from streamcal.run.ports import Shard, SinkOptions, SourceOptions
from streamcal.run.rows import MapRow
from tests.connectors.kafka.broker import Broker
from tests.forks import Fork, forked

SECRET = "hunter2-correct-horse"
CLIENT = "STREAMCAL_KAFKA_LIBRARY"
BOTH = pytest.mark.parametrize("client", ["kafka-python", "confluent"], indirect=True)
"""Runs a test with each client library: each has its own way to read, write and log in."""
PATIENCE = 180.0
"""Seconds within which what must happen happens; a passing test takes far less."""


class Kafka:
    """A broker with topics of names of their own, so that no test sees another's records."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    # Topics

    def admin(self) -> Any:
        return closing(KafkaAdminClient(bootstrap_servers=self.broker.bootstrap))

    def topic(self, stem: str, partitions: int = 1, **configs: str) -> str:
        """Make a topic, wait until it can be written to, and return its name; ``_`` stands for a dot."""
        name = f"{stem}-{uuid.uuid4().hex[:12]}"
        self._make(name, partitions, {each.replace("_", "."): value for each, value in configs.items()})
        return name

    def _make(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        about = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs)}
        with self.admin() as admin:
            admin.create_topics({name: about}, wait_for_metadata=True)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, so many in all, and wait until they are there."""
        with self.admin() as admin:
            admin.create_partitions({topic: partitions})
            until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == partitions, "no partitions")
            admin.wait_for_topics([topic])

    def set(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic, and wait until it is seen."""
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic, [name])]

        def seen() -> bool:
            found = admin.describe_configs(asked, config_filter="all")["topic"][topic][name]
            return bool(found["value"] == value)

        with self.admin() as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
            until(seen, "it is not seen")

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic and make it again, empty."""
        with self.admin() as admin:
            admin.delete_topics([topic])
            until(lambda: topic not in admin.list_topics(), "it is still there")
        self._make(topic, partitions, {})

    def cut(self, topic: str, offset: int) -> None:
        """Delete the records of partition 0 before an offset."""
        with self.admin() as admin:
            admin.delete_records({TopicPartition(topic, 0): offset})

    # Records

    @contextmanager
    def producer(self, **configs: Any) -> Iterator[Any]:
        """Give a producer, whose retries fit a broker one millisecond away; drop it in any state."""
        quick = {"retry_backoff_ms": 5, "reconnect_backoff_max_ms": 500, "metrics_enabled": False}
        made = KafkaProducer(bootstrap_servers=self.broker.bootstrap, **{**quick, "linger_ms": 5, **configs})
        try:
            yield made
        finally:  # close() alone flushes first, and if records cannot be sent, closes nothing
            made._sender.force_close()
            made._sender.join(30)
            made.close(timeout=0)

    @contextmanager
    def transactional(self, **configs: Any) -> Iterator[Any]:
        with self.producer(transactional_id=uuid.uuid4().hex, **configs) as made:
            made.init_transactions()
            yield made

    def put(self, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
        with self.producer() as sender:
            sent = [sender.send(topic, value, partition=partition, key=b"k") for value in values]
            sender.flush(30)
            assert all(each.succeeded() for each in sent)

    def reader(self, group: str | None = None) -> Any:
        made = KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap,
            isolation_level="read_committed",
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            reconnect_backoff_max_ms=500,
        )
        return closing(made)

    def rows(self, topic: str) -> list[Any]:
        """Return all committed records of a topic."""
        with self.reader() as consumer:
            last = ends(consumer, [topic])
            consumer.assign(list(last))
            for place in last:
                consumer.seek(place, 0)
            found: list[Any] = []

            def complete() -> bool:
                for records in consumer.poll(timeout_ms=200, max_records=100_000).values():
                    found.extend(records)
                # A position also moves past aborted records and past the markers of transactions.
                return all(consumer.position(place) >= end for place, end in last.items())

            until(complete, f"{topic} was not read to its end: {last}")
            return found

    def values(self, topic: str) -> list[Any]:
        """Return the values of all committed records of a topic, which are JSON."""
        return [msgspec.json.decode(record.value) for record in self.rows(topic)]

    def answered(self, topic: str) -> list[int]:
        return sorted(int(row["id"]) for row in self.values(topic))

    # The connector

    def url(self, topic: str, options: str = "") -> str:
        return f"kafka://{self.broker.bootstrap}/{topic}{options}"

    @contextmanager
    def opened(self, topic: str, options: str = "") -> Iterator[KafkaSource]:
        """Give a source at its beginning."""
        with closing(KafkaConnector().source(self.url(topic, options), SourceOptions())) as source:
            source.seek({})
            yield source

    @contextmanager
    def written(
        self,
        topic: str,
        job: str = "job",
        position: Any = None,
        *,
        append: bool = False,
        shard: Shard | None = None,
    ) -> Iterator[Any]:
        """Give a sink that has resumed."""
        options = SinkOptions(append=append, shard=shard)
        with closing(KafkaConnector().sink(self.url(topic), options)) as sink:
            sink.resume(job, position)
            yield sink


def ends(consumer: Any, topics: Sequence[str]) -> dict[Any, int]:
    places = [TopicPartition(name, p) for name in topics for p in sorted(consumer.partitions_for_topic(name))]
    return dict(consumer.end_offsets(places))


def until(what: Callable[[], object], why: str) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)


def retried(broker: Broker, tmp_path: Path, check_once: Callable[[Path, int], None]) -> None:
    """Check, in a folder of its own; again if the broker has lost a transaction.

    A broker that is killed may lose one (`Broker.lost_transactions`). What was writing then ends, and says so
    (test_sink.py).
    """
    for attempt in range(5):
        folder, lost = tmp_path / str(attempt), broker.lost_transactions
        folder.mkdir()
        try:
            check_once(folder, attempt)
        except (AssertionError, OSError):
            if broker.lost_transactions == lost:
                raise
        else:
            return
    pytest.fail("the broker lost a transaction in each of five runs")


def producer_of(client: str) -> Any:
    """Return the class of the producer that a client library has here."""
    return {"kafka-python": KafkaPythonProducer, "confluent": ConfluentProducer}[client]


def prediction(number: int) -> bytes:
    return b'{"id":"%d","score":0.5,"time":%d}' % (number, number)


def answer(number: int) -> Recalibrated:
    return Recalibrated(str(number), 0.5, 0.25, 1, (1.0, 1.0))


def map_row(version: int, key: str | None = None) -> MapRow:
    recalibration = RecalibrationMap(version=version, edges=(0.0, 1.0), values=(version / 1000,))
    return MapRow(version, key, None, msgspec.Raw(recalibration.model_dump_json().encode()))


def ids(events: Sequence[Any]) -> list[int]:
    return [int(event.id) for event in events]


def commit(sink: Any, number: int, *rows: Any) -> None:
    """Write rows, and commit them behind input position number."""
    sink.write(rows)
    sink.commit({"in": {"": number}})


def read(source: KafkaSource, count: int, seconds: float = 20.0) -> dict[str, list[Any]]:
    """Poll until there are so many events, or the source is at its end; return them by partition."""
    found: dict[str, list[Any]] = {}
    deadline = time.monotonic() + seconds
    while sum(map(len, found.values())) < count and time.monotonic() < deadline and not source.ended:
        for batch in source.poll(1000, 0.05):
            found.setdefault(batch.partition, []).extend(batch.events)
    return found


def offsets(positions: Mapping[str, Any]) -> dict[str, int]:
    return {partition: offset_of(position) for partition, position in positions.items()}


def streamcal(
    *arguments: object, status: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = list(map(str, arguments))
    ended, out, err = forked(command, b"", {**os.environ, "COLUMNS": "200", **environment}, 60.0)
    assert status in (None, ended), f"exit status {ended}:\n{out.decode()}\n{err.decode()}"
    return subprocess.CompletedProcess(command, ended, out.decode(), err.decode())


@contextmanager
def started(*arguments: object, **environment: str) -> Iterator[tuple[Fork, Callable[[], str]]]:
    """Start the command line; give its process, and what says what it has said so far."""
    with tempfile.TemporaryFile() as log:
        command, variables = [*arguments], {**os.environ, "COLUMNS": "200", **environment}
        with Fork(command, stdout=log, stderr=log, env=variables) as process:
            try:
                yield process, lambda: os.pread(log.fileno(), 1 << 20, 0).decode()
            finally:
                process.kill()
