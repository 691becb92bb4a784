"""Topics as sinks: transactions, and what a sink that is ahead of the store gives back."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import TopicPartition  # type: ignore[import-untyped]
from kafka.errors import (  # type: ignore[import-untyped]
    KafkaTimeoutError,
)
from streamcal_connectors.kafka.source import KafkaConnector

from streamcal.run.ports import SinkOptions, SourceOptions
from streamcal.run.rows import RejectRow
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.clients import consumer, rows_of
from tests.connectors.kafka.fixtures import BOTH, AnyBroker, Topics, retried
from tests.connectors.kafka.topics import answer, answered, map_row, producer_of, url

pytestmark = pytest.mark.usefixtures("quick_cluster")


@BOTH
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
                [
                    RejectRow("in/1", 3, "malformed", "bad", "{"),
                    RejectRow("in/1", 4, "malformed", "long", "\x01" * 1_000_000),
                ],
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
        assert msgspec.json.decode(short.value) == {
            "source": "in/1",
            "line": 3,
            "code": "malformed",
            "reason": "bad",
            "raw": "{",
        }
        assert len(msgspec.json.decode(long.value)["raw"]) == 4096
        assert [record.key for record in rows_of(kafka_broker, maps)] == [b"", b"eu"]

        again = KafkaConnector().sink(url(kafka_broker, answers))
        assert again.resume("job", {"transaction": 1}) == positions
        again.close()
        for append in (False, True):
            other = KafkaConnector().sink(url(kafka_broker, answers), SinkOptions(append=append))
            if append:
                assert other.resume("another job", None) is None
            else:
                with pytest.raises(ValueError, match=rf"topic '{answers}' .* this store knows nothing of"):
                    other.resume("another job", None)
            other.close()
        third = KafkaConnector().sink(url(kafka_broker, answers))
        with pytest.raises(ValueError, match="committed transaction 7, but the cluster knows of none"):
            third.resume("third", {"transaction": 7})
        third.close()

    def test_what_a_killed_run_has_begun_to_write_is_its_own(
        self, kafka_broker: AnyBroker, new_topic: Topics, monkeypatch: pytest.MonkeyPatch, client: str
    ) -> None:
        """Rows that were never committed count in the end offsets, too."""
        topic = new_topic("answers")
        sink = KafkaConnector().sink(url(kafka_broker, topic))
        sink.resume("job", None)

        def killed(self: Any) -> None:
            self.flush()
            raise KeyboardInterrupt

        sink.write([answer(1)])
        with monkeypatch.context() as patched:
            patched.setattr(producer_of(client), "commit", killed)
            with pytest.raises(KeyboardInterrupt):
                sink.commit({"in": {"": 1}})
        sink.close()
        again = KafkaConnector().sink(url(kafka_broker, topic))
        assert again.resume("job", None) is None
        again.write([answer(2)])
        again.commit({"in": {"": 2}})
        again.close()
        assert answered(kafka_broker, topic) == [2]

    def test_tools_see_the_offsets_of_the_topics(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        events, answers = new_topic("events", 2), new_topic("answers")
        connector = KafkaConnector()
        source = connector.source(url(kafka_broker, events), SourceOptions())
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
        client: str,
    ) -> None:
        """It raised: whether it was done is found out, and nothing is lost or doubled."""
        topic = new_topic("answers", 2)
        sink = KafkaConnector().sink(url(kafka_broker, topic))
        sink.resume(job, None)
        real = producer_of(client).commit
        failures = iter([True, True, False])

        def commit(self: Any) -> None:
            fails = next(failures, False)
            if committed or not fails:
                real(self)
            if fails:
                raise KafkaTimeoutError("no answer")

        monkeypatch.setattr(producer_of(client), "commit", commit)
        for number in range(5):
            sink.write([answer(2 * number), answer(2 * number + 1)])
            sink.commit({"in": {"": number}})
        sink.close()
        assert answered(kafka_broker, topic) == list(range(10))

    def test_a_record_that_expired_is_seen_though_the_client_would_commit(
        self,
        killable_broker: Broker,
        new_topic: Topics,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        client: str,
    ) -> None:
        """The broker is away for longer than a record may wait, and back before the commit."""
        caplog.set_level(logging.INFO)
        monkeypatch.setenv("STREAMCAL_KAFKA_REQUEST_SECONDS", "2.2")  # so records expire after 3.3 s
        monkeypatch.setenv("STREAMCAL_KAFKA_CONNECT_SECONDS", "30")
        topic = new_topic("answers")
        sink = KafkaConnector().sink(url(killable_broker, topic))
        sink.resume("job", None)
        kind = producer_of(client)
        real, times = kind.send_offsets, iter([1])

        def late(self: Any, group: str, offsets: Any) -> None:
            if "." in group and next(times, None):
                killable_broker.pause()
                time.sleep(4.0)
                killable_broker.resume()
            real(self, group, offsets)

        monkeypatch.setattr(kind, "send_offsets", late)
        sink.write([answer(0), answer(1)])
        sink.commit({})
        sink.close()
        assert "in doubt" in caplog.text
        assert answered(killable_broker, topic) == [0, 1]

    def test_a_zombie_is_fenced_and_stops(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic("answers")
        appends = SinkOptions(append=True)
        first, second = (KafkaConnector().sink(url(kafka_broker, topic), appends) for _ in range(2))
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

    @pytest.mark.crash
    def test_the_broker_is_killed_under_the_commits(
        self, killable_broker: Broker, new_topic: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)

        def check(_: Path, seed: int) -> None:
            topic = new_topic("answers", 2)
            rng = random.Random(seed)
            with (
                closing(KafkaConnector().sink(url(killable_broker, topic))) as sink,
                broker_killer(killable_broker, rng, 2) as over,
            ):
                sink.resume("job", None)
                number = 0
                while not over():
                    sink.write([answer(i) for i in range(number, number + 20)])
                    number += 20
                    sink.commit({"in": {"": number}})
            assert answered(killable_broker, topic) == list(range(number))

        retried(killable_broker, tmp_path, check)


def test_a_key_belongs_to_the_same_partition_with_every_client(
    kafka_broker: AnyBroker, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the versions of one map, and the answers to one id, would part when the client changes."""
    topic = new_topic("answers", 5)
    for name in ("kafka-python", "confluent"):
        monkeypatch.setenv("STREAMCAL_KAFKA_LIBRARY", name)
        sink = KafkaConnector().sink(url(kafka_broker, topic))
        sink.resume("job", None)
        sink.write([answer(7 ** (i % 20)) for i in range(40)])
        sink.commit({"in": {"": len(name)}})
        sink.close()
    places = {(record.key, record.partition) for record in rows_of(kafka_broker, topic)}
    assert len(places) == 20
    assert len({place for _, place in places}) > 1


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
