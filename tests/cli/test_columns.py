"""The user's names of columns, kept columns, and the usual options, on the command line."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.command_line import read_lines, streamcal, table

pytestmark = pytest.mark.slow  # each test calls the command line

EVENTS = """request_id,prob,ts,segment,country,amount
a,0.25,1700000000,s1,DE,5
b,0.5,1700000001,s2,"F,R",
c,0.75,1700000002,s1,=1+1,7
"""
LABELS = '{"request_id":"a","outcome":1,"ts":1700000003}\n{"request_id":"c","outcome":0,"ts":1700000003}\n'
NAMED = ("--id", "request_id", "--score", "prob", "--time", "ts", "--label", "outcome", "--key", "segment")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "labels.jsonl").write_text(LABELS)
    return tmp_path


def test_columns_by_the_users_names_and_what_passes_through(folder: Path) -> None:
    for output in ("out.jsonl", "out.csv"):
        done = streamcal(
            "run", "--events", folder / "events.csv", "--labels", folder / "labels.jsonl",
            "--output", folder / output, *NAMED, "--keep", "country,amount", "--map", folder / "map.json",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
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
        table_rows = list(csv.DictReader(file))
    assert [row["amount"] for row in table_rows] == ["5", "", "7"]
    assert [row["id"] for row in table_rows] == ["a", "b", "c"]


def test_the_usual_options_as_flags_override_the_file_and_bind_the_store(folder: Path) -> None:
    (folder / "run.toml").write_text('[recalibrator]\nmode = "auto"\ndelta = 0.05\n[join]\nlabel_ttl = 1.0\n')
    base = (
        "--events", folder / "events.csv", "--labels", folder / "labels.jsonl", "--config",
        folder / "run.toml", *NAMED,
    )  # fmt: skip
    more = ("--store", folder / "s.db", "--mode", "target", "--window", "P30D", "--label-ttl", "60")
    done = streamcal("run", *base, *more, "--output", folder / "out.jsonl")
    assert (done.returncode, table(done)["joined"]) == (0, "2"), done.stderr
    assert streamcal("replay", *base, *more).returncode == 0
    done = streamcal("run", *base, "--store", folder / "s.db", "--output", folder / "out.jsonl")
    assert done.returncode == 3
    assert "mode ('target', now 'auto')" in done.stderr
