"""examples/kubernetes: what the manifests start, probed and ended as they say, without a cluster."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.connectors.kafka.topics import Kafka, prediction
from tests.forks import Fork

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "kubernetes"


class Pod:
    """The one container of a StatefulSet, with stand-ins for parts of its arguments."""

    def __init__(self, manifest: str, folder: Path, swap: dict[str, str]) -> None:
        documents = yaml.safe_load_all((EXAMPLE / manifest).read_text())
        (stateful,) = (each for each in documents if each["kind"] == "StatefulSet")
        spec = stateful["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert container["volumeMounts"][0] == {"name": "store", "mountPath": "/data"}
        assert stateful["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == "store"
        assert container["resources"]["limits"]["memory"]
        self._container, self._grace = container, spec["terminationGracePeriodSeconds"]
        arguments: list[str] = container["args"]
        assert sum(str(container["ports"][0]["containerPort"]) in each for each in arguments) == 1
        for before, after in {"/data/": f"{folder}/", **swap}.items():
            assert any(before in each for each in arguments), before
            arguments = [each.replace(before, after) for each in arguments]
        self._log = folder / "log"
        environment = os.environ | {each["name"]: each["value"] for each in container.get("env", ())}
        with self._log.open("wb") as log:
            self.process = Fork(arguments, env=environment, stderr=log, cwd=folder)

    def probe(self, name: str) -> int:
        """Return the status of a probe; 0 if it could not connect."""
        how = self._container[f"{name}Probe"]["httpGet"]
        assert how["port"] == self._container["ports"][0]["name"]
        found = re.findall(r"(http://[\d.]+:\d+)", self._log.read_text())
        try:
            with urllib.request.urlopen(found[0] + how["path"], timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except (IndexError, OSError):
            return 0

    def wait(self, name: str) -> None:
        while self.probe(name) != 200:
            assert self.process.poll() is None, self._log.read_text()
            time.sleep(0.05)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(self._grace) == 0, self._log.read_text()


def probed(pod: Pod, answered: Any) -> None:
    """Follow a pod from its start to its end."""
    try:
        for name in ("startup", "readiness", "liveness"):
            pod.wait(name)
        answered()
        assert pod.probe("readiness") == 200
        pod.end()
    finally:
        pod.process.kill()
        pod.process.wait()


def test_serve(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t" * 32)
    (tmp_path / "token").chmod(0o600)
    swap = {
        "/etc/streamcal/token": str(tmp_path / "token"),
        "0.0.0.0": "127.0.0.1",
        "--port=8080": "--port=0",
    }
    probed(Pod("statefulset.yaml", tmp_path, swap), lambda: None)


def test_run(kafka: Kafka, tmp_path: Path) -> None:
    topics = {name: kafka.topic(name) for name in ("predictions", "labels", "recalibrated", "rejects")}
    swap = {f"kafka://kafka:9092/{name}": kafka.url(topic) for name, topic in topics.items()}
    kafka.put(topics["predictions"], [prediction(0)])

    def answered() -> None:
        while not kafka.values(topics["recalibrated"]):
            time.sleep(0.05)

    probed(Pod("run.yaml", tmp_path, {**swap, "0.0.0.0:9100": "127.0.0.1:0"}), answered)
