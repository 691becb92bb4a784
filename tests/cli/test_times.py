"""Bad clocks on the command line: what is lost, and what the rejects say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal.testing import NormalPair
from tests.command_line import read_lines, streamcal, table
from tests.nightly import one_in

pytestmark = pytest.mark.slow

NOW = 1_700_000_000
FAR = 4_070_908_800
"""The year 2099."""
DAY = 86_400


def stream(
    folder: Path, count: int = 600, *, late: int = 3000, step: int = 60
) -> tuple[list[Any], list[Any]]:
    """Return predictions, one every ``step`` seconds, and labels that come ``late`` seconds later."""
    rng = np.random.default_rng(5)
    scores, classes = NormalPair(0.3).sample(count, rng)
    predictions = [
        {"id": f"u-{i}", "score": score, "time": NOW + step * i} for i, score in enumerate(scores.tolist())
    ]
    labels = [
        {"id": f"u-{i}", "label": label, "time": NOW + step * i + late}
        for i, label in enumerate(classes.tolist())
    ]
    return predictions, labels


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(
    folder: Path, predictions: list[Any], labels: list[Any], *more: object
) -> tuple[Any, list[Any], list[Any]]:
    out, rejects = folder / "out.jsonl", folder / "rejects.jsonl"
    done = streamcal(
        *("run", "--events", write(folder / "events.jsonl", predictions)),
        *("--labels", write(folder / "labels.jsonl", labels), "--output", out, "--rejects", rejects, *more),
    )
    assert done.returncode == 0, done.stderr
    return done, read_lines(out), read_lines(rejects)


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ((NOW + 60 * 100) * 1000, "is in milliseconds, the others of its input are in seconds"),
        (FAR, "2099-01-01 00:00:00 UTC) is more than 30 days past those before it"),
    ],
)
@pytest.mark.parametrize("place", one_in(2, [0, 100]))
def test_one_prediction_with_a_wrong_clock_costs_itself(
    tmp_path: Path, time: Any, reason: str, place: int
) -> None:
    predictions, labels = stream(tmp_path)
    predictions[place]["time"] = time
    _, answers, rejects = run(tmp_path, predictions, labels)
    assert [row["id"] for row in answers] == [row["id"] for row in predictions if row["time"] != time]
    first, second = sorted(rejects, key=lambda row: row["source"])
    assert (first["line"], second["line"]) == (place + 1, place + 1)
    assert reason in first["reason"]
    assert f"no prediction with id 'u-{place}' has come" in second["reason"]


@pytest.mark.parametrize("scale", one_in(3, [10**3, 10**6, 10**9]))
def test_a_stream_in_another_unit_gives_the_same(tmp_path: Path, scale: int) -> None:
    """Labels come 20 days late, within the 30 that they may take."""
    folders = [tmp_path / name for name in ("seconds", "scaled")]
    outcomes = []
    for folder, factor in zip(folders, (1, scale), strict=True):
        folder.mkdir()
        predictions, labels = stream(folder, late=20 * DAY, step=3600)
        for row in (*predictions, *labels):
            row["time"] *= factor
        done, answers, rejects = run(folder, predictions, labels)
        outcomes.append((answers, rejects, table(done)["joined"]))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2] == "600"


def test_a_store_of_wrong_clocks_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    predictions, labels = stream(tmp_path)
    for place, time in ((3, FAR), (200, NOW * 1000), (201, FAR), (400, 1e20)):
        predictions[place]["time"] = time
    run(tmp_path, predictions, labels, "--store", tmp_path / "store.db")
    done = streamcal(
        *("replay", "--store", tmp_path / "store.db", "--events", tmp_path / "events.jsonl"),
        *("--labels", tmp_path / "labels.jsonl"),
    )
    assert done.returncode == 0, done.stderr
    assert "byte-equal" in done.stdout
