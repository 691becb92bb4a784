"""The Kafka fixtures, for every test in this directory."""

import gc
import warnings

import pytest
from streamcal_connectors.kafka import cluster

from tests.connectors.kafka.fixtures import LEFT_BEHIND, client, kafka_broker, killable_broker, new_topic

__all__ = ["client", "kafka_broker", "killable_broker", "new_topic"]


@pytest.fixture
def quick_cluster(monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    """Let the connector look for new partitions often, and give up soon."""
    monkeypatch.setenv("STREAMCAL_KAFKA_REFRESH_SECONDS", "0.3")
    monkeypatch.setenv("STREAMCAL_KAFKA_REQUEST_SECONDS", "5")
    monkeypatch.setattr(cluster, "_MISSING_SECONDS", 0.3)


def pytest_configure(config: pytest.Config) -> None:
    """Fail no running test for a socket that kafka-python left to the garbage collector."""
    config.addinivalue_line("filterwarnings", f"ignore:{LEFT_BEHIND}:ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the broker; those that kill it with the second client are nightly."""
    for item in items:
        if isinstance(item, pytest.Function) and "kafka_broker" in item.fixturenames:
            item.add_marker("kafka")
            if item.get_closest_marker("crash") and "confluent" in item.name:
                item.add_marker("nightly")


def pytest_sessionfinish() -> None:
    """Collect the last of them here, before pytest does with every warning an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", LEFT_BEHIND, ResourceWarning)
        for _ in range(5):  # One finaliser frees the next.
            gc.collect()
