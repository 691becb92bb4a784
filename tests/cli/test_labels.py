"""The command line never learns from labels or scores that mean something else than it takes them for."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal import RecalibrationMap
from streamcal.testing import NormalPair
from tests.command_line import read_lines, streamcal, table, write_lines

pytestmark = pytest.mark.slow  # each test calls the command line


def written(folder: Path, names: tuple[Any, Any], n: int = 300) -> tuple[Path, Path]:
    """Write predictions, and labels under two names, of class 0 and class 1; return the paths."""
    z, y = NormalPair(0.4).sample(n, np.random.default_rng(5))
    events = ({"id": f"{i}", "score": s, "time": i} for i, s in enumerate(z.tolist()))
    labels = ({"id": f"{i}", "label": names[c], "time": i} for i, c in enumerate(y.tolist()))
    return write_lines(folder / "events.jsonl", events), write_lines(folder / "labels.jsonl", labels)


def run(folder: Path, events: Path, labels: Path, *more: object) -> tuple[int, str, dict[str, str]]:
    files = {"output": "out.jsonl", "map": "map.json", "rejects": "rejects.jsonl"}
    outputs = [f"--{name}={folder / file}" for name, file in files.items()]
    done = streamcal("run", "--events", events, "--labels", labels, *outputs, *more)
    return done.returncode, done.stderr, table(done)


@pytest.mark.parametrize(
    ("names", "value", "refused"),
    [
        ((-1, 1), "1", "'-1' (10 times, first in"),
        (("ham", "spam"), "spam", "no label could be accepted"),
    ],
)
def test_labels_of_other_names_are_refused_and_learned_with_positive(
    tmp_path: Path, names: tuple[Any, Any], value: str, refused: str
) -> None:
    events, labels = written(tmp_path, names)
    status, said, _ = run(tmp_path, events, labels, "--store", tmp_path / "s.db")
    assert status == 1
    assert refused in said
    assert "labels.jsonl, line" in said
    assert "say with --positive VALUE" in said
    assert (tmp_path / "out.jsonl").read_bytes() == b""
    with sqlite3.connect(tmp_path / "s.db") as store:
        assert store.execute("SELECT count(*) FROM engines").fetchall() == [(0,)]

    # With the name it is the run on labels of 0 and 1.
    status, said, shown = run(tmp_path, events, labels, "--positive", value)
    assert (status, shown["joined"], shown["rejected"]) == (0, "300", "0"), said
    given = RecalibrationMap.model_validate_json((tmp_path / "map.json").read_bytes())
    status, said, plain = run(tmp_path, *written(tmp_path, (0, 1)))
    assert status == 0, said
    assert given == RecalibrationMap.model_validate_json((tmp_path / "map.json").read_bytes())
    assert plain["Brier score after"] == shown["Brier score after"]


def test_the_other_label_is_remembered_over_a_restart(tmp_path: Path) -> None:
    def ran(day: int, positive: str, status: int) -> str:
        inputs = ["--events", tmp_path / f"{day}.jsonl", "--store", tmp_path / "s.db", "--positive", positive]
        outputs = ["--output", tmp_path / "o.jsonl", "--rejects", tmp_path / "r.jsonl"]
        return streamcal("run", *inputs, *outputs, status=status).stderr

    for day, values in enumerate((("fraud", "ok"), ("ok", "fraud", "pending"))):
        rows = ({"id": f"{day}{i}", "score": 0.5, "label": value} for i, value in enumerate(values))
        write_lines(tmp_path / f"{day}.jsonl", rows)
        ran(day, "fraud", 0)
    (reject,) = read_lines(tmp_path / "r.jsonl")
    assert reject["reason"] == (
        "a label must be 'fraud', the positive one, or 'ok', the other one so far, got 'pending'"
    )
    assert "learned with 'fraud' as the positive one, now it is 'ok'" in ran(0, "ok", 3)


def test_scores_in_percent_are_refused_by_run_and_apply(tmp_path: Path) -> None:
    events = write_lines(tmp_path / "e.jsonl", ({"id": f"{i}", "score": i / 4} for i in range(400)))
    done = streamcal("run", "--events", events, "--output", tmp_path / "o.jsonl", status=1)
    assert "Divide all scores by 100" in done.stderr
    assert "e.jsonl, line 6" in done.stderr
    assert (tmp_path / "o.jsonl").read_bytes() == b""
    (tmp_path / "map.json").write_bytes(RecalibrationMap(version=0).model_dump_json().encode())
    done = streamcal("apply", "--map", tmp_path / "map.json", "--events", events, status=1)
    assert done.stdout == ""
    assert "Divide all scores by 100" in done.stderr


# The user's names of columns, kept columns, and the usual options, on the command line


EVENTS = """request_id,prob,ts,segment,country,amount
a,0.25,1700000000,s1,DE,5
b,0.5,1700000001,s2,"F,R",
c,0.75,1700000002,s1,=1+1,7
"""
LABELS = '{"request_id":"a","outcome":1,"ts":1700000003}\n{"request_id":"c","outcome":0,"ts":1700000003}\n'
NAMED = ("--id", "request_id", "--score", "prob", "--time", "ts", "--label", "outcome", "--key", "segment")


def inputs(folder: Path) -> list[object]:
    return ["--events", folder / "events.csv", "--labels", folder / "labels.jsonl"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "labels.jsonl").write_text(LABELS)
    return tmp_path


def test_columns_by_the_users_names_and_what_passes_through(folder: Path) -> None:
    for output in ("out.jsonl", "out.csv"):
        options = [*NAMED, "--keep", "country,amount", "--map", folder / "map.json"]
        done = streamcal("run", *inputs(folder), *options, "--output", folder / output, status=0)
        assert table(done)["joined"] == "2"
        assert table(done)["unknown fields ignored"] == "0"
    rows = read_lines(folder / "out.jsonl")
    assert [list(row) for row in rows] == [
        ["id", "score", "probability", "map_version", "weights", "key", "time", "country", "amount"]
    ] * 3
    assert [(row["id"], row["key"], row["country"], row["amount"]) for row in rows] == [
        ("a", "s1", "DE", "5"),
        ("b", "s2", "F,R", None),
        ("c", "s1", "=1+1", "7"),
    ]
    assert rows[0]["time"] == 1700000000.0
    with (folder / "out.csv").open() as file:
        assert [(row["id"], row["amount"]) for row in csv.DictReader(file)] == [
            ("a", "5"),
            ("b", ""),
            ("c", "7"),
        ]


def test_the_usual_options_as_flags_override_the_file_and_bind_the_store(folder: Path) -> None:
    (folder / "run.toml").write_text('[recalibrator]\nmode = "auto"\ndelta = 0.05\n[join]\nlabel_ttl = 1.0\n')
    base = [*inputs(folder), "--config", folder / "run.toml", *NAMED, "--store", folder / "s.db"]
    more = ("--mode", "target", "--window", "P30D", "--label-ttl", "60")
    done = streamcal("run", *base, *more, "--output", folder / "out.jsonl", status=0)
    assert table(done)["joined"] == "2"
    done = streamcal("run", *base, "--output", folder / "out.jsonl", status=3)
    assert "mode ('target', now 'auto')" in done.stderr
