"""A map as a query, for databases: the same map in SQL, without arrays, functions of one's own, or joins.

The edges form a balanced tree of CASE expressions: log₂ B comparisons for a row, in any dialect.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from streamcal.maps.pieces import pieces
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.multiclass.class_map import MulticlassMap, forecast
from streamcal.multiclass.softmax_c import END
from streamcal.recalibrator import Recalibrator
from streamcal.segments.segments import NEAREST
from streamcal.sketch.checks import ROUNDING
from streamcal.values import Floats, shown

__all__ = ["Dialect", "class_query", "query", "segmented_query"]

Dialect = Literal["bigquery", "duckdb", "postgres", "snowflake", "spark", "sqlite"]
"""The databases whose SQL can be written."""

# What is not as in PostgreSQL: words, quotes, and quotes inside which a backslash escapes.
# Without MATERIALIZED, PostgreSQL and SQLite would write out what a column is made of wherever it is used.
_DOUBLE: Final = {"DOUBLE PRECISION": "DOUBLE", " MATERIALIZED": ""}
_WORDS: Final[dict[Dialect, dict[str, str]]] = {
    "bigquery": _DOUBLE | {"DOUBLE PRECISION": "FLOAT64", "TEXT": "STRING", '"': "`", "\\": "'\""},
    "duckdb": _DOUBLE,
    "postgres": {},
    "snowflake": _DOUBLE | {"TEXT": "VARCHAR", "\\": "'"},
    "spark": _DOUBLE | {"TEXT": "STRING", '"': "`", "\\": "'"},
    "sqlite": {"DOUBLE PRECISION": "REAL", "GREATEST": "MAX"},
}
_TOKEN: Final = re.compile(
    r""" "(?:[^"]|"")*" | '(?:[^']|'')*' | \b(?:DOUBLE\ PRECISION|GREATEST|TEXT)\b | \ MATERIALIZED """, re.X
)
_LEAST: Final = (
    1e-150  # of a score of many classes: products of smaller ones are too small for some databases
)


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


def class_query(
    recalibration: MulticlassMap,
    dialect: Dialect,
    table: str = "predictions",
    prefix: str = "p_",
    columns: Sequence[str] = ("id",),
) -> str:
    """Return a query of the probabilities of many classes: columns such as ``probability_cat``.

    They may differ from `MulticlassMap.predict_many` in the last bits, as the database's LN and EXP are not
    NumPy's. Where it would refuse a row of scores, all probabilities are NULL.

    Parameters
    ----------
    recalibration
        the map.
    dialect
        as of `query`.
    table, prefix
        table of the scores: it has a column for each class, such as ``p_cat``.
    columns
        other columns of the table that the result has.

    Raises
    ------
    TypeError
        if it is no map of many classes.
    """
    if not isinstance(recalibration, MulticlassMap):
        raise TypeError(
            "only a MulticlassMap can be written here, such as the map of an engine of many classes, got"
            f" {shown(recalibration)}; streamcal.sql.query writes a RecalibrationMap"
        )
    names = recalibration.classes
    steps = _Steps([f"CAST({_identifier(prefix + name)} AS DOUBLE PRECISION)" for name in names])
    scores = steps.checked()
    found = forecast(recalibration, steps, scores)
    answers = [f"CASE WHEN {scores[0]} IS NOT NULL THEN {column} END" for column in found]
    return _written(steps.query(answers, [f"probability_{name}" for name in names], columns, table), dialect)


class _Steps:
    """Steps of a map of K classes: queries, of which each selects from the one before.

    Rows are names of columns: c0, c1, …
    """

    def __init__(self, scores: Sequence[str]) -> None:
        self._expressions, self._levels = [*scores], [0] * len(scores)

    def add(self, *expressions: str) -> list[str]:
        """Add columns, in the first query that has all columns they are made of; return their names."""
        level = 1 + max(self._levels[used] for each in expressions for used in _columns_in(each))
        self._expressions += expressions
        self._levels += [level] * len(expressions)
        return [f"c{place}" for place in range(len(self._levels))[-len(expressions) :]]

    def query(self, answers: Sequence[str], names: Sequence[str], columns: Sequence[str], table: str) -> str:
        """Return the query of expressions, by these names, and of columns of the table."""
        others = [f"k{place}" for place in range(len(columns))]
        needed = {column for each in answers for column in _columns_in(each)}
        kept = [f"{other} AS {_identifier(name)}" for other, name in zip(others, columns, strict=True)]
        kept += [f"{each} AS {_identifier(name)}" for each, name in zip(answers, names, strict=True)]
        last = max(self._levels)
        final, parts = f"SELECT {', '.join(kept)} FROM s{last}", []  # noqa: S608  # numbers, and identifiers
        for level in range(last, -1, -1):
            own = [column for column in sorted(needed) if self._levels[column] == level]
            needed.difference_update(own)
            selected = [*others, *(f"c{column}" for column in sorted(needed))]
            selected += [f"{self._expressions[column]} AS c{column}" for column in own]
            source = f"s{level - 1}"
            if level:
                needed.update(used for column in own for used in _columns_in(self._expressions[column]))
            else:
                source = _identifier(table)
                selected[: len(others)] = [
                    f"{_identifier(name)} AS {other}" for name, other in zip(columns, others, strict=True)
                ]
            parts.append(f"s{level} AS MATERIALIZED (SELECT {', '.join(selected)}\nFROM {source})")
        return "WITH " + ",\n".join([*reversed(parts)]) + "\n" + final

    def checked(self) -> list[str]:
        """Add the scores; NULL in a row that is refused."""
        z = [f"c{place}" for place in range(len(self._levels))]
        inside = [f"{each} >= {_number(-ROUNDING)} AND {each} <= {_number(1.0 + ROUNDING)}" for each in z]
        inside.append(f"ABS({' + '.join(z)} - {_number(1.0)}) <= {_number(ROUNDING)}")
        (good,) = self.add(f"CASE WHEN {' AND '.join(inside)} THEN 1 END")
        least, zero, one = _number(_LEAST), _number(0.0), _number(1.0)
        return self.add(
            *(
                f"CASE WHEN {good} IS NULL THEN NULL WHEN {each} < {least} THEN {zero}"
                f" WHEN {each} > {one} THEN {one} ELSE {each} END"
                for each in z
            )
        )

    def logs(self, rows: Sequence[str]) -> list[str]:
        end, log = _number(END), _number(math.log(END))
        return self.add(*(f"CASE WHEN {each} > {end} THEN LN({each}) ELSE {log} END" for each in rows))

    def scaled(self, x: Sequence[str], slopes: Floats, biases: Floats) -> list[str]:
        classes = len(x)
        if len(slopes) > classes:
            (mean,) = self.add(f"({' + '.join(x)}) / {_number(float(classes))}")
            x = self.add(*(f"{each} - {mean}" for each in x))
            sums = [
                " + ".join(_times(a, each) for a, each in zip(row, x, strict=True))
                for row in slopes.reshape(classes, classes).tolist()
            ]
        else:
            sums = [_times(a, each) for a, each in zip(np.resize(slopes, classes).tolist(), x, strict=True)]
        exponents = self.add(
            *(f"{total} + {_number(b)}" for total, b in zip(sums, biases.tolist(), strict=True))
        )
        (most,) = self.add(_largest(exponents))
        # Some databases refuse what is nearly e^-745.
        shares = self.add(
            *(
                f"CASE WHEN {each} - {most} > -300 THEN EXP({each} - {most}) ELSE {_number(0.0)} END"
                for each in exponents
            )
        )
        return self.shares(shares, shares)

    def mapped(
        self, maps: Sequence[RecalibrationMap | None], rows: Sequence[str], instead: Sequence[str]
    ) -> list[str]:
        return [
            other if each is None else self.add(_of_map(each, z))[0]
            for each, z, other in zip(maps, rows, instead, strict=True)
        ]

    def times(self, rows: Sequence[str], factors: Floats) -> list[str]:
        return self.add(*(_times(w, each) for w, each in zip(factors.tolist(), rows, strict=True)))

    def shares(self, rows: Sequence[str], instead: Sequence[str]) -> list[str]:
        (total,) = self.add(" + ".join(rows))
        return self.add(
            *(
                f"CASE WHEN {total} > 0 THEN {each} / {total} ELSE {other} END"
                for each, other in zip(rows, instead, strict=True)
            )
        )

    def mixed(self, made: Sequence[Sequence[str]], weights: Floats) -> list[str]:
        sums = [
            " + ".join(_times(w, each) for w, each in zip(weights.tolist(), column, strict=True))
            for column in zip(*made, strict=True)
        ]
        return self.shares(self.add(*sums), made[0])

    def with_rest(self, rows: Sequence[str]) -> list[str]:
        return [*self.add(f"{_number(1.0)} - {rows[1]}"), rows[1]]

    def ordered(self, rows: Sequence[str], scores: Sequence[str]) -> list[str]:
        top, first = (self._first_largest(each) for each in (scores, rows))
        others = self.add(
            *(f"CASE WHEN {top} = {k} THEN {_number(-1.0)} ELSE {each} END" for k, each in enumerate(rows))
        )
        (own,) = self.add(
            " ".join(["CASE", *(f"WHEN {top} = {k} THEN {c}" for k, c in enumerate(rows)), "END"])
        )
        levels = []  # of the top class and of those above any of the others
        for least in rows:
            above = [f"CASE WHEN {each} >= {least} THEN {{}} ELSE {_number(0.0)} END" for each in others]
            total = " + ".join(text.format(each) for text, each in zip(above, others, strict=True))
            count = " + ".join(text.format(_number(1.0)) for text in above)
            levels.append(f"({own} + {total}) / ({_number(1.0)} + {count})")
        (level,) = self.add(_largest(self.add(*levels)))
        return self.add(
            *(
                f"CASE WHEN {first} = {top} THEN {each} WHEN {top} = {k} THEN"
                f" {_times(1.0 + 2.0**-52, level)} WHEN {each} > {level} THEN {level} ELSE {each} END"
                for k, each in enumerate(rows)
            )
        )

    def _first_largest(self, columns: Sequence[str]) -> str:
        """Add the place of the first column that is the largest."""
        (most,) = self.add(_largest(columns))
        places = " ".join(f"WHEN {each} = {most} THEN {k}" for k, each in enumerate(columns))
        return self.add(f"CASE {places} END")[0]


def _columns_in(expression: str) -> list[int]:
    return [int(place) for place in re.findall(r"\bc(\d+)\b", expression)]


def _largest(columns: Sequence[str]) -> str:
    return f"GREATEST({', '.join(columns)})"


def _times(factor: float, column: str) -> str:
    return f"{_number(factor)} * {column}"


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
