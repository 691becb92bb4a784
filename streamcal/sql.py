"""A map as a query, for databases: the same map in SQL, without arrays, functions of one's own, or joins.

The edges form a balanced tree of CASE expressions: log₂ B comparisons for a row, in any dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from streamcal.base.values import shown
from streamcal.maps.pieces import pieces
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.checks import ROUNDING

__all__ = ["Dialect", "query"]

Dialect = Literal["bigquery", "duckdb", "postgres", "snowflake", "spark", "sqlite"]
"""The databases whose SQL can be written."""

_DOUBLES: Final[dict[Dialect, str]] = {
    "bigquery": "FLOAT64",
    "duckdb": "DOUBLE",
    "postgres": "DOUBLE PRECISION",
    "snowflake": "DOUBLE",
    "spark": "DOUBLE",
    "sqlite": "REAL",
}  # the type of a double
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
    if dialect not in _DOUBLES:
        raise ValueError(f"dialect must be one of {', '.join(_DOUBLES)}, got {shown(dialect)}")
    writer = _Writer(dialect)
    selected = f"*, {writer.probability(recalibration, score)} AS probability"
    return f"SELECT {selected} FROM {writer.identifier(table)}"  # noqa: S608  # numbers, and identifiers


class _Writer:
    """Writes expressions in a dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def probability(self, recalibration: RecalibrationMap, score: str) -> str:
        """Return the expression of the probability; NULL where the score is none."""
        z = f"CAST({self.identifier(score)} AS {_DOUBLES[self._dialect]})"
        inside = f"{z} >= {self._number(-ROUNDING)} AND {z} <= {self._number(1.0 + ROUNDING)}"
        return f"CASE WHEN {inside} THEN {self._of_map(recalibration, z)} END"

    def identifier(self, name: str) -> str:
        """Return a name in quotes."""
        if self._dialect == "bigquery":
            escaped = name.replace("\\", "\\\\").replace("`", "\\`")
            return f"`{escaped}`"
        mark = "`" if self._dialect == "spark" else '"'
        return mark + name.replace(mark, mark * 2) + mark

    def _of_map(self, recalibration: RecalibrationMap, z: str) -> str:
        """Return the expression of the probability of a score inside [0, 1], give or take rounding."""
        edges, values, lines = pieces(recalibration)
        number, (w0, w1) = self._number, recalibration.weights
        top, bottom, one = number(w1), number(w0), number(1.0)
        if values:
            return self._tree(z, edges, 0, len(values), lambda at: number(values[at]))
        if lines:
            odds = [f"EXP(-({number(a)} * LN({z} / ({one} - {z})) + {number(b)}))" for a, b in lines]
            # The outermost are constants, by which no score meets LN(0) or a division by 0.
            odds[0], odds[-1] = (f"EXP({number(-line.intercept)})" for line in (lines[0], lines[-1]))
            # g(1/(1 + E)) = w₁ / (w₁ + w₀E), with E once.
            return self._tree(z, edges, 0, len(lines), lambda at: f"{top} / ({top} + {bottom} * {odds[at]})")
        least = number(0.0 if w0 == w1 else _LEAST)
        z = f"CASE WHEN {z} < {least} THEN {number(0.0)} WHEN {z} > {one} THEN {one} ELSE {z} END"
        if w0 == w1:
            return z
        total = f"{top} * ({z}) + {bottom} * ({one} - ({z}))"
        return f"CASE WHEN {total} > 0 THEN {top} * ({z}) / ({total}) ELSE {z} END"

    def _tree(
        self, z: str, edges: tuple[float, ...], start: int, end: int, leaf: Callable[[int], str]
    ) -> str:
        """Return a CASE over the pieces from ``start`` to before ``end``."""
        if end - start == 1:
            return leaf(start)
        middle = (start + end) // 2
        below, above = (self._tree(z, edges, *part, leaf) for part in ((start, middle), (middle, end)))
        return f"CASE WHEN {z} < {self._number(edges[middle - 1])} THEN {below}\nELSE {above} END"

    def _number(self, value: float) -> str:
        """Return a double as text that every database reads to the bit; a bare literal may be a decimal."""
        return f"CAST('{value!r}' AS {_DOUBLES[self._dialect]})"
