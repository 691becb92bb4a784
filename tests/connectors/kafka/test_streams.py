"""Runs from topics to topics that die, or are stopped while they wait for the broker; the topic of maps."""

from __future__ import annotations

import random
import signal
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from streamcal_connectors.kafka.source import KafkaConnector

from streamcal.run import runner
from streamcal.run.connectors import Connectors
from streamcal.run.order import Merge
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.rows import MapRow
from streamcal.run.runner import Inputs, Runner
from tests.connectors.kafka.broker import Broker, free_ports
from tests.connectors.kafka.topics import (
    BOTH,
    CLIENT,
    Kafka,
    commit,
    map_row,
    prediction,
    started,
    streamcal,
    until,
)
from tests.dying import DiedError, driven

pytestmark = pytest.mark.usefixtures("quick_cluster")


@pytest.mark.parametrize("step", ["before the broker", "before the store", "after the store"])
def test_dying_at_a_step_of_the_commit(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Between the broker's commit and the store's, the batch is replayed with its output suppressed."""
    monkeypatch.setattr(runner, "MAX_EVENTS", 60)
    events, labels = kafka.topic("events", 2), kafka.topic("labels")
    topics = kafka.topic("answers", 2), kafka.topic("rejects"), kafka.topic("maps")
    rng = random.Random(1)
    rows = [b'{"id":"%d","score":%.6f,"time":%d}' % (i, rng.random(), i) for i in range(300)]
    kafka.put(events, rows[::2], 0)
    kafka.put(events, [*rows[1::2], b"oops"], 1)
    kafka.put(labels, [b'{"id":"%d","label":%d,"time":%d}' % (i, i % 2, i) for i in range(300)])
    written: list[int] = []

    def drive(dies_at: int | None) -> Pipeline:
        deadline = time.monotonic() + 60
        sources, sinks = ([kafka.url(topic) for topic in each] for each in ((events, labels), topics))
        return driven(
            *(tmp_path / "s.db", sources, sinks, step, dies_at),
            stop=lambda pipeline: pipeline.tally.events >= 601 or time.monotonic() > deadline,
            written=written,
        )

    for _ in range(3):
        with pytest.raises(DiedError):
            drive(3)
    pipeline = drive(None)
    assert kafka.answered(topics[0]) == list(range(300))
    (reject,) = kafka.values(topics[1])
    assert (reject["source"], reject["line"], reject["raw"]) == (f"{events}/1", 150, "oops")
    assert pipeline.join.counts.joined == 300
    published = [row["version"] for row in kafka.values(topics[2])]
    assert published == sorted(set(published))
    if step != "before the broker":  # what was on the broker was not written again
        assert sum(written) == 300


def test_a_run_goes_on_with_the_other_client(kafka: Kafka, tmp_path: Path) -> None:
    """Positions, the ids of topics and the marks of transactions are those of the cluster."""
    events, answers = kafka.topic("events", 2), kafka.topic("answers", 2)
    command = ["run", "--events", kafka.url(events, "?until=end"), "--store", tmp_path / "s.db"]
    command += ["--output", kafka.url(answers)]
    for number, name in enumerate(("kafka-python", "confluent", "kafka-python")):
        kafka.put(events, [prediction(10 * number + i) for i in range(10)], number % 2)
        streamcal(*command, **{CLIENT: name}, status=0)
        assert kafka.answered(answers) == list(range(10 * number + 10))


@pytest.mark.crash
@pytest.mark.parametrize(
    ("away", "number", "status"),
    [pytest.param("killed", signal.SIGTERM, 0, marks=pytest.mark.nightly), ("paused", signal.SIGINT, 130)],
)
def test_a_signal_while_a_commit_waits_for_the_broker(
    killable_broker: Broker, kafka: Kafka, tmp_path: Path, away: str, number: signal.Signals, status: int
) -> None:
    """It ends before long; what it could not commit, the next run does, once."""
    answers = kafka.topic("answers")
    events, rejects = tmp_path / "events.jsonl", tmp_path / "rejects.jsonl"
    command = ["run", "--events", events, "--output", kafka.url(answers)]
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
        assert time.monotonic() - begun < 30
        assert "what was committed is kept" in said()
        assert "Traceback" not in said()
    (killable_broker.start if away == "killed" else killable_broker.resume)()
    with started(*command, "--follow") as (process, said):  # with its own options, as after a kill
        until(lambda: process.poll() is not None or len(kafka.rows(answers)) >= 20, "no answers")
        process.terminate()
        assert process.wait(60) == 0, said()
    assert kafka.answered(answers) == list(range(20))
    assert len(rejects.read_bytes().splitlines()) == 2


@pytest.mark.slow
def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    """The run gives up in the end; SIGTERM ends it before that."""
    nowhere = f"kafka://127.0.0.1:{free_ports(1)[0]}/events"
    command = ["run", "--events", nowhere, "--output", tmp_path / "out.jsonl"]
    with started(*command) as (process, said):
        until(lambda: "is away" in said(), "it does not notice")
        process.terminate()
        assert process.wait(20) == 0, said()
    done = streamcal(*command, STREAMCAL_KAFKA_CONNECT_SECONDS="1", status=1)
    assert done.stderr.count("is away") == 1
    assert "was away for 1 s" in done.stderr
    assert "Traceback" not in done.stderr


# Maps


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

        with started(*command) as (service, said):
            until(lambda: versions() == [3], "no answer")
            commit(sink, 4, map_row(4))

            def again() -> bool:
                kafka.put(events, [prediction(1)])
                return versions()[-1] == 4

            until(again, "the service does not follow")
            service.terminate()
            assert service.wait(30) == 0, said()


def test_what_came_after_a_copy_of_the_store_is_repeated_in_parts(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one batch, it would take as much memory as the time since the copy was long."""
    events, answers, store = kafka.topic("events", 2), kafka.topic("answers"), tmp_path / "s.db"
    command = ["run", "--events", kafka.url(events, "?until=end"), "--store", store]
    for number in range(4):
        kafka.put(events, [prediction(100 * number + i) for i in range(100)], number % 2)
        streamcal(*command, "--output", kafka.url(answers), status=0)
        if not number:
            copy = store.read_bytes()
    store.write_bytes(copy)
    monkeypatch.setattr(runner, "MAX_EVENTS", 40)
    sizes, process = list[int](), Pipeline.process
    monkeypatch.setattr(
        Pipeline, "process", lambda self, batch: (sizes.append(len(batch.events)), process(self, batch))[1]
    )
    connectors, pipeline = Connectors(), Pipeline()
    with ExitStack() as opened:
        kept, source = connectors.store(str(store)), connectors.source(kafka.url(events, "?until=end"))
        sink = connectors.sink(kafka.url(answers))
        for each in (kept, source, sink):
            opened.callback(each.close)
        Runner(pipeline, Inputs([], [source]), Outputs(sink), kept, clock=time.monotonic).run()
    assert sum(sizes) == 300
    assert max(sizes) <= 120
    assert pipeline.join.counts.predictions == 400
    assert kafka.answered(answers) == list(range(400))


@BOTH
@pytest.mark.usefixtures("client")
def test_a_topic_with_an_end_is_not_held_whole(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client gives partitions one after the other, some have few records, and one has none."""
    monkeypatch.setattr(runner, "MAX_EVENTS", 200)
    for limit in ("_AHEAD", "_FEWEST"):
        monkeypatch.setattr(f"streamcal_connectors.kafka.source.{limit}", 100)
    events, answers, count = kafka.topic("events", 6), kafka.topic("answers"), 6_000
    rows = [b'{"id":"%d","score":0.5,"time":%d}' % (i, i) for i in range(count)]
    for partition in range(4):
        kafka.put(events, rows[partition::4], partition)
    kafka.put(events, [b'{"id":"%d","score":0.5,"time":0}' % (count + i) for i in range(50)], 4)
    held, take = list[int](), Merge.take

    def noted(self: Merge, *arguments: Any) -> Any:
        held.append(len(self))
        return take(self, *arguments)

    monkeypatch.setattr(Merge, "take", noted)
    connectors, pipeline = Connectors(), Pipeline()
    with ExitStack() as opened:
        source, sink = connectors.source(kafka.url(events, "?until=end")), connectors.sink(kafka.url(answers))
        for each in (source, sink):
            opened.callback(each.close)
        Runner(pipeline, Inputs([], [source]), Outputs(sink), None, clock=time.monotonic).run()
    assert kafka.answered(answers) == list(range(count + 50))
    assert max(held) <= 1_500  # of each of five partitions 200, and a poll
