"""Columns of engines on Spark: the bits of predict_many, null where it refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from streamcal import MulticlassMap, Recalibrator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FIELDS = ("land", "tier", "release", "since")


def test_columns_of_engines_have_the_bits_of_predict_many(spark: SparkSession) -> None:
    from streamcal.spark import recalibrated, recalibrated_by

    random = np.random.default_rng(1)
    rows = random.dirichlet([1, 1, 1], 900)
    classes = Recalibrator(classes=["cat", "dog", "fox"])
    classes.learn_many(rows, (rows.argmax(axis=1) + random.integers(0, 2, 900)) % 3)
    values: list[tuple[Any, ...]] = [
        ("NL", 1, Decimal("1.10"), datetime(2026, 1, 2, 3, tzinfo=UTC)),
        (None, 2, Decimal("1.00"), None),
    ]
    segmented = Recalibrator(segments=FIELDS)
    names = [values[i] for i in random.integers(0, 2, 900)]
    segmented.learn_many(rows[:, 0], random.random(900) < 0.5 + 0.4 * (np.arange(900) % 2), segments=names)

    class_map = MulticlassMap.model_validate_json(classes.map.model_dump_json())
    refused: list[Any] = [None, [], [0.5, 0.5], [0.5, 0.5, None], [0.5, 0.5, 0.5], [1.5, -0.5, 0.0]]
    refused += [[float("nan"), 0.5, 0.5]]
    scores: list[Any] = [*rows[:, 0].tolist(), None, float("nan"), 1.5, -0.1, 0.5, 0.5, 0.5]
    columns = list(zip(*names, *[values[0]] * 7, strict=True))
    table = {"scores": pa.array([*rows.tolist(), *refused], pa.list_(pa.float64())), "score": scores}
    frame = spark.createDataFrame(
        pa.table(
            {
                **table,
                "land": pa.array([*columns[0][:-3], "x" * 5000, "nowhere", ""], pa.string()),
                "tier": pa.array(columns[1], pa.int32()),
                "release": pa.array(columns[2], pa.decimal128(5, 2)),
                "since": pa.array(columns[3], pa.timestamp("us", "UTC")),
            }
        )
    )
    found = frame.select(
        recalibrated_by(classes, "scores"),
        recalibrated_by(segmented, "score", FIELDS),
        recalibrated_by(class_map, "scores").alias("by_map"),
    ).toArrow()
    answers = found["probabilities"].to_pylist()
    assert np.array_equal(answers[:900], classes.predict_many(rows))
    assert answers[900:] == [None] * 7
    assert found["by_map"].to_pylist() == answers
    more = [("nowhere", *values[0][1:]), (None, *values[0][1:])]
    wanted = segmented.predict_many([*rows[:, 0], 0.5, 0.5], [*names, *more]).tolist()
    assert found["probability"].to_pylist() == [*wanted[:900], *[None] * 5, *wanted[900:]]
    assert len({round(each / 1e-6) for each in segmented.predict_many([0.5] * 2, values)}) == 2
    with pytest.raises(ValueError, match="segments must be columns of land, tier, release, since"):
        recalibrated_by(segmented, "score", ["land"])
    with pytest.raises(TypeError, match=r"got RecalibrationMap\(.*spark.recalibrated takes"):
        recalibrated_by(segmented.map, "score")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got MulticlassMap\(.*spark.recalibrated_by"):
        recalibrated("score", class_map)  # type: ignore[arg-type]
