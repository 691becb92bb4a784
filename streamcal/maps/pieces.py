"""A map cut into pieces of the score, for what applies it elsewhere: Spark, and databases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamcal.base.values import shown
from streamcal.maps.platt import expit, logit
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import shift_correction


class Line(NamedTuple):
    """The log-odds of h on one piece of a linear map: slope·x + intercept, x the log-odds of the score."""

    slope: float
    intercept: float


class Pieces(NamedTuple):
    """Values or lines per piece; piece b has the scores from ``edges[b − 1]`` on, and below ``edges[b]``."""

    edges: tuple[float, ...]
    """Scores between the pieces, strictly ascending inside (0, 1)."""
    values: tuple[float, ...]
    """Values g(h) on each piece of a step map; empty for other maps."""
    lines: tuple[Line, ...]
    """Lines of h on each piece of a linear map, without g; empty for other maps. The outermost have slope
    0."""


def pieces(recalibration: RecalibrationMap) -> Pieces:
    """Return the pieces of a map; none of the identity.

    Values are those of `RecalibrationMap.predict_many` to the bit. Lines are its up to rounding.

    Raises
    ------
    TypeError
        if it is no `RecalibrationMap`.
    """
    if not isinstance(recalibration, RecalibrationMap):
        raise TypeError(
            f"only a RecalibrationMap can be written here, got {shown(recalibration)}: of an engine take its"
            " map; of a segment, engine.by_segment.map_for; of many classes, a MulticlassMap goes to"
            " onnx.model or spark.recalibrated_by"
        )
    if recalibration.values:
        values = shift_correction(np.array(recalibration.values), recalibration.weights)
        return Pieces(recalibration.edges[1:-1], tuple(values.tolist()), ())
    if not recalibration.knots:
        return Pieces((), (), ())
    x, y = np.array(recalibration.knots), np.array(recalibration.log_odds)
    slopes = np.diff(y) / np.diff(x)
    # A linear map takes scores for at least 2⁻⁴⁰ away from 0 and 1: knots beyond are never reached.
    ends = logit(np.array([0.0, 1.0]))
    edges = expit(np.clip(x, *ends))
    first, last = np.interp(ends, x, y)
    slopes = np.concatenate(([0.0], slopes, [0.0]))
    intercepts = np.concatenate(([first], y[:-1] - slopes[1:-1] * x[:-1], [last]))
    wide = np.append(edges[1:] > edges[:-1], True)
    lines = zip(slopes.tolist(), intercepts.tolist(), np.append(True, wide).tolist(), strict=True)
    return Pieces(tuple(edges[wide].tolist()), (), tuple(Line(a, b) for a, b, is_wide in lines if is_wide))
