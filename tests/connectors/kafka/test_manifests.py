"""examples/kubernetes: what the manifests start, probed and ended as they say, without a cluster."""

from __future__ import annotations

import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.connectors.kafka.topics import Kafka, prediction
from tests.forks import Fork

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "kubernetes"


@contextmanager
def pod(manifest: str, folder: Path, swap: dict[str, str]) -> Iterator[None]:
    """Start the container of a StatefulSet, with stand-ins in its arguments; probe it, and end it."""
    documents = yaml.safe_load_all((EXAMPLE / manifest).read_text())
    (stateful,) = (each["spec"] for each in documents if each["kind"] == "StatefulSet")
    spec = stateful["template"]["spec"]
    (container,) = spec["containers"]
    (port,) = container["ports"]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted[stateful["volumeClaimTemplates"][0]["metadata"]["name"]] == "/data"
    assert container["resources"]["limits"]["memory"]
    text = "\n".join(container["args"])
    assert text.count(str(port["containerPort"])) == 1
    for name, stand_in in {"/data/": f"{folder}/", **swap}.items():
        assert name in text
        text = text.replace(name, stand_in)
    environment = os.environ | {each["name"]: each["value"] for each in container.get("env", ())}
    said = folder / "log"
    with said.open("wb") as log:
        process = Fork(text.split("\n"), env=environment, stderr=log, cwd=folder)

    def wait(probe: str) -> None:
        asked = container[f"{probe}Probe"]["httpGet"]
        assert asked["port"] == port["name"]
        while True:
            assert process.poll() is None, said.read_text()
            try:
                found = re.findall(r"http://[\d.]+:\d+", said.read_text())[0]
                with urllib.request.urlopen(found + asked["path"], timeout=20):
                    return
            except (IndexError, OSError):
                time.sleep(0.05)

    try:
        for probe in ("startup", "readiness", "liveness"):
            wait(probe)
        yield
        wait("readiness")
        process.terminate()
        assert process.wait(spec["terminationGracePeriodSeconds"]) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()


def test_serve(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t" * 32)
    swap = {"/etc/streamcal": str(tmp_path), "0.0.0.0": "127.0.0.1", "=8080": "=0"}
    with pod("statefulset.yaml", tmp_path, swap):
        pass


def test_run(kafka: Kafka, tmp_path: Path) -> None:
    topics = {name: kafka.topic(name) for name in ("predictions", "labels", "recalibrated", "rejects")}
    swap = {f"kafka://kafka:9092/{name}": kafka.url(topic) for name, topic in topics.items()}
    kafka.put(topics["predictions"], [prediction(0)])
    with pod("run.yaml", tmp_path, {**swap, "0.0.0.0:9100": "127.0.0.1:0"}):
        while not kafka.values(topics["recalibrated"]):
            time.sleep(0.05)
