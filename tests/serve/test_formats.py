"""Formats of requests beside JSON: lines of many keys, the V2 inference protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.servers import LINES, Served, lines

pytestmark = pytest.mark.slow


def test_many_new_keys_in_one_request_are_answered(server: Served) -> None:
    body = lines(*({"id": f"key {i}", "score": 0.5, "key": f"new {i}"} for i in range(2_000)))
    status, found = server.ask("POST", "/v1/predictions", body, LINES)
    assert (status, len(found)) == (200, 2_000)
    assert all("probability" in each for each in found)


def infer(*scores: float, **changed: object) -> dict[str, Any]:
    score = {"name": "score", "shape": [len(scores)], "datatype": "FP64", "data": list(scores)} | changed
    ids = [f"v{each}" for each in range(len(scores))]
    return {
        "id": "r1",
        "inputs": [score, {"name": "id", "shape": [len(ids)], "datatype": "BYTES", "data": ids}],
    }


def test_the_v2_inference_protocol(server: Served) -> None:
    status, answer = server.ask("POST", "/v2/models/churn/infer", infer(0.2, 0.7))
    assert status == 200
    assert (answer["model_name"], answer["id"]) == ("churn", "r1")
    assert answer["outputs"][0] == {
        "name": "probability",
        "datatype": "FP64",
        "shape": [2],
        "data": [0.2, 0.7],
    }
    assert server.label(id="v1", label=1)[1]["outcome"] == "joined"
    assert server.ask("GET", "/v1/map?key=churn")[1]["version"] == 0
    assert server.ask("GET", "/v2/models/churn")[1]["versions"] == ["0"]
    assert server.ask("GET", "/v2/models/churn/ready")[0] == server.ask("GET", "/v2/health/live")[0] == 200
    for changed, pointer in (
        ({"datatype": "INT8"}, "#/inputs/0/datatype"),
        ({"shape": [3]}, "#/inputs/0/shape"),
        ({"name": "x"}, "#/inputs/0/name"),
    ):
        status, problem = server.ask("POST", "/v2/models/churn/infer", infer(0.2, **changed))
        assert (status, problem["errors"][0]["pointer"]) == (400, pointer)
        assert problem["error"] == problem["detail"]
    status, problem = server.ask("POST", "/v2/models/churn/infer", infer(0.2, 7))
    assert (status, problem["detail"][:7]) == (422, "value 1")


def test_segments_are_fields_and_tensors(tmp_path: Path) -> None:
    options = tmp_path / "c.toml"
    options.write_text('[segments]\nfields = ["country", "tier"]\n')
    served = Served(tmp_path / "store.db", "--config", options)
    fields = served.ask("GET", "/openapi.json")[1]["components"]["schemas"]["Prediction"]["properties"]
    assert {"country", "tier"} <= fields.keys()
    rng = np.random.default_rng(0)
    for begin in range(0, 1200, 200):
        predictions, labels = [], []
        for number in range(begin, begin + 200):
            country = ("NL", "PL")[number % 2]
            rate = 0.2 if country == "NL" else 0.8
            predictions.append({"id": f"a{number}", "score": 0.5, "country": country, "tier": number % 3})
            labels.append({"id": f"a{number}", "label": int(rng.random() < rate)})
        assert served.ask("POST", "/v1/predictions", lines(*predictions), LINES)[0] == 200
        assert served.ask("POST", "/v1/labels", lines(*labels), LINES)[0] == 200
    one = [
        served.predict(id=f"b{country}", score=0.5, country=country, tier=1)[1]["probability"]
        for country in ("NL", "PL")
    ]
    assert one[0] < 0.3 < 0.7 < one[1]
    asked = infer(0.5, 0.5)
    asked["inputs"] += [
        {"name": "country", "shape": [2], "datatype": "BYTES", "data": ["NL", "PL"]},
        {"name": "tier", "shape": [2], "datatype": "INT64", "data": [1, 1]},
    ]
    assert served.ask("POST", "/v2/models/_/infer", asked)[1]["outputs"][0]["data"] == one
    described = served.ask("GET", "/v2/models/_")[1]["inputs"]
    assert [each["name"] for each in described] == ["score", "id", "country", "tier"]
    asked["inputs"][2]["name"] = "land"
    status, problem = served.ask("POST", "/v2/models/_/infer", asked)
    assert (status, "country, tier" in problem["detail"]) == (400, True)
    served.stop()
