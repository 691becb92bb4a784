"""streamcal.sql, by running what it writes: on DuckDB and SQLite here, on Spark in tests/spark."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamcal import MulticlassMap, RecalibrationMap, Recalibrator
from streamcal.sql import Dialect, class_query, query, segmented_query
from streamcal.values import Floats
from tests.command_line import streamcal
from tests.multiclass.maps import CLASS_MAPS, LARGEST_OF_CLASSES, refused_for, rows_for
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


def probabilities(class_map: MulticlassMap, dialect: Dialect, rows: Floats) -> Floats:
    """Return what the query of a class map finds in a table of rows of scores."""
    named = {f"p_{name}": rows[:, k] for k, name in enumerate(class_map.classes)}
    text = f"select * from ({class_query(class_map, dialect, columns=['i'])}) order by i"
    if dialect == "duckdb":
        with duckdb.connect() as connection:
            connection.register("predictions", pa.table({"i": range(len(rows)), **named}))
            found = connection.sql(text).fetchall()
    else:
        connection = sqlite3.connect(":memory:")
        columns = ", ".join(quoted(name) for name in named)
        connection.execute(f"create table predictions (i, {columns})")
        marks = ", ".join("?" * len(named))
        connection.executemany(
            f"insert into predictions values (?, {marks})", ((i, *row) for i, row in enumerate(rows.tolist()))
        )
        found = connection.execute(text).fetchall()
        connection.close()
    return np.array([row[1:] for row in found], np.float64)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("dialect", RUN)
@pytest.mark.parametrize("name", CLASS_MAPS)
def test_many_classes_differ_in_the_last_bits_at_most(dialect: Dialect, name: str) -> None:
    class_map = CLASS_MAPS[name]
    rows, refused = rows_for(class_map), refused_for(class_map)
    found = probabilities(class_map, dialect, np.concatenate((rows, refused)))
    wanted = class_map.predict_many(rows)
    np.testing.assert_allclose(found[: len(rows)], wanted, rtol=0.0, atol=LARGEST_OF_CLASSES)
    assert np.isnan(found[len(rows) :]).all()


def test_the_command_prints_the_query_of_many_classes(tmp_path: Path) -> None:
    class_map = CLASS_MAPS["two"]
    (tmp_path / "map.json").write_text(class_map.model_dump_json())
    command = ("sql", tmp_path / "map.json", "--dialect", "spark", "--table", "t", "--prefix", "q_")
    printed = streamcal(*command, "--column", "a", "--column", "b")
    assert printed.stdout == class_query(class_map, "spark", "t", "q_", ["a", "b"]) + ";\n"


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
    with pytest.raises(TypeError, match=r"got Recalibrator\(.*sql.query writes a RecalibrationMap"):
        class_query(Recalibrator(classes=["a", "b"]), "duckdb")
    with pytest.raises(
        TypeError, match=r"needs their engine, got RecalibrationMap\(.*sql.query writes a map"
    ):
        segmented_query(engine.map, "duckdb")
    with pytest.raises(ValueError, match=r"dialect must be one of .*, got 'mysql'"):
        query(RecalibrationMap(version=0), "mysql")
    with pytest.raises(ValueError, match=r"needs an engine that has some, got Recalibrator"):
        segmented_query(Recalibrator(), "duckdb")
