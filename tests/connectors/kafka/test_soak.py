"""A run while all goes wrong around it, by night: five minutes of tests/soak.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.topics import Kafka, retried
from tests.soak import Soak


@pytest.mark.crash
@pytest.mark.nightly
def test_soak(killable_broker: Broker, kafka: Kafka, tmp_path: Path) -> None:
    def check_once(folder: Path, seed: int) -> None:
        *_, last = Soak(kafka.broker, folder, seed).go_on(300)
        assert last.startswith("sketches byte-equal")

    retried(killable_broker, tmp_path, check_once)
