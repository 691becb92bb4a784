"""Topics as sources: partitions, positions, brokers that are away, topics that are made anew."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.topics import (
    BOTH,
    CLIENT,
    Kafka,
    ids,
    offsets,
    prediction,
    read,
    streamcal,
    until,
)

pytestmark = pytest.mark.usefixtures("quick_cluster")


def numbers(found: dict[str, list[Any]]) -> dict[str, list[int]]:
    return {partition: ids(events) for partition, events in found.items()}


@BOTH
def test_many_partitions_go_on_behind_a_limit(kafka: Kafka) -> None:
    """What was fetched of several when they were paused was given back of one, and the others stood still."""
    topic = kafka.topic("events", 12)
    for place in range(12):
        kafka.put(topic, [prediction(number) for number in range(300)], place)
    with kafka.opened(topic) as source:
        source.limit({str(place): 50 + place for place in range(12)})
        found = read(source, 12 * 300)
        assert {int(place): len(some) for place, some in found.items()} == {p: 50 + p for p in range(12)}
        source.limit(None)
        for place, some in read(source, 12 * 300 - sum(range(50, 62))).items():
            assert ids(some) == [*range(50 + int(place), 300)]
            found.pop(place)
        assert not found


@BOTH
def test_partitions_are_read_each_in_its_order_from_any_position_and_up_to_a_limit(kafka: Kafka) -> None:
    topic = kafka.topic("events", 2)
    for partition in range(2):
        kafka.put(topic, [prediction(100 * partition + i) for i in range(50)], partition)
    with kafka.opened(topic) as source:
        assert source.endless
        assert source.name == f"kafka:{topic}"
        batches: list[Any] = []
        while len(batches) < 2:
            batches += source.poll(1000, 0.1)
        assert {each.partition: ids(each.events) for each in batches} == {
            "0": list(range(50)),
            "1": list(range(100, 150)),
        }
        assert batches[0].events[1].score == 0.5
        positions = {batch.partition: batch.position(4) for batch in batches}
        assert source.poll(10, 0.0) == ()
        assert source.lag() == {"0": 0.0, "1": 0.0}
        assert not source.ended
    with kafka.opened(topic) as source:  # of another process
        assert offsets(source.seek(json.loads(json.dumps(positions)))) == {"0": 4, "1": 4}
        source.limit({"0": 7})
        assert not source.ended
        assert numbers(read(source, 100)) == {"0": [4, 5, 6]}
        assert source.ended
        source.limit(None)  # what was fetched beyond it comes again
        assert numbers(read(source, 89)) == {"0": list(range(7, 50)), "1": list(range(104, 150))}


@BOTH
def test_the_time_of_a_record_is_that_of_an_event_without_one(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, and as columns."""
    topic = kafka.topic("events", 2)
    values = [prediction(1), b'{"id":"2","score":0.5}', b'{"id":"1","label":1}', b"oops"]
    with kafka.producer() as sender:
        for value, moment in zip(values, [7, 1_767_225_600_250, 1_767_225_601_000, 1], strict=True):
            sender.send(topic, value, partition=0, timestamp_ms=moment)
        for number in range(200):
            sender.send(topic, values[1], partition=1, timestamp_ms=number * 1000)
        sender.flush(30)
    for option, few, many in (
        ("record", [1.0, 1_767_225_600.25, 1_767_225_601.0, None], list(range(200))),
        ("value", [1.0, None, None, None], [None] * 200),
    ):
        monkeypatch.setenv("STREAMCAL_KAFKA_TIME", option)
        with kafka.opened(topic) as source:
            found = {place: [event.time for event in each] for place, each in read(source, 204).items()}
        assert found == {"0": few, "1": many}


@BOTH
def test_a_partition_that_is_added_is_read_from_its_beginning(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    topic = kafka.topic("events")
    kafka.put(topic, [prediction(0)])
    with kafka.opened(topic, "?from=latest") as source:
        assert read(source, 1, 0.3) == {}
        kafka.grow(topic, 3)
        kafka.put(topic, [prediction(i) for i in (7, 8)], 2)
        kafka.put(topic, [prediction(1)])
        assert numbers(read(source, 3)) == {"0": [1], "2": [7, 8]}
        assert f"topic {topic} has new partitions: [1, 2]" in caplog.text
        assert offsets(source.seek({"0": 2})) == {"0": 2, "1": 0, "2": 0}  # as if added while it was down


@BOTH
def test_aborted_records_are_never_delivered_and_an_open_transaction_stalls_the_partition(
    kafka: Kafka, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("STREAMCAL_KAFKA_STALL_SECONDS", "0.5")
    topic = kafka.topic("events")
    with kafka.transactional() as sender, kafka.opened(topic) as source:
        for number, commits in ((1, True), (2, False), (3, True), (4, False)):
            sender.begin_transaction()
            sender.send(topic, prediction(number)).get(30)
            if number == 3:
                assert ids(read(source, 1)["0"]) == [1]
                until(lambda: source.poll(10, 0.1) or "is stalled" in caplog.text, "it is not reported")
                assert source.lag() == {"0": 1.0}
                assert source.poll(10, 0.1) == ()
            (sender.commit_transaction if commits else sender.abort_transaction)()
        assert ids(read(source, 1)["0"]) == [3]
        # The position passes aborted records and markers, so nothing seems to be left.
        until(lambda: not source.poll(10, 0.1) and source.lag() == {"0": 0.0}, str(source.lag()))
        until(lambda: source.poll(10, 0.1) or "moves again" in caplog.text, caplog.text)
    assert caplog.text.count(f"topic {topic}, partition 0 is stalled") == 1
    with kafka.opened(topic, "?until=end") as source:
        assert not source.endless
        assert ids(read(source, 3)["0"]) == [1, 3]
        assert source.ended


@BOTH
@pytest.mark.crash
def test_the_broker_is_away_and_comes_back(
    killable_broker: Broker, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once; and a partition has been read to its end only if the broker says so."""
    caplog.set_level(logging.INFO)
    topic = kafka.topic("events", 2)
    kafka.put(topic, [prediction(i) for i in range(3)])
    with kafka.opened(topic) as source:
        assert source.lag() == {"0": 3.0, "1": 0.0}
        assert ids(read(source, 3)["0"]) == [0, 1, 2]
        kafka.put(topic, [prediction(i) for i in (3, 4)], 1)
        assert source.lag() == {"0": 0.0, "1": 2.0}  # though no answer to a poll has told
        assert ids(read(source, 2)["1"]) == [3, 4]
        assert source.lag() == {"0": 0.0, "1": 0.0}
        source.poll(10, 0.1)
        killable_broker.kill()
        assert all(math.isnan(left) for left in source.lag().values())
        until(lambda: not source.poll(10, 0.1) and "is away" in caplog.text, "nothing said")
        killable_broker.start()
        until(lambda: not source.poll(10, 0.1) and source.lag() == {"0": 0.0, "1": 0.0}, "it stays away")
        kafka.put(topic, [prediction(5)])
        assert ids(read(source, 1)["0"]) == [5]
    said = [record.message for record in caplog.records if record.name == "streamcal_connectors"]
    assert [" is away " in each for each in said] == [True, False]
    assert "is back" in said[1]
    with kafka.opened(topic, "?until=end") as source:
        kafka.put(topic, [prediction(6)])
        read(source, 7)
        assert source.lag() == {"0": 0.0, "1": 0.0}  # what has come since is not to be read


def test_librdkafka_does_not_pass_over_a_batch_that_cannot_be_read(
    killable_broker: Broker, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A byte on the disk is wrong, then right again. kafka-python 3.0.12 waits for ever in ``poll``."""
    monkeypatch.setenv(CLIENT, "confluent")
    topic = kafka.topic("events")
    for start in (0, 5, 10):
        kafka.put(topic, [prediction(i) for i in range(start, start + 5)])
    log = killable_broker.directory / "data" / f"{topic}-0" / "00000000000000000000.log"
    place = log.read_bytes().index(prediction(7))

    def write(byte: bytes) -> None:
        with log.open("r+b") as file:
            file.seek(place)
            file.write(byte)

    write(b"x")
    with kafka.opened(topic) as source:
        assert numbers(read(source, 15, 1.5)) == {"0": list(range(5))}
        assert "CorruptRecordError" in caplog.text
        write(b"{")
        assert numbers(read(source, 10)) == {"0": list(range(5, 15))}


def test_records_that_were_deleted_are_an_error(kafka: Kafka) -> None:
    topic = kafka.topic("events")
    kafka.put(topic, [prediction(i) for i in range(10)])
    kafka.cut(topic, 6)
    with kafka.opened(topic) as source:
        assert offsets(source.seek({})) == {"0": 6}
        with pytest.raises(ValueError, match="no longer has the rec"):
            source.seek({"0": 3})


def test_a_longer_topic_of_the_same_name_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    """Its first records would be taken for those that the store has answered."""
    events, answers = kafka.topic("events", 2), kafka.topic("answers")
    kafka.put(events, [prediction(i) for i in range(50)], 1)
    source, store = ["--events", kafka.url(events, "?until=end")], ["--store", tmp_path / "s.db"]
    command = ["run", *source, "--output", kafka.url(answers)]
    streamcal(*command, *store, status=0)
    with kafka.opened(events) as running:
        assert ids(read(running, 50)["1"]) == list(range(50))
        kafka.recreate(events, 2)
        kafka.put(events, [prediction(i) for i in range(1000, 1100)], 1)
        with pytest.raises(ValueError, match="deleted and created again"):
            until(lambda: running.poll(100, 0.1) and False, "it goes on")
    done = streamcal(*command, *store, status=1)
    assert f"topic {events} is not the one that was read before" in done.stderr
    assert "start with a new store" in done.stderr
    assert kafka.answered(answers) == list(range(50))
    streamcal(*command, "--store", tmp_path / "new.db", "--append", status=0)
    assert kafka.answered(answers) == [*range(50), *range(1000, 1100)]


POISON: dict[str, bytes | None] = {
    "nested": b"[" * 100_000,
    "no UTF-8": b'{"id":"\xff\xfe","score":0.5}',
    "empty": b"",
    "blank": b" ",
    "tombstone": None,
    "line breaks": b"\n\n\n",
    "two": prediction(1) + b"\n" + prediction(2),
    "zero bytes": b"\x00" * 100,
    "large": b"x" * 900_000,
}


def test_a_run_goes_on_behind_what_is_no_event_and_so_does_the_next(kafka: Kafka, tmp_path: Path) -> None:
    """Each is a reject that says where it is."""
    events, answers, rejects = kafka.topic("events"), kafka.topic("answers"), kafka.topic("rejects")
    values: list[bytes | None] = []
    for number, value in enumerate(POISON.values()):
        values += [prediction(number), value]
    command = ["run", "--events", kafka.url(events, "?until=end"), "--store", tmp_path / "s.db"]
    command += ["--output", kafka.url(answers), "--rejects", kafka.url(rejects)]
    for part in (values, [b'{"id":"4",', b'"score":0.5}', prediction(100)]):  # which would be a line together
        kafka.put(events, part)
        done = streamcal(*command, status=0)
        assert "Traceback" not in done.stderr
    assert kafka.answered(answers) == [*range(len(POISON)), 100]
    rows = kafka.values(rejects)
    assert {row["source"] for row in rows} == {f"{events}/0"}
    assert [row["line"] for row in rows] == [*range(1, len(values), 2), len(values), len(values) + 1]
    assert all(row["reason"] and len(row["raw"]) <= 4096 for row in rows)
    assert dict(zip(POISON, rows, strict=False))["tombstone"]["reason"] == "the record has no value"
