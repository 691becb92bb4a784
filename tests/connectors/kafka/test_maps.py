"""The compacted topic of maps, and `apply --follow` on it."""

from __future__ import annotations

import subprocess
from contextlib import closing
from typing import Any

import msgspec
import pytest
from streamcal_connectors.kafka.source import KafkaConnector

from streamcal.run.rows import MapRow
from tests.connectors.kafka.clients import rows_of, until
from tests.connectors.kafka.fixtures import AnyBroker, Topics
from tests.connectors.kafka.topics import map_row, prediction, put, url
from tests.forks import Fork

pytestmark = pytest.mark.usefixtures("quick_cluster")


class TestMaps:
    def test_a_compacted_topic_keeps_the_newest_of_every_key(
        self, kafka_broker: AnyBroker, new_topic: Topics
    ) -> None:
        configs = {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        }
        topic = new_topic("maps", configs=configs)
        sink = KafkaConnector().sink(url(kafka_broker, topic))
        sink.resume("job", None)
        version = 0

        def publish() -> None:
            nonlocal version
            version += 1
            sink.write([map_row(version), map_row(version, "eu")])
            sink.commit({"in": {"": version}})

        found: list[Any] = []

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
            until(lambda: bool(feed.poll(0.1)), "the next map does not come")
        sink.close()

    def test_a_service_follows_the_newest_map(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        maps, events, answers = new_topic("maps"), new_topic("events"), new_topic("answers")
        sink = KafkaConnector().sink(url(kafka_broker, maps))
        sink.resume("job", None)

        def publish(version: int) -> None:
            sink.write([map_row(version)])
            sink.commit({"in": {"": version}})

        def versions() -> list[int]:
            return [
                msgspec.json.decode(record.value)["map_version"] for record in rows_of(kafka_broker, answers)
            ]

        for version in (1, 2, 3):
            publish(version)
        put(kafka_broker, events, [prediction(0)])
        options = ["--follow", url(kafka_broker, maps), "--events", url(kafka_broker, events)]
        with Fork(
            ["apply", *options, "--output", url(kafka_broker, answers)], stderr=subprocess.PIPE
        ) as service:
            try:
                until(lambda: versions() == [3], "no answer")
                publish(4)

                def again() -> bool:
                    put(kafka_broker, events, [prediction(1)])
                    return versions()[-1] == 4

                until(again, "the service does not follow")
            finally:
                service.terminate()
                _, said = service.communicate(timeout=30)
        assert service.returncode == 0, said
        sink.close()
