"""Topics as sources: partitions, positions, bad records, brokers that are away."""

from __future__ import annotations

import json
import logging
import math
import time
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]

from streamcal.events import PredictionEvent
from streamcal.events.codec import Malformed
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.clients import producer, transactional, until
from tests.connectors.kafka.fixtures import BOTH, AnyBroker, Topics
from tests.connectors.kafka.topics import ids, offsets, opened, prediction, put, read

pytestmark = pytest.mark.usefixtures("quick_cluster")


class TestSource:
    @BOTH
    def test_several_partitions_each_in_its_order(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("events", 3)
        for partition in range(3):
            put(kafka_broker, topic, [prediction(100 * partition + i) for i in range(50)], partition)
        with opened(kafka_broker, topic) as source:
            assert source.endless
            assert source.name == f"kafka:{topic}"
            assert offsets(source.seek({})) == {"0": 0, "1": 0, "2": 0}
            found = read(source, 150)
            assert {p: ids(events) for p, events in found.items()} == {
                str(p): list(range(100 * p, 100 * p + 50)) for p in range(3)
            }
            assert found["0"][1] == PredictionEvent("1", 0.5, 1.0)
            assert source.poll(10, 0.0) == ()
            assert source.lag() == {"0": 0.0, "1": 0.0, "2": 0.0}
            assert not source.ended

    @BOTH
    def test_the_time_of_a_record_is_that_of_an_event_without_one(
        self, kafka_broker: AnyBroker, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = new_topic("events", 2)
        values = [prediction(1), b'{"id":"2","score":0.5}', b'{"id":"1","label":1}', b"oops"]
        times = [7, 1_767_225_600_250, 1_767_225_601_000, 1_767_225_602_000]
        with producer(kafka_broker) as sender:
            for value, moment in zip(values, times, strict=True):
                sender.send(topic, value, partition=0, timestamp_ms=moment)
            for number in range(200):
                sender.send(
                    topic, b'{"id":"%d","score":0.5}' % number, partition=1, timestamp_ms=number * 1000
                )
            sender.flush(30)
        for option in ("record", "value"):
            monkeypatch.setenv("STREAMCAL_KAFKA_TIME", option)
            with opened(kafka_broker, topic) as source:
                source.seek({})
                found = {
                    place: [event.time for event in events] for place, events in read(source, 204).items()
                }
            given = option == "record"
            assert found["0"] == [
                1.0,
                *([1_767_225_600.25, 1_767_225_601.0] if given else [None, None]),
                None,
            ]
            assert found["1"] == [number if given else None for number in range(200)]

    def test_bad_records_say_where_they_are(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("events", 2)
        two = prediction(1) + b"\n" + prediction(2)
        split = [b'{"id":"4",', b'"score":0.5}']  # together they would be a line
        put(kafka_broker, topic, [prediction(0), b"oops", None, two, *split, prediction(3)], 1)
        with opened(kafka_broker, topic) as source:
            source.seek({})
            batches: list[Any] = []
            while sum(len(batch.events) for batch in batches) < 7:
                batches += source.poll(100, 0.1)
            (batch,) = batches
        reasons = [event.reason if isinstance(event, Malformed) else event.id for event in batch.events]
        assert reasons[0] == "0"
        assert reasons[2] == "the record has no value"
        assert [type(event) for event in batch.events[1:6]] == [Malformed] * 5
        assert reasons[6] == "3"
        origin = batch.origin(1)
        assert (origin.source, origin.line, origin.raw) == (f"{topic}/1", 1, b"oops")
        assert [batch.position(count) for count in (0, 1, 7)] == [0, 1, 7]

    @BOTH
    def test_it_goes_on_where_another_process_was(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("events", 2)
        for partition in range(2):
            put(kafka_broker, topic, [prediction(i) for i in range(10)], partition)
        with opened(kafka_broker, topic) as source:
            source.seek({})
            batches: list[Any] = []
            while len(batches) < 2:
                batches += source.poll(100, 0.1)
            positions = {batch.partition: batch.position(4) for batch in batches}
        with opened(kafka_broker, topic) as source:
            assert offsets(source.seek(json.loads(json.dumps(positions)))) == {"0": 4, "1": 4}
            assert {p: ids(events) for p, events in read(source, 12).items()} == {
                "0": list(range(4, 10)),
                "1": list(range(4, 10)),
            }

    def test_a_limit_and_what_was_fetched_beyond_it(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("events", 2)
        for partition in range(2):
            put(kafka_broker, topic, [prediction(i) for i in range(10)], partition)
        with opened(kafka_broker, topic) as source:
            source.seek({"0": 2, "1": 3})
            source.limit({"0": 7})
            assert not source.ended
            found: list[Any] = []
            while not source.ended:
                for batch in source.poll(100, 0.1):
                    assert batch.partition == "0"
                    found += batch.events
            assert ids(found) == [2, 3, 4, 5, 6]
            assert source.poll(100, 0.1) == ()
            source.limit(None)
            assert {p: ids(e) for p, e in read(source, 10).items()} == {
                "0": [7, 8, 9],
                "1": list(range(3, 10)),
            }

    @BOTH
    def test_a_partition_that_is_added_is_read_from_its_beginning(
        self, kafka_broker: AnyBroker, new_topic: Topics, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        topic = new_topic("events")
        put(kafka_broker, topic, [prediction(0)])
        with opened(kafka_broker, topic, "?from=latest") as source:
            assert offsets(source.seek({})) == {"0": 1}
            assert read(source, 1, 0.5) == {}
            new_topic.grow(topic, 3)
            put(kafka_broker, topic, [prediction(i) for i in (7, 8)], 2)
            put(kafka_broker, topic, [prediction(1)])
            assert {p: ids(e) for p, e in read(source, 3).items()} == {"0": [1], "2": [7, 8]}
        assert f"topic {topic} has new partitions: [1, 2]" in caplog.text
        with opened(kafka_broker, topic, "?from=latest") as source:  # added while it was down
            assert offsets(source.seek({"0": 2})) == {"0": 2, "1": 0, "2": 0}

    @BOTH
    def test_aborted_records_are_never_delivered(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("events")
        with transactional(kafka_broker) as sender, opened(kafka_broker, topic) as source:
            source.seek({})
            for number, commit in ((1, True), (2, False), (3, True), (4, False)):
                sender.begin_transaction()
                sender.send(topic, prediction(number)).get(30)
                if number == 3:
                    assert ids(read(source, 2, 1.0).get("0", [])) == [1]
                (sender.commit_transaction if commit else sender.abort_transaction)()
            assert ids(read(source, 1)["0"]) == [3]
            # The position passes aborted records and markers, so nothing seems to be left.
            until(lambda: not source.poll(10, 0.1) and source.lag() == {"0": 0.0}, str(source.lag()))
        with opened(kafka_broker, topic, "?until=end") as source:
            source.seek({})
            assert not source.endless
            assert ids(read(source, 2)["0"]) == [1, 3]
            until(lambda: not source.poll(10, 0.1) and source.ended, "it does not end")

    def test_a_stalled_partition_is_reported_once(
        self,
        kafka_broker: AnyBroker,
        new_topic: Topics,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        caplog.set_level(logging.INFO)
        monkeypatch.setenv("STREAMCAL_KAFKA_STALL_SECONDS", "0.5")
        topic = new_topic("events")
        with transactional(kafka_broker) as sender, opened(kafka_broker, topic) as source:
            source.seek({})
            sender.begin_transaction()
            sender.send(topic, prediction(1)).get(30)
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                assert not source.poll(10, 0.1)
            assert source.lag() == {"0": 1.0}
            assert caplog.text.count(f"topic {topic}, partition 0 is stalled") == 1
            sender.commit_transaction()
            assert ids(read(source, 1)["0"]) == [1]
            until(lambda: bool(source.poll(10, 0.1)) or "moves again" in caplog.text, caplog.text)

    @BOTH
    @pytest.mark.crash
    def test_the_broker_is_away_and_comes_back(
        self, killable_broker: Broker, new_topic: Topics, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        topic = new_topic("events")
        put(killable_broker, topic, [prediction(0)])
        with opened(killable_broker, topic) as source:
            source.seek({})
            assert ids(read(source, 1)["0"]) == [0]
            killable_broker.kill()
            until(lambda: not source.poll(10, 0.2) and "is away" in caplog.text, "nothing said")
            assert read(source, 1, 3.0) == {}
            killable_broker.start()
            put(killable_broker, topic, [prediction(1)])
            assert ids(read(source, 1)["0"]) == [1]
        said = [record.message for record in caplog.records if record.name == "streamcal_connectors"]
        assert [" is away " in each for each in said] == [True, False]
        assert "is back" in said[1]
        assert not logging.getLogger("kafka").propagate

    @BOTH
    def test_a_partition_has_been_read_to_its_end_only_if_the_broker_says_so(
        self, killable_broker: Broker, new_topic: Topics
    ) -> None:
        topic = new_topic("events", 2)
        put(killable_broker, topic, [prediction(i) for i in range(3)])
        with opened(killable_broker, topic) as source:
            assert source.lag() == {}
            source.seek({})
            assert source.lag() == {"0": 3.0, "1": 0.0}
            assert ids(read(source, 3)["0"]) == [0, 1, 2]
            put(killable_broker, topic, [prediction(i) for i in (3, 4)], 1)
            assert source.lag() == {"0": 0.0, "1": 2.0}  # though no answer to a poll has told
            assert ids(read(source, 2)["1"]) == [3, 4]
            assert source.lag() == {"0": 0.0, "1": 0.0}
            source.poll(10, 0.1)
            killable_broker.kill()
            assert all(math.isnan(left) for left in source.lag().values())
            killable_broker.start()
            until(lambda: not source.poll(10, 0.1) and source.lag() == {"0": 0.0, "1": 0.0}, "it stays away")
        with opened(killable_broker, topic, "?until=end") as source:
            source.seek({})
            put(killable_broker, topic, [prediction(5)])
            read(source, 5)
            assert source.lag() == {"0": 0.0, "1": 0.0}  # what has come since is not to be read

    def test_records_that_were_deleted_are_an_error(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("events")
        put(kafka_broker, topic, [prediction(i) for i in range(10)])
        with closing(KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)) as admin:
            admin.delete_records({TopicPartition(topic, 0): 6})
        with opened(kafka_broker, topic) as source:
            assert offsets(source.seek({})) == {"0": 6}
        with opened(kafka_broker, topic) as source, pytest.raises(ValueError, match="no longer has the rec"):
            source.seek({"0": 3})


def test_librdkafka_does_not_pass_over_a_batch_that_cannot_be_read(
    killable_broker: Broker,
    new_topic: Topics,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A byte on the disk is wrong, then right again. kafka-python 3.0.12 waits for ever in ``poll``."""
    monkeypatch.setenv("STREAMCAL_KAFKA_LIBRARY", "confluent")
    topic = new_topic("events")
    for start in (0, 5, 10):
        put(killable_broker, topic, [prediction(i) for i in range(start, start + 5)])
    log = killable_broker.directory / "data" / f"{topic}-0" / "00000000000000000000.log"
    place = log.read_bytes().index(prediction(7))

    def write(byte: bytes) -> None:
        with log.open("r+b") as file:
            file.seek(place)
            file.write(byte)

    write(b"x")
    with opened(killable_broker, topic) as source:
        source.seek({})
        assert [ids(events) for events in read(source, 15, 3.0).values()] == [list(range(5))]
        assert "CorruptRecordError" in caplog.text
        write(b"{")
        assert ids(read(source, 10)["0"]) == list(range(5, 15))
