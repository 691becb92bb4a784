"""A transaction that the broker neither commits nor aborts.

A broker that was killed may lose how a transaction was to end (`Broker.lost_transactions`). What it leaves is
an offset of the run's group that stays pending though the broker answers everything else. A transaction of
another producer that writes an offset to the same group, and is left open, leaves just that.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import AbortTransactionSpec  # type: ignore[import-untyped]
from kafka.errors import KafkaTimeoutError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]
from streamcal_connectors.kafka import transactions
from streamcal_connectors.kafka.source import KafkaConnector

from tests.connectors.kafka.clients import transactional
from tests.connectors.kafka.fixtures import AnyBroker, Topics
from tests.connectors.kafka.topics import answer, answered, producer_of, url

pytestmark = pytest.mark.usefixtures("quick_cluster")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for 2 s instead of 120."""
    monkeypatch.setenv("STREAMCAL_KAFKA_REQUEST_SECONDS", "3")
    monkeypatch.setenv("STREAMCAL_KAFKA_CONNECT_SECONDS", "100")
    monkeypatch.setattr(transactions, "_PENDING_SECONDS", 2.0)


def leave_open(sender: Any, topic: str, group: str) -> None:
    sender.begin_transaction()
    sender.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(9, "", -1)}, group)


def abort_as_an_operator(broker: AnyBroker) -> None:
    """Abort what is open in the topic of groups, as ``kafka-transactions.sh abort`` does (docs/kafka.md)."""
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        count = len(admin.describe_topics(["__consumer_offsets"])[0]["partitions"])
        found = admin.describe_producers([TopicPartition("__consumer_offsets", p) for p in range(count)])
        for partition, state in found.items():
            for producer in state.active_producers:
                if producer.current_transaction_start_offset >= 0:
                    epochs = producer.producer_epoch, max(producer.coordinator_epoch, 0)
                    admin.abort_transaction(AbortTransactionSpec(partition, producer.producer_id, *epochs))


class TestLostTransaction:
    @pytest.mark.usefixtures("short")
    @pytest.mark.parametrize("group", ["streamcal.{}", "streamcal.{}.job"], ids=["owner", "job"])
    def test_a_run_ends_and_says_what_to_do(
        self,
        kafka_broker: AnyBroker,
        new_topic: Topics,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        group: str,
        client: str,
    ) -> None:
        topic = new_topic("answers")
        group = group.format(topic)
        with (
            closing(KafkaConnector().sink(url(kafka_broker, topic))) as sink,
            transactional(kafka_broker, transaction_timeout_ms=600_000) as sender,
        ):
            sink.resume("job", None)
            sink.write([answer(1)])
            sink.commit({"in": {"": 1}})
            leave_open(sender, topic, group)

            def commit(_: Any) -> None:
                raise KafkaTimeoutError("no answer")

            sink.write([answer(2)])
            with monkeypatch.context() as patch:
                patch.setattr(producer_of(client), "commit", commit)
                with pytest.raises(OSError, match="has neither committed nor aborted") as caught:
                    sink.commit({"in": {"": 2}})
            number = 1 if group.endswith("job") else 0
            for said in (
                f"'streamcal.{topic}'",
                f"the group {group!r}",
                f"is number {number}",
                "kafka-transactions.sh",
                "docs/kafka.md",
            ):
                assert said in str(caught.value)
            assert caplog.text.count("has not ended yet") == 1
            abort_as_an_operator(kafka_broker)
        with closing(KafkaConnector().sink(url(kafka_broker, topic))) as sink:
            assert sink.resume("job", {"transaction": 1}) == {"in": {"": 1}}
            sink.write([answer(2)])
            sink.commit({"in": {"": 2}})
        assert answered(kafka_broker, topic) == [1, 2]
