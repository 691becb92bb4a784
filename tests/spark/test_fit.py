"""streamcal.spark.learn: engines from a table, equal to the byte to engines of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from streamcal import Recalibrator
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS: dict[str, Any] = {"mode": "composite"}
KEYS = ("DE", None, "FR")
N = 30_000


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    random = np.random.default_rng(5)
    scores, labels = NormalPair(0.4).sample(N, random)
    return pa.table(
        {
            "model": pa.array([KEYS[i] for i in random.integers(0, 3, N)], pa.string()),
            "domain": pa.array(np.where(random.random(N) < 0.7, "source", "target")),
            "score": scores,
            "label": pa.array(labels, pa.int32()),
        }
    )


def of(rows: pa.Table, key: str | None, domain: str) -> ScoreSketch:
    keys = rows["model"].to_pylist()
    mine = np.array([each == key for each in keys]) & (rows["domain"].to_numpy() == domain)
    sketch = ScoreSketch()
    sketch.add(rows["score"].to_numpy()[mine], rows["label"].to_numpy()[mine])
    return sketch


@pytest.fixture(scope="module")
def frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows).repartition(5)


def test_the_engine_of_each_key_has_the_bytes_of_one_that_saw_all_rows(
    frame: DataFrame, rows: pa.Table
) -> None:
    from streamcal.spark import learn

    engines = learn(frame, by="model", domain="domain", **OPTIONS)
    assert set(engines) == set(KEYS)
    for key, engine in engines.items():
        one = Recalibrator(**OPTIONS)
        one.learn_sketch(of(rows, key, "source"), "source")
        one.learn_sketch(of(rows, key, "target"), "target")
        assert engine.to_bytes() == one.to_bytes()
        assert engine.certificate is not None
        assert engine.version > 1
