"""Many classes in a run: served as by `Recalibrator`, resumed after kills, refused, summed up."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from streamcal import Recalibrator
from tests.command_line import in_process, in_shell, read_lines, write_lines
from tests.crash import crashed
from tests.engine.multiclass.test_faces import NAMES, stream

CLASSES = ("--classes", ",".join(NAMES))


def run(*arguments: object, expect: int = 0) -> str:
    return str(in_process("run", *arguments, status=expect).output)


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


@pytest.mark.parametrize("keys", [(None,), ("x", "y")], ids=["one engine", "keys"])
def test_a_run_serves_what_the_engine_in_memory_serves(tmp_path: Path, keys: tuple[str | None, ...]) -> None:
    """Each label is judged by the forecasts as of its prediction, however late it comes."""
    given = events(500, 60, keys)
    given[-1]["label"] = given[-2]["label"] = "fox"
    summary = tmp_path / "s.json"
    out = tmp_path / "out.jsonl"
    said = run(
        *CLASSES, "--events", write_lines(tmp_path / "e.jsonl", given), "--output", out, "--summary", summary
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
    rows = read_lines(out)
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
    run(*CLASSES, "--events", write_lines(tmp_path / "e.jsonl", given), "--output", plain)
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
    run(*CLASSES, "--events", write_lines(tmp_path / "f.jsonl", mixed), *wanted)
    assert out.read_text() == plain.read_text()
    reasons = {json.loads(row["raw"])["id"] + row["reason"] for row in read_lines(rejects)}
    assert len(reasons) == len(bad)
    for event, word in bad:
        assert any(each.startswith(event["id"]) and word in each for each in reasons), word


@pytest.mark.slow
def test_tables_in_and_out(tmp_path: Path) -> None:
    """CSV and Parquet have a column for each class; answers of Parquet are structs, of CSV JSON."""
    given = events(200, 20)
    plain = tmp_path / "plain.jsonl"
    jsonl = write_lines(tmp_path / "e.jsonl", given)
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
    rows = read_lines(plain)
    assert pl.read_parquet(tmp_path / "o.parquet")["probabilities"].to_list() == [
        row["probabilities"] for row in rows
    ]
    cells = pl.read_csv(tmp_path / "o.csv")["probabilities"].to_list()
    assert [json.loads(cell) for cell in cells] == [row["probabilities"] for row in rows]


def test_a_run_that_resumes_serves_the_same(tmp_path: Path) -> None:
    given = events(400, 150)
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    path = write_lines(tmp_path / "e.jsonl", given)
    run(*CLASSES, "--events", path, "--output", whole)
    store = ("--store", tmp_path / "s.db", "--output", parts)
    for until in (150, 151, 400, len(given)):
        run(*CLASSES, "--events", write_lines(path, given[:until]), *store)
    assert parts.read_text() == whole.read_text()
    for command in (["show"], ["report", "--output", tmp_path / "r.html"]):
        in_process(*command, tmp_path / "s.db", status=0)
    said = run("--classes", "cat,dog,cow", "--events", path, *store, expect=3)
    assert "other options: classes (('cat', 'dog', 'fox'), now ('cat', 'dog', 'cow'))" in said
    said = run("--events", path, *store, expect=3)
    assert "now ())" in said


@pytest.mark.crash
def test_killed_and_yet_the_same(tmp_path: Path) -> None:
    """The rows of the output, and every byte of state, after kills at random moments."""
    path = write_lines(tmp_path / "e.jsonl", events(1_000, 200, ("x", "y")))
    kept, seconds = [], 0.0
    for kills in (0, 4):
        store, out = tmp_path / f"{kills}.db", tmp_path / f"{kills}.jsonl"
        command = ["run", *CLASSES, "--events", path, "--store", store, "--output", out]
        seconds = crashed(command, kills, seconds / 4)
        with closing(sqlite3.connect(store)) as database:
            engines = database.execute("SELECT key, state FROM engines ORDER BY key").fetchall()
        kept.append((read_lines(out), engines))
    assert kept[0] == kept[1]
    assert len(kept[0][1]) == 2


# What the page of many classes shows in a shell runs as it stands there


PAGE = Path(__file__).parents[3] / "docs" / "multiclass.md"


def test_runs_of_the_page(tmp_path: Path) -> None:
    codes = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = [[json.loads(line) for line in in_shell(code, tmp_path).splitlines()] for code in codes]
    classes, (learned, applied), keys = found
    assert [row["probabilities"] for row in classes] == [
        pytest.approx({"cat": 0.7, "dog": 0.2, "fox": 0.1}),
        pytest.approx({"cat": 0.1, "dog": 0.6, "fox": 0.3}),
    ]
    assert learned["probabilities"] == pytest.approx({"cat": 0.7, "dog": 0.2, "fox": 0.1})
    assert applied["map_version"] == 1
    assert applied["probabilities"] == pytest.approx({"cat": 0.6, "dog": 0.3, "fox": 0.1})
    assert [(row["key"], row["probability"]) for row in keys] == [("drama", 0.9), ("comedy", 0.4)]
