"""A state goes from one machine to another, whose exp, log and matrix products have other last bits.

Nothing is refused, no row is lost or written twice, and the figures agree to 1e-9. The other machine is this
one, told to compute as an older one does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamcal.testing import NormalPair
from tests.command_line import STREAMCAL, read_lines
from tests.figures import OLDER, unlike
from tests.nightly import one_in

ROOT = Path(__file__).parents[2]
CLASSES = ("cat", "dog", "fox")
N, HALF, LATE = 1_200, 700, 40
SCORES = '[recalibrator]\nprior = "scores"\n'
SEGMENTS = '[segments]\nfields = ["country"]\nown_engines = 1\n'
RUNS = {
    "auto": (["--mode", "auto"], ""),
    "auto, prior scores": (["--mode", "auto"], SCORES),
    "composite": (["--mode", "composite"], SCORES),
    "target, window": (["--mode", "target", "--window", "400"], ""),
    "classes": (["--classes", ",".join(CLASSES)], ""),
    "segments": (["--mode", "composite"], SEGMENTS),
}
"""Options, and a file of others."""

BITS = """
import math, numpy as np
x = np.random.default_rng(0).random((200, 100))
for part in (np.exp(x), np.log1p(x), x @ x.T, np.array([math.exp(each) for each in x.ravel().tolist()])):
    print(hash(part.tobytes()))
"""


def python(code: str, *arguments: str, older: bool) -> bytes:
    """Return what a process writes that computes as this machine, or as an older one."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"} | (OLDER if older else {})
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return done.stdout


@cache
def skip_where_bits_are_equal() -> None:
    """Skip where there is no older code to choose: there, all of this would pass and show nothing."""
    if python(BITS, older=False) == python(BITS, older=True):
        pytest.skip("on this processor, exp, log and matrix products have one code only")


def streams(*, many_classes: bool) -> dict[str, list[dict[str, Any]]]:
    """Return a calibration set, predictions, and their labels, which come late; the prior has moved."""
    rng, found = np.random.default_rng(5), {}
    for name, prior in (("calibration", 0.5), ("events", 0.2)):
        scores, labels = (part.tolist() for part in NormalPair(prior).sample(N, rng))
        rows: list[dict[str, Any]] = [
            {"id": f"{i}", "time": i, "country": "fr" if i % 3 else "de", "score": scores[i]}
            for i in range(N)
        ]
        if many_classes:
            labels = [CLASSES[label + i % 2] for i, label in enumerate(labels)]
            for row in rows:
                score = row.pop("score")
                row["scores"] = rng.dirichlet((1.0 - score + 0.1, 0.6, score + 0.1)).tolist()
        found[name] = rows
    for row, label in zip(found["calibration"], labels, strict=True):
        row["label"] = label
    found["labels"] = [{"id": f"{i}", "label": label, "time": i + LATE} for i, label in enumerate(labels)]
    return found


def run(folder: Path, name: str, until: float, *, older: bool) -> None:
    """Let the files of a folder grow to an event time, and run over them with its store."""
    options, config = RUNS[name]
    folder.mkdir(exist_ok=True)
    (folder / "run.toml").write_text(config)
    for part, rows in streams(many_classes=name == "classes").items():
        some = [msgspec.json.encode(row) for row in rows if part == "calibration" or row["time"] < until]
        (folder / f"{part}.jsonl").write_bytes(b"".join(line + b"\n" for line in some))
    given = [f"--{part}={part}.jsonl" for part in ("calibration", "events", "labels")]
    written = [f"--{output}={output}.jsonl" for output in outputs(name)]
    done = subprocess.run(
        [*STREAMCAL, "run", *given, *written, *options, "--config=run.toml", "--store=store.db"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)} | (OLDER if older else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def outputs(name: str) -> list[str]:
    return ["output", "rejects"] + ([] if name == "classes" else ["maps", "alarms"])


def rows_of(folder: Path, output: str) -> list[dict[str, Any]]:
    """Return rows without the times of maps and alarms, which are those of the end of a micro-batch."""
    rows = read_lines(folder / f"{output}.jsonl")
    return rows if output == "output" else [{**row, "time": None} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "first_is_older"), one_in(3, zip(RUNS, [False, True] * 3, strict=True)))
def test_a_run_goes_on_on_another_machine(name: str, first_is_older: bool, tmp_path: Path) -> None:
    """Its first half died between the commit of an output and that of the store."""
    skip_where_bits_are_equal()
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    run(whole, name, 9e9, older=False)
    run(moved, name, HALF, older=first_is_older)
    answers = moved / "output.jsonl"
    assert 0 < len(read_lines(answers)) < N
    answers.write_bytes(answers.read_bytes() * 2)  # rows of a batch that the store does not know
    run(moved, name, 9e9, older=not first_is_older)
    assert [row["id"] for row in read_lines(answers)] == [f"{i}" for i in range(N)]
    for output in outputs(name):
        assert not [*unlike(rows_of(moved, output), rows_of(whole, output), output)]
    if name != "classes":
        assert sum(row["certificate"] is not None for row in read_lines(moved / "maps.jsonl")) > 10
