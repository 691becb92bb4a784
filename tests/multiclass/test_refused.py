"""Events of many classes that are wrong in one way, in every format: the same reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamcal import backtest
from tests.multiclass.test_faces import NAMES, stream
from tests.multiclass.test_run import CLASSES, read, run, write

WRONG = {
    "not normalised": ((0.5, 0.25, 0.5), "must sum to 1, got a sum of 1.25"),
    "negative": ((1.25, -0.5, 0.25), "a score must be a number in [0, 1], got 1.25"),
    "missing": ((0.5, None, 0.5), "there must be a score of each class, 'dog' has none"),
}
"""Scores, and what the reason says."""


def flat(count: int) -> pl.DataFrame:
    """Return predictions, of which the first few are wrong, and labels, of which one is of no class."""
    scores, labels = stream(count)
    rows: list[dict[str, Any]] = []
    for index, (row, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
        given = [*WRONG.values()][index][0] if index < len(WRONG) else row
        columns = {f"p_{name}": each for name, each in zip(NAMES, given, strict=True)}
        rows.append({"id": f"a{index}", "time": float(index), "label": None, **columns})
        told = "Cat" if index == len(WRONG) else label
        rows.append({"id": f"a{index}", "time": float(index), "label": told})
    return pl.DataFrame(rows, infer_schema_length=None)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files(tmp_path: Path, form: str) -> None:
    table = flat(120)
    path, out, rejects = tmp_path / f"e.{form}", tmp_path / "o.jsonl", tmp_path / "r.jsonl"
    if form == "csv":
        table.write_csv(path)
    elif form == "parquet":
        table.write_parquet(path)
    elif form == "arrow":
        table.write_ipc(path)
    else:
        rows = [{name: each for name, each in row.items() if each is not None} for row in table.to_dicts()]
        write(path, rows)
    run(*CLASSES, "--events", path, "--output", out, "--rejects", rejects)
    reasons = [row["reason"] for row in read(rejects)]
    for _, word in WRONG.values():
        assert sum(word in reason for reason in reasons) == 1, (word, reasons)
    assert sum("one of the classes 'cat', 'dog', 'fox', got 'Cat'" in reason for reason in reasons) == 1
    assert sum("unmatched label" in reason for reason in reasons) == len(WRONG)
    assert len(read(out)) == 120 - len(WRONG)


@pytest.mark.filterwarnings("ignore:.*events were rejected")
def test_frames() -> None:
    table = flat(120)
    predictions = table.filter(pl.col("label").is_null()).drop("label")
    labels = table.filter(pl.col("label").is_not_null()).select("id", "label", "time")
    given = (predictions, labels)
    done = backtest(*given, columns={"classes": NAMES})
    reasons = [row.reason for row in done.rejects]
    for _, word in WRONG.values():
        assert sum(word in reason for reason in reasons) == 1, (word, reasons)
    assert sum("got 'Cat'" in reason for reason in reasons) == 1
