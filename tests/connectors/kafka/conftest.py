"""The Kafka fixtures, for every test in this directory; without Java or the jars, tests are skipped."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator

import pytest
from streamcal_connectors.kafka import cluster

from tests.connectors.kafka.broker import Broker, fetch
from tests.connectors.kafka.registry import SchemaRegistry, schema_registry
from tests.connectors.kafka.topics import CLIENT, Kafka
from tests.maven import FetchError

# kafka-python 3.0 leaves to the garbage collector the socket of every refused connection, and the
# pair that wakes its thread when a client could not be made.
LEFT_BEHIND = (
    r"unclosed <socket\.socket fd=\d+, "
    r"family=(2, type=1, proto=6, laddr=\('0\.0\.0\.0', \d+\)|1, type=1, proto=0)>"
)


@pytest.fixture(scope="session")
def jars() -> None:
    """Bring the broker's jars; without them tests are skipped, but fail under CI."""
    try:
        fetch()
    except FetchError as error:
        if os.environ.get("CI"):
            pytest.fail(f"under CI the Kafka tests must run: {error}", pytrace=False)
        pytest.skip(f"no Kafka broker: {error}")


@pytest.fixture(scope="session")
def kafka_broker(jars: None) -> Iterator[Broker]:
    """Return the broker of this test session, running."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def killable_broker(kafka_broker: Broker) -> Iterator[Broker]:
    """Return the session's broker to kill, pause and restart; it runs again after the test."""
    yield kafka_broker
    (kafka_broker.resume if kafka_broker.running else kafka_broker.start)()


@pytest.fixture(scope="session")
def kafka(kafka_broker: Broker) -> Kafka:
    """Return the broker with what tests make, write and read there."""
    return Kafka(kafka_broker)


@pytest.fixture
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the client library, which the connector and its subprocesses use in this test.

    It is that of the environment, which takes a whole test run through the other one, or of `BOTH`.
    """
    name: str = getattr(request, "param", os.environ.get(CLIENT, "kafka-python"))
    monkeypatch.setenv(CLIENT, name)
    return name


@pytest.fixture
def quick_cluster(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    """Let the connector look for new partitions often, and give up soon."""
    monkeypatch.setenv("STREAMCAL_KAFKA_REFRESH_SECONDS", "0.3")
    monkeypatch.setenv("STREAMCAL_KAFKA_REQUEST_SECONDS", "5")
    monkeypatch.setattr(cluster, "_MISSING_SECONDS", 0.3)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as made:
        yield made


def pytest_configure(config: pytest.Config) -> None:
    """Fail no running test for a socket that kafka-python left to the garbage collector."""
    config.addinivalue_line("filterwarnings", f"ignore:{LEFT_BEHIND}:ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the broker; those that kill it with the second client are nightly."""
    for item in items:
        if isinstance(item, pytest.Function) and "jars" in item.fixturenames:
            item.add_marker("kafka")
            if item.get_closest_marker("crash") and "confluent" in item.name:
                item.add_marker("nightly")


def pytest_sessionfinish() -> None:
    """Collect the last of them here, before pytest does with every warning an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", LEFT_BEHIND, ResourceWarning)
        for _ in range(5):  # One finaliser frees the next.
            gc.collect()
