"""The Kafka fixtures, for every test in this directory."""

import gc
import warnings
from pathlib import Path

import pytest

from tests.connectors.kafka.fixtures import LEFT_BEHIND, kafka_broker, killable_broker, new_topic

__all__ = ["kafka_broker", "killable_broker", "new_topic"]

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Fail no running test for a socket that kafka-python left to the garbage collector."""
    config.addinivalue_line("filterwarnings", f"ignore:{LEFT_BEHIND}:ResourceWarning")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a broker, and keep it in one worker of pytest-xdist: one broker serves all of it."""
    for item in items:
        if not item.path.is_relative_to(HERE) or not isinstance(item, pytest.Function):
            continue
        if "kafka_broker" in item.fixturenames:
            item.add_marker("kafka")
        if item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.xdist_group("kafka"))


def pytest_sessionfinish() -> None:
    """Collect the last of them here, before pytest does with every warning an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", LEFT_BEHIND, ResourceWarning)
        for _ in range(5):  # One finaliser frees the next.
            gc.collect()
