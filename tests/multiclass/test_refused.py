"""Events of many classes that are wrong in one way, in every format: the same reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from streamcal import Recalibrator, backtest
from tests.multiclass.test_faces import NAMES, stream
from tests.multiclass.test_recalibrator import drawn, log_loss, names, played
from tests.multiclass.test_run import CLASSES, events, read, run, write

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


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "jsonl"])
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


@pytest.mark.parametrize("library", [pl, pd])
@pytest.mark.filterwarnings("ignore:.*events were rejected")
def test_frames(library: Any) -> None:
    table = flat(120)
    predictions = table.filter(pl.col("label").is_null()).drop("label")
    labels = table.filter(pl.col("label").is_not_null()).select("id", "label", "time")
    given = (predictions, labels) if library is pl else (predictions.to_pandas(), labels.to_pandas())
    done = backtest(*given, columns={"classes": NAMES})
    reasons = [row.reason for row in done.rejects]
    for _, word in WRONG.values():
        assert sum(word in reason for reason in reasons) == 1, (word, reasons)
    assert sum("got 'Cat'" in reason for reason in reasons) == 1


def test_columns_in_another_order_are_the_same(tmp_path: Path) -> None:
    table = flat(60)
    made = []
    for order in (table.columns, [*reversed(table.columns)]):
        table.select(order).write_csv(tmp_path / "e.csv")
        run(*CLASSES, "--events", tmp_path / "e.csv", "--output", tmp_path / "o.jsonl")
        made.append(read(tmp_path / "o.jsonl"))
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("classes", "word"),
    [
        ("cat", "two classes at least, each named once; got"),
        ("cat,dog,cat", "two classes at least, each named once"),
        (",".join(map(str, range(1_001))), "at most 1000 items"),
    ],
)
def test_wrong_classes_of_a_run(tmp_path: Path, classes: str, word: str) -> None:
    path = write(tmp_path / "e.jsonl", events(10, 1))
    said = run("--classes", classes, "--events", path, "--output", tmp_path / "o", expect=2)
    assert word in " ".join(said.split())


def test_a_file_with_one_score_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("id,score,label\na1,0.5,\n")
    said = run(*CLASSES, "--events", tmp_path / "e.csv", "--output", tmp_path / "o", expect=2)
    assert "p_cat" in said


def test_scores_in_percent_end_the_run(tmp_path: Path) -> None:
    given = [
        each | {"scores": {name: 100.0 * score for name, score in each["scores"].items()}}
        if "scores" in each
        else each
        for each in events(50, 5)
    ]
    path = write(tmp_path / "e.jsonl", given)
    said = run(*CLASSES, "--events", path, "--output", tmp_path / "o", expect=1)
    assert "scores seem to be in percent" in " ".join(said.split())


@pytest.mark.parametrize(
    ("options", "flags", "word"),
    [
        (
            "[segments]\nfields = ['country']\n",
            (),
            "classes and segments exclude each other",
        ),
        (
            "",
            ("--missing-labels", "negative", "--label-delay-limit", "P1D"),
            "points to none of many classes",
        ),
    ],
)
def test_options_of_file_and_command_line_are_checked_together(
    tmp_path: Path, options: str, flags: tuple[str, ...], word: str
) -> None:
    (tmp_path / "o.toml").write_text(options)
    path = write(tmp_path / "e.jsonl", events(10, 1))
    more = ("--config", tmp_path / "o.toml", "--events", path, "--output", tmp_path / "o")
    said = run(*CLASSES, *flags, *more, expect=2)
    assert word in " ".join(said.split())


def test_segments_of_the_file_stay_with_columns_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text("[segments]\nfields = ['country']\n")
    path = write(tmp_path / "e.jsonl", [{"uid": "a", "score": 0.5, "country": "DE"}])
    run("--id", "uid", "--config", tmp_path / "o.toml", "--events", path, "--output", tmp_path / "out.jsonl")
    assert [row["id"] for row in read(tmp_path / "out.jsonl")] == ["a"]


@pytest.mark.slow
def test_classes_come_and_go_without_harm() -> None:
    """One class has no label at first, another none from the middle on. Where it comes back, it costs more.

    The scores are exactly right again then: 1.06 of their loss over the 1,500 labels of the return.
    """
    engine = Recalibrator(classes=names(4))
    phases = [(0.0, 0.0, 0.0, -20.0), (-20.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)]
    for seed, biases in enumerate(phases):
        scores, labels, _ = drawn(1_500, biases, 40 + seed)
        made = played(engine, scores, labels)
        assert np.isfinite(made).all()
        assert (made >= 0.0).all()
        np.testing.assert_allclose(made.sum(axis=1), 1.0, atol=1e-12)
        assert log_loss(made, labels) <= (1.10 if seed == 2 else 1.01) * log_loss(scores, labels), biases
