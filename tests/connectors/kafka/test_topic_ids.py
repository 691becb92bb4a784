"""Topics that are deleted, and created again under the same name."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]
from streamcal_connectors.kafka.positions import offset_of
from streamcal_connectors.kafka.source import KafkaConnector

from tests.connectors.kafka.clients import until
from tests.connectors.kafka.fixtures import AnyBroker, Topics
from tests.connectors.kafka.topics import (
    answered,
    ids,
    map_row,
    offsets,
    opened,
    prediction,
    put,
    read,
    started,
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

    @pytest.mark.parametrize("count", [100, 10])
    def test_under_a_run(self, kafka_broker: AnyBroker, new_topic: Topics, count: int) -> None:
        """Whether it is longer or shorter than what was read."""
        topic = new_topic("events")
        put(kafka_broker, topic, [prediction(i) for i in range(50)])
        with opened(kafka_broker, topic) as source:
            source.seek({})
            assert ids(read(source, 50)["0"]) == list(range(50))
            new_topic.recreate(topic)
            put(kafka_broker, topic, [prediction(i) for i in range(1000, 1000 + count)])
            with pytest.raises(ValueError, match="deleted and created again"):
                until(lambda: bool(source.poll(100, 0.1)) and False, "it goes on")

    def test_that_is_deleted_under_a_run(
        self,
        kafka_broker: AnyBroker,
        new_topic: Topics,
        tmp_path: Path,
    ) -> None:
        topic = new_topic("events")
        put(kafka_broker, topic, [prediction(0)])
        out = tmp_path / "out.jsonl"
        with started("run", "--events", url(kafka_broker, topic), "--output", out) as (process, said):
            until(lambda: out.exists() and bool(out.read_bytes()), "nothing is answered")
            with closing(KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)) as admin:
                admin.delete_topics([topic])
            new_topic.made.remove(topic)
            assert process.wait(60) == 1
            assert f"topic {topic} is not there any more: it was deleted" in said()

    def test_an_output_that_is_deleted_under_a_run(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        """The mark of the run is gone with it: no other run is to blame."""
        topic = new_topic("answers")
        with closing(KafkaConnector().sink(url(kafka_broker, topic))) as sink:
            sink.resume("job", None)
            sink.write([map_row(1)])
            sink.commit({"in": {"": 1}})
            with closing(KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)) as admin:
                admin.delete_topics([topic])
            new_topic.made.remove(topic)
            sink.write([map_row(2)])
            with pytest.raises(OSError, match=f"no longer has the group .*'{topic}' was"):
                sink.commit({"in": {"": 2}})

    def test_the_store_of_an_older_version_goes_on(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        """Its positions are offsets alone; from then on the first has the topic's id."""
        topic = new_topic("events", 2)
        for partition in range(2):
            put(kafka_broker, topic, [prediction(10 * partition + i) for i in range(5)], partition)
        with opened(kafka_broker, topic) as source:
            now = source.seek({"0": 3, "1": 2})
            assert offsets(now) == {"0": 3, "1": 2}
            assert now["1"] == 2
            assert set(now["0"]) == {"offset", "topic_id"}
            assert {p: ids(events) for p, events in read(source, 5).items()} == {
                "0": [3, 4],
                "1": [12, 13, 14],
            }
            source.limit({"0": 4, "1": 2})
            assert source.ended
        with opened(kafka_broker, topic) as source:
            assert source.seek(json.loads(json.dumps(now))) == now

    def test_the_store_keeps_it(self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path) -> None:
        topic, store = new_topic("events", 3), tmp_path / "s.db"
        put(kafka_broker, topic, [prediction(i) for i in range(5)], 2)
        done = streamcal(
            *("run", "--events", url(kafka_broker, topic, "?until=end")),
            *("--output", tmp_path / "out.jsonl", "--store", store),
        )
        assert done.returncode == 0, done.stderr
        with closing(sqlite3.connect(store)) as db:
            rows = dict(db.execute("SELECT partition, position FROM positions").fetchall())
        found = {partition: json.loads(position) for partition, position in rows.items()}
        assert {partition: offset_of(position) for partition, position in found.items()} == {
            "0": 0,
            "1": 0,
            "2": 5,
        }
        assert [partition for partition, position in found.items() if isinstance(position, dict)] == ["0"]


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
