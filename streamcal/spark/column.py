"""A map as a native column expression of Spark: no Python runs for a row.

A score is searched for in short arrays, coarse to fine, because Spark's binary search copies the array that
it searches. Below 0, above 1 and for NaN the search ends in a piece of its own, whose value is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everybody does
from pyspark.sql.internal import InternalFunction

from streamcal.maps.pieces import pieces
from streamcal.maps.platt import inside
from streamcal.maps.recalibration_map import RecalibrationMap

__all__ = ["recalibrated"]

_FAN: Final = 32  # children of a node; the array of their edges is copied for every score


def recalibrated(score: Column | str, recalibration: RecalibrationMap) -> Column:
    """Return the column of probabilities of a column of scores.

    Of a step map, and of the identity, it has the bits of `RecalibrationMap.predict_many`. Of a linear map it
    may differ in the last bits, as Java's log and exp are not NumPy's (docs/spark.md).

    Parameters
    ----------
    score
        scores in [0, 1], of a type that casts to double.
    recalibration
        the map.

    Returns
    -------
    Doubles in [0, 1], named ``probability``; null where ``predict_many`` would refuse: the score is null,
    NaN, or not in [0, 1].
    """
    z = (F.col(score) if isinstance(score, str) else score).cast("double")
    # Without a name of its own, the column would be called by all numbers of the map.
    return _probability(z, recalibration).alias("probability")


def _probability(z: Column, recalibration: RecalibrationMap) -> Column:
    edges, values, lines = pieces(recalibration)
    if values:
        return _found(z, edges, values, "double")
    weights = recalibration.weights
    if not lines:
        return F.when((z >= 0.0) & (z <= 1.0), _shifted(z, weights))
    line = _found(z, edges, [each._asdict() for each in lines], "struct<slope:double,intercept:double>")
    clipped = F.least(F.greatest(z, F.lit(inside(0.0))), F.lit(inside(1.0)))
    exponent = F.ln(clipped / (1.0 - clipped)) * line["slope"] + line["intercept"]
    p = 1.0 / (1.0 + F.exp(-exponent))
    return _shifted(p, weights)


def _shifted(p: Column, weights: tuple[float, float]) -> Column:
    """Return g of a column (eq. 13), by the operations of `shift_correction` in their order."""
    w0, w1 = weights
    if w0 == w1:
        return p
    positive = w1 * p
    total = positive + w0 * (1.0 - p)
    return F.when(total > 0.0, positive / total).otherwise(p)


def _found(z: Column, edges: tuple[float, ...], cells: Sequence[object], kind: str) -> Column:
    """Return the cell in which each score lies, null outside [0, 1]; ``kind`` is its type in Spark."""
    # −0.0, which is in [0, 1], comes before 0.0 in Java's order; NaN comes last.
    bounds = [-0.0, *edges, math.nextafter(1.0, 2.0)]
    *searched, leaves = _tree(bounds, [None, *cells, None])
    # Java's search returns where it found an edge, else −1 less the number of edges below.
    child_of = _literal([*range(_FAN - 1, -1, -1), *range(1, _FAN)], "int", 1)
    at: list[Column] = []
    for depth, nested in enumerate(searched, 1):
        found = InternalFunction.array_binary_search(_at(_literal(nested, "double", depth), at), z)
        at.append(F.get(child_of, found + _FAN))
    return _at(_literal(leaves, kind, len(at)), at)


def _tree(bounds: list[float], cells: list[object]) -> list[list[Any]]:
    """Return a tree over cells: the edges of its nodes, level by level from the root, and last the cells.

    A node has at most `_FAN` children. What belongs to a node k levels down is nested in k arrays.
    """
    size = 1
    while size * _FAN < len(cells):
        size *= _FAN
    return _node(bounds, cells, size)


def _node(bounds: list[float], cells: list[object], size: int) -> list[list[Any]]:
    """Return one node and all below it; ``size`` is how many cells a child has."""
    starts = range(0, len(cells), size)
    mine = [bounds[start - 1] for start in starts[1:]]
    if size == 1:
        return [mine, cells]
    below = [_node(bounds[s : s + size - 1], cells[s : s + size], size // _FAN) for s in starts]
    return [mine, *(list(level) for level in zip(*below, strict=True))]


def _at(array: Column, places: list[Column]) -> Column:
    for place in places:
        array = F.get(array, place)
    return array


def _literal(nested: list[Any], kind: str, depth: int) -> Column:
    """Return nested lists as a constant. It is text until the query is optimised: one call of the JVM."""
    return F.from_json(F.lit(json.dumps(nested)), f"{'array<' * depth}{kind}{'>' * depth}")
