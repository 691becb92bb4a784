"""streamcal.sql, by running what it writes: on DuckDB and SQLite here, on Spark in tests/spark."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamcal import RecalibrationMap
from streamcal.sql import query
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


def test_a_dialect_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dialect must be one of .*, got 'mysql'"):
        query(RecalibrationMap(version=0), "mysql")
