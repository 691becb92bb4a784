"""streamcal.spark.recalibrated, and the query of streamcal.sql, on Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamcal import MulticlassMap, Recalibrator
from tests.spark.maps import EXACT, LARGEST_DIFFERENCE, LINEAR, REFUSED, SAME, scores_for

SCORES = np.concatenate([scores_for(each) for each in (EXACT | LINEAR).values()] + [[0.0, 1.0, -0.0]])
NULLS = [None] * len(REFUSED)
"""What `predict_many` refuses is null."""
QUERIES = ("g", "31 bins", "40 knots, g")


@pytest.fixture(scope="module")
def answers(spark: Any) -> dict[str, list[float | None]]:
    """Answers of every map to `SCORES`, and then to `REFUSED`; one query, as each takes a while."""
    from streamcal.spark import recalibrated
    from streamcal.sql import query

    frame = spark.createDataFrame(pa.table({"score": pa.array([*SCORES.tolist(), *REFUSED], pa.float64())}))
    columns = [recalibrated("score", each).alias(name) for name, each in (EXACT | LINEAR).items()]
    found = frame.coalesce(1).select(*columns).toArrow().to_pydict()
    frame.coalesce(1).createOrReplaceTempView("predictions")
    for name in QUERIES:
        written = spark.sql(query((EXACT | LINEAR)[name], "spark")).toArrow()["probability"]
        found[f"query of {name}"] = written.to_pylist()
    return found


def each(names: Iterable[str]) -> list[str]:
    return [*names, *(f"query of {name}" for name in QUERIES if name in names)]


def the_map(name: str) -> Any:
    return (EXACT | LINEAR)[name.removeprefix("query of ")]


@pytest.mark.parametrize("name", each(EXACT))
def test_steps_and_the_identity_have_the_bits_of_predict_many(
    answers: dict[str, list[float | None]], name: str
) -> None:
    wanted = the_map(name).predict_many(SCORES)
    np.testing.assert_allclose(np.array(answers[name][: len(SCORES)], np.float64), wanted, **SAME)
    assert answers[name][len(SCORES) :] == NULLS


@pytest.mark.parametrize("name", each(LINEAR))
def test_lines_differ_in_the_last_bits_at_most(answers: dict[str, list[float | None]], name: str) -> None:
    found = np.array(answers[name][: len(SCORES)], np.float64)
    assert np.abs(found - the_map(name).predict_many(SCORES)).max() <= LARGEST_DIFFERENCE
    assert answers[name][len(SCORES) :] == NULLS


# Columns of engines on Spark: the bits of predict_many, null where it refuses


FIELDS = ("land", "tier", "release", "since")


def test_columns_of_engines_have_the_bits_of_predict_many(spark: Any) -> None:
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
    found = (
        frame.coalesce(1)
        .select(  # each column takes a Python worker for each partition
            recalibrated_by(classes, "scores"),
            recalibrated_by(segmented, "score", FIELDS),
            recalibrated_by(class_map, "scores").alias("by_map"),
        )
        .toArrow()
    )
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
        recalibrated_by(segmented.map, "score")
    with pytest.raises(TypeError, match=r"got MulticlassMap\(.*spark.recalibrated_by"):
        recalibrated("score", class_map)
