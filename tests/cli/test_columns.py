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


def test_apply_takes_the_names_too(folder: Path) -> None:
    streamcal(
        "run", "--events", folder / "events.csv", "--labels", folder / "labels.jsonl", "--output",
        folder / "out.jsonl", *NAMED[:8], "--map", folder / "map.json",
    )  # fmt: skip
    (folder / "more.jsonl").write_text('{"request_id":"x","prob":0.5,"ts":3,"label":"whatever","n":[1]}\n')
    done = streamcal(
        "apply", "--map", folder / "map.json", "--events", folder / "more.jsonl", "--output",
        folder / "more-out.jsonl", "--id", "request_id", "--score", "prob", "--time", "ts", "--keep", "label",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = read_lines(folder / "more-out.jsonl")
    assert (row["id"], row["time"], row["label"], row["probability"]) == ("x", 3.0, "whatever", 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--id", "request", "--score", "prob"),
            "has no column 'request'; it has 'request_id', 'prob'",
        ),
        (("--id", "request_id", "--score", "prob", "--keep", "land"), "has no column 'land'"),
        (("--score", "prob", "--label", "outcome"), "has no column 'outcome'"),
        (("--score", "prob", "--keep", "id"), "--keep: every row of the output has a field 'id' of its own"),
        (("--id", "score"), "id and score have the same column"),
        (("--mode", "fast"), "--mode: must be 'auto'"),
        (("--window", "3"), "--window"),
        (("--window", "a while"), "--window"),
        (("--label-ttl", "-1"), "--label-ttl: must be greater than 0"),
        (("--positive", ""), "--positive: a label must name a class, got ''"),
    ],
)
def test_wrong_options_are_usage_errors_at_once(folder: Path, options: tuple[str, ...], message: str) -> None:
    done = streamcal("run", "--events", folder / "events.csv", "--output", folder / "out.jsonl", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "http" not in done.stderr
    assert not (folder / "out.jsonl").exists()


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


def test_a_csv_of_300_columns_resumes_without_its_header_in_the_store(tmp_path: Path) -> None:
    """The header is read again from the file: in the position it would burst a Kafka transaction."""
    names = [f"a_rather_long_name_of_a_feature_{i}" for i in range(300)]
    path, out = tmp_path / "wide.csv", tmp_path / "out.jsonl"
    path.write_text(",".join(["id", *names, "score"]) + "\n" + ",".join(["a", *["1"] * 300, "0.5"]) + "\n")
    for count in (1, 2):
        done = streamcal("run", "--events", path, "--output", out, "--store", tmp_path / "s.db")
        assert done.returncode == 0, done.stderr
        assert len(read_lines(out)) == count
        assert names[7].encode() not in (tmp_path / "s.db").read_bytes()
        with path.open("a") as file:
            file.write(",".join(["b", *["1"] * 300, "0.25"]) + "\n")
