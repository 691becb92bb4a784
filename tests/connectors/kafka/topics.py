"""What the tests of the Kafka connector share: topics to write and read, and the command line."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import msgspec
from streamcal_connectors.kafka.confluent import ConfluentProducer
from streamcal_connectors.kafka.kafka_python import KafkaPythonProducer
from streamcal_connectors.kafka.positions import offset_of
from streamcal_connectors.kafka.source import KafkaConnector, KafkaSource

from streamcal import RecalibrationMap
from streamcal.engine.emissions import Recalibrated
from streamcal.run.ports import SourceOptions
from streamcal.run.rows import MapRow
from tests.connectors.kafka.clients import producer, rows_of
from tests.connectors.kafka.fixtures import AnyBroker
from tests.forks import Fork, forked

SECRET = "hunter2-correct-horse"


def url(broker: AnyBroker, topic: str, options: str = "") -> str:
    return f"kafka://{broker.bootstrap}/{topic}{options}"


def prediction(number: int) -> bytes:
    return b'{"id":"%d","score":0.5,"time":%d}' % (number, number)


def put(broker: AnyBroker, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
    with producer(broker, linger_ms=5) as sender:
        sent = [sender.send(topic, value, partition=partition, key=b"k") for value in values]
        sender.flush(30)
        assert all(each.succeeded() for each in sent)


def producer_of(client: str) -> Any:
    """Return the class of the producer that a client library has here."""
    return {"kafka-python": KafkaPythonProducer, "confluent": ConfluentProducer}[client]


@contextmanager
def opened(broker: AnyBroker, topic: str, options: str = "") -> Iterator[KafkaSource]:
    with closing(KafkaConnector().source(url(broker, topic, options), SourceOptions())) as source:
        yield source


def read(source: KafkaSource, count: int, seconds: float = 20.0) -> dict[str, list[Any]]:
    """Poll until there are so many events; return them by partition."""
    found: dict[str, list[Any]] = {}
    deadline = time.monotonic() + seconds
    while sum(map(len, found.values())) < count and time.monotonic() < deadline:
        for batch in source.poll(1000, 0.1):
            found.setdefault(batch.partition, []).extend(batch.events)
    return found


def offsets(positions: Mapping[str, Any]) -> dict[str, int]:
    return {partition: offset_of(position) for partition, position in positions.items()}


def ids(events: Sequence[Any]) -> list[int]:
    return [int(event.id) for event in events]


def answer(number: int) -> Recalibrated:
    return Recalibrated(str(number), 0.5, 0.25, 1, (1.0, 1.0))


def map_row(version: int, key: str | None = None) -> MapRow:
    recalibration = RecalibrationMap(version=version, edges=(0.0, 1.0), values=(version / 1000,))
    return MapRow(version, key, None, msgspec.Raw(recalibration.model_dump_json().encode()))


def answered(broker: AnyBroker, topic: str) -> list[int]:
    return sorted(int(msgspec.json.decode(record.value)["id"]) for record in rows_of(broker, topic))


def streamcal(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    given, settings = list(map(str, arguments)), {**os.environ, "COLUMNS": "200", **environment}
    status, out, err = forked(given, b"", settings, 60.0)
    return subprocess.CompletedProcess(given, status, out.decode(), err.decode())


@contextmanager
def started(
    *arguments: object, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """Start the command line; give its process, and what says what it has said so far."""
    with tempfile.TemporaryFile() as log:

        def said() -> str:
            return os.pread(log.fileno(), 1 << 20, 0).decode()

        with Fork(
            [*arguments], stdout=log, stderr=log, env={**os.environ, "COLUMNS": "200", **environment}
        ) as process:
            try:
                yield process, said
            finally:
                process.kill()
