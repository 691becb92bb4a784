"""Many classes over HTTP: answered as by a run, again after a kill, and refused with the reason."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from streamcal.multiclass.class_map import MulticlassMap
from tests.multiclass.test_faces import NAMES
from tests.multiclass.test_run import CLASSES, events, read, run, write
from tests.serve.conftest import *  # noqa: F403  # kills what a failed test leaves behind
from tests.serve.servers import LINES, Served, lines

pytestmark = pytest.mark.slow


def test_requests_are_answered_as_by_a_run_and_again_after_a_kill(tmp_path: Path) -> None:
    given = events(120, 40)
    run(*CLASSES, "--events", write(tmp_path / "e.jsonl", given), "--output", tmp_path / "o.jsonl")
    server = Served(tmp_path / "s.db", *CLASSES)
    answers = []
    for start in range(0, len(given), 80):
        for event in given[start : start + 80]:
            if "scores" in event:
                status, answer = server.ask("POST", "/v1/predictions", event)
                answers.append(answer)
            else:
                status, answer = server.ask("POST", "/v1/labels", event)
                assert answer["outcome"] == "joined"
            assert status == 200
        server.stop(signal.SIGKILL)
        server = Served(tmp_path / "s.db", *CLASSES)
    assert answers == read(tmp_path / "o.jsonl")
    sent = [event for event in given if "scores" in event]
    again = server.ask("POST", "/v1/predictions", lines(*sent), LINES)
    assert again == (200, answers), "settled ones, too"
    status, answer = server.ask("POST", "/v1/predictions", sent[0] | {"scores": [1.0, 0.0, 0.0]})
    assert status == 409
    assert "there was a prediction with id 'a0' and scores (" in answer["detail"]
    label = next(event for event in given if event["id"] == "a1" and "label" in event)
    assert server.ask("POST", "/v1/labels", label)[1]["outcome"] == "duplicate"
    other = next(name for name in NAMES if name != label["label"])
    status, answer = server.ask("POST", "/v1/labels", label | {"label": other})
    assert (status, answer["code"]) == (409, "conflicting_label")
    assert f"is '{label['label']}' already, which stays, got {other!r}" in answer["detail"]
    server.stop()


def test_tensors_of_the_v2_protocol(tmp_path: Path) -> None:
    server = Served(tmp_path / "s.db", *CLASSES)
    for event in events(100, 5):
        server.ask("POST", "/v1/predictions" if "scores" in event else "/v1/labels", event)
    rows = [[0.5, 0.25, 0.25], [0.125, 0.5, 0.375]]
    scores = {"name": "scores", "datatype": "FP64", "shape": [2, 3], "data": [*rows[0], *rows[1]]}
    ids = {"name": "id", "datatype": "BYTES", "shape": [2], "data": ["t0", "t1"]}
    status, answer = server.ask("POST", "/v2/models/_/infer", {"inputs": [scores, ids]})
    assert status == 200, answer
    nested = {"inputs": [scores | {"data": rows}, ids | {"shape": [2, 1], "data": [["t0"], ["t1"]]}]}
    assert server.ask("POST", "/v2/models/_/infer", nested) == (200, answer)
    found, versions = answer["outputs"]
    assert (found["name"], found["shape"], versions["shape"]) == ("probabilities", [2, 3], [2])
    one_by_one = [server.predict(id=f"t{at}", scores=row)[1] for at, row in enumerate(rows)]
    assert found["data"] == [each for row in one_by_one for each in row["probabilities"].values()]
    assert found["data"] != scores["data"]
    portable = MulticlassMap.model_validate(server.ask("GET", "/v1/map")[1])
    assert portable.predict_many(rows).ravel().tolist() == found["data"]
    for changed, word in (
        ({"shape": [6]}, "the shape of scores must be [2, 3], as it has 6 values, got [6]"),
        ({"shape": [1, 3], "data": [0.5, 0.25, 0.25, 0.5]}, "rows of 3 values"),
        ({"data": [[0.5, 0.25, 0.25], [0.5, 0.5]]}, "the shape of scores must be"),
        ({"name": "score"}, "inputs are scores, id, time"),
        ({"data": [0.5, 0.5, 0.5, 0.5, 0.25, 0.25]}, "must sum to 1"),
    ):
        status, answer = server.ask("POST", "/v2/models/_/infer", {"inputs": [scores | changed, ids]})
        assert status in (400, 422), answer
        assert word in answer["detail"]
    described = server.ask("GET", "/v2/models/_")[1]
    assert [described[side][0]["shape"] for side in ("inputs", "outputs")] == [[-1, 3], [-1, 3]]
    server.stop()
