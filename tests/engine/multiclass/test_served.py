"""Many classes over HTTP: answered as by a run, again after a kill, and refused with the reason."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.command_line import read_lines, write_lines
from tests.engine.multiclass.test_faces import NAMES
from tests.engine.multiclass.test_run import CLASSES, events, run
from tests.serve.conftest import *  # noqa: F403  # kills what a failed test leaves behind
from tests.serve.servers import LINES, Served, lines

pytestmark = pytest.mark.slow


def test_requests_are_answered_as_by_a_run_and_again_after_a_kill(tmp_path: Path) -> None:
    given = events(120, 40)
    run(*CLASSES, "--events", write_lines(tmp_path / "e.jsonl", given), "--output", tmp_path / "o.jsonl")
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
    assert answers == read_lines(tmp_path / "o.jsonl")
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
