"""examples/recipes: the events of KServe become predictions; `make recipes` runs them all."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.command_line import streamcal

FOLDER = Path(__file__).parents[2] / "examples" / "recipes"


@pytest.fixture(scope="module")
def kserve() -> ModuleType:
    spec = importlib.util.spec_from_file_location("with_kserve", FOLDER / "with_kserve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HEADERS = {  # of the response in KServe's documentation of its logger
    "Ce-Specversion": "1.0",
    "Ce-Type": "org.kubeflow.serving.inference.response",
    "Ce-Source": "http://localhost:9081/",
    "Ce-Id": "0009174a-24a8-4603-b098-09c8799950e9",
    "Ce-Time": "2021-04-10T00:23:26.080736102Z",
    "Ce-Inferenceservicename": "sklearn-iris",
    "Ce-Namespace": "default",
    "Ce-Endpoint": "",
    "Content-Type": "application/json",
}


def test_the_documented_events_of_kserve_become_predictions(kserve: ModuleType, tmp_path: Path) -> None:
    request = HEADERS | {"Ce-Type": "org.kubeflow.serving.inference.request"}
    assert not list(kserve.events(request, b'{"instances": [[6.8, 2.8, 4.8, 1.4], [6.0, 3.4, 4.5, 1.6]]}'))
    rows = list(kserve.events(HEADERS, b'{"predictions": [1, 1]}'))
    id_, time = HEADERS["Ce-Id"], HEADERS["Ce-Time"]
    assert rows == [
        {"id": f"{id_}:{place}", "score": 1, "time": time, "key": "sklearn-iris"} for place in (0, 1)
    ]
    events, out = tmp_path / "events.jsonl", tmp_path / "rows.jsonl"
    events.write_text("".join(json.dumps(row) + "\n" for row in rows))
    streamcal("run", "--events", events, "--output", out, "--strict", status=0)
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == [row["id"] for row in rows]
