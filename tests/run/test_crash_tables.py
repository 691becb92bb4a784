"""kill -9 at random moments while tables and patterns of files are read: each row counts once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.command_line import FLIGHTS, streamcal

KILLS = 8
PREDICTIONS = 4_000
FILES = 4


def inputs(folder: Path) -> list[str]:
    """Write the first flights, the predictions into several files of either format; return the options."""
    predictions = pl.read_ndjson(FLIGHTS / "predictions.jsonl.gz").head(PREDICTIONS)
    labels = pl.read_ndjson(FLIGHTS / "labels.jsonl.gz")
    labels = labels.filter(pl.col("time") <= predictions["time"].max())
    labels[100, "label"] = 7  # a reject must not be lost either
    source = pl.read_ndjson(FLIGHTS / "source.jsonl.gz").head(1_500)
    each = PREDICTIONS // FILES
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
    for name, kills in (("whole", 0), ("killed", KILLS)):
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
            [*script, "5", str(kills), str(seconds / KILLS), "200", "--", "run", *options, *outputs],
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
    assert found["whole"][0].count(b"\n") == PREDICTIONS
    assert b"a label must equal 0 or 1, got 7" in found["whole"][1]
    assert b"in column 'label'" in found["whole"][1]
    replayed = streamcal("replay", "--store", tmp_path / "killed" / "s.db", *options)
    assert replayed.returncode == 0, replayed.stderr
