"""The compacted topic of maps, and `apply --follow` on it."""

from __future__ import annotations

import subprocess
from contextlib import closing
from typing import Any

import msgspec
import pytest
from streamcal_connectors.kafka.source import KafkaConnector

from streamcal.run.rows import MapRow
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.topics import (
    Topics,
    commit,
    map_row,
    prediction,
    put,
    rows_of,
    until,
    url,
    values_of,
    written,
)
from tests.forks import Fork

pytestmark = pytest.mark.usefixtures("quick_cluster")


def test_a_compacted_topic_keeps_the_newest_of_every_key(kafka_broker: Broker, new_topic: Topics) -> None:
    """A feed gives them, then what comes; if records are deleted behind it, what is left has the newest."""
    configs = {
        "cleanup.policy": "compact,delete",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    topic = new_topic("maps", configs=configs)
    version, found = 0, list[Any]()
    with written(kafka_broker, topic) as sink:

        def publish() -> None:
            nonlocal version
            version += 1
            commit(sink, version, map_row(version), map_row(version, "eu"))

        def compacted() -> bool:
            nonlocal found
            publish()  # a segment is closed by the next record
            found = rows_of(kafka_broker, topic)
            return len(found) < 2 * version

        until(compacted, f"nothing was compacted: {len(found)} rows")
        newest = {record.key: msgspec.json.decode(record.value)["version"] for record in found}
        assert newest == {b"": version, b"eu": version}
        with closing(KafkaConnector().feed(url(kafka_broker, topic))) as feed:
            values: list[bytes] = []
            until(lambda: bool(values.extend(feed.poll(0.1)) or values), "no maps")
            rows = [msgspec.json.decode(value, type=MapRow) for value in values]
            assert {row.key: row.version for row in rows} == {None: version, "eu": version}
            assert not feed.poll(0.0)
            publish()
            until(lambda: feed.poll(0.1), "the next map does not come")
            for _ in range(3):
                publish()
            new_topic.cut(topic, rows_of(kafka_broker, topic)[-1].offset)
            until(
                lambda: values.extend(feed.poll(0.1)) or b'"version":%d' % version in b"".join(values),
                "no newest map",
            )


def test_a_service_follows_the_newest_map(kafka_broker: Broker, new_topic: Topics) -> None:
    maps, events, answers = new_topic("maps"), new_topic("events"), new_topic("answers")
    with written(kafka_broker, maps) as sink:
        for version in (1, 2, 3):
            commit(sink, version, map_row(version))
        put(kafka_broker, events, [prediction(0)])
        options = ["--follow", url(kafka_broker, maps), "--events", url(kafka_broker, events)]
        command = ["apply", *options, "--output", url(kafka_broker, answers)]

        def versions() -> list[int]:
            return [row["map_version"] for row in values_of(kafka_broker, answers)]

        with Fork(command, stderr=subprocess.PIPE) as service:
            try:
                until(lambda: versions() == [3], "no answer")
                commit(sink, 4, map_row(4))

                def again() -> bool:
                    put(kafka_broker, events, [prediction(1)])
                    return versions()[-1] == 4

                until(again, "the service does not follow")
            finally:
                service.terminate()
                _, said = service.communicate(timeout=30)
    assert service.returncode == 0, said
