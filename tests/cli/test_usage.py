"""How the command line is called: help, version, completion, wrong options, 80 columns."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from streamcal.mixture.updates_c import compiled
from tests.command_line import FLIGHTS, STREAMCAL, read_lines, streamcal, synthetic

pytestmark = pytest.mark.slow  # each test calls the command line


def lines(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_version_and_help() -> None:
    how = "compiled" if compiled else "not compiled, so slower"
    assert streamcal("--version").stdout == f"streamcal {version('streamcal-engine')} ({how})\n"
    for command in ((), ("run",), ("show",)):
        short, long = streamcal(*command, "-h"), streamcal(*command, "--help")
        assert (short.returncode, short.stdout) == (0, long.stdout)
        assert "Usage: streamcal" in short.stdout


def test_python_m_streamcal() -> None:
    done = subprocess.run([sys.executable, "-m", "streamcal", "--version"], capture_output=True, text=True)
    assert done.stdout == streamcal("--version").stdout


def test_several_events_and_labels_are_read_in_the_order_given(tmp_path: Path) -> None:
    """At equal times, the source that is named first comes first, and predictions come before labels."""
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(lines({"id": name, "score": 0.5, "time": 7}))
        (tmp_path / f"{name}-labels.jsonl").write_text(lines({"id": name, "label": 1, "time": 7}))
    for order in ("ab", "ba"):
        arguments = [part for name in order for part in ("--events", tmp_path / f"{name}.jsonl")]
        arguments += [part for name in order for part in ("--labels", tmp_path / f"{name}-labels.jsonl")]
        done = streamcal(
            "run", *arguments, "--output", tmp_path / "o.jsonl", "--summary", tmp_path / "s.json"
        )
        assert done.returncode == 0, done.stderr
        assert [row["id"] for row in read_lines(tmp_path / "o.jsonl")] == list(order)
        join = json.loads((tmp_path / "s.json").read_bytes())["join"]
        assert (join["joined"], join["early"]) == (2, 0)


def test_replay_takes_several_too(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(lines({"id": name, "score": 0.5, "label": 1, "time": 7}))
    events = ["--events", tmp_path / "a.jsonl", "--events", tmp_path / "b.jsonl"]
    store = ["--store", tmp_path / "s.db"]
    assert streamcal("run", *events, "--output", tmp_path / "o.jsonl", *store).returncode == 0
    assert streamcal("replay", *events, *store).returncode == 0
    assert streamcal("replay", *events[:2], *store).returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--events", "e", "--output", "o", "--output", "p"),
        ("run", "--events", "e", "--output", "o", "--calibration", "s", "--calibration", "t"),
        ("apply", "--map", "m", "--events", "e", "--events", "f"),
        ("replay", "--events", "e", "--store", "s", "--store", "t"),
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[-2]}",
)
def test_an_option_of_one_value_is_not_taken_twice(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = streamcal(*arguments)
    assert done.returncode == 2
    assert f"{arguments[-2]} is given 2 times; it takes one value" in done.stderr


def narrow(*arguments: object) -> list[str]:
    """Call the command line on 80 columns; return the lines it prints."""
    env = {**os.environ, "COLUMNS": "80"}
    command = [*STREAMCAL, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    return done.stdout.splitlines()


def test_tables_fit_into_80_columns_and_end_with_what_is_served(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path)
    store = tmp_path / "s.db"
    shown = narrow(
        *("run", "--calibration", source, "--events", events, "--labels", labels),
        *("--output", tmp_path / "o.jsonl", "--store", store),
    )
    table = shown[shown.index("") + 1 :]  # below the verdict
    assert all(line.rstrip().count("  ") for line in table)  # a name and a figure in each: nothing is wrapped
    shown = narrow("show", store, "--limit", 3)
    assert shown[0].startswith("Map versions")
    versions = shown[2:5]
    everything = json.loads("\n".join(narrow("show", store, "--json")))
    newest = [f"{row['version']:,}" for row in everything["maps"]][-3:]
    assert [line.split()[3 if line[0].isdigit() else 2] for line in versions] == newest
    assert f"{len(everything['maps']) - 3:,} older versions: --limit N" in shown[5]
    known = [line for line in table if "unknown fields" not in line]  # of this run's inputs, not of a store
    assert shown[-len(known) :] == known
    assert max(map(len, shown)) <= 80


def test_the_files_of_the_demo(tmp_path: Path) -> None:
    done = streamcal("demo", "--files", tmp_path / "made" / "flights")
    assert done.returncode == 0, done.stderr
    for name in ("labels.jsonl.gz", "predictions.jsonl.gz", "source.jsonl.gz"):
        whole = gzip.decompress((FLIGHTS / name).read_bytes()).splitlines()
        shipped = gzip.decompress((tmp_path / "made" / "flights" / name).read_bytes()).splitlines()
        assert shipped == [line for line in whole if b'-JFK"' in line]
    (tmp_path / "file").touch()
    done = streamcal("demo", "--files", tmp_path / "file" / "x")
    assert done.returncode == 2
    assert "--files: cannot write to" in done.stderr
