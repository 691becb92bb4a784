"""The Kafka connector against a real broker; test_run.py has the command line under kill -9."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import (  # type: ignore[import-untyped]
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
)
from streamcal_connectors.kafka import client as kafka_client
from streamcal_connectors.kafka import cluster as kafka_cluster
from streamcal_connectors.kafka import sink as kafka_sink
from streamcal_connectors.kafka.config import KafkaConfig, KafkaUrl, read_kafka_config
from streamcal_connectors.kafka.login import log_in
from streamcal_connectors.kafka.source import KafkaConnector, KafkaSource

from streamcal import JoinConfig, RecalibrationMap
from streamcal.engine.emissions import Recalibrated
from streamcal.events import PredictionEvent
from streamcal.run.codec import Malformed
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Connectors
from streamcal.run.rows import MapRow, RejectRow
from streamcal.run.runner import Inputs, Outputs, Runner
from tests.connectors.kafka import broker as broker_module
from tests.connectors.kafka.broker import Broker, free_ports
from tests.connectors.kafka.clients import consumer, producer, rows_of, transactional, unique, until
from tests.connectors.kafka.fixtures import AnyBroker, Topics

SECRET = "hunter2-correct-horse"
STREAMCAL = [sys.executable, "-c", "from streamcal.cli.app import main; main()"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for new partitions often, and give up soon."""
    monkeypatch.setenv("STREAMCAL_KAFKA_REFRESH_SECONDS", "0.3")
    monkeypatch.setenv("STREAMCAL_KAFKA_REQUEST_SECONDS", "5")
    monkeypatch.setattr(kafka_cluster, "_MISSING_SECONDS", 0.3)


def url(broker: AnyBroker, topic: str, options: str = "") -> str:
    return f"kafka://{broker.bootstrap}/{topic}{options}"


def prediction(number: int) -> bytes:
    return b'{"id":"%d","score":0.5,"time":%d}' % (number, number)


def put(broker: AnyBroker, topic: str, values: Sequence[bytes | None], partition: int = 0) -> None:
    with producer(broker, linger_ms=5) as sender:
        sent = [sender.send(topic, value, partition=partition, key=b"k") for value in values]
        sender.flush(30)
        assert all(each.succeeded() for each in sent)


@contextmanager
def opened(broker: AnyBroker, topic: str, options: str = "") -> Iterator[KafkaSource]:
    with closing(KafkaConnector().source(url(broker, topic, options), "target", follow=False)) as source:
        yield source


def read(source: KafkaSource, count: int, seconds: float = 20.0) -> dict[str, list[Any]]:
    """Poll until there are so many events; return them by partition."""
    found: dict[str, list[Any]] = {}
    deadline = time.monotonic() + seconds
    while sum(map(len, found.values())) < count and time.monotonic() < deadline:
        for batch in source.poll(1000, 0.1):
            found.setdefault(batch.partition, []).extend(batch.events)
    return found


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
    return subprocess.run(
        [*STREAMCAL, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": "200", **environment},
    )


@contextmanager
def started(
    *arguments: object, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """Start the command line; give its process, and what says what it has said so far."""
    with tempfile.TemporaryFile() as log:

        def said() -> str:
            return os.pread(log.fileno(), 1 << 20, 0).decode()

        with subprocess.Popen(
            [*STREAMCAL, *map(str, arguments)],
            stdout=log,
            stderr=log,
            env={**os.environ, "COLUMNS": "200", **environment},
        ) as process:
            try:
                yield process, said
            finally:
                process.kill()


class TestSource:
    def test_several_partitions_each_in_its_order(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("events", 3)
        for partition in range(3):
            put(kafka_broker, topic, [prediction(100 * partition + i) for i in range(50)], partition)
        with opened(kafka_broker, topic) as source:
            assert source.endless
            assert source.name == f"kafka:{topic}"
            assert source.seek({}) == {"0": 0, "1": 0, "2": 0}
            found = read(source, 150)
            assert {p: ids(events) for p, events in found.items()} == {
                str(p): list(range(100 * p, 100 * p + 50)) for p in range(3)
            }
            assert found["0"][1] == PredictionEvent("1", 0.5, 1.0)
            assert source.poll(10, 0.0) == ()
            assert source.lag() == {"0": 0.0, "1": 0.0, "2": 0.0}
            assert not source.ended

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
            assert source.seek(json.loads(json.dumps(positions))) == {"0": 4, "1": 4}
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

    def test_a_partition_that_is_added_is_read_from_its_beginning(
        self, kafka_broker: AnyBroker, new_topic: Topics, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        topic = new_topic("events")
        put(kafka_broker, topic, [prediction(0)])
        with opened(kafka_broker, topic, "?from=latest") as source:
            assert source.seek({}) == {"0": 1}
            assert read(source, 1, 0.5) == {}
            new_topic.grow(topic, 3)
            put(kafka_broker, topic, [prediction(i) for i in (7, 8)], 2)
            put(kafka_broker, topic, [prediction(1)])
            assert {p: ids(e) for p, e in read(source, 3).items()} == {"0": [1], "2": [7, 8]}
        assert f"topic {topic} has new partitions: [1, 2]" in caplog.text
        with opened(kafka_broker, topic, "?from=latest") as source:  # added while it was down
            assert source.seek({"0": 2}) == {"0": 2, "1": 0, "2": 0}

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

    def test_calibration_ends_where_the_topic_does(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("events", 2)
        put(kafka_broker, topic, [b'{"score":0.5,"label":1}'] * 5)
        with closing(KafkaConnector().source(url(kafka_broker, topic), "source", follow=False)) as source:
            source.seek({})
            put(kafka_broker, topic, [b'{"score":0.5,"label":0}'])
            assert [event.domain for event in read(source, 5)["0"]] == ["source"] * 5
            assert source.ended

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
            assert source.seek({}) == {"0": 6}
        with opened(kafka_broker, topic) as source, pytest.raises(ValueError, match="no longer has the rec"):
            source.seek({"0": 3})

    def test_a_topic_that_was_made_anew_is_an_error(
        self, kafka_broker: AnyBroker, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("streamcal_connectors.kafka.source._SETTLE_SECONDS", 0.5)
        topic = new_topic("events")
        put(kafka_broker, topic, [prediction(0)])
        with opened(kafka_broker, topic) as source:
            with pytest.raises(ValueError, match="ends at offset 1, but was read up to 5"):
                source.seek({"0": 5})
            with pytest.raises(ValueError, match="has no partition 4 any more"):
                source.seek({"4": 5})


class TestSink:
    def test_rows_keys_and_positions(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        answers, rejects, maps = new_topic("answers", 2), new_topic("rejects"), new_topic("maps")
        positions = {"kafka:in": {"0": 3, "1": 4}, "/a/file": {"": {"offset": 17, "line": 2}}}
        connector = KafkaConnector()
        sinks = [connector.sink(url(kafka_broker, topic)) for topic in (answers, rejects, maps)]
        assert [sink.resume("job", None) for sink in sinks] == [None, None, None]
        for sink, rows in zip(
            sinks,
            (
                [answer(i) for i in range(20)],
                [RejectRow("in/1", 3, "bad", "{"), RejectRow("in/1", 4, "long", "\x01" * 1_000_000)],
                [map_row(1), map_row(2, "eu")],
            ),
            strict=True,
        ):
            sink.write(rows)
        assert [sink.commit(positions) for sink in sinks] == [{"transaction": 1}] * 3
        for sink in sinks:
            sink.close()
        assert answered(kafka_broker, answers) == list(range(20))
        assert {record.key for record in rows_of(kafka_broker, answers)} == {b"%d" % i for i in range(20)}
        assert len({record.partition for record in rows_of(kafka_broker, answers)}) == 2
        short, long = rows_of(kafka_broker, rejects)
        assert msgspec.json.decode(short.value) == {"source": "in/1", "line": 3, "reason": "bad", "raw": "{"}
        assert len(msgspec.json.decode(long.value)["raw"]) == 4096
        assert [record.key for record in rows_of(kafka_broker, maps)] == [b"", b"eu"]

        again = KafkaConnector().sink(url(kafka_broker, answers))
        assert again.resume("job", {"transaction": 1}) == positions
        again.close()
        other = KafkaConnector().sink(url(kafka_broker, answers))
        assert other.resume("another job", None) is None
        other.close()
        third = KafkaConnector().sink(url(kafka_broker, answers))
        with pytest.raises(ValueError, match="committed transaction 7, but the cluster knows of none"):
            third.resume("third", {"transaction": 7})
        third.close()

    def test_a_row_that_is_not_committed_is_not_there(
        self, kafka_broker: AnyBroker, new_topic: Topics
    ) -> None:
        topic = new_topic("answers")
        sink = KafkaConnector().sink(url(kafka_broker, topic))
        sink.resume("job", None)
        sink.write([answer(1)])
        sink.close()
        again = KafkaConnector().sink(url(kafka_broker, topic))
        assert again.resume("job", None) is None
        again.write([answer(2)])
        again.commit({})
        again.close()
        assert answered(kafka_broker, topic) == [2]

    def test_tools_see_the_offsets_of_the_topics(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        events, answers = new_topic("events", 2), new_topic("answers")
        connector = KafkaConnector()
        source = connector.source(url(kafka_broker, events), "target", follow=False)
        sink = connector.sink(url(kafka_broker, answers))
        sink.resume("job", None)
        sink.commit({source.name: {"0": 5, "1": 6}})
        sink.close()
        source.close()
        with consumer(kafka_broker, group_id=f"streamcal.{answers}.job") as reader:
            assert [reader.committed(TopicPartition(events, p)) for p in (0, 1)] == [5, 6]

    @pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
    @pytest.mark.parametrize("job", ["job", ""], ids=["with a store", "without"])
    def test_a_commit_in_doubt(
        self,
        kafka_broker: AnyBroker,
        new_topic: Topics,
        monkeypatch: pytest.MonkeyPatch,
        committed: bool,
        job: str,
    ) -> None:
        """It raised: whether it was done is found out, and nothing is lost or doubled."""
        topic = new_topic("answers", 2)
        sink = KafkaConnector().sink(url(kafka_broker, topic))
        sink.resume(job, None)
        real = kafka_client.Producer.commit
        failures = iter([True, True, False])

        def commit(self: kafka_client.Producer) -> None:
            fails = next(failures, False)
            if committed or not fails:
                real(self)
            if fails:
                raise KafkaTimeoutError("no answer")

        monkeypatch.setattr(kafka_client.Producer, "commit", commit)
        for number in range(5):
            sink.write([answer(2 * number), answer(2 * number + 1)])
            sink.commit({"in": {"": number}})
        sink.close()
        assert answered(kafka_broker, topic) == list(range(10))

    def test_a_record_that_failed_is_seen_though_the_client_would_commit(
        self, kafka_broker: AnyBroker, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = new_topic("answers")
        sink = KafkaConnector().sink(url(kafka_broker, topic))
        sink.resume("job", None)

        class Lost:
            exception = KafkaConnectionError("expired")

            def succeeded(self) -> bool:
                return False

        transact = kafka_sink.Transactions._transact
        times = iter([1])

        def lossy(self: Any, maker: Any, mark: Any) -> None:
            if next(times, None):
                real = maker.send
                maker.send = lambda name, value, *more: (
                    Lost() if b'"id":"1"' in value else real(name, value, *more)
                )
            transact(self, maker, mark)

        monkeypatch.setattr(kafka_sink.Transactions, "_transact", lossy)
        sink.write([answer(0), answer(1)])
        sink.commit({})
        sink.close()
        assert answered(kafka_broker, topic) == [0, 1]

    def test_a_zombie_is_fenced_and_stops(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("answers")
        first, second = (KafkaConnector().sink(url(kafka_broker, topic)) for _ in range(2))
        first.resume("job 1", None)
        first.write([answer(1)])
        first.commit({"in": {"": 1}})
        second.resume("job 2", None)
        first.write([answer(2)])
        with pytest.raises(OSError, match="another run writes with the transactional id"):
            first.commit({"in": {"": 2}})
        second.write([answer(3)])
        second.commit({"in": {"": 3}})
        first.close()
        second.close()
        assert answered(kafka_broker, topic) == [1, 3]

    def test_runs_that_share_a_topic_need_ids_of_their_own(
        self, kafka_broker: AnyBroker, new_topic: Topics
    ) -> None:
        topic = new_topic("answers")
        sinks = [
            KafkaConnector().sink(url(kafka_broker, topic, f"?transactional_id={unique(name)}"))
            for name in "ab"
        ]
        for sink in sinks:
            sink.resume("job", None)
        for number, sink in enumerate(sinks):
            sink.write([answer(number)])
            sink.commit({})
            sink.close()
        assert answered(kafka_broker, topic) == [0, 1]
        connector = KafkaConnector()
        connector.sink(url(kafka_broker, topic))
        with pytest.raises(ValueError, match="share one transactional id"):
            connector.sink(url(kafka_broker, topic + "2", "?transactional_id=x"))

    @pytest.mark.crash
    def test_the_broker_is_killed_under_the_commits(
        self, killable_broker: Broker, new_topic: Topics, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        topic = new_topic("answers", 2)
        sink = KafkaConnector().sink(url(killable_broker, topic))
        sink.resume("job", None)
        rng = random.Random(1)
        with broker_killer(killable_broker, rng, 3) as over:
            number = 0
            while not over():
                sink.write([answer(i) for i in range(number, number + 20)])
                number += 20
                sink.commit({"in": {"": number}})
        sink.close()
        assert answered(killable_broker, topic) == list(range(number))

    def test_positions_of_many_partitions_fit(self) -> None:
        rng = random.Random(1)
        offsets = {str(p): rng.randrange(10**6) for p in range(500)}
        mark = kafka_sink._Mark(12, {"kafka:predictions": offsets})
        text = kafka_sink._pack(mark)
        assert len(text) < 4096
        assert kafka_sink._unpack(text) == mark


@contextmanager
def broker_killer(broker: Broker, rng: random.Random, times: int) -> Iterator[Callable[[], bool]]:
    """Kill and start the broker in a thread; give what says whether that is over."""

    def kill() -> None:
        for _ in range(times):
            time.sleep(rng.uniform(0.3, 0.6))
            broker.kill()
            broker.start()
        time.sleep(0.5)

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        yield lambda: not killing.is_alive()
    finally:
        killing.join()


class DiedError(BaseException):
    """Stands for kill -9."""


class TestRun:
    @pytest.mark.parametrize("step", ["before the broker", "before the store", "after the store"])
    def test_dying_at_a_step_of_the_commit(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path, step: str
    ) -> None:
        """Between the broker's commit and the store's, the batch is replayed with its output suppressed."""
        events, labels = new_topic("events", 2), new_topic("labels")
        topics = new_topic("answers", 2), new_topic("rejects"), new_topic("maps")
        rng = random.Random(1)
        rows = [b'{"id":"%d","score":%.6f,"time":%d}' % (i, rng.random(), i) for i in range(300)]
        put(kafka_broker, events, rows[::2], 0)
        put(kafka_broker, events, rows[1::2], 1)
        put(kafka_broker, labels, [b'{"id":"%d","label":%d,"time":%d}' % (i, i % 2, i) for i in range(300)])
        put(kafka_broker, events, [b"oops"], 1)
        deaths = 0
        replayed: list[int] = []

        def drive(*, dies: bool) -> Pipeline:
            nonlocal deaths
            connectors = Connectors()
            store = connectors.store(str(tmp_path / "s.db"))
            pipeline = Pipeline(join=JoinConfig(), tables=store.tables)
            sources = [connectors.source(url(kafka_broker, topic)) for topic in (events, labels)]
            sinks: list[Any] = [connectors.sink(url(kafka_broker, topic)) for topic in topics]
            count = 0

            def dying(when: str, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
                def wrapped(argument: Any) -> Any:
                    nonlocal count
                    count += when == step
                    if dies and when == step and count == 3:
                        raise DiedError
                    return call(argument)

                return wrapped

            write = sinks[0].write
            sinks[0].write = lambda rows: (replayed.append(len(rows)), write(rows))
            sinks[0].commit = dying("before the broker", sinks[0].commit)
            keep = store.commit
            if step == "before the store":
                store.commit = dying(step, keep)  # type: ignore[method-assign]
            elif step == "after the store":

                def after(change: Any) -> None:
                    keep(change)
                    dying(step, lambda _: None)(change)

                store.commit = after  # type: ignore[method-assign]
            began = time.monotonic()

            runner = Runner(
                pipeline,
                Inputs([], sources),
                Outputs(*sinks),
                store,
                clock=time.monotonic,
                stop=lambda: pipeline.tally.events >= 601 or time.monotonic() - began > 60,
            )
            try:
                runner.run()
            except DiedError:
                deaths += 1
            finally:
                for each in (*sources, *sinks, store):
                    each.close()
            return pipeline

        import streamcal.run.runner

        streamcal.run.runner.MAX_EVENTS, before = 60, streamcal.run.runner.MAX_EVENTS  # type: ignore[misc]
        try:
            for _ in range(3):
                drive(dies=True)
            pipeline = drive(dies=False)
        finally:
            streamcal.run.runner.MAX_EVENTS = before  # type: ignore[misc]
        assert deaths == 3
        assert answered(kafka_broker, topics[0]) == list(range(300))
        (bad,) = rows_of(kafka_broker, topics[1])
        reject = msgspec.json.decode(bad.value)
        assert (reject["source"], reject["line"], reject["raw"]) == (f"{events}/1", 150, "oops")
        assert pipeline.counts.joined == 300
        published = [
            msgspec.json.decode(record.value)["version"] for record in rows_of(kafka_broker, topics[2])
        ]
        assert published == sorted(set(published))
        if step != "before the broker":  # what was on the broker was not written again
            assert sum(replayed) == 300

    def test_the_map_of_a_calibration_is_published_once(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        """Though its commit reads nothing: only what the transaction carries tells that it was done."""
        source, events = tmp_path / "source.jsonl", tmp_path / "events.jsonl"
        rng = random.Random(1)
        lines = (b'{"score":%.6f,"label":%d}\n' % (rng.random(), rng.randrange(2)) for _ in range(200))
        source.write_bytes(b"".join(lines))
        events.write_bytes(b"".join(prediction(i) + b"\n" for i in range(10)))
        topics = new_topic("answers"), new_topic("maps")
        dies = iter([True, True])
        for _ in range(3):
            connectors = Connectors()
            store = connectors.store(str(tmp_path / "s.db"))
            answers, maps = (connectors.sink(url(kafka_broker, topic)) for topic in topics)
            keep = store.commit

            def commit(change: Any, keep: Any = keep) -> None:
                if change.maps and next(dies, False):
                    raise DiedError
                keep(change)

            store.commit = commit  # type: ignore[method-assign]
            inputs = Inputs(
                [connectors.source(str(source), "source")], [connectors.source(str(events), "target")]
            )
            outputs = Outputs(answers, maps=maps)
            runner = Runner(Pipeline(tables=store.tables), inputs, outputs, store, clock=time.monotonic)
            with suppress(DiedError):
                runner.run()
            for each in (*inputs.calibration, *inputs.deployment, answers, maps, store):
                each.close()
        assert next(dies, None) is None
        assert answered(kafka_broker, topics[0]) == list(range(10))
        assert len(rows_of(kafka_broker, topics[1])) == 1

    def test_an_unknown_topic(self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path) -> None:
        known, unknown = new_topic("known"), unique("unknown")
        out = tmp_path / "out.jsonl"
        done = streamcal("run", "--events", url(kafka_broker, unknown), "--output", out)
        assert done.returncode == 1
        assert f"there is no topic '{unknown}'" in done.stderr
        done = streamcal("run", "--events", url(kafka_broker, known), "--output", url(kafka_broker, unknown))
        assert done.returncode == 3
        assert f"there is no topic '{unknown}'" in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("away", "number", "status"),
        [("killed", signal.SIGTERM, 0), ("paused", signal.SIGINT, 130)],
    )
    def test_a_signal_while_a_commit_waits_for_the_broker(
        self,
        killable_broker: Broker,
        new_topic: Topics,
        tmp_path: Path,
        away: str,
        number: signal.Signals,
        status: int,
    ) -> None:
        """It ends before long; what it could not commit, the next run does, once."""
        answers = new_topic("answers")
        events, rejects = tmp_path / "events.jsonl", tmp_path / "rejects.jsonl"
        command = ["run", "--events", events, "--output", url(killable_broker, answers)]
        command += ["--rejects", rejects, "--store", tmp_path / "s.db"]

        def append(start: int, stop: int) -> None:
            with events.open("ab") as file:
                file.write(b"".join(prediction(i) + b"\n" for i in range(start, stop)) + b"oops\n")

        append(0, 10)
        with started(*command, "--follow") as (process, said):
            until(lambda: rejects.exists() and len(rejects.read_bytes().splitlines()) == 1, "no rejects")
            (killable_broker.kill if away == "killed" else killable_broker.pause)()
            append(10, 20)
            if away == "killed":
                until(lambda: "is away" in said(), "it does not notice")
            else:
                time.sleep(2.0)  # it waits for an answer
            begun = time.monotonic()
            process.send_signal(number)
            assert process.wait(60) == status, said()
            seconds = time.monotonic() - begun
            assert "what was committed is kept" in said()
            assert "Traceback" not in said()
        print(f"\n{away}: ended {seconds:.1f} s after {number.name}")
        assert seconds < 30
        if away == "killed":
            killable_broker.start()
        else:
            killable_broker.resume()
        done = streamcal(*command)
        assert done.returncode == 0, done.stderr
        assert answered(killable_broker, answers) == list(range(20))
        assert len(rejects.read_bytes().splitlines()) == 2

    @pytest.mark.slow
    def test_sigterm_while_it_waits_for_the_cluster_at_the_start(self, tmp_path: Path) -> None:
        nowhere = f"kafka://127.0.0.1:{free_ports(1)[0]}/events"
        with started("run", "--events", nowhere, "--output", tmp_path / "out.jsonl") as (process, said):
            until(lambda: "is away" in said(), "it does not notice")
            process.terminate()
            assert process.wait(20) == 0, said()

    @pytest.mark.slow
    def test_a_cluster_that_is_not_there(self, tmp_path: Path) -> None:
        nowhere = f"kafka://127.0.0.1:{free_ports(1)[0]}/events"
        done = streamcal(
            *("run", "--events", nowhere, "--output", tmp_path / "out.jsonl"),
            STREAMCAL_KAFKA_CONNECT_SECONDS="1",
        )
        assert done.returncode == 1
        assert done.stderr.count("is away") == 1
        assert "was away for 1 s" in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.slow
    def test_without_kafka_python(self, tmp_path: Path) -> None:
        """And with a directory named kafka on the path, which is then an empty package of that name."""
        (tmp_path / "kafka").mkdir()
        code = (
            "import sys; sys.modules.pop('kafka', None)\n"
            "import importlib.abc\n"
            "class Block(importlib.abc.MetaPathFinder):\n"
            "    def find_spec(self, name, path, target=None):\n"
            "        if name.startswith('kafka.'): raise ModuleNotFoundError(name)\n"
            "sys.meta_path.insert(0, Block())\n"
            "from streamcal.cli.app import main; main()\n"
        )
        for place in ({}, {"PYTHONPATH": str(tmp_path)}):
            done = subprocess.run(
                [sys.executable, "-c", code, "run", "--events=kafka://h/t", f"--output={tmp_path}/out"],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
                env={**os.environ, **place},
            )
            assert done.returncode == 2
            assert "pip install 'streamcal-engine[kafka]'" in done.stderr
            assert "Traceback" not in done.stderr


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
        with subprocess.Popen(
            [*STREAMCAL, "apply", *options, "--output", url(kafka_broker, answers)], stderr=subprocess.PIPE
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


class TestConfiguration:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("kafka://h:1/", "a topic name has"),
            ("kafka:///topic", "a Kafka URL is"),
            ("kafka://h:1:2/topic", "a Kafka URL is"),
            ("kafka://h/a/b", "a topic name has"),
            (f"kafka://me:{SECRET}@h/topic", "a URL must not have a user"),
            ("kafka://h/t?frm=latest", "frm: Extra inputs.*options: cluster, config, from, trans"),
            ("kafka://h/t?from=now", "'earliest' or 'latest'"),
            (f"kafka://h/t?sasl_password={SECRET}", "sasl_password: Extra inputs"),
        ],
    )
    def test_a_url_that_is_none(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            KafkaUrl(text)
        assert SECRET not in str(caught.value)

    def test_a_url(self) -> None:
        parsed = KafkaUrl("kafka://a,[::1]:9,b:19092/my.topic?from=latest&cluster=eu")
        assert parsed.hosts == ("a:9092", "[::1]:9", "b:19092")
        assert (parsed.topic, parsed.start, parsed.name) == ("my.topic", "latest", "kafka:eu/my.topic")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (f'[kafka]\nsasl_password = "{SECRET}"', "sasl_password: Extra inputs are not permitted"),
            (f'[kafka]\nstall_seconds = "{SECRET}"', "stall_seconds"),
            (f"[kafka]\n{SECRET}", "is not a TOML file"),
            ("kafka = 3", "must be a table"),
            ('[kafka]\nssl_cafile = "/nowhere"\nsecurity_protocol = "SSL"', "ssl_cafile: there is no file"),
            ('[kafka]\nsecurity_protocol = "SASL_SSL"', "needs sasl_mechanism and sasl_username"),
            ('[kafka]\nsasl_mechanism = "PLAIN"', "needs security_protocol"),
            (
                '[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "u"',
                "needs sasl_password_env or sasl_password_file",
            ),
        ],
    )
    def test_options_that_are_refused(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "kafka.toml"
        path.write_text(text)
        with pytest.raises(ValueError, match=message) as caught:
            read_kafka_config(path)
        assert SECRET not in repr(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None

    def test_a_secret_comes_from_the_environment_or_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "secret"
        base = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "me"}
        monkeypatch.setenv("THE_SECRET", SECRET)
        by_name = KafkaConfig(**base, sasl_password_env="THE_SECRET")  # type: ignore[arg-type]
        by_file = KafkaConfig(**base, sasl_password_file=file)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="cannot read"):
            by_file.client_options()
        file.write_text(SECRET + "\n")
        for config in (by_name, by_file):
            assert config.client_options()["sasl_plain_password"] == SECRET
            cluster = kafka_cluster.Cluster(["h:1"], config)
            password = config.sasl_password()
            shown = f"{config!r} {config} {config.model_dump_json()} {password!r} {cluster!r} {cluster}"
            assert SECRET not in shown
        monkeypatch.delenv("THE_SECRET")
        with pytest.raises(ValueError, match="the environment has no variable THE_SECRET"):
            by_name.client_options()

    def test_the_environment_goes_before_the_file_and_that_before_the_runs_own(self, tmp_path: Path) -> None:
        path = tmp_path / "kafka.toml"
        path.write_text("[recalibrator]\nbins = 3\n[kafka]\nstall_seconds = 7\nrequest_seconds = 8\n")
        table = {"stall_seconds": 1, "refresh_seconds": 2, "request_seconds": 3}
        environment = {"STREAMCAL_KAFKA_CONFIG": str(path), "STREAMCAL_KAFKA_STALL_SECONDS": "9"}
        config = read_kafka_config(None, environment, table)
        assert (config.stall_seconds, config.request_seconds, config.refresh_seconds) == (9.0, 8.0, 5.0)
        del environment["STREAMCAL_KAFKA_CONFIG"]
        config = read_kafka_config(None, environment, table)
        assert (config.stall_seconds, config.request_seconds, config.refresh_seconds) == (9.0, 3.0, 2.0)

    def test_the_runs_own_table_is_that_of_its_connector(self) -> None:
        connectors = Connectors({"kafka": {"stall_seconds": 0.125}})
        source: Any = connectors.source("kafka://h:1/t")
        assert source._cluster.config.stall_seconds == 0.125
        with pytest.raises(ValueError, match="--config, Kafka options: stal_seconds: Extra inputs"):
            Connectors({"kafka": {"stal_seconds": SECRET}}).sink("kafka://h:1/t")
        with pytest.raises(ValueError, match="the connector for 'memory' takes no options"):
            Connectors({"memory": {"a": 1}}).sink("memory:x")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (f'[kafka]\nsasl_password = "{SECRET}"', "sasl_password: Extra inputs are not permitted"),
            (f'[kafak]\nsasl_password = "{SECRET}"', r"unknown table \[kafak\]; known: .*kafka"),
            (f'kafka = "{SECRET}"', "kafka must be a table"),
            (f"[connectors.kafka]\na = '{SECRET}'", r"unknown table \[connectors\]"),
        ],
    )
    def test_a_configuration_that_is_refused_shows_no_secret(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        path = tmp_path / "run.toml"
        path.write_text(text)
        done = streamcal("run", "--config", path, "--events", "kafka://h/t", "--output", "-")
        assert done.returncode == 2
        assert re.search(message, done.stderr), done.stderr
        assert SECRET not in done.stderr


class Secured(NamedTuple):
    """A broker, the ports of its two listeners with TLS, and the certificate to trust."""

    broker: Broker
    sasl_port: int
    mutual_port: int
    certificate: Path


@pytest.fixture(scope="module")
def secure(kafka_broker: AnyBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Return a broker that also listens with TLS and SASL, and with TLS and certificates of clients."""
    if not isinstance(kafka_broker, Broker):
        pytest.skip("the broker is not ours to configure")
    folder = tmp_path_factory.mktemp("tls")
    keys, certificate = folder / "keys.p12", folder / "ca.pem"
    store = ["-keystore", str(keys), "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "broker"]
    made = ["-keyalg", "RSA", "-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost"]
    subprocess.run(["keytool", "-genkeypair", *store, *made], check=True, capture_output=True)
    subprocess.run(
        ["keytool", "-exportcert", "-rfc", *store, "-file", str(certificate)], check=True, capture_output=True
    )
    trusted = ["-keystore", str(folder / "trust.p12"), "-storetype", "PKCS12", "-storepass", "changeit"]
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", *trusted, "-alias", "ca", "-file", str(certificate)],
        check=True,
        capture_output=True,
    )
    port, mutual = free_ports(2)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    text = (
        broker_module.SERVER_PROPERTIES.replace(
            "PLAINTEXT://127.0.0.1:{port}",
            f"PLAINTEXT://127.0.0.1:{{port}},SECURE://127.0.0.1:{port},MUTUAL://127.0.0.1:{mutual}",
        ).replace("protocol.map=", "protocol.map=SECURE:SASL_SSL,MUTUAL:SSL,")
        + f"ssl.keystore.location={keys}\nssl.keystore.type=PKCS12\nssl.keystore.password=changeit\n"
        + f"ssl.truststore.location={folder / 'trust.p12'}\nssl.truststore.type=PKCS12\n"
        + "ssl.truststore.password=changeit\nlistener.name.mutual.ssl.client.auth=required\n"
        + "listener.name.secure.sasl.enabled.mechanisms=PLAIN\n"
        # The broker closes at once behind its refusal: a client on a busy machine meets both together.
        + "connection.failed.authentication.delay.ms=0\n"
        + f"listener.name.secure.plain.sasl.jaas.config={module} required"
        + f' username="admin" password="x" user_streamcal="{SECRET}";\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "SERVER_PROPERTIES", text)
        with Broker() as started:
            yield Secured(started, port, mutual, certificate)


class TestSecurity:
    def test_tls_and_sasl(
        self,
        secure: Secured,
        tmp_path: Path,
    ) -> None:
        """Through the command line; the secret is in no output, not even when it is refused."""
        broker, port, _, certificate = secure
        new = Topics(broker.bootstrap)
        events, answers = new("events"), new("answers")
        put(broker, events, [prediction(i) for i in range(10)])
        password = tmp_path / "password"
        options = tmp_path / "kafka.toml"
        options.write_text(
            '[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "streamcal"\n'
            f'ssl_cafile = "{certificate}"\nsasl_password_file = "{password}"\n'
        )
        store = tmp_path / "s.db"
        command = [
            *("run", "--log-json", "--events", f"kafka://127.0.0.1:{port}/{events}?until=end"),
            *("--output", f"kafka://127.0.0.1:{port}/{answers}", "--store", store),
        ]
        environment = {"STREAMCAL_KAFKA_CONFIG": str(options), "STREAMCAL_KAFKA_CONNECT_SECONDS": "30"}
        password.write_text(SECRET + "wrong")
        refused = streamcal(*command, **environment)
        assert refused.returncode in (1, 3), refused.stderr
        assert "refuses: " in refused.stderr
        assert "SaslAuthenticationFailedError" in refused.stderr
        another = tmp_path / "another.toml"
        another.write_text(options.read_text().replace("ssl_cafile", "# "))
        untrusted = streamcal(*command, **environment | {"STREAMCAL_KAFKA_CONFIG": str(another)})
        assert "refuses: " in untrusted.stderr
        assert "CERTIFICATE_VERIFY_FAILED" in untrusted.stderr
        password.write_text(SECRET)
        del environment["STREAMCAL_KAFKA_CONFIG"]
        done = streamcal(*command, "--config", options, **environment)
        assert done.returncode == 0, done.stderr
        assert answered(broker, answers) == list(range(10))
        shown = streamcal("show", "--json", store)
        for text in (
            refused.stdout,
            refused.stderr,
            untrusted.stderr,
            done.stdout,
            done.stderr,
            shown.stdout,
        ):
            assert SECRET not in text
        assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("s.db*"))

    def test_a_broker_that_asks_for_a_certificate_refuses_a_client_without_one(
        self, secure: Secured, tmp_path: Path
    ) -> None:
        options = tmp_path / "kafka.toml"
        options.write_text(f'[kafka]\nsecurity_protocol = "SSL"\nssl_cafile = "{secure.certificate}"\n')
        events = f"kafka://127.0.0.1:{secure.mutual_port}/events"
        done = streamcal("run", "--config", options, "--events", events, "--output", tmp_path / "out.jsonl")
        assert done.returncode == 1, done.stderr
        assert "refuses: " in done.stderr
        assert "CERTIFICATE" in done.stderr

    def test_files_that_are_no_certificates(self, tmp_path: Path) -> None:
        path = tmp_path / "ca.pem"
        path.write_text("nothing")
        with pytest.raises(ValueError, match=r"ssl_cafile: .*ca\.pem is not a PEM file"):
            KafkaConfig(security_protocol="SSL", ssl_cafile=path).client_options()
        with pytest.raises(ValueError, match=r"cannot use .*ca\.pem with the key in .*ca\.pem"):
            KafkaConfig(security_protocol="SSL", ssl_certfile=path).client_options()

    def test_a_refusal_is_read_though_the_broker_hangs_up_right_behind_it(self) -> None:
        """A busy client meets both at once; kafka-python then sees only the end of the stream."""
        text = b"Authentication failed"
        answers = (
            struct.pack(">ihi", 0, 0, 0),
            struct.pack(">ihh", 0, 58, len(text)) + text + struct.pack(">i", 0),
        )
        with socket.create_server(("127.0.0.1", 0)) as server:

            def refuse() -> None:
                link, _ = server.accept()
                with link:
                    for answer in answers:
                        (size,) = struct.unpack(">i", link.recv(4, socket.MSG_WAITALL))
                        link.recv(size, socket.MSG_WAITALL)
                        link.sendall(struct.pack(">i", len(answer)) + answer)

            refusing = threading.Thread(target=refuse)
            refusing.start()
            options = {
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "me",
                "sasl_plain_password": SECRET,
            }
            host = f"127.0.0.1:{server.getsockname()[1]}"
            with pytest.raises(SaslAuthenticationFailedError, match="Authentication failed") as caught:
                log_in([host], options, 30.0)
            refusing.join()
        assert kafka_client.is_permanent(caught.value)
