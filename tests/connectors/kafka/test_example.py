"""The example over Kafka, on a broker with the settings of its compose file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.connectors.kafka import broker as broker_module
from tests.connectors.kafka.broker import Broker, fetch
from tests.connectors.kafka.fixtures import give_up
from tests.maven import FetchError

EXAMPLE = Path(__file__).parents[3] / "examples" / "kafka"


def settings() -> dict[str, str]:
    """Return what the compose file tells its broker, named as in server.properties.

    The image takes ``KAFKA_A_B`` for ``a.b``.
    """
    text = (EXAMPLE / "compose.yaml").read_text()
    lines = re.findall(r'^ +KAFKA_(\w+): "?([^"\n]+)"?$', text, re.MULTILINE)
    return {name.lower().replace("_", "."): value for name, value in lines}


@pytest.mark.nightly
@pytest.mark.kafka
def test_it_runs_on_a_broker_like_that_of_the_compose_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the image itself, its ports, and where its data are."""
    try:
        fetch()
    except FetchError as error:
        give_up(str(error))
    found = settings()
    assert found["process.roles"] == "broker,controller"
    text = "".join(f"{name}={value}\n" for name, value in found.items())
    assert text.count("9092") == 2
    assert text.count("9093") == 2
    text = text.replace("9092", "{port}").replace("9093", "{controller}") + "log.dirs={data}\n"
    monkeypatch.setattr(broker_module, "SERVER_PROPERTIES", text)
    with Broker() as made:
        demo = [sys.executable, EXAMPLE / "demo.py", "--bootstrap", made.bootstrap]
        done = subprocess.run(
            [*demo, "--predictions", "3000", "--kills", "1"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "3,000 answers, 3,000 ids" in done.stdout
