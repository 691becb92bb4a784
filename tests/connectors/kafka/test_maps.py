"""The compacted topic of maps, and `apply --follow` on it."""

from __future__ import annotations

import subprocess
from contextlib import closing
from typing import Any

import msgspec
import pytest
from streamcal_connectors.kafka.source import KafkaConnector

from streamcal.run.rows import MapRow
from tests.connectors.kafka.topics import Kafka, commit, map_row, prediction, until
from tests.forks import Fork

pytestmark = pytest.mark.usefixtures("quick_cluster")


def test_a_compacted_topic_keeps_the_newest_of_every_key(kafka: Kafka) -> None:
    """A feed gives them, then what comes; if records are deleted behind it, what is left has the newest."""
    configs = {
        "cleanup.policy": "compact,delete",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    topic = kafka.topic("maps", **configs)
    version, found = 0, list[Any]()
    with kafka.written(topic) as sink:

        def publish() -> None:
            nonlocal version
            version += 1
            commit(sink, version, map_row(version), map_row(version, "eu"))

        def compacted() -> bool:
            nonlocal found
            publish()  # a segment is closed by the next record
            found = kafka.rows(topic)
            return len(found) < 2 * version

        until(compacted, f"nothing was compacted: {len(found)} rows")
        newest = {record.key: msgspec.json.decode(record.value)["version"] for record in found}
        assert newest == {b"": version, b"eu": version}
        with closing(KafkaConnector().feed(kafka.url(topic))) as feed:
            values: list[bytes] = []
            until(lambda: bool(values.extend(feed.poll(0.1)) or values), "no maps")
            rows = [msgspec.json.decode(value, type=MapRow) for value in values]
            assert {row.key: row.version for row in rows} == {None: version, "eu": version}
            assert not feed.poll(0.0)
            publish()
            until(lambda: feed.poll(0.1), "the next map does not come")
            for _ in range(3):
                publish()
            kafka.cut(topic, kafka.rows(topic)[-1].offset)
            until(
                lambda: values.extend(feed.poll(0.1)) or b'"version":%d' % version in b"".join(values),
                "no newest map",
            )


def test_a_service_follows_the_newest_map(kafka: Kafka) -> None:
    maps, events, answers = kafka.topic("maps"), kafka.topic("events"), kafka.topic("answers")
    with kafka.written(maps) as sink:
        for version in (1, 2, 3):
            commit(sink, version, map_row(version))
        kafka.put(events, [prediction(0)])
        options = ["--follow", kafka.url(maps), "--events", kafka.url(events)]
        command = ["apply", *options, "--output", kafka.url(answers)]

        def versions() -> list[int]:
            return [row["map_version"] for row in kafka.values(answers)]

        with Fork(command, stderr=subprocess.PIPE) as service:
            try:
                until(lambda: versions() == [3], "no answer")
                commit(sink, 4, map_row(4))

                def again() -> bool:
                    kafka.put(events, [prediction(1)])
                    return versions()[-1] == 4

                until(again, "the service does not follow")
            finally:
                service.terminate()
                _, said = service.communicate(timeout=30)
    assert service.returncode == 0, said
