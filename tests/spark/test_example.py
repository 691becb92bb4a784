"""examples/spark/flights.py, on two days of each month."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamcal import Recalibrator
from streamcal.sketch.score_sketch import ScoreSketch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
DAYS = ("01", "15")


def copied(name: str, folder: Path) -> list[dict[str, Any]]:
    """Copy the events of these days, of ids such as ``0501-US1219-EWR``, and return them."""
    with gzip.open(EXAMPLES / "flights" / f"{name}.jsonl.gz", "rt") as lines:
        kept = [line for line in lines if line[9:11] in DAYS]
    with gzip.open(folder / f"{name}.jsonl.gz", "wt") as out:
        out.writelines(kept)
    return [json.loads(line) for line in kept]


def test_the_example_fits_and_applies_a_map(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, predictions, labels = (copied(name, tmp_path) for name in ("source", "predictions", "labels"))
    spec = importlib.util.spec_from_file_location("flights_on_spark", EXAMPLES / "spark" / "flights.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.fit_and_apply(spark, tmp_path)
    printed = capsys.readouterr().out
    figures = dict(line.strip().split("  ") for line in printed.splitlines()[3:])

    scores = {row["id"]: row["score"] for row in predictions}
    known = [row for row in labels if row["time"] < example.JUNE and row["id"] in scores]
    engine = Recalibrator(mode="composite")
    for rows, domain in ((source, "source"), (known, "target")):
        sketch = ScoreSketch()
        sketch.add([row.get("score", scores.get(row["id"])) for row in rows], [row["label"] for row in rows])
        engine.learn_sketch(sketch, domain)
    assert repr(engine.map) in printed
    told = {row["id"] for row in labels}
    later = [row for row in predictions if row["time"] >= example.JUNE and row["id"] in told]
    assert figures["n"] == f"{len(later):.5g}"
    assert float(figures["Brier of probability"]) < float(figures["Brier of score"])
