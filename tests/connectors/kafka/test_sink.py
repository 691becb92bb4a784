"""Topics as sinks: transactions, what a sink ahead of the store gives back, and what a topic refuses."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import AbortTransactionSpec
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata
from streamcal_connectors.kafka import transactions
from streamcal_connectors.kafka.source import KafkaConnector

from streamcal.run.ports import Shard, SourceOptions
from streamcal.run.rows import RejectRow
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.topics import (
    BOTH,
    CLIENT,
    Kafka,
    answer,
    commit,
    map_row,
    prediction,
    producer_of,
    streamcal,
)

pytestmark = pytest.mark.usefixtures("quick_cluster")


@BOTH
def test_rows_keys_and_positions(kafka: Kafka) -> None:
    """All sinks of a run share its transactions; tools see the offsets of the topics that it reads."""
    names = ("events", "answers", "rejects", "maps")
    events, answers, rejects, maps = (kafka.topic(name, 2) for name in names)
    connector = KafkaConnector()
    source = connector.source(kafka.url(events), SourceOptions())
    positions: dict[str, Any] = {source.name: {"0": 3, "1": 4}, "/a/file": {"": {"offset": 17, "line": 2}}}
    sinks = [connector.sink(kafka.url(topic)) for topic in (answers, rejects, maps)]
    assert [sink.resume("job", None) for sink in sinks] == [None, None, None]
    sinks[0].write([answer(i) for i in range(20)])
    sinks[1].write([RejectRow("in/1", 3, "malformed", "bad", "{")])
    sinks[2].write([map_row(1), map_row(2, "eu")])
    assert [sink.commit(positions) for sink in sinks] == [{"transaction": 1}] * 3
    positions[""] = {"maps": 1}  # all that tells a commit of a calibration from the one before
    assert [sink.commit(positions) for sink in sinks] == [{"transaction": 2}] * 3
    for each in (*sinks, source):
        each.close()
    assert kafka.answered(answers) == list(range(20))
    assert {record.key for record in kafka.rows(answers)} == {b"%d" % i for i in range(20)}
    assert len({record.partition for record in kafka.rows(answers)}) == 2
    wanted = {"source": "in/1", "line": 3, "code": "malformed", "reason": "bad", "raw": "{"}
    assert kafka.values(rejects) == [wanted]
    assert {record.key for record in kafka.rows(maps)} == {b"", b"eu"}
    with kafka.reader(f"streamcal.{answers}.job") as consumer:
        assert [consumer.committed(TopicPartition(events, p)) for p in (0, 1)] == [3, 4]

    with kafka.written(answers) as again:
        assert again.resume("job", {"transaction": 2}) == positions
    for topic, position, message in (
        (answers, None, rf"topic '{answers}' .* this store knows nothing of"),
        (rejects, {"transaction": 7}, "committed transaction 7, but the cluster knows of none"),
    ):
        with pytest.raises(ValueError, match=message), kafka.written(topic, "another", position):
            pass
    with kafka.written(answers, "another", append=True) as other:
        assert other.resume("another", None) is None


@BOTH
def test_what_a_killed_run_has_begun_to_write_is_its_own(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    """Rows that were never committed count in the end offsets, too."""
    topic = kafka.topic("answers")

    def killed(self: Any) -> None:
        self.flush()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, kafka.written(topic) as sink:
        patched.setattr(producer_of(client), "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            commit(sink, 1, answer(1))
    with kafka.written(topic) as again:
        commit(again, 2, answer(2))
    assert kafka.answered(topic) == [2]


@BOTH
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("job", ["job", ""], ids=["with a store", "without"])
def test_a_commit_in_doubt(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, client: str, committed: bool, job: str
) -> None:
    """It raised: whether it was done is found out, and nothing is lost or doubled."""
    topic = kafka.topic("answers", 2)
    real = producer_of(client).commit
    with kafka.written(topic, job) as sink:
        failures = iter([True, True, False])

        def in_doubt(self: Any) -> None:
            fails = next(failures, False)
            if committed or not fails:
                real(self)
            if fails:
                raise KafkaTimeoutError("no answer")

        monkeypatch.setattr(producer_of(client), "commit", in_doubt)
        for number in range(5):
            commit(sink, number, answer(2 * number), answer(2 * number + 1))
    assert kafka.answered(topic) == list(range(10))


@BOTH
def test_a_record_that_expired_is_seen_though_the_client_would_commit(
    killable_broker: Broker,
    kafka: Kafka,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    client: str,
) -> None:
    """The broker is away for longer than a record may wait, and back before the commit."""
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("STREAMCAL_KAFKA_REQUEST_SECONDS", "2.2")  # so records expire after 3.3 s
    topic = kafka.topic("answers")
    with kafka.written(topic) as sink:
        real, times = producer_of(client).send_offsets, iter([1])

        def late(self: Any, group: str, offsets: Any) -> None:
            if "." in group and next(times, None):
                killable_broker.pause()
                time.sleep(4.0)
                killable_broker.resume()
            real(self, group, offsets)

        monkeypatch.setattr(producer_of(client), "send_offsets", late)
        commit(sink, 1, answer(0), answer(1))
    assert "in doubt" in caplog.text
    assert kafka.answered(topic) == [0, 1]


@BOTH
def test_a_zombie_is_fenced_and_stops(kafka: Kafka) -> None:
    topic = kafka.topic("answers")
    with kafka.written(topic, "job 1") as first:
        commit(first, 1, answer(1))
        with kafka.written(topic, "job 2", append=True) as second:
            with pytest.raises(OSError, match="another run writes with the transactional id"):
                commit(first, 2, answer(2))
            commit(second, 3, answer(3))
    assert kafka.answered(topic) == [1, 3]


@BOTH
def test_a_run_that_was_fenced_does_not_come_back_once_another_store_has_written(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """Though its mark says that the job is not new, its rows would be the other's."""
    topic = kafka.topic("answers")
    with kafka.written(topic, "job 1"), kafka.written(topic, "job 2") as second:
        with kafka.written(topic, "job 1"):  # nobody has written: it may
            pass
        with pytest.raises(OSError, match="each would write every row"):
            commit(second, 1, answer(1))
    with kafka.written(topic, "job 2") as second:
        commit(second, 1, answer(1))
        caplog.set_level(logging.INFO)
        for position in (None, {"transaction": 1}):
            with (
                pytest.raises(ValueError, match=r"rows of another store \(job 2\).*--append"),
                kafka.written(topic, "job 1", position),
            ):
                pass
        commit(second, 2, answer(2))
        assert "in doubt" not in caplog.text, "what was refused has not fenced it"
    with kafka.written(topic, "job 1", append=True) as first:
        commit(first, 3, answer(3))
    assert kafka.answered(topic) == [1, 2, 3]


@BOTH
@pytest.mark.parametrize("shard", [None, Shard(0, 2)], ids=["whole", "shard"])
def test_a_mark_that_the_broker_would_forget_is_written_again(kafka: Kafka, shard: Shard | None) -> None:
    """Forgotten after a week, a run that was in doubt once would end, and another store's would go on."""
    topic = kafka.topic("answers")
    name = f"streamcal.{topic}"
    groups = [name, *([f"{name}.0-of-2"] if shard else [])]
    with kafka.written(topic, shard=shard) as sink:
        commit(sink, 1, answer(1))
        with kafka.admin() as admin:
            admin.delete_groups(groups)
        sink._transactions._sign_at = 0.0
        commit(sink, 2, answer(2))
    for group in groups:
        with kafka.reader(group) as consumer:
            assert consumer.committed(TopicPartition(topic, 0)) is not None


def test_a_key_belongs_to_the_same_partition_with_every_client(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the versions of one map, and the answers to one id, would part when the client changes."""
    topic = kafka.topic("answers", 5)
    for number, name in enumerate(("kafka-python", "confluent")):
        monkeypatch.setenv(CLIENT, name)
        with kafka.written(topic, position={"transaction": 1} if number else None) as sink:
            commit(sink, number, *(answer(7**i) for i in range(20)))
    places = {(record.key, record.partition) for record in kafka.rows(topic)}
    assert len(places) == 20
    assert len({place for _, place in places}) > 1


# A transaction that the broker neither commits nor aborts


@pytest.mark.parametrize("group", ["streamcal.{}", "streamcal.{}.job"], ids=["owner", "job"])
def test_a_run_behind_a_lost_transaction_ends_and_says_what_to_do(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, client: str, group: str
) -> None:
    """A broker that was killed may lose how a transaction was to end (`Broker.lost_transactions`).

    What it leaves is an offset of the run's group that stays pending though the broker answers everything
    else. A transaction of another producer that writes there, and is left open, leaves just that. It is
    aborted as by ``kafka-transactions.sh abort`` (docs/kafka.md).
    """
    monkeypatch.setenv("STREAMCAL_KAFKA_REQUEST_SECONDS", "2")
    monkeypatch.setattr(transactions, "_PENDING_SECONDS", 1.0)
    topic = kafka.topic("answers")
    group = group.format(topic)

    def no_answer(_: Any) -> None:
        raise KafkaTimeoutError("no answer")

    with kafka.written(topic) as sink, kafka.transactional(transaction_timeout_ms=600_000) as sender:
        commit(sink, 1, answer(1))
        sender.begin_transaction()
        sender.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(9, "", -1)}, group)
        with monkeypatch.context() as patch:
            patch.setattr(producer_of(client), "commit", no_answer)
            with pytest.raises(OSError, match="has neither committed nor aborted") as caught:
                commit(sink, 2, answer(2))
        for said in (
            f"'streamcal.{topic}'",
            f"the group {group!r}",
            f"is number {int(group.endswith('job'))}",
            "kafka-transactions.sh",
            "docs/kafka.md",
        ):
            assert said in str(caught.value)
        assert caplog.text.count("has not ended yet") == 1
        with kafka.admin() as admin:
            (states,) = admin.describe_producers([TopicPartition("__consumer_offsets", 0)]).items()
            for producer in states[1].active_producers:
                if producer.current_transaction_start_offset >= 0:
                    epochs = producer.producer_epoch, max(producer.coordinator_epoch, 0)
                    admin.abort_transaction(AbortTransactionSpec(states[0], producer.producer_id, *epochs))
    with kafka.written(topic, position={"transaction": 1}) as sink:
        assert sink.resume("job", {"transaction": 1}) == {"in": {"": 1}}
        commit(sink, 2, answer(2))
    assert kafka.answered(topic) == [1, 2]


# What a topic or a broker accepts


def test_an_answer_that_does_not_fit_ends_the_run(kafka: Kafka, tmp_path: Path) -> None:
    """It can be neither written nor left out; once the topic accepts it, the run goes on."""
    topic = kafka.topic("answers", max_message_bytes="300")
    events = tmp_path / "events.jsonl"
    events.write_bytes(prediction(1) + b'\n{"id":"%s","score":0.5}\n' % (b"x" * 400))
    command = ["run", "--events", events, "--output", kafka.url(topic), "--store", tmp_path / "s.db"]
    for _ in range(2):
        done = streamcal(*command, status=3)
        for said in (topic, "max.message.bytes was 300", "raise it"):
            assert said in done.stderr
        assert "in doubt" not in done.stderr
    kafka.set(topic, "max.message.bytes", "2000")
    done = streamcal(*command, status=0)
    assert sorted(len(record.key) for record in kafka.rows(topic)) == [1, 400]


def test_what_can_never_be_written_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    """An answer without id on a compacted topic."""
    compacted = kafka.topic("answers", cleanup_policy="compact")
    events = tmp_path / "events.jsonl"
    events.write_bytes(b'{"score":0.5,"label":1}\n')
    done = streamcal("run", "--events", events, "--output", kafka.url(compacted), status=3)
    assert "give every event an id, or set cleanup.policy=delete" in done.stderr
    assert compacted in done.stderr
    assert "in doubt" not in done.stderr
