"""Servers that a failed test leaves behind are killed, lest a later test fails of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.serve.servers import Served


@pytest.fixture(autouse=True)
def no_server_left() -> Iterator[None]:
    """Kill the servers that a test began and did not stop."""
    before = tuple(Served.running)
    yield
    for served in tuple(Served.running):
        if served not in before:
            served.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("serve") / "store.db")
    yield served
    served.stop()
