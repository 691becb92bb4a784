"""Clients of kafka-python for the tests: they write, read and wait."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]

from tests.connectors.kafka.fixtures import AnyBroker

COMMITTED = "read_committed"


PATIENCE = 30.0
"""Seconds within which what must happen happens; a passing test takes far less."""


RUN_PATIENCE = 180.0
"""Seconds within which a whole run ends."""

# Retries that fit a broker one millisecond away. With the default backoff of 100 ms every
# transaction that follows another at once waits 100 ms for the first one's markers.
QUICK = {"retry_backoff_ms": 5, "reconnect_backoff_max_ms": 500, "metrics_enabled": False}


def unique(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:12]}"


@contextmanager
def producer(broker: AnyBroker, **configs: Any) -> Iterator[Any]:
    made = KafkaProducer(bootstrap_servers=broker.bootstrap, **{**QUICK, **configs})
    try:
        yield made
    finally:
        discard(made)


@contextmanager
def transactional(broker: AnyBroker, name: str = "", **configs: Any) -> Iterator[Any]:
    configs["transactional_id"] = name or unique("transactions")
    with producer(broker, **configs) as made:
        made.init_transactions()
        yield made


def discard(made: Any) -> None:
    """Close a producer whatever it was doing.

    ``close(timeout)`` flushes first, raises when records cannot be sent, and then has closed
    nothing: its thread goes on for ever.
    """
    made._sender.force_close()
    made._sender.join(PATIENCE)
    made.close(timeout=0)


@contextmanager
def consumer(broker: AnyBroker, **configs: Any) -> Iterator[Any]:
    settings = {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": COMMITTED,
        "reconnect_backoff_max_ms": 500,
        **configs,
    }
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, **settings)) as made:
        yield made


def eventually(what: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def values(broker: AnyBroker, topic: str, level: str = COMMITTED) -> list[bytes]:
    """Return every value that a reader at `level` sees now, partition after partition."""
    with consumer(broker, isolation_level=level) as reader:
        partitions = [TopicPartition(topic, p) for p in sorted(reader.partitions_for_topic(topic))]
        reader.assign(partitions)
        for partition in partitions:
            reader.seek(partition, 0)
        ends = reader.end_offsets(partitions)
        found: dict[Any, list[bytes]] = {partition: [] for partition in partitions}

        def complete() -> bool:
            for partition, records in reader.poll(timeout_ms=200).items():
                found[partition] += [record.value for record in records]
            # A position also moves past aborted records and past the markers of transactions.
            return all(reader.position(p) >= ends[p] for p in partitions)

        assert eventually(complete), f"the readable part of {topic} was not read: {ends}"
        return [value for partition in partitions for value in found[partition]]


def reader(broker: AnyBroker) -> Any:
    return closing(
        KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            isolation_level="read_committed",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            reconnect_backoff_max_ms=500,
        )
    )


def ends(consumer: Any, topics: Sequence[str]) -> dict[Any, int]:
    places = [TopicPartition(name, p) for name in topics for p in sorted(consumer.partitions_for_topic(name))]
    return dict(consumer.end_offsets(places))


def rows_of(broker: AnyBroker, topic: str) -> list[Any]:
    """Return all committed records of a topic."""
    with reader(broker) as consumer:
        last = ends(consumer, [topic])
        consumer.assign(list(last))
        for place in last:
            consumer.seek(place, 0)
        found: list[Any] = []
        deadline = time.monotonic() + RUN_PATIENCE
        while not all(consumer.position(place) >= end for place, end in last.items()):
            for records in consumer.poll(timeout_ms=200, max_records=100_000).values():
                found += records
            assert time.monotonic() < deadline, f"{topic} was not read to its end: {last}"
        return found


def until(what: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + RUN_PATIENCE
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.05)
