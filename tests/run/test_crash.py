"""kill -9 at random moments, restart every time: the same as the run that never stopped."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal.join.entries import Pending
from tests.command_line import FLIGHTS, write_lines
from tests.crash import crashed
from tests.join.recorder import Early, stored_entries

FEWER_KILLS = 10
PREDICTIONS, FEWER = 8_000, 4_000  # fewer of what is taken event by event
MAX_EVENTS = 300


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
) -> tuple[dict[str, bytes], Any, float]:
    """Run with some kills; return outputs, state, and seconds."""
    out = folder / name
    out.mkdir()
    outputs = {
        "--output": out / "answers.jsonl.gz",
        "--rejects": out / "rejects.jsonl",
        "--maps": out / "maps.jsonl",
        "--store": out / "state.db",
    }
    arguments = [each for pair in (inputs | outputs).items() for each in pair]
    seconds = crashed(["run", *arguments], kills, longest, MAX_EVENTS, 7)
    stored = outputs.pop("--store")
    contents = {
        option: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for option, path in outputs.items()
    }
    with sqlite3.connect(stored) as db:
        state = {
            "engines": db.execute("SELECT number, key, state FROM engines ORDER BY key").fetchall(),
            "versions": db.execute("SELECT * FROM versions ORDER BY seq").fetchall(),
            "rejects": db.execute("SELECT * FROM rejects ORDER BY seq").fetchall(),
        }
    db.close()
    store = SqliteStore(stored, read_only=True)
    found = store.load()
    # How entries and corrections are packed depends on how the stream was cut into batches.
    state |= {"entries": stored_entries(found), "segments": dict(found.segments)}
    state |= {"run": found.run, "positions": found.positions}
    store.close()
    return contents, state, seconds


def killed_and_whole(folder: Path, inputs: dict[str, Path], kills: int, parts: int) -> tuple[Any, Any]:
    """Check that a run that is killed gives what one gives that is not; return the outputs and the state.

    A kill comes at any time from 0 to so many parts of the run.
    """
    whole, state, seconds = crash(folder, inputs, "whole")
    broken, restored, _ = crash(folder, inputs, "broken", kills, seconds / parts)
    for name, each in state.items():
        assert restored[name] == each, name
    assert broken == whole
    return whole, state


def entries(state: Any, kind: type) -> list[Any]:
    """Return the join's entries of a kind."""
    return [entry for _, entry in state["entries"] if isinstance(entry, kind)]


@pytest.mark.crash
def test_killed_with_segments(tmp_path: Path) -> None:
    """Each prediction has one of 2,000 segments, and one of 3 devices."""
    inputs = flights(tmp_path, FEWER)
    rows = map(msgspec.json.decode, inputs["--events"].read_bytes().splitlines())
    shops = [row | {"shop": f"s{at * at % 2003}", "device": at % 3} for at, row in enumerate(rows)]
    write_lines(inputs["--events"], shops)
    inputs["--config"] = tmp_path / "run.toml"
    inputs["--config"].write_text('[segments]\nfields = ["shop", "device"]\n')
    _, state = killed_and_whole(tmp_path, inputs, FEWER_KILLS, 8)
    assert len(state["segments"]) > 500


@pytest.mark.crash
def test_killed_often_and_yet_the_same(tmp_path: Path) -> None:
    """The kills take less than the run, which so meets them all."""
    whole, state = killed_and_whole(tmp_path, flights(tmp_path), 25, 20)
    answers = [msgspec.json.decode(line) for line in whole["--output"].splitlines()]
    assert len({row["id"] for row in answers}) == len(answers) >= PREDICTIONS
    # The label of nobody waits, or has expired.
    assert len(state["rejects"]) + len(entries(state, Early)) == 3


@pytest.mark.crash
def test_killed_with_implied_negatives(tmp_path: Path) -> None:
    """Only positives are sent, a part of them after five hours, when their prediction has counted as 0."""
    inputs = flights(tmp_path, FEWER)
    labels = gzip.decompress(inputs["--labels"].read_bytes()).splitlines(keepends=True)
    positives = [line for line in labels if b'"label":0' not in line.replace(b" ", b"")]
    inputs["--labels"].write_bytes(gzip.compress(b"".join(positives)))
    inputs["--config"] = tmp_path / "run.toml"
    inputs["--config"].write_text('[join]\nmissing_labels = "negative"\nlabel_delay_limit = "PT5H"\n')
    whole, state = killed_and_whole(tmp_path, inputs, FEWER_KILLS, 8)
    counts = msgspec.json.decode(state["run"])["pipeline"]["join"]["counts"]
    answers = [msgspec.json.decode(line) for line in whole["--output"].splitlines()]
    assert len({row["id"] for row in answers}) == len(answers) == counts["predictions"]
    assert counts["predictions"] == counts["joined"] + counts["implied"] + len(entries(state, Pending))
    assert min(counts[name] for name in ("joined", "implied", "contradicted")) > 10
    assert any(entry.told for entry in entries(state, Pending))


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
    found, engines, seconds = [], [], 0.0
    for kills in (0, TABLE_KILLS):
        store, *outputs = (tmp_path / f"{kills}.{name}" for name in ("db", "answers.jsonl", "rejects.jsonl"))
        made = ["--store", store, "--output", outputs[0], "--rejects", outputs[1]]
        seconds = crashed(["run", *options, *made], kills, seconds / TABLE_KILLS, 200, 5)
        found.append([path.read_bytes() for path in outputs])
        with closing(SqliteStore(store, read_only=True)) as kept:
            engines.append(dict(kept.load().engines))
    assert found[0] == found[1]
    assert engines[0] == engines[1]
    assert found[0][0].count(b"\n") == TABLE_ROWS
    assert b"a label must equal 0 or 1, got 7" in found[0][1]
    assert b"in column 'label'" in found[0][1]
