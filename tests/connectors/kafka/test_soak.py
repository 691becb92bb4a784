"""A run while all goes wrong around it: some seconds of tests/soak.py, by night five."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.topics import Kafka, retried
from tests.soak import Soak


@pytest.mark.crash
@pytest.mark.parametrize("seconds", [8, pytest.param(300, marks=pytest.mark.nightly)])
def test_soak(killable_broker: Broker, kafka: Kafka, tmp_path: Path, seconds: int) -> None:
    def check_once(folder: Path, seed: int) -> None:
        *_, last = Soak(kafka.broker, folder, seed).go_on(seconds)
        assert last.startswith("sketches byte-equal")

    retried(killable_broker, tmp_path, check_once)
