"""A map as a query, for databases: the same map in SQL, without arrays, functions of one's own, or joins.

The edges form a balanced tree of CASE expressions: log₂ B comparisons for a row, in any dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from streamcal.maps.pieces import pieces
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.multiclass.class_map import MulticlassMap
from streamcal.recalibrator import Recalibrator
from streamcal.segments.segments import NEAREST
from streamcal.sketch.checks import ROUNDING
from streamcal.values import shown

__all__ = ["Dialect", "query", "segmented_query"]

Dialect = Literal["bigquery", "duckdb", "postgres", "snowflake", "spark", "sqlite"]
"""The databases whose SQL can be written."""

# What is not as in PostgreSQL: words, quotes, and quotes inside which a backslash escapes.
_DOUBLE: Final = {"DOUBLE PRECISION": "DOUBLE"}
_WORDS: Final[dict[Dialect, dict[str, str]]] = {
    "bigquery": _DOUBLE | {"DOUBLE PRECISION": "FLOAT64", "TEXT": "STRING", '"': "`", "\\": "'\""},
    "duckdb": _DOUBLE,
    "postgres": {},
    "snowflake": _DOUBLE | {"TEXT": "VARCHAR", "\\": "'"},
    "spark": _DOUBLE | {"TEXT": "STRING", '"': "`", "\\": "'"},
    "sqlite": {"DOUBLE PRECISION": "REAL"},
}
_TOKEN: Final = re.compile(r""" "(?:[^"]|"")*" | '(?:[^']|'')*' | \b(?:DOUBLE\ PRECISION|TEXT)\b """, re.X)
_LEAST: Final = 1e-150  # of a score that weights correct: products of smaller ones are too small for some


def query(
    recalibration: RecalibrationMap, dialect: Dialect, table: str = "predictions", score: str = "score"
) -> str:
    """Return a query of all columns of a table, and of the probability of its scores as ``probability``.

    Of a step map, and of the identity, the probabilities have the bits of `RecalibrationMap.predict_many`.
    Where weights correct the identity, a score below 1e-150 counts as 0. Of a linear map they may differ in
    the last bits, as the database's LN and EXP are not NumPy's (docs/spark.md).
    The probability is NULL where ``predict_many`` would refuse: of NULL, NaN, or what is not in [0, 1].

    Parameters
    ----------
    recalibration
        the map.
    dialect
        of the database.
    table, score
        table and column of the scores; written as identifiers, in quotes.

    Raises
    ------
    TypeError
        if it is no `RecalibrationMap`.
    """
    selected = f"*, {_probability(recalibration, score)} AS probability"
    text = f"SELECT {selected} FROM {_identifier(table)}"  # noqa: S608  # numbers, and identifiers in quotes
    return _written(text, dialect)


def segmented_query(
    engine: Recalibrator,
    dialect: Dialect,
    table: str = "predictions",
    score: str = "score",
    corrections: str = "corrections",
) -> str:
    """Return a query as `query` does, of the probabilities that are corrected for segments.

    It also has the probability of the map of all, ``pooled``. The results may differ from
    ``predict_many`` of the engine in the last bits.

    Parameters
    ----------
    engine
        engine with segments, without own engines: ``own_engines=0``, or several fields.
    dialect, table, score
        as of `query`; the table has a column for each field, of whole numbers, or of texts as ``segment`` has
        them: ``3`` and not ``3.0``, ``true``, ``2026-01-31``. Any other value is of no segment.
    corrections
        table of the rows of ``engine.by_segment.corrections()``: columns ``field``, ``segment``, ``labels``,
        ``offset_`` and ``slope``.

    Raises
    ------
    ValueError
        if there are no segments, or one has an engine of its own.
    TypeError
        if it is no engine.
    """
    if not isinstance(engine, Recalibrator):
        raise TypeError(
            f"a query of segments needs their engine, got {shown(engine)}; streamcal.sql.query writes a map"
        )
    view, pooled = engine.by_segment, engine.map
    if view is None or isinstance(pooled, MulticlassMap):
        raise ValueError(f"a query of segments needs an engine that has some, got {engine!r}")
    view.corrections()  # raises
    least, one, far = _number(NEAREST), _number(1.0), _number(view.farthest)
    names = [f"c{index}" for index in range(len(view.fields))]
    joins = [
        f"LEFT JOIN {_identifier(corrections)} AS {name} ON {name}.field = {_text(field)}"
        f" AND COALESCE({name}.segment, '') = COALESCE(CAST(t.{_identifier(field)} AS TEXT), '')"
        for name, field in zip(names, view.fields, strict=True)
    ]
    zero = _number(0.0)
    offset, slope = (
        " + ".join(f"COALESCE({name}.{column}, {zero})" for name in names) for column in ("offset_", "slope")
    )
    steps = [
        f"SELECT *, {_probability(pooled, score)} AS pooled FROM {_identifier(table)}",  # noqa: S608
        f"SELECT *, CASE WHEN pooled < {least} THEN {least}"  # noqa: S608
        f" WHEN pooled > {one} - {least} THEN {one} - {least} ELSE pooled END AS within_ FROM a",
        f"SELECT *, LN(within_ / ({one} - within_)) AS logit_, LN(within_ / ({one} - within_)) -"  # noqa: S608
        f" {_number(view.centre)} AS x_ FROM b",
        f"SELECT t.*, {offset} + ({slope}) * CASE WHEN t.x_ < -{far} THEN -{far} WHEN t.x_ > {far} THEN {far}"  # noqa: S608
        f" ELSE t.x_ END AS added_ FROM c AS t {' '.join(joins)}",
        f"SELECT *, CASE WHEN added_ = {zero} THEN pooled ELSE {one} / ({one} + EXP(-(logit_ + added_)))"  # noqa: S608
        " END AS probability FROM d",
    ]
    parts = ",\n".join(f"{name} AS ({step})" for name, step in zip("abcd", steps, strict=False))
    return _written(f"WITH {parts}\n{steps[-1]}", dialect)


def _written(text: str, dialect: Dialect) -> str:
    """Return a query, as PostgreSQL has it, in a dialect."""
    if dialect not in _WORDS:
        raise ValueError(f"dialect must be one of {', '.join(_WORDS)}, got {shown(dialect)}")
    words = _WORDS[dialect]

    def turned(found: re.Match[str]) -> str:
        token = found[0]
        if token[0] not in "'\"":
            return words.get(token, token)
        mark = words.get(token[0], token[0])
        inner = token[1:-1].replace(token[0] * 2, token[0])
        if token[0] in words.get("\\", ""):
            return mark + inner.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark
        return mark + inner.replace(mark, mark * 2) + mark

    return _TOKEN.sub(turned, text)


def _probability(recalibration: RecalibrationMap, score: str) -> str:
    """Return the expression of the probability; NULL where the score is none."""
    z = f"CAST({_identifier(score)} AS DOUBLE PRECISION)"
    inside = f"{z} >= {_number(-ROUNDING)} AND {z} <= {_number(1.0 + ROUNDING)}"
    return f"CASE WHEN {inside} THEN {_of_map(recalibration, z)} END"


def _of_map(recalibration: RecalibrationMap, z: str) -> str:
    """Return the expression of the probability of a score that is inside [0, 1], give or take rounding."""
    edges, values, lines = pieces(recalibration)
    w0, w1 = recalibration.weights
    top, bottom, one = _number(w1), _number(w0), _number(1.0)
    if values:
        return _tree(z, edges, 0, len(values), lambda at: _number(values[at]))
    if lines:
        odds = [f"EXP(-({_number(a)} * LN({z} / ({one} - {z})) + {_number(b)}))" for a, b in lines]
        # The outermost are constants, by which no score meets LN(0) or a division by 0.
        odds[0], odds[-1] = (f"EXP({_number(-line.intercept)})" for line in (lines[0], lines[-1]))
        # g(1/(1 + E)) = w₁ / (w₁ + w₀E), with E once.
        return _tree(z, edges, 0, len(lines), lambda at: f"{top} / ({top} + {bottom} * {odds[at]})")
    least = _number(0.0 if w0 == w1 else _LEAST)
    z = f"CASE WHEN {z} < {least} THEN {_number(0.0)} WHEN {z} > {one} THEN {one} ELSE {z} END"
    if w0 == w1:
        return z
    total = f"{top} * ({z}) + {bottom} * ({one} - ({z}))"
    return f"CASE WHEN {total} > 0 THEN {top} * ({z}) / ({total}) ELSE {z} END"


def _tree(z: str, edges: tuple[float, ...], start: int, end: int, leaf: Callable[[int], str]) -> str:
    """Return a CASE over the pieces from ``start`` to before ``end``."""
    if end - start == 1:
        return leaf(start)
    middle = (start + end) // 2
    below, above = (_tree(z, edges, *part, leaf) for part in ((start, middle), (middle, end)))
    return f"CASE WHEN {z} < {_number(edges[middle - 1])} THEN {below}\nELSE {above} END"


def _number(value: float) -> str:
    """Return a double as text that every database reads to the bit; a bare literal may be a decimal."""
    return f"CAST('{value!r}' AS DOUBLE PRECISION)"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
