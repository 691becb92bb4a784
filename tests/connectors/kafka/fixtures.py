"""Fixtures for tests against a real Kafka broker.

`kafka_broker` (session)
    Something with a `bootstrap`. It is the broker at ``STREAMCAL_KAFKA=host:port`` when that is set,
    else one that `broker.Broker` starts. Where neither can be had the test is skipped with the
    reason; under ``CI`` it fails.
`killable_broker` (test)
    The same broker as a `Broker`, to kill, pause and restart; after the test it runs again. Skipped
    when the broker is not ours.
`client` (test)
    The client library that the connector uses: with `BOTH` each in turn, otherwise that of the
    environment's ``STREAMCAL_KAFKA_LIBRARY``, which takes a whole test run through the other one.
`new_topic` (session)
    Makes a topic of its own for a test: ``new_topic("predictions", partitions=3)``.
"""

from __future__ import annotations

import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.connectors.kafka.broker import Broker, fetch
from tests.maven import FetchError

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas with importlib.resources.read_text, which Python 3.11 and
    # 3.12 call deprecated (3.13 does not).
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient  # type: ignore[import-untyped]
    from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]

EXTERNAL = "STREAMCAL_KAFKA"
CLIENT = "STREAMCAL_KAFKA_LIBRARY"

BOTH = pytest.mark.parametrize("client", ["kafka-python", "confluent"], indirect=True)
"""Runs a test with each client library."""

# kafka-python 3.0 leaves to the garbage collector the socket of every refused connection, and the
# pair that wakes its thread when a client could not be made.
LEFT_BEHIND = (
    r"unclosed <socket\.socket fd=\d+, "
    r"family=(2, type=1, proto=6, laddr=\('0\.0\.0\.0', \d+\)|1, type=1, proto=0)>"
)


@dataclass(frozen=True)
class ExternalBroker:
    """A broker that was there before the tests and is not theirs to stop."""

    bootstrap: str


AnyBroker = Broker | ExternalBroker


@dataclass
class Topics:
    """Makes topics with names of their own, so that no test sees another's records."""

    bootstrap: str
    made: list[str] = field(default_factory=list)

    def __call__(
        self, stem: str = "topic", partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Make a topic, wait until it can be written to, and return its name."""
        name = f"{stem}-{uuid.uuid4().hex[:12]}"
        wanted = {
            name: {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        }
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.create_topics(wanted, wait_for_metadata=True)
        self.made.append(name)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Give `topic` more partitions, `partitions` in all, and wait until they are there."""
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.create_partitions({topic: partitions})
            while len(admin.describe_topics([topic])[0]["partitions"]) < partitions:
                time.sleep(0.05)
            admin.wait_for_topics([topic])

    def set(self, topic: str, configs: Mapping[str, str]) -> None:
        """Change settings of `topic`, and wait until they are seen."""
        asked = [ConfigResource(ConfigResourceType.TOPIC, topic, list(configs))]
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])
            while any(
                found["value"] != configs[name]
                for name, found in admin.describe_configs(asked, config_filter="all")["topic"][topic].items()
            ):
                time.sleep(0.05)

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Delete `topic` and make it again, empty."""
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.delete_topics([topic])
            while topic in admin.list_topics():
                time.sleep(0.05)
            made = {topic: {"num_partitions": partitions, "replication_factor": 1}}
            admin.create_topics(made, wait_for_metadata=True)

    def remove(self) -> None:
        """Delete every topic that was made here."""
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            admin.delete_topics(self.made)
        self.made.clear()


def broker_or_reason() -> AnyBroker | str:
    """Return a broker, not yet started if it is ours, or the reason why there is none."""
    if external := os.environ.get(EXTERNAL):
        return ExternalBroker(external)
    try:
        fetch()
    except FetchError as error:
        return f"no Kafka broker: {error} (or set {EXTERNAL}=host:port)"
    return Broker()


def give_up(reason: str) -> None:
    """Skip the test for `reason`, except under CI, where a missing broker is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"under CI the Kafka tests must run: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[AnyBroker]:
    """Return the broker of this test session, running."""
    broker = broker_or_reason()
    if isinstance(broker, str):
        give_up(broker)
    elif isinstance(broker, Broker):
        with broker:
            yield broker
    else:
        yield broker


@pytest.fixture
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the client library, which the connector and its subprocesses use in this test."""
    name: str = getattr(request, "param", os.environ.get(CLIENT, "kafka-python"))
    monkeypatch.setenv(CLIENT, name)
    return name


@pytest.fixture
def killable_broker(kafka_broker: AnyBroker) -> Iterator[Broker]:
    """Return the session's broker to kill, pause and restart; it runs again after the test."""
    if not isinstance(kafka_broker, Broker):
        pytest.skip(f"the broker at {EXTERNAL}={kafka_broker.bootstrap} is not ours to kill")
    yield kafka_broker
    if kafka_broker.running:
        kafka_broker.resume()
    else:
        kafka_broker.start()


@pytest.fixture(scope="session")
def new_topic(kafka_broker: AnyBroker) -> Iterator[Topics]:
    """Return the maker of topics; those on a broker that is not ours are deleted at the end."""
    topics = Topics(kafka_broker.bootstrap)
    yield topics
    if isinstance(kafka_broker, ExternalBroker) and topics.made:
        topics.remove()


def retried(broker: Broker, tmp_path: Path, check_once: Callable[[Path, int], None]) -> None:
    """Check, in a folder of its own; again if the broker has lost a transaction.

    A broker that is killed may lose one (`Broker.lost_transactions`). What was writing then ends, and says so
    (test_lost_transactions.py).
    """
    for attempt in range(5):
        folder, lost = tmp_path / str(attempt), broker.lost_transactions
        folder.mkdir()
        try:
            check_once(folder, attempt)
        except (AssertionError, OSError):
            if broker.lost_transactions == lost:
                raise
        else:
            return
    pytest.fail("the broker lost a transaction in each of five runs")
