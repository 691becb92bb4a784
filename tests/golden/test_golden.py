"""What a version has written, every later one reads, and answers the same (docs/stability.md).

Where this commit cannot read a file, or makes something else of it: if the version is released, a promise is
broken, and a reader of the old form is missing. If it is not, `make golden` writes its files anew.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import streamcal
from streamcal import Certificate, LabelEvent, PredictionEvent, RecalibrationMap, Recalibrator, Rejected
from streamcal.monitor.report import Report
from tests.command_line import streamcal as command
from tests.figures import unlike
from tests.golden import write
from tests.golden.api import public_api
from tests.golden.made import RUNS, STATES, answers

FOLDERS = sorted(path for path in write.HERE.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name))
EACH = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
RUN = pytest.mark.parametrize("name", RUNS)


def unzipped(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def facts(path: Path) -> Any:
    return json.loads(unzipped(path))


def shape(thing: Any, then: Any) -> Any:
    """Return the part of a JSON value whose names the other one has, with kinds in place of values."""
    if isinstance(then, dict):
        return {name: shape(thing[name], value) for name, value in then.items() if name in thing}
    return "a number" if isinstance(thing, int | float) else type(thing).__name__


def installed() -> None:
    """Skip a test of public modules where `make quick` has not installed what some of them need."""
    for name in ("onnx", "pyspark"):
        pytest.importorskip(name)


def columns(store: Path) -> dict[str, set[str]]:
    """Return the columns of the tables and views of docs/store.md."""
    with closing(sqlite3.connect(store)) as db:
        return {
            name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")}
            for name in ("entries", "engines", "versions", "rejects", "meta")
        }


@EACH
def test_what_was_public_still_is(folder: Path) -> None:
    installed()
    gone = {*(folder / "api.txt").read_text().splitlines()} - {*public_api()}
    assert not gone, "no longer public; see docs/stability.md"


def test_what_is_public_is_listed() -> None:
    installed()
    added = {*public_api()} - {*(FOLDERS[-1] / "api.txt").read_text().splitlines()}
    assert not added, "call `make golden`; if it refuses, raise the version first"


@EACH
@pytest.mark.parametrize("name", STATES)
def test_a_state_gives_the_same_answers_and_goes_on(folder: Path, name: str) -> None:
    then, data = facts(folder / "states.json.gz")["states"][name], unzipped(folder / f"{name}.state.gz")
    restored = getattr(streamcal, then["class"]).from_bytes(data)
    assert not [*unlike(answers(restored), then["answers"])]
    again = type(restored).from_bytes(restored.to_bytes())
    assert answers(again) == answers(restored)
    if name in ("auto", "source", "label_shift", "target", "composite"):
        again.learn_many([0.2, 0.4, 0.8], [0, 1, 1])
        assert again.target.labels == restored.target.labels + 3


@EACH
def test_a_join_knows_what_it_knew(folder: Path) -> None:
    engine = Recalibrator.from_bytes(unzipped(folder / "joined.state.gz"))
    count = engine.target.labels
    for event in (LabelEvent("waits", 1, 5.0), PredictionEvent("early", 0.3, 6.0)):
        assert not any(isinstance(each, Rejected) for each in engine.step(event))
    assert engine.target.labels == count + 2
    (rejected,) = engine.step(LabelEvent("ended", 0, 7.0))
    assert isinstance(rejected, Rejected)


@EACH
def test_maps_and_certificates_are_read(folder: Path) -> None:
    states = facts(folder / "states.json.gz")["states"].values()
    maps = [each for each in states if "map" in each]
    assert len({json.loads(each["map"])["kind"] for each in maps}) == 2
    for each in maps:
        read = RecalibrationMap.model_validate_json(each["map"])
        assert not [*unlike(answers(read), each["mapped"])]
        if read.kind == "step":  # neither exp nor log: the bits are those of every machine
            assert answers(read) == each["mapped"]
    certificates = [each["certificate"] for each in maps if each["certificate"]]
    assert certificates
    for text in certificates:
        now = Certificate.model_validate_json(text).model_dump(mode="json")
        assert {name: now[name] for name in json.loads(text)} == json.loads(text)


@pytest.mark.slow
@EACH
@RUN
def test_a_store_goes_on(folder: Path, name: str, tmp_path: Path) -> None:
    """The same map answers, waiting labels and predictions meet, and what has ended is known."""
    then = facts(folder / f"{name}.run.json.gz")
    (tmp_path / "store.db").write_bytes(unzipped(folder / f"{name}.db.gz"))
    rows = RUNS[name].go(tmp_path, RUNS[name].later(), rejects="rejects", summary="summary")
    assert not [*unlike(rows, then["later"])]
    summary = json.loads((tmp_path / "summary").read_text())["join"]
    before = {each["name"].strip(): each["value"] for each in then["report"]["figures"]}
    assert (
        summary["joined"] == int(before["joined"]) + 3
    )  # one of them of a prediction that came after its label
    rejected = write.lines(tmp_path / "rejects")
    assert [each["code"] for each in rejected] == ["conflicting_label", "duplicate_label"]


@pytest.mark.slow
@EACH
@RUN
def test_a_store_in_use_goes_on_as_a_run_that_never_stopped(folder: Path, name: str, tmp_path: Path) -> None:
    """It has labels that are pending, and early ones."""
    old, whole, run = tmp_path / "old", tmp_path / "whole", RUNS[name]
    old.mkdir()
    whole.mkdir()
    (old / "store.db").write_bytes(unzipped(folder / f"{name}.db.gz"))
    rows, every = run.go(old, run.later()), run.go(whole, run.first() + run.later())
    assert not [*unlike(rows, every[-len(rows) :])]
    found = []
    for place in (old, whole):
        with closing(sqlite3.connect(place / "store.db")) as db:
            assert dict(db.execute("SELECT name, value FROM meta"))["streamcal_version"] == write.version()
            found.append(
                db.execute("SELECT kind, sum(rows) FROM entries GROUP BY kind ORDER BY kind").fetchall()
            )
    assert found[0] == found[1]
    assert dict(found[0])["pending"] > 10


@pytest.mark.slow
@EACH
@RUN
def test_a_report_is_read_and_made_with_the_same_names(folder: Path, name: str, tmp_path: Path) -> None:
    then = facts(folder / f"{name}.run.json.gz")["report"]
    msgspec.json.decode(json.dumps(then), type=Report)
    (tmp_path / "store.db").write_bytes(unzipped(folder / f"{name}.db.gz"))
    done = command("report", "--json", tmp_path / "store.db", status=0)
    now = json.loads(done.stdout)
    assert shape(now, then) == shape(then, then)


@pytest.mark.slow
@EACH
@RUN
def test_the_same_events_are_read_and_make_the_same_rows(folder: Path, name: str, tmp_path: Path) -> None:
    """Names, kinds, and whatever no engine decides; probabilities may become better."""
    then = facts(folder / f"{name}.run.json.gz")
    outputs = {output: output for output in ("rejects", "maps", "alarms") if output in then}
    now: dict[str, Any] = {"rows": RUNS[name].go(tmp_path, RUNS[name].first(), **outputs)}
    now |= {output: write.lines(tmp_path / output) for output in outputs}
    for output in ("rows", *outputs):
        assert [shape(*pair) for pair in zip(now[output], then[output], strict=True)] == [
            shape(row, row) for row in then[output]
        ]
    for row, old in zip(now["rows"], then["rows"], strict=True):
        given = [each for each in ("id", "score", "scores", "key", "time", "country") if each in old]
        assert [row[each] for each in given] == [old[each] for each in given]
    (tmp_path / "old.db").write_bytes(unzipped(folder / f"{name}.db.gz"))
    stored = columns(tmp_path / "store.db")
    for view, names in columns(tmp_path / "old.db").items():
        assert names
        assert names <= stored[view], "columns that are gone"
    assert [row["line"] for row in now["rejects"]] == [row["line"] for row in then["rejects"]]
