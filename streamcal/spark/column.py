"""A map as a native column expression of Spark: no Python runs for a row.

A score is searched for among the edges, in one constant array.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everybody does
from pyspark.sql.internal import InternalFunction

from streamcal.maps.pieces import pieces
from streamcal.maps.platt import inside
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.checks import ROUNDING


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
    NaN, or not in [0, 1], give or take 1e-6.
    """
    given = (F.col(score) if isinstance(score, str) else score).cast("double")
    inside = given.between(-ROUNDING, 1.0 + ROUNDING)
    z = F.when(inside, F.least(F.greatest(given, F.lit(0.0)), F.lit(1.0)))
    # Without a name of its own, the column would be called by all numbers of the map.
    return _probability(z, recalibration).alias("probability")


def _probability(z: Column, recalibration: RecalibrationMap) -> Column:
    edges, values, lines = pieces(recalibration)
    if values:
        return _found(z, edges, values)
    weights = recalibration.weights
    if not lines:
        return _shifted(z, weights)
    slopes, intercepts = ([line[part] for line in lines] for part in (0, 1))
    clipped = F.least(F.greatest(z, F.lit(inside(0.0))), F.lit(inside(1.0)))
    x = F.ln(clipped / (1.0 - clipped))
    odds = F.exp(-(_found(z, edges, slopes) * x + _found(z, edges, intercepts)))
    # g(1/(1 + E)) = w₁ / (w₁ + w₀E), with E once: Spark would compute a p that stands in g over and over.
    w0, w1 = weights
    return F.lit(w1) / (w1 + w0 * odds)


def _shifted(p: Column, weights: tuple[float, float]) -> Column:
    """Return g of a column (eq. 13), by the operations of `shift_correction` in their order."""
    w0, w1 = weights
    if w0 == w1:
        return p
    positive = w1 * p
    total = positive + w0 * (1.0 - p)
    return F.when(total > 0.0, positive / total).otherwise(p)


def _found(z: Column, edges: tuple[float, ...], cells: Sequence[float]) -> Column:
    """Return the number of the cell in which each score lies."""
    # Java's search returns where it found an edge, else −1 less the number of edges below: so many places.
    by_place = [*reversed(cells), *cells[1:]]
    place = InternalFunction.array_binary_search(_literal(edges), z) + len(cells)
    return F.get(_literal(by_place), place)


def _literal(values: Sequence[float]) -> Column:
    """Return a constant array. It is text until the query is optimised: one call of the JVM."""
    return F.from_json(F.lit(json.dumps(values)), "array<double>")
