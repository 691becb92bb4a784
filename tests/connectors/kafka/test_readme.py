"""What README and docs show of Kafka runs as it stands there, with another broker and topics of its own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamcal import RecalibrationMap
from streamcal.maps.shift import shift_correction_one
from streamcal.testing import NormalPair
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.registry import SchemaRegistry
from tests.connectors.kafka.topics import Kafka, read, started, until

ROOT = Path(__file__).parents[3]
PREDICTIONS = 500


def test_the_way_in_over_kafka_runs(kafka: Kafka, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "kafka://" in block)
    topics = {name: kafka.topic(name) for name in re.findall(r"kafka://broker:9092/(\w+)", code)}
    assert sorted(topics) == ["labels", "maps", "predictions", "recalibrated"]
    scores, labels = NormalPair(0.5).sample(1000 + PREDICTIONS, np.random.default_rng(0))
    pairs = list(zip(scores.tolist(), labels.tolist(), strict=True))
    source = tmp_path / "calibration.jsonl"
    source.write_text("".join(f'{{"score":{score},"label":{label}}}\n' for score, label in pairs[:1000]))
    rows = [(b'"score":%r' % s, b'"label":%d' % y) for s, y in pairs[1000:]]
    for index, name in enumerate(("predictions", "labels")):
        events = [b'{"id":"a%d",%b,"time":%d}' % (i, row[index], i) for i, row in enumerate(rows)]
        kafka.put(topics[name], events)
    for name, topic in topics.items():
        code = code.replace(f"kafka://broker:9092/{name}", kafka.url(topic))
    code = code.replace(source.name, str(source)).replace("streamcal.db", str(tmp_path / "s.db"))
    with started(*shlex.split(code.replace("\\\n", ""))[1:]) as (process, said):

        def has(name: str, count: int) -> bool:
            return process.poll() is not None or len(kafka.values(topics[name])) >= count

        until(lambda: has("recalibrated", PREDICTIONS) and has("maps", 1), "no answers")
        process.terminate()
        assert process.wait(30) == 0, said()
    answers = kafka.values(topics["recalibrated"])
    assert sorted(row["id"] for row in answers) == sorted(f"a{i}" for i in range(PREDICTIONS))
    published = kafka.values(topics["maps"])
    maps = {row["version"]: RecalibrationMap.model_validate(row["map"]) for row in published}
    stated = [row for row in answers if row["map_version"] in maps]
    assert stated
    for row in stated:
        base = maps[row["map_version"]].base_one(row["score"])
        assert row["probability"] == shift_correction_one(base, tuple(row["weights"]))


def test_the_producer_of_the_docs_is_read(
    kafka: Kafka, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "kafka.md").read_text(), re.DOTALL)
    topic = kafka.topic("predictions")
    for there, here in (
        ("http://registry:8081", registry.url),
        ("broker:9092", kafka.broker.bootstrap),
        ('"predictions"', repr(topic)),
    ):
        assert there in code
        code = code.replace(there, here)
    exec(code, {})
    monkeypatch.setenv("STREAMCAL_KAFKA_SCHEMA_REGISTRY", registry.url)
    with kafka.opened(topic, "?until=end") as source:
        events = read(source, 1000)["0"]
    assert (events[1].id, events[1].score, events[1].time) == ("a1", 0.01, 1_772_366_400.001)
    assert len(events) == 100


@pytest.mark.nightly
def test_the_example_runs_on_a_broker_like_that_of_its_compose_file(jars: None) -> None:
    """But for the image itself, which takes ``KAFKA_A_B`` for ``a.b``, its ports, and where its data are."""
    example = ROOT / "examples" / "kafka"
    lines = re.findall(
        r'^ +KAFKA_(\w+): "?([^"\n]+)"?$', (example / "compose.yaml").read_text(), re.MULTILINE
    )
    text = "".join(f"{name.lower().replace('_', '.')}={value}\n" for name, value in lines)
    assert "process.roles=broker,controller\n" in text
    text = text.replace("9092", "{port}").replace("9093", "{controller}") + "log.dirs={data}\n"
    with Broker(text) as made:
        command = [sys.executable, str(example / "demo.py"), "--bootstrap", made.bootstrap]
        command += ["--predictions", "3000", "--kills", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "3,000 answers, 3,000 ids" in done.stdout
