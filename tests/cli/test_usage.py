"""How the command line is called: help, version, completion, wrong options, 80 columns."""

from __future__ import annotations

import gzip
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from streamcal.mixture.forecasts_c import compiled
from tests.command_line import FLIGHTS, read_lines, streamcal

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
