"""The broker that the other tests rely on, and what kafka-python does against it.

Each test of kafka-python states a behaviour that the Kafka connector builds on. Where the client
departs from Apache's own, the test says so and shows the way around.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import (  # type: ignore[import-untyped]
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
)
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from tests.connectors.kafka.broker import HERE, Broker, BrokerError, free_ports, serves
from tests.connectors.kafka.clients import (
    PATIENCE,
    UNCOMMITTED,
    WAIT,
    committed_offset,
    consumer,
    eventually,
    producer,
    transactional,
    unique,
    values,
)
from tests.connectors.kafka.fixtures import EXTERNAL, AnyBroker, Topics, broker_or_reason, give_up

pytestmark = pytest.mark.nightly


class TestBroker:
    @pytest.mark.kafka
    def test_the_jars_are_fetched_once_by_concurrent_processes(self, tmp_path: Path) -> None:
        if os.environ.get(EXTERNAL):
            pytest.skip(f"{EXTERNAL} is set: no jars are fetched")
        if reason := Broker.available() or ("" if shutil.which("mvn") else "no mvn on the path"):
            give_up(reason)
        code = "import broker, pathlib, sys; broker.CACHE = pathlib.Path(sys.argv[1]);print(broker.fetch())"
        command = [sys.executable, "-c", code, str(tmp_path / "cache")]
        with ThreadPoolExecutor() as pool:
            said = list(
                pool.map(
                    lambda _: subprocess.check_output(command, cwd=HERE, text=True).strip(),
                    range(2),
                )
            )
        assert len(set(said)) == 1
        assert list(Path(said[0]).glob("kafka_2.13-4.*.jar"))
        assert {path.name for path in (tmp_path / "cache").iterdir()} == {
            Path(said[0]).name,
            "lock",
        }

    def test_a_broker_that_cannot_start_says_why(
        self, killable_broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.connectors.kafka.broker.SERVER_PROPERTIES", "process.roles=nothing\n")
        refused = Broker()
        with pytest.raises(BrokerError, match=r"(?s)formatting.*process\.roles"):
            refused.start()
        refused.close()
        assert not refused.directory.exists()

        killable_broker.kill()
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections linger there
            thief.bind(("127.0.0.1", killable_broker.port))
            thief.listen()
            with pytest.raises(BrokerError, match="Address already in use"):
                killable_broker.start()
        assert not killable_broker.running
        with pytest.raises(BrokerError, match="does not run"):
            killable_broker.pause()

    def test_a_paused_broker_is_silent_until_it_goes_on(self, killable_broker: Broker) -> None:
        assert serves(killable_broker.port)
        killable_broker.pause()
        assert not serves(killable_broker.port)
        assert killable_broker.running
        killable_broker.resume()
        assert eventually(lambda: serves(killable_broker.port))

    def test_stop_and_start_keep_the_data(self, killable_broker: Broker, new_topic: Topics) -> None:
        topic = new_topic()
        with producer(killable_broker) as sender:
            sender.send(topic, b"before").get(PATIENCE)
        before = killable_broker.pid, killable_broker.bootstrap
        killable_broker.restart()
        assert killable_broker.pid != before[0]
        assert killable_broker.bootstrap == before[1]
        assert values(killable_broker, topic) == [b"before"]
        with pytest.raises(BrokerError, match="runs already"):
            killable_broker.start()

    def test_the_broker_dies_with_the_tests(self, kafka_broker: AnyBroker) -> None:
        if not isinstance(kafka_broker, Broker):
            pytest.skip(f"{EXTERNAL} is set: no broker is started")
        # Started in a thread that ends: that alone must not kill it.
        code = (
            "import broker, threading; b = broker.Broker();"
            "t = threading.Thread(target=b.start); t.start(); t.join();"
            "print(b.pid, b.port, b.directory, flush=True); input()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as tests:
            assert tests.stdout is not None
            pid, port, directory = tests.stdout.readline().split()
            assert serves(int(port))
            tests.kill()
        assert eventually(lambda: not alive(int(pid)))
        assert eventually(lambda: not Path(directory).exists())

    def test_the_fixture_uses_the_broker_it_is_told_of(
        self, kafka_broker: AnyBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(EXTERNAL, kafka_broker.bootstrap)
        found = broker_or_reason()
        assert not isinstance(found, Broker | str)
        assert found.bootstrap == kafka_broker.bootstrap
        topics = Topics(found.bootstrap)
        topic = topics()
        assert values(found, topic) == []
        topics.remove()
        with consumer(found) as reader:
            assert eventually(lambda: topic not in reader.topics())

    def test_without_java_it_skips_and_under_ci_it_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(EXTERNAL, raising=False)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        reason = broker_or_reason()
        assert isinstance(reason, str)
        assert "Java 17" in reason
        monkeypatch.delenv("CI", raising=False)
        with pytest.raises(pytest.skip.Exception, match="Java 17"):
            give_up(reason)
        monkeypatch.setenv("CI", "true")
        with pytest.raises(pytest.fail.Exception, match="Java 17"):
            give_up(reason)

    def test_free_ports_lie_below_the_ephemeral_range(self) -> None:
        ports = free_ports(5)
        assert len(set(ports)) == 5
        assert all(20_000 <= port < 32_000 for port in ports)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class TestReadAndWrite:
    def test_round_trip(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic(partitions=2)
        sent = [(i % 2, f"k{i}".encode(), f"v{i}".encode(), 1_700_000_000_000 + i) for i in range(9)]
        with producer(kafka_broker) as sender:
            for partition, key, value, at in sent:
                sender.send(
                    topic,
                    value,
                    key=key,
                    headers=[("h", b"x")],
                    partition=partition,
                    timestamp_ms=at,
                )
            sender.flush(PATIENCE)
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        with consumer(kafka_broker) as reader:
            assert reader.partitions_for_topic(topic) == {0, 1}
            assert reader.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
            assert reader.end_offsets(partitions) == {partitions[0]: 5, partitions[1]: 4}
            reader.assign(partitions)
            reader.seek(partitions[0], 2)
            reader.seek(partitions[1], 0)
            got: list[Any] = []

            def complete() -> bool:
                for records in reader.poll(timeout_ms=200).values():
                    got.extend(records)
                return len(got) == 7

            assert eventually(complete)
        assert [
            (r.partition, r.key, r.value, r.timestamp)
            for r in sorted(got, key=lambda r: (r.partition, r.offset))
        ] == sorted(sent)[2:]
        assert {tuple(r.headers) for r in got} == {(("h", b"x"),)}

    def test_added_partitions_are_seen_after_a_look_at_all_topics(
        self, kafka_broker: AnyBroker, new_topic: Topics
    ) -> None:
        """``partitions_for_topic`` alone may answer from a cache of ``metadata_max_age_ms`` (5 minutes)."""
        topic = new_topic(partitions=1)
        with consumer(kafka_broker) as reader:
            assert reader.partitions_for_topic(topic) == {0}
            reader.assign([TopicPartition(topic, 0)])
            reader.seek(TopicPartition(topic, 0), 0)
            new_topic.grow(topic, 3)
            reader.topics()
            assert reader.partitions_for_topic(topic) == {0, 1, 2}

            with producer(kafka_broker) as sender:
                for partition in range(3):
                    sender.send(topic, b"%d" % partition, partition=partition).get(PATIENCE)
            assert reader.poll(timeout_ms=5000)
            # A new assignment keeps the positions of the partitions that were assigned before.
            reader.assign([TopicPartition(topic, p) for p in range(3)])
            for added in (1, 2):
                reader.seek(TopicPartition(topic, added), 0)
            got: list[bytes] = []

            def complete() -> bool:
                for records in reader.poll(timeout_ms=200).values():
                    got.extend(record.value for record in records)
                return len(got) >= 2

            assert eventually(complete)
            assert sorted(got) == [b"1", b"2"]

    def test_a_client_outlives_the_broker(self, killable_broker: Broker, new_topic: Topics) -> None:
        """``poll`` returns nothing while the broker is away, and goes on when it is back."""
        topic = new_topic()
        partition = TopicPartition(topic, 0)
        with producer(killable_broker) as sender, consumer(killable_broker) as reader:
            reader.assign([partition])
            reader.seek(partition, 0)
            sender.send(topic, b"before").get(PATIENCE)
            assert eventually(lambda: bool(reader.poll(timeout_ms=200)))

            killable_broker.kill()
            assert reader.poll(timeout_ms=500) == {}
            with pytest.raises(KafkaTimeoutError):
                reader.end_offsets([partition], timeout_ms=500)
            meanwhile = sender.send(topic, b"meanwhile")
            killable_broker.start()
            assert meanwhile.get(PATIENCE).offset == 1
            got: list[bytes] = []

            def complete() -> bool:
                for records in reader.poll(timeout_ms=200).values():
                    got.extend(record.value for record in records)
                return bool(got)

            assert eventually(complete)
            assert got == [b"meanwhile"]
        assert values(killable_broker, topic) == [b"before", b"meanwhile"]


class TestTransactions:
    def test_committed_is_seen_and_aborted_is_not(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        topic = new_topic(partitions=2)
        with transactional(kafka_broker) as sender:
            for outcome in ("committed", "aborted", "committed again"):
                sender.begin_transaction()
                for partition in range(2):
                    sender.send(topic, outcome.encode(), partition=partition)
                if outcome == "aborted":
                    sender.flush(PATIENCE)
                    sender.abort_transaction()
                else:
                    sender.commit_transaction()
        assert values(kafka_broker, topic) == [b"committed", b"committed again"] * 2
        assert len(values(kafka_broker, topic, UNCOMMITTED)) == 6

    def test_end_offsets_stop_before_an_open_transaction(
        self, kafka_broker: AnyBroker, new_topic: Topics
    ) -> None:
        """And count one marker for every transaction, so they are not a count of records."""
        topic = new_topic()
        partition = TopicPartition(topic, 0)
        with transactional(kafka_broker) as sender:
            sender.begin_transaction()
            sender.send(topic, b"first")
            sender.commit_transaction()
            sender.begin_transaction()
            sender.send(topic, b"open").get(PATIENCE)
            with (
                consumer(kafka_broker) as committed,
                consumer(kafka_broker, isolation_level=UNCOMMITTED) as everything,
            ):
                assert committed.end_offsets([partition]) == {partition: 2}
                assert everything.end_offsets([partition]) == {partition: 3}
                sender.commit_transaction()
                # The markers are written after commit_transaction has returned.
                assert eventually(lambda: committed.end_offsets([partition]) == {partition: 4})

    def test_offsets_go_with_the_transaction(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        """The group needs no member: its name is enough, and its offsets can carry a text."""
        topic, group = new_topic(), unique("group")
        partition = TopicPartition(new_topic(), 0)
        with transactional(kafka_broker) as sender:
            assert committed_offset(kafka_broker, group, partition) is None
            for offset, commit in ((7, True), (99, False), (8, True)):
                sender.begin_transaction()
                sender.send(topic, b"%d" % offset)
                sender.send_offsets_to_transaction(
                    {partition: OffsetAndMetadata(offset, json.dumps({"map": 3}), -1)}, group
                )
                if commit:
                    sender.commit_transaction()
                else:
                    sender.abort_transaction()
                expected = offset if commit else 7
                assert committed_offset(kafka_broker, group, partition) == expected
        with consumer(kafka_broker, group_id=group) as reader:
            found = reader.committed(partition, metadata=True)
        assert found == OffsetAndMetadata(8, '{"map": 3}', -1)

    def test_stable_offsets_wait_for_the_open_transaction(
        self, kafka_broker: AnyBroker, new_topic: Topics
    ) -> None:
        group, partition = unique("group"), TopicPartition(new_topic(), 0)
        with transactional(kafka_broker) as sender:
            sender.begin_transaction()
            sender.send_offsets_to_transaction({partition: OffsetAndMetadata(5, "", -1)}, group)
            with consumer(kafka_broker, group_id=group) as stable:
                with pytest.raises(KafkaTimeoutError):
                    stable.committed(partition, timeout_ms=500)
                sender.commit_transaction()
                assert stable.committed(partition, timeout_ms=WAIT) == 5

    def test_a_second_producer_fences_the_first(self, kafka_broker: AnyBroker, new_topic: Topics) -> None:
        """The error is a KafkaError, of no single class: it depends on the call that meets it."""
        topic, name = new_topic(), unique("fenced")
        with transactional(kafka_broker, name) as first:
            first.begin_transaction()
            first.send(topic, b"first").get(PATIENCE)
            with transactional(kafka_broker, name) as second:
                with pytest.raises(ProducerFencedError):
                    first.commit_transaction()
                with pytest.raises(KafkaError, match="ProducerFencedError"):
                    first.begin_transaction()
                second.begin_transaction()
                second.send(topic, b"second")
                second.commit_transaction()
        with transactional(kafka_broker, name) as first:
            first.begin_transaction()
            with transactional(kafka_broker, name):
                late = first.send(topic, b"late")
                first.flush(PATIENCE)
                assert isinstance(late.exception, ProducerFencedError)
                with pytest.raises(KafkaError):
                    first.commit_transaction()
        assert values(kafka_broker, topic) == [b"second"]

    def test_init_ends_the_transaction_of_a_killed_process(
        self, kafka_broker: AnyBroker, new_topic: Topics
    ) -> None:
        """It need not wait for the transaction's own time-out, 60 s, which would hold up readers."""
        topic, name, group = new_topic(), unique("killed"), unique("group")
        partition = TopicPartition(new_topic(), 0)
        code = (
            "import sys\nfrom kafka import KafkaProducer, TopicPartition\n"
            "from kafka.structs import OffsetAndMetadata\n"
            "where, topic, name, group, source = sys.argv[1:]\n"
            "p = KafkaProducer(bootstrap_servers=where, transactional_id=name)\n"
            "p.init_transactions(); p.begin_transaction()\n"
            "p.send(topic, b'killed').get(30)\n"
            "p.send_offsets_to_transaction("
            "{TopicPartition(source, 0): OffsetAndMetadata(9, '', -1)}, group)\n"
            "print('open', flush=True); input()\n"
        )
        with subprocess.Popen(
            [
                sys.executable,
                "-c",
                code,
                kafka_broker.bootstrap,
                topic,
                name,
                group,
                partition.topic,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "open\n"
            victim.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        with transactional(kafka_broker, name) as sender:
            waited = time.monotonic() - begun
            assert committed_offset(kafka_broker, group, partition) is None
            sender.begin_transaction()
            sender.send(topic, b"next")
            sender.commit_transaction()
        assert waited < PATIENCE
        assert values(kafka_broker, topic) == [b"next"]
        assert values(kafka_broker, topic, UNCOMMITTED) == [b"killed", b"next"]

    def test_an_open_transaction_outlives_the_broker(
        self, killable_broker: Broker, new_topic: Topics
    ) -> None:
        topic = new_topic()
        with transactional(killable_broker) as sender:
            sender.begin_transaction()
            sender.send(topic, b"before").get(PATIENCE)
            killable_broker.kill()
            killable_broker.start()
            sender.send(topic, b"after")
            sender.flush(PATIENCE)
            sender.commit_transaction()
        assert values(killable_broker, topic) == [b"before", b"after"]


class TestWhatACommitDoesNotTell:
    """Where ``commit_transaction`` of kafka-python 3.0.12 cannot be taken at its word.

    It returns normally although records of the transaction are lost when (1) a batch expired after
    ``delivery_timeout_ms``, (2) the broker had timed the transaction out and a batch was in flight.
    It returns never when (3) its request was dropped because the broker could not be reached at the
    moment of sending. The way around is the same for all: flush, look at every future, and only
    then commit; bound every call; after any error discard the producer, make another, and ask the
    broker which offsets were committed.
    """

    def test_an_expired_record_shows_in_its_future_only(
        self, killable_broker: Broker, new_topic: Topics
    ) -> None:
        topic = new_topic()
        with transactional(killable_broker, delivery_timeout_ms=1000, request_timeout_ms=900) as sender:
            sender.begin_transaction()
            sender.send(topic, b"first").get(PATIENCE)
            killable_broker.kill()
            lost = sender.send(topic, b"lost")
            sender.flush(PATIENCE)
            killable_broker.start()
            assert isinstance(lost.exception, KafkaTimeoutError)
            # Here commit_transaction would return, with "first" visible and "lost" lost.
            sender.abort_transaction()
        assert values(killable_broker, topic) == []

    def test_a_transaction_that_timed_out_shows_in_the_futures(
        self, kafka_broker: AnyBroker, new_topic: Topics
    ) -> None:
        topic = new_topic()
        with (
            transactional(kafka_broker, transaction_timeout_ms=1000) as sender,
            consumer(kafka_broker) as reader,
        ):
            partition = TopicPartition(topic, 0)
            sender.begin_transaction()
            sender.send(topic, b"first").get(PATIENCE)
            # The broker aborts it: the readable part then ends after the record and the marker.
            assert eventually(lambda: reader.end_offsets([partition]) == {partition: 2})
            late = sender.send(topic, b"late")
            sender.flush(PATIENCE)
            assert isinstance(late.exception, KafkaError)
            # Without that flush commit_transaction would return, with both records lost.
            with pytest.raises(KafkaError):
                sender.commit_transaction()
        assert values(kafka_broker, topic) == []


def test_no_kafka_thread_is_left(kafka_broker: AnyBroker, new_topic: Topics) -> None:
    """`discard` ends a producer's thread even when it still has records for a broker that is away.

    A consumer whose construction fails for want of a broker does leave its thread and four file
    descriptors behind: look whether the port answers before making one.
    """
    before = set(threading.enumerate())
    nowhere = free_ports(1)[0]
    with pytest.raises(KafkaTimeoutError):
        KafkaProducer(bootstrap_servers=f"127.0.0.1:{nowhere}", bootstrap_timeout_ms=200)
    with transactional(kafka_broker) as sender:
        sender.begin_transaction()
        sender.send(new_topic(), b"open")
    with consumer(kafka_broker) as reader:
        reader.topics()
    assert eventually(lambda: set(threading.enumerate()) <= before)
