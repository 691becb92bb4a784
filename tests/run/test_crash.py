"""kill -9 at random moments, restart every time: the same as the run that never stopped.

The test takes a part of the flights stream; STREAMCAL_CRASH=full takes all of it.
"""

from __future__ import annotations

import gzip
import os
import sqlite3
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal.join.entries import Pending
from tests.command_line import FLIGHTS, streamcal
from tests.join.recorder import Early, stored_entries

FULL = os.environ.get("STREAMCAL_CRASH") == "full"
KILLS = 50
FEWER_KILLS = 50 if FULL else 15
PREDICTIONS = 10**9 if FULL else 16_000
FEWER = 10**9 if FULL else 4_000  # of what is taken event by event
MAX_EVENTS = 2000 if FULL else 300


def flights(folder: Path, count: int = PREDICTIONS) -> dict[str, Path]:
    """Write the first part of the flights stream, plain or packed; return the paths by option."""
    last = 0.0
    with gzip.open(FLIGHTS / "predictions.jsonl.gz") as lines:
        predictions = list(islice(lines, count))
        last = msgspec.json.decode(predictions[-1])["time"]
    with gzip.open(FLIGHTS / "labels.jsonl.gz") as lines:
        labels = [line for line in lines if msgspec.json.decode(line)["time"] <= last]
    with gzip.open(FLIGHTS / "source.jsonl.gz") as lines:
        source = list(islice(lines, count // 4))
    # What must not be lost either: a bad line, a duplicate, a label that comes before its prediction.
    labels[100:100] = [b"oops\n", labels[0], b'{"id":"nobody","label":1}\n']
    paths = {
        "--events": folder / "predictions.jsonl",
        "--labels": folder / "labels.jsonl.gz",
        "--calibration": folder / "source.jsonl",
    }
    for path, lines_ in zip(paths.values(), (predictions, labels, source), strict=True):
        path.write_bytes(gzip.compress(b"".join(lines_)) if path.suffix == ".gz" else b"".join(lines_))
    return paths


def crash(
    folder: Path, inputs: dict[str, Path], name: str, kills: int = 0, longest: float = 0.0
) -> tuple[dict[str, bytes], Any, int, float]:
    """Run with some kills; return outputs, state, the number of kills that struck, and seconds."""
    out = folder / name
    out.mkdir()
    outputs = {
        "--output": out / "answers.jsonl.gz",
        "--rejects": out / "rejects.jsonl",
        "--maps": out / "maps.jsonl",
        "--store": out / "state.db",
    }
    arguments = [str(each) for pair in (inputs | outputs).items() for each in pair]
    script = Path(__file__).parents[1] / "crash.py"
    done = subprocess.run(
        [sys.executable, script, "7", str(kills), str(longest), str(MAX_EVENTS), "--", "run", *arguments],
        capture_output=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    seconds, killed = done.stdout.split()[-3::2]
    assert b"Traceback" not in done.stderr, done.stderr.decode()[-2000:]
    contents = {
        option: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for option, path in outputs.items()
        if option != "--store"
    }
    with sqlite3.connect(outputs["--store"]) as db:
        state = {
            "engines": db.execute("SELECT number, key, state FROM engines ORDER BY key").fetchall(),
            "maps": db.execute("SELECT * FROM maps ORDER BY seq").fetchall(),
            "rejects": db.execute("SELECT * FROM rejects ORDER BY seq").fetchall(),
        }
    db.close()
    store = SqliteStore(outputs["--store"], read_only=True)
    found = store.load()
    # How entries and corrections are packed depends on how the stream was cut into batches.
    state |= {"entries": stored_entries(found), "segments": dict(found.segments)}
    state |= {"run": found.run, "positions": found.positions}
    store.close()
    return contents, state, int(killed), float(seconds)


def entries(state: Any, kind: type) -> list[Any]:
    """Return the join's entries of a kind."""
    return [entry for _, entry in state["entries"] if isinstance(entry, kind)]


@pytest.mark.crash
def test_killed_with_segments(tmp_path: Path) -> None:
    """Each prediction has one of 2,000 segments, and one of 3 devices."""
    inputs = flights(tmp_path, FEWER)
    rows = map(msgspec.json.decode, inputs["--events"].read_bytes().splitlines())
    lines = [
        msgspec.json.encode(row | {"shop": f"s{at * at % 2003}", "device": at % 3})
        for at, row in enumerate(rows)
    ]
    inputs["--events"].write_bytes(b"\n".join(lines) + b"\n")
    inputs["--config"] = tmp_path / "run.toml"
    inputs["--config"].write_text('[segments]\nfields = ["shop", "device"]\n')
    whole, state, _, seconds = crash(tmp_path, inputs, "whole")
    broken, restored, killed, _ = crash(tmp_path, inputs, "broken", FEWER_KILLS, seconds / 12)
    for name, each in state.items():
        assert restored[name] == each, name
    assert broken == whole
    assert len(state["segments"]) > 500
    assert killed == FEWER_KILLS


@pytest.mark.crash
def test_killed_fifty_times_and_yet_the_same(tmp_path: Path) -> None:
    inputs = flights(tmp_path)
    whole, state, _, seconds = crash(tmp_path, inputs, "whole")
    # A kill comes at any time from 0 to this: fifty of them take less than the run, which so meets them all.
    broken, restored, killed, _ = crash(tmp_path, inputs, "broken", KILLS, seconds / 40)
    print(f"\nkilled {killed} times; {len(whole['--output'].splitlines()):,} answers")
    for name, rows in state.items():
        assert restored[name] == rows, name
    assert broken == whole
    answers = [msgspec.json.decode(line) for line in whole["--output"].splitlines()]
    assert len({row["id"] for row in answers}) == len(answers) >= 16_000
    # The label of nobody waits, or has expired.
    assert len(state["rejects"]) + len(entries(state, Early)) == 3
    assert killed == KILLS


@pytest.mark.crash
def test_killed_with_implied_negatives(tmp_path: Path) -> None:
    """Only positives are sent, a part of them after five hours, when their prediction has counted as 0."""
    inputs = flights(tmp_path, FEWER)
    labels = gzip.decompress(inputs["--labels"].read_bytes()).splitlines(keepends=True)
    positives = [line for line in labels if b'"label":0' not in line.replace(b" ", b"")]
    inputs["--labels"].write_bytes(gzip.compress(b"".join(positives)))
    inputs["--config"] = tmp_path / "run.toml"
    inputs["--config"].write_text('[join]\nmissing_labels = "negative"\nlabel_delay_limit = "PT5H"\n')
    whole, state, _, seconds = crash(tmp_path, inputs, "whole")
    broken, restored, killed, _ = crash(tmp_path, inputs, "broken", FEWER_KILLS, seconds / 12)
    counts = msgspec.json.decode(state["run"])["pipeline"]["join"]["counts"]
    print(f"\nkilled {killed} times; {counts}")
    assert msgspec.json.decode(restored["run"])["pipeline"]["join"]["counts"] == counts
    for name, rows in state.items():
        assert restored[name] == rows, name
    assert broken == whole
    answers = [msgspec.json.decode(line) for line in whole["--output"].splitlines()]
    assert len({row["id"] for row in answers}) == len(answers) == counts["predictions"]
    assert counts["predictions"] == counts["joined"] + counts["implied"] + len(entries(state, Pending))
    assert min(counts[name] for name in ("joined", "implied", "contradicted")) > 10
    assert any(entry.told for entry in entries(state, Pending))
    assert killed == FEWER_KILLS


# kill -9 at random moments while tables and patterns of files are read: each row counts once


TABLE_KILLS = 8
TABLE_ROWS = 4_000
FILES = 4


def inputs(folder: Path) -> list[str]:
    """Write the first flights, the predictions into several files of either format; return the options."""
    predictions = pl.read_ndjson(FLIGHTS / "predictions.jsonl.gz").head(TABLE_ROWS)
    labels = pl.read_ndjson(FLIGHTS / "labels.jsonl.gz")
    labels = labels.filter(pl.col("time") <= predictions["time"].max())
    labels[100, "label"] = 7  # a reject must not be lost either
    source = pl.read_ndjson(FLIGHTS / "source.jsonl.gz").head(1_500)
    each = TABLE_ROWS // FILES
    for number in range(FILES):
        part = predictions.slice(number * each, each)
        if number % 2:
            part.write_ipc(folder / f"p{number}.arrow")
        else:
            part.write_parquet(folder / f"p{number}.parquet", row_group_size=400)
    labels.write_parquet(folder / "labels.parquet", row_group_size=700)
    source.write_ipc_stream(folder / "source.arrow")
    return [
        "--events", str(folder / "p*"),
        "--labels", str(folder / "labels.parquet"),
        "--calibration", str(folder / "source.arrow"),
        "--mode", "composite",
    ]  # fmt: skip


@pytest.mark.crash
def test_killed_at_any_moment_each_row_counts_once(tmp_path: Path) -> None:
    options = inputs(tmp_path)
    found, seconds = {}, 0.0
    for name, kills in (("whole", 0), ("killed", TABLE_KILLS)):
        out = tmp_path / name
        out.mkdir()
        outputs = [
            "--output",
            str(out / "a.jsonl"),
            "--rejects",
            str(out / "r.jsonl"),
            "--store",
            str(out / "s.db"),
        ]
        script = [sys.executable, str(Path(__file__).parents[1] / "crash.py")]
        done = subprocess.run(
            [
                *script,
                "5",
                str(kills),
                str(seconds / TABLE_KILLS),
                "200",
                "--",
                "run",
                *options,
                *outputs,
            ],
            capture_output=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        last, killed = done.stdout.split()[-3::2]
        assert int(killed) == kills
        seconds = float(last)
        found[name] = (out / "a.jsonl").read_bytes(), (out / "r.jsonl").read_bytes()
    assert found["killed"] == found["whole"]
    assert found["whole"][0].count(b"\n") == TABLE_ROWS
    assert b"a label must equal 0 or 1, got 7" in found["whole"][1]
    assert b"in column 'label'" in found["whole"][1]
    replayed = streamcal("replay", "--store", tmp_path / "killed" / "s.db", *options)
    assert replayed.returncode == 0, replayed.stderr
