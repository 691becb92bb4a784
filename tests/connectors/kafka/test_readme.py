"""The README's way in over Kafka runs as it stands there, with another broker and topics of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]

from streamcal import RecalibrationMap
from streamcal.maps.shift import shift_correction_one
from streamcal.testing import NormalPair
from tests.connectors.kafka.fixtures import AnyBroker, Topics

README = Path(__file__).parents[3] / "README.md"
PATIENCE = 60.0
PREDICTIONS = 500


def send(broker: AnyBroker, topic: str, rows: list[dict[str, object]]) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, metrics_enabled=False)) as producer:
        for row in rows:
            producer.send(topic, json.dumps(row).encode())
        producer.flush(PATIENCE)


def committed(broker: AnyBroker, topic: str, count: int, process: subprocess.Popen[str]) -> list[dict]:
    """Read a topic of one partition as a ``read_committed`` reader does, until ``count`` rows are there."""
    with closing(
        KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, isolation_level="read_committed")
    ) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        found: list[dict] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} rows on {topic}"
            assert process.poll() is None, process.communicate()[1]
            for records in consumer.poll(timeout_ms=200).values():
                found += [json.loads(record.value) for record in records]
        return found


def test_the_way_in_over_kafka_runs(kafka_broker: AnyBroker, new_topic: Topics, tmp_path: Path) -> None:
    (code,) = (
        block
        for block in re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
        if "kafka://" in block
    )
    topics = {name: new_topic(name) for name in re.findall(r"kafka://broker:9092/(\w+)", code)}
    assert sorted(topics) == ["labels", "maps", "predictions", "recalibrated"]
    rng = np.random.default_rng(0)
    scores, labels = NormalPair(0.5).sample(1000 + PREDICTIONS, rng)
    pairs = list(zip(scores.tolist(), labels.tolist(), strict=True))
    lines = [json.dumps({"score": score, "label": label}) for score, label in pairs[:1000]]
    (tmp_path / "calibration.jsonl").write_text("\n".join(lines) + "\n")
    deployed = list(enumerate(pairs[1000:]))
    predictions = [{"id": f"a{i}", "score": s, "time": i} for i, (s, _) in deployed]
    send(kafka_broker, topics["predictions"], predictions)
    send(kafka_broker, topics["labels"], [{"id": f"a{i}", "label": y, "time": i} for i, (_, y) in deployed])
    for name, topic in topics.items():
        code = code.replace(f"kafka://broker:9092/{name}", f"kafka://{kafka_broker.bootstrap}/{topic}")
    process = subprocess.Popen(
        ["bash", "-euc", f"exec {code}"],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        answers = committed(kafka_broker, topics["recalibrated"], PREDICTIONS, process)
        published = committed(kafka_broker, topics["maps"], 1, process)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, log
    assert sorted(row["id"] for row in answers) == sorted(row["id"] for row in predictions)
    maps = {row["version"]: RecalibrationMap.model_validate(row["map"]) for row in published}
    stated = [row for row in answers if row["map_version"] in maps]
    assert stated
    for row in stated:
        base = maps[row["map_version"]].base_one(row["score"])
        assert row["probability"] == shift_correction_one(base, tuple(row["weights"]))
