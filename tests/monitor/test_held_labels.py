"""Labels that are held until both classes are equally complete: what a run says of them, and where."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamcal.delayed.label_delays import LabelDelays
from streamcal.events.faces import COMMAND
from streamcal.monitor.build import build_status
from streamcal.monitor.remarks import remarks
from streamcal.monitor.rows import held_rows
from streamcal.monitor.status import Served, Status
from streamcal.run.pipeline import Pipeline
from streamcal.run.run_state import RunState
from tests.command_line import streamcal, write_lines
from tests.quality.forecasts import logistic

DAY = 86_400.0
N = 8_000
LATE = {0: "labels of class 0 come later", 1: "labels of class 1 come later"}

Rows = list[dict[str, Any]]


def stream(late: int) -> Rows:
    """Predictions of 80 days, a fifth of them positive; labels of one class take 5 days, others 12 hours."""
    rng = np.random.default_rng(3)
    labels = rng.random(N) < 0.2
    scores = logistic(1.5 * rng.normal(1.5 * labels, 1.0) - 1.125 + np.log(0.25))
    times = 80 * DAY * np.arange(N) / N
    told = times + rng.exponential(np.where(labels == late, 5 * DAY, 0.5 * DAY))
    rows = [{"id": f"{i}", "score": scores[i], "time": times[i]} for i in range(N)]
    rows += [
        {"id": f"{i}", "label": int(labels[i]), "time": told[i]} for i in range(N) if told[i] < times[-1]
    ]
    return sorted(rows, key=lambda row: row["time"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store and a summary of each stream."""
    made = tmp_path_factory.mktemp("held")
    streams = {str(late): stream(late) for late in LATE}
    for name, rows in streams.items():
        files = {"output": "out.jsonl", "store": "db", "summary": "json", "report": "html"}
        given = [f"--{option}={made / name}.{ending}" for option, ending in files.items()]
        events = write_lines(made / f"{name}.jsonl", rows)
        done = streamcal("run", "--events", events, *given, "--strict", status=0)  # nothing is to be done
        (made / f"{name}.txt").write_text(done.stdout)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("late", [0, 1])
def test_a_class_that_comes_later_stands_in_table_summary_report_and_store(folder: Path, late: int) -> None:
    summary = json.loads((folder / f"{late}.json").read_bytes())
    assert LATE[late] in summary["verdict"] or "Well calibrated" in summary["verdict"]
    held = msgspec.convert(summary["held"][""], LabelDelays)
    assert (held.by_time, held.late, held.missing, held.first) == (True, late, None, False)
    assert held.held > 10
    assert held.excluded > 200
    assert held.complete[late] < held.complete[1 - late]
    of_late, of_other = held.within[late], held.within[1 - late]
    assert of_other < 2 * DAY < 6 * DAY < of_late < 20 * DAY
    stored = json.loads(streamcal("show", "--json", folder / f"{late}.db").stdout)
    assert stored["engines"][0]["held"] == summary["held"][""]
    assert stored["verdict"]["sentence"] == summary["verdict"]
    engine = msgspec.convert(stored["engines"][0], Served)
    age, *come = engine.apart
    assert of_other / 2 < age < of_late
    assert come[late] + 0.3 < come[1 - late]
    rows = held_rows(engine)
    assert [name for name, _ in rows] == [
        f"labels {late} come later",
        "labels held",
        "  labels 0, 1 there that have come",
        "labels by exclusion",
    ]
    shown = streamcal("show", folder / f"{late}.db").stdout
    for text in ((folder / f"{late}.txt").read_text(), shown, (folder / f"{late}.html").read_text()):
        for name, value in rows:
            assert re.search(rf"{name.strip()}\W.*{re.escape(value)}", text), (name, value, text)


def with_held(held: LabelDelays | None, **more: Any) -> Status:
    status = build_status(pipeline(), claims=False)
    engine = status.engines[0]
    status.engines[0] = msgspec.structs.replace(engine, held=held, apart=(3_600.0, 0.9, 0.4), **more)
    return status


def pipeline() -> RunState:
    made = Pipeline()
    made.engines.of(None)
    return made


def held_labels(**more: Any) -> LabelDelays:
    given = {
        "by_time": True,
        "late": 1,
        "missing": None,
        "first": False,
        "held": 40,
        "oldest": 2 * DAY,
        "complete": (0.9, 0.4),
        "within": (3_600.0, None),
        "fair": False,
        "z": 9.0,
        "complete_at": None,
        "outage": None,
        "excluded": 7,
        "mistaken": 1,
    }
    return LabelDelays(**(given | more))


def test_first_labels_that_are_held_for_long_are_said() -> None:
    """And what is served meanwhile. That one class comes later is no remark: nothing is to be done."""
    first = {"first": True, "late": None, "held": 1_200, "complete": None, "within": None}
    status = with_held(held_labels(**first))
    (remark,) = remarks(status, COMMAND)
    assert (remark.code, remark.fields["held"], remark.fields["serves"]) == (
        "first_labels_held",
        1_200,
        "the score",
    )
    status.engines[0].source_labels = 9
    assert remarks(status, COMMAND)[0].fields["serves"] == "the source's map"
    status.engines = [msgspec.structs.replace(status.engines[0], key=key) for key in "kl"]
    assert "labels of key 'k' and 1 more are held" in remarks(status, COMMAND)[0].words
    for fewer in (held_labels(**first | {"held": 900}), held_labels(held=5_000)):
        assert remarks(with_held(fewer), COMMAND) == []
