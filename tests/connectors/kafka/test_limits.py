"""What a topic or a broker accepts: rows and positions that are too large, records it refuses for good."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from streamcal_connectors.kafka import kafka_python
from streamcal_connectors.kafka.source import KafkaConnector

from streamcal.run.ports import SourceOptions
from streamcal.run.rows import MapRow, RejectRow
from tests.connectors.kafka.clients import rows_of
from tests.connectors.kafka.fixtures import AnyBroker, Topics
from tests.connectors.kafka.topics import map_row, prediction, put, streamcal, url

pytestmark = pytest.mark.usefixtures("quick_cluster")

GZIP = '{"compression_type": "gzip"}'


def large_map(version: int, size: int) -> MapRow:
    return MapRow(version, None, None, msgspec.Raw(b'{"values":[%s]}' % b"0,".join([b""] * (size // 2))[:-1]))


class TestSizes:
    @pytest.mark.parametrize("limit", [600, 100_000])
    def test_a_reject_is_cut_to_what_the_topic_accepts(
        self, kafka_broker: AnyBroker, new_topic: Topics, limit: int
    ) -> None:
        topic = new_topic("rejects", configs={"max.message.bytes": str(limit)})
        long = [
            RejectRow("in/1", 4, "malformed", "bad" * 2000, raw * 200_000) for raw in ("\x01", "a", "é", '"')
        ]
        with closing(KafkaConnector().sink(url(kafka_broker, topic))) as sink:
            sink.resume("job", None)
            sink.write([RejectRow("in/1", 3, "malformed", "bad", "{"), *long])
            sink.commit({})
        rows = [msgspec.json.decode(record.value) for record in rows_of(kafka_broker, topic)]
        assert [row["line"] for row in rows] == [3, 4, 4, 4, 4]
        assert rows[0]["raw"] == "{"
        for row, sent in zip(rows[1:], long, strict=True):
            assert sent.raw.startswith(row["raw"])
            assert sent.reason.startswith(row["reason"])
            assert len(row["reason"]) >= 100
        if limit > 50_000:
            assert {len(row["raw"]) for row in rows[1:]} == {4096}

    def test_a_map_that_does_not_fit_says_what_to_do(
        self, kafka_broker: AnyBroker, new_topic: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = new_topic("maps")
        with closing(KafkaConnector().sink(url(kafka_broker, topic))) as sink:
            sink.resume("job", None)
            with pytest.raises(OSError, match=r"version 7 of the map takes 1,2\d\d,\d{3} bytes") as caught:
                sink.write([map_row(6), large_map(7, 1_200_000)])
        for said in (topic, "1,048,488", "max.message.bytes", "2,4", "bins", "--maps"):
            assert said in str(caught.value)
        monkeypatch.setenv("STREAMCAL_KAFKA_CLIENT", GZIP)
        with closing(KafkaConnector().sink(url(kafka_broker, topic))) as sink:
            sink.resume("job", None)
            sink.write([large_map(7, 1_200_000)])
            sink.commit({})
        assert len(rows_of(kafka_broker, topic)) == 1

    def test_an_answer_that_does_not_fit_ends_the_run(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        """It can be neither written nor left out; once the topic accepts it, the run goes on."""
        topic = new_topic("answers", configs={"max.message.bytes": "300"})
        events = tmp_path / "events.jsonl"
        events.write_bytes(prediction(1) + b'\n{"id":"%s","score":0.5}\n' % (b"x" * 400))
        command = ["run", "--events", events, "--output", url(kafka_broker, topic)]
        command += ["--store", tmp_path / "s.db"]
        for _ in range(2):
            done = streamcal(*command)
            assert done.returncode == 3, done.stderr
            for said in (topic, "the answer to 'xxx", "max.message.bytes", "200"):
                assert said in done.stderr
            assert "in doubt" not in done.stderr
        new_topic.set(topic, {"max.message.bytes": "2000"})
        done = streamcal(*command)
        assert done.returncode == 0, done.stderr
        assert sorted(len(record.key) for record in rows_of(kafka_broker, topic)) == [1, 400]


class TestRefusals:
    def test_an_answer_without_id_on_a_compacted_topic(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        topic = new_topic("answers", configs={"cleanup.policy": "compact"})
        events = tmp_path / "events.jsonl"
        events.write_bytes(b'{"score":0.5,"label":1}\n')
        done = streamcal("run", "--events", events, "--output", url(kafka_broker, topic))
        assert done.returncode == 3
        assert "give every event an id, or set cleanup.policy=delete" in done.stderr
        assert topic in done.stderr
        assert "in doubt" not in done.stderr


class TestOneTopicAsInputAndOutput:
    def test_it_is_refused_before_anything_is_written(
        self, kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path
    ) -> None:
        """Though the cluster goes by another name: the run would read what it writes, for ever."""
        topic = new_topic("both")
        put(kafka_broker, topic, [prediction(0)])
        others = {"--events": new_topic("events"), "--output": new_topic("answers")}
        options = {name: url(kafka_broker, other) for name, other in others.items()}
        options["--events"] = url(kafka_broker, topic)
        options["--output"] = url(kafka_broker, topic).replace("127.0.0.1", "localhost")
        done = streamcal("run", *(text for option in options.items() for text in option))
        assert done.returncode == 3, done.stderr
        assert f"the topic {topic!r}" in done.stderr
        assert "is an input and an output of this run" in done.stderr
        assert len(rows_of(kafka_broker, topic)) == 1


def test_the_limit_of_a_record_is_what_the_broker_accepts(kafka_broker: AnyBroker, new_topic: Topics) -> None:
    """A record of just that size is accepted."""
    topic = new_topic("answers", configs={"max.message.bytes": "1000"})
    shared = KafkaConnector()
    shared.source(url(kafka_broker, new_topic("events")), SourceOptions()).close()
    with closing(shared.sink(url(kafka_broker, topic))) as sink:
        sink.resume("job", None)
        empty = len(msgspec.json.encode(RejectRow("", 1, "malformed", "", "")))
        raw = "x" * (1000 - kafka_python._RECORD_OVERHEAD - empty)
        sink.write([RejectRow("", 1, "malformed", "", raw)])
        sink.commit({})
    (row,) = rows_of(kafka_broker, topic)
    assert msgspec.json.decode(row.value)["raw"] == raw
