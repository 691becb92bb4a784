"""Topics that are deleted, and created again under the same name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]
from streamcal_connectors.kafka.source import KafkaConnector

from tests.connectors.kafka.clients import until
from tests.connectors.kafka.fixtures import AnyBroker, Topics
from tests.connectors.kafka.topics import (
    answered,
    ids,
    map_row,
    opened,
    prediction,
    put,
    read,
    streamcal,
    url,
)

pytestmark = pytest.mark.usefixtures("quick_cluster")


class TestRecreated:
    def test_a_longer_topic_of_the_same_name_is_refused(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        """Its first records would be taken for those that the store has answered."""
        events, answers = new_topic("events", 2), new_topic("answers")
        put(kafka_broker, events, [prediction(i) for i in range(50)], 1)
        command = ["run", "--events", url(kafka_broker, events, "?until=end")]
        command += ["--output", url(kafka_broker, answers), "--store", tmp_path / "s.db"]
        assert streamcal(*command).returncode == 0
        new_topic.recreate(events, 2)
        put(kafka_broker, events, [prediction(i) for i in range(1000, 1100)], 1)
        for _ in range(2):
            done = streamcal(*command)
            assert done.returncode == 1, done.stderr
            assert f"topic {events} is not the one that was read before" in done.stderr
            assert "start with a new store" in done.stderr
        assert answered(kafka_broker, answers) == list(range(50))
        replayed = streamcal(
            "replay", "--store", tmp_path / "s.db", "--events", url(kafka_broker, events, "?until=end")
        )
        assert replayed.returncode != 0
        assert f"topic {events} is not the one that was read before" in replayed.stderr
        command[-1] = tmp_path / "new.db"
        assert streamcal(*command, "--append").returncode == 0
        assert answered(kafka_broker, answers) == [*range(50), *range(1000, 1100)]

    def test_under_a_run(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        """Whether it is longer or shorter than what was read."""
        topic = new_topic("events")
        put(kafka_broker, topic, [prediction(i) for i in range(50)])
        with opened(kafka_broker, topic) as source:
            source.seek({})
            assert ids(read(source, 50)["0"]) == list(range(50))
            new_topic.recreate(topic)
            put(kafka_broker, topic, [prediction(i) for i in range(1000, 1010)])
            with pytest.raises(ValueError, match="deleted and created again"):
                until(lambda: bool(source.poll(100, 0.1)) and False, "it goes on")


class TestFeed:
    def test_maps_that_are_deleted_behind_a_service(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        """It goes on with what is left, which has the newest map of every key."""
        topic = new_topic("maps")
        connector = KafkaConnector()
        with (
            closing(connector.sink(url(kafka_broker, topic))) as sink,
            closing(KafkaConnector().feed(url(kafka_broker, topic))) as feed,
        ):
            sink.resume("", None)

            def publish(version: int) -> None:
                sink.write([map_row(version)])
                sink.commit({"in": {"": version}})

            publish(1)
            until(lambda: bool(feed.poll(0.1)), "no map")
            for version in range(2, 10):
                publish(version)
            with closing(KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)) as admin:
                admin.delete_records({TopicPartition(topic, 0): 12})
            found: list[bytes] = []
            until(lambda: bool(found.extend(feed.poll(0.1)) or b'"version":9' in b"".join(found)), "no maps")
