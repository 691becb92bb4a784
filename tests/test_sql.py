"""streamcal.sql, by running what it writes: on DuckDB and SQLite here, on Spark in tests/spark."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamcal import RecalibrationMap, Recalibrator
from streamcal.sql import query, segmented_query
from tests.spark.maps import EXACT, LARGEST_DIFFERENCE, LINEAR, REFUSED, SAME, scores_for

if not os.environ.get("CI"):
    pytest.importorskip("duckdb", reason="needs DuckDB: pip install '.[dev]'")

import duckdb


def by_duckdb(text: str, scores: list[float | None]) -> list[Any]:
    with duckdb.connect() as connection:
        connection.register(
            "predictions", pa.table({"i": range(len(scores)), "score": pa.array(scores, "f8")})
        )
        return (
            connection.sql(f"select probability from ({text}) order by i")
            .fetchnumpy()["probability"]
            .tolist()
        )


def by_sqlite(text: str, scores: list[float | None]) -> list[Any]:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table predictions (i integer, score real)")
    connection.executemany("insert into predictions values (?, ?)", enumerate(scores))
    found = [row[0] for row in connection.execute(f"select probability from ({text}) order by i")]
    connection.close()
    return found


RUN = {"duckdb": by_duckdb, "sqlite": by_sqlite}


@pytest.mark.slow
@pytest.mark.parametrize("dialect", RUN)
@pytest.mark.parametrize("name", EXACT)
def test_steps_and_the_identity_have_the_bits_of_predict_many(dialect: Any, name: str) -> None:
    scores = scores_for(EXACT[name])
    found = RUN[dialect](query(EXACT[name], dialect), scores.tolist())
    np.testing.assert_allclose(found, EXACT[name].predict_many(scores), **SAME)


@pytest.mark.parametrize("dialect", RUN)
@pytest.mark.parametrize("name", LINEAR)
def test_lines_differ_in_the_last_bits_at_most(dialect: Any, name: str) -> None:
    scores = np.concatenate((scores_for(LINEAR[name]), [0.0, 1.0]))
    found = RUN[dialect](query(LINEAR[name], dialect), scores.tolist())
    assert np.abs(np.array(found) - LINEAR[name].predict_many(scores)).max() <= LARGEST_DIFFERENCE


@pytest.mark.slow
@pytest.mark.parametrize("dialect", RUN)
@pytest.mark.parametrize("name", ["g", "40 knots, g"])
def test_what_predict_many_refuses_is_null(dialect: Any, name: str) -> None:
    text = query((EXACT | LINEAR)[name], dialect)
    # DuckDB's numpy shows a null of a column of doubles as NaN or masked.
    found = [None if value is None or value != value else value for value in RUN[dialect](text, REFUSED)]
    assert found == [None] * len(REFUSED)


@pytest.mark.parametrize("dialect", RUN)
def test_corrections_of_segments_are_a_table(dialect: Any) -> None:
    rng = np.random.default_rng(0)
    scores, n = rng.random(4000), 4000
    land, tier = rng.integers(0, 4, n), rng.integers(0, 3, n)
    segments = [(None if a == 3 else f"o'{a}", int(b)) for a, b in zip(land, tier, strict=True)]
    labels = (rng.random(n) < np.clip(scores + 0.2 * (land - 1.5), 0.0, 1.0)).astype(int)
    engine = Recalibrator(segments=("it's land", "tier"))
    engine.learn_many(scores, labels, segments=segments)
    table = pa.table(
        {
            "i": range(n + 2),
            "score": [*scores, 0.3, 1.0],
            "it's land": [*(each for each, _ in segments), "nowhere", ""],
            "tier": [*(each for _, each in segments), 9, 1],
        }
    )
    rows = engine.by_segment.corrections()
    corrections = pa.table({name: [getattr(row, name) for row in rows] for name in rows[0]._fields})
    text = segmented_query(engine, dialect)
    if dialect == "duckdb":
        with duckdb.connect() as connection:
            connection.register("predictions", table)
            connection.register("corrections", corrections)
            found = connection.sql(f"select probability from ({text}) order by i").fetchall()
    else:
        connection = sqlite3.connect(":memory:")
        for name, each in (("predictions", table), ("corrections", corrections)):
            columns = ", ".join(f'"{column}"' for column in each.column_names)
            connection.execute(f"create table {name} ({columns})")
            marks = ", ".join("?" * each.num_columns)
            connection.executemany(
                f"insert into {name} values ({marks})", zip(*each.to_pydict().values(), strict=True)
            )
        found = connection.execute(f"select probability from ({text}) order by i").fetchall()
        connection.close()
    served = engine.predict_many([*scores, 0.3, 1.0], [*segments, ("nowhere", 9), (None, 1)])
    np.testing.assert_allclose([each for (each,) in found], served, rtol=1e-12, atol=1e-12)


def test_own_engines_make_no_table() -> None:
    rng = np.random.default_rng(0)
    engine = Recalibrator(segments="segment")
    engine.learn_many(rng.random(5000), rng.integers(0, 2, 5000), segments=["a"] * 5000)
    with pytest.raises(ValueError, match=r"segment 'a' has an engine of its own.*own_engines=0"):
        segmented_query(engine, "duckdb")
    with pytest.raises(
        TypeError, match=r"needs their engine, got RecalibrationMap\(.*sql.query writes a map"
    ):
        segmented_query(engine.map, "duckdb")
    with pytest.raises(ValueError, match=r"dialect must be one of .*, got 'mysql'"):
        query(RecalibrationMap(version=0), "mysql")
    with pytest.raises(ValueError, match=r"needs an engine that has some, got Recalibrator"):
        segmented_query(Recalibrator(), "duckdb")
