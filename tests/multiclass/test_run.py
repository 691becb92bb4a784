"""Many classes in a run: served as by `Recalibrator`, resumed after kills, refused, summed up."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from streamcal import Recalibrator
from streamcal.cli.app import app
from tests.multiclass.test_faces import NAMES, stream

CRASH = Path(__file__).parents[1] / "crash.py"
KILLS = int(
    os.environ.get("STREAMCAL_CRASH_KILLS", "20" if os.environ.get("STREAMCAL_CRASH") == "full" else "4")
)
CLASSES = ("--classes", ",".join(NAMES))


def run(*arguments: object, expect: int = 0) -> str:
    done = CliRunner().invoke(app, ["run", *map(str, arguments)])
    assert done.exit_code == expect, done.output
    return done.output


def events(count: int, delay: int, keys: Sequence[str | None] = (None,)) -> list[dict[str, Any]]:
    """Return predictions, and their labels that come so many events later; every third without its time."""
    scores, labels = stream(count)
    found: list[dict[str, Any]] = []
    for index in range(count + delay):
        if index < count:
            row = dict(zip(NAMES, scores[index].tolist(), strict=True))
            key = keys[index % len(keys)]
            found.append({"id": f"a{index}", "scores": row, "key": key, "time": float(index)})
        if index >= delay:
            found.append({"id": f"a{index - delay}", "label": labels[index - delay], "time": float(index)})
    return found


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("keys", [(None,), ("x", "y")], ids=["one engine", "keys"])
def test_a_run_serves_what_the_engine_in_memory_serves(tmp_path: Path, keys: tuple[str | None, ...]) -> None:
    """Each label is judged by the forecasts as of its prediction, however late it comes."""
    given = events(500, 60, keys)
    given[-1]["label"] = given[-2]["label"] = "fox"
    summary = tmp_path / "s.json"
    out = tmp_path / "out.jsonl"
    said = run(
        *CLASSES, "--events", write(tmp_path / "e.jsonl", given), "--output", out, "--summary", summary
    )
    engines = {key: Recalibrator(classes=NAMES) for key in keys}
    held: dict[str, tuple[Any, Any, Any]] = {}
    expected = []
    for event in given:
        if "scores" in event:
            engine, row = engines[event["key"]], [*event["scores"].values()]
            answer = engine.answer_one(row)
            expected.append(answer.probability)
            held[event["id"]] = engine, row, answer.memo
        else:
            engine, row, memo = held[event["id"]]
            engine.learn_one(row, event["label"], memo=memo)
    rows = read(out)
    served = np.array([[row["probabilities"][name] for name in NAMES] for row in rows])
    assert np.abs(served - np.array(expected)).max() < 1e-12
    assert [row["scores"] for row in rows] == [event["scores"] for event in given if "scores" in event]
    assert list(rows[0]) == ["id", "scores", "probabilities", "map_version", "key", "time"]
    figures = json.loads(summary.read_text())
    assert figures["join"]["joined"] == 500
    assert figures["classes"]["after"]["log_loss"] < figures["classes"]["before"]["log_loss"]
    assert "class-wise calibration error after" in said


def test_what_is_rejected_is_said_and_changes_nothing(tmp_path: Path) -> None:
    given = events(300, 30)
    plain = tmp_path / "plain.jsonl"
    run(*CLASSES, "--events", write(tmp_path / "e.jsonl", given), "--output", plain)
    bad = [
        ({"id": "b1", "scores": {"cat": 0.5, "dog": 0.2, "fox": 0.2}}, "must sum to 1"),
        ({"id": "b2", "scores": {"cat": 0.5, "dog": 0.5}}, "'fox' has none"),
        ({"id": "b3", "scores": {"cat": 1.5, "dog": -0.5, "fox": 0.0}}, "must be a number in [0, 1]"),
        ({"id": "b4", "scores": {"cat": 0.5, "cow": 0.5, "fox": 0.0}}, "got one of 'cow'"),
        ({"id": "a1", "label": "cow"}, "must be one of the classes 'cat', 'dog', 'fox', got 'cow'"),
        ({"id": "a1", "label": "cat"}, "already, which stays, got 'cat'"),
        ({"id": "a1", "scores": [1, 0, 0]}, "duplicate prediction"),
        ({"id": "b5", "score": 0.5}, "needs 'scores' of all classes, a label, or both"),
        ({"id": "b6", "label": "fox"}, "unmatched label"),
    ]
    mixed = [*given[:200], *(event for event, _ in bad), *given[200:]]
    out, rejects = tmp_path / "out.jsonl", tmp_path / "rejects.jsonl"
    wanted = ("--output", out, "--rejects", rejects)
    run(*CLASSES, "--events", write(tmp_path / "f.jsonl", mixed), *wanted)
    assert out.read_text() == plain.read_text()
    reasons = {json.loads(row["raw"])["id"] + row["reason"] for row in read(rejects)}
    assert len(reasons) == len(bad)
    for event, word in bad:
        assert any(each.startswith(event["id"]) and word in each for each in reasons), word


@pytest.mark.slow
def test_tables_in_and_out(tmp_path: Path) -> None:
    """CSV and Parquet have a column for each class; answers of Parquet are structs, of CSV JSON."""
    given = events(200, 20)
    plain = tmp_path / "plain.jsonl"
    jsonl = write(tmp_path / "e.jsonl", given)
    run(*CLASSES, "--events", jsonl, "--output", plain)
    flat = [
        {"id": each["id"], "time": each["time"], "label": each.get("label")}
        | {f"p_{name}": each.get("scores", {}).get(name) for name in NAMES}
        for each in given
    ]
    table = pl.DataFrame(flat, infer_schema_length=None)
    table.write_csv(tmp_path / "e.csv")
    table.write_parquet(tmp_path / "e.parquet")
    for name in ("e.csv", "e.parquet"):
        out = tmp_path / f"{name}.jsonl"
        run(*CLASSES, "--events", tmp_path / name, "--output", out)
        assert out.read_text() == plain.read_text()
    for _ in range(2):  # the second time over rows of the first
        run(*CLASSES, "--events", jsonl, "--output", tmp_path / "o.parquet")
        run(*CLASSES, "--events", jsonl, "--output", tmp_path / "o.csv")
    rows = read(plain)
    assert pl.read_parquet(tmp_path / "o.parquet")["probabilities"].to_list() == [
        row["probabilities"] for row in rows
    ]
    cells = pl.read_csv(tmp_path / "o.csv")["probabilities"].to_list()
    assert [json.loads(cell) for cell in cells] == [row["probabilities"] for row in rows]


def test_a_run_that_resumes_serves_the_same(tmp_path: Path) -> None:
    given = events(400, 150)
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    path = write(tmp_path / "e.jsonl", given)
    run(*CLASSES, "--events", path, "--output", whole)
    store = ("--store", tmp_path / "s.db", "--output", parts)
    for until in (150, 151, 400, len(given)):
        run(*CLASSES, "--events", write(path, given[:until]), *store)
    assert parts.read_text() == whole.read_text()
    for command in ("show", "report"):
        more = ["--output", str(tmp_path / "r.html")] if command == "report" else []
        done = CliRunner().invoke(app, [command, str(tmp_path / "s.db"), *more])
        assert done.exit_code == 0, done.output
    said = run("--classes", "cat,dog,cow", "--events", path, *store, expect=3)
    assert "other options: classes (('cat', 'dog', 'fox'), now ('cat', 'dog', 'cow'))" in said
    said = run("--events", path, *store, expect=3)
    assert "now ())" in said


@pytest.mark.crash
def test_killed_and_yet_the_same(tmp_path: Path) -> None:
    """The rows of the output, and every byte of state, after kills at random moments."""
    path = write(tmp_path / "e.jsonl", events(1_000, 200, ("x", "y")))
    kept: list[Any] = []
    seconds = 0.0
    for kills in (0, KILLS):
        folder = tmp_path / str(kills)
        folder.mkdir()
        made = ["--store", str(folder / "s.db"), "--output", str(folder / "o.jsonl")]
        life = str(seconds / KILLS)
        arguments = ["run", *CLASSES, "--events", str(path), *made]
        done = subprocess.run(
            [sys.executable, CRASH, "11", str(kills), life, "50", "--", *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        last, killed = done.stdout.split()[-3::2]
        assert int(killed) == kills
        seconds = seconds or float(last)
        with closing(sqlite3.connect(folder / "s.db")) as database:
            engines = database.execute("SELECT key, state FROM engines ORDER BY key").fetchall()
        kept.append((read(folder / "o.jsonl"), engines))
    assert kept[0] == kept[1]
    assert len(kept[0][1]) == 2


# What the page of many classes shows in a shell runs as it stands there


PAGE = Path(__file__).parents[2] / "docs" / "multiclass.md"


def test_runs_of_the_page(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    found = []
    for code in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL):
        done = subprocess.run(
            ["bash", "-ec", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        found.append([json.loads(line) for line in done.stdout.splitlines()])
    classes, (learned, applied), keys = found
    assert [row["probabilities"] for row in classes] == [
        pytest.approx({"cat": 0.7, "dog": 0.2, "fox": 0.1}),
        pytest.approx({"cat": 0.1, "dog": 0.6, "fox": 0.3}),
    ]
    assert learned["probabilities"] == pytest.approx({"cat": 0.7, "dog": 0.2, "fox": 0.1})
    assert applied["map_version"] == 1
    assert applied["probabilities"] == pytest.approx({"cat": 0.6, "dog": 0.3, "fox": 0.1})
    assert [(row["key"], row["probability"]) for row in keys] == [("drama", 0.9), ("comedy", 0.4)]
