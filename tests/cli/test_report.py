"""The end of a run: its table whatever engines are in memory, --summary, --map."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal import evaluate
from tests.command_line import read_lines, streamcal, synthetic, table

pytestmark = pytest.mark.slow  # each test calls the command line


def base(folder: Path, name: str) -> list[object]:
    return ["run", "--events", folder / name, "--output", folder / "o.jsonl", "--store", folder / "s.db"]


def test_the_same_finished_command_again(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path)
    arguments = ["run", "--calibration", source, "--events", events, "--labels", labels]
    arguments += [
        *("--output", tmp_path / "o.jsonl", "--store", tmp_path / "s.db", "--map", tmp_path / "m.json"),
    ]
    first = streamcal(*arguments)
    answers, served = (tmp_path / "o.jsonl").read_bytes(), (tmp_path / "m.json").read_bytes()
    (tmp_path / "m.json").unlink()
    again = streamcal(*arguments)
    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert again.stdout == first.stdout
    assert (tmp_path / "o.jsonl").read_bytes() == answers
    assert (tmp_path / "m.json").read_bytes() == served


def stream(folder: Path, n: int = 300) -> list[dict[str, Any]]:
    """Write predictions, each followed by its label; return the predictions with their labels."""
    rng = np.random.default_rng(5)
    scores = rng.random(n).round(4).tolist()
    labels = (rng.random(n) < np.square(scores)).astype(int).tolist()
    rows = [
        {"id": f"a{i}", "score": s, "label": y} for i, (s, y) in enumerate(zip(scores, labels, strict=True))
    ]
    lines = []
    for i, row in enumerate(rows):
        lines.append({"id": row["id"], "score": row["score"], "time": 2 * i})
        lines.append({"id": row["id"], "label": row["label"], "time": 2 * i + 1})
    (folder / "e.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return rows


def test_the_figures_are_those_of_the_answers(tmp_path: Path) -> None:
    rows = stream(tmp_path)
    done = streamcal(*base(tmp_path, "e.jsonl"), "--summary", tmp_path / "summary.json", status=0)
    said = json.loads((tmp_path / "summary.json").read_bytes())
    labels = np.array([row["label"] for row in rows])
    answers = {row["id"]: row for row in read_lines(tmp_path / "o.jsonl")}
    for when, field in (("before", "score"), ("after", "probability")):
        forecasts = np.array([answers[row["id"]][field] for row in rows])
        assert said[f"brier_{when}"] == pytest.approx(np.mean((forecasts - labels) ** 2))
        given = np.clip(np.where(labels == 1, forecasts, 1 - forecasts), 1e-15, 1)
        assert said[f"log_loss_{when}"] == pytest.approx(np.mean(-np.log(given)))
        assert said[f"gap_{when}"] == pytest.approx(np.mean(forecasts) - np.mean(labels), abs=1e-7)
        assert said[f"worst_gap_{when}"] is said[f"latest_gap_{when}"] is None  # no window is full
        exact = evaluate(labels, forecasts)
        for part in ("miscalibration", "discrimination", "uncertainty"):
            assert said[f"{part}_{when}"] == pytest.approx(getattr(exact, part), abs=0.0014)
        for part in ("miscalibration", "discrimination"):
            assert table(done)[f"{part} {when}"] == f"{said[f'{part}_{when}']:.5f}"
        assert table(done)[f"log loss {when}"] == f"{said[f'log_loss_{when}']:.5f}"
        assert table(done)[f"calibration error (ECE) {when}"] == f"{said[f'ece_{when}']:.5f}"
        assert table(done)[f"gap (mean forecast − mean label) {when}"] == f"{said[f'gap_{when}']:+.5f}"
    # Scores differ, and 20 of them are a bin.
    by_score = sorted(rows, key=lambda row: row["score"])
    off = [abs(sum(row["score"] - row["label"] for row in by_score[i : i + 20])) for i in range(0, 300, 20)]
    assert said["ece_before"] == pytest.approx(sum(off) / 300, abs=1e-7)
    assert "worst gap" not in done.stdout
    assert said["log_loss_after"] < said["log_loss_before"]


def test_what_could_not_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    stream(tmp_path)
    (tmp_path / "notes.html").write_text("notes")
    for option, path, said in (
        ("--summary", tmp_path / "absent" / "s.json", "there is no directory"),
        ("--summary", tmp_path, "that is a directory"),
        ("--report", tmp_path / "notes.html", "there is a file of 5 bytes that is not a report: move it"),
        ("--summary", tmp_path / "notes.html", "there is a file of 5 bytes that is not a summary"),
    ):
        done = streamcal(*base(tmp_path, "e.jsonl"), option, path)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert re.search(rf"{option} \S*", done.stderr)
    assert not (tmp_path / "o.jsonl").exists()
