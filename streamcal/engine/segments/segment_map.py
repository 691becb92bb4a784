"""One portable map for one segment: the map of all, then the corrections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from streamcal.base.values import Floats, shown
from streamcal.engine.segments.corrections_c import Name, logit_of
from streamcal.engine.segments.segments import Segments
from streamcal.maps.platt import expit, logit
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import shift_correction

_ENDS: Final = logit(np.array([0.0, 1.0]))  # log-odds of the scores nearest to 0 and 1
_APART: Final = 1e-8  # between knots, at least


def segment_map(pooled: RecalibrationMap, segments: Segments, names: Sequence[Name]) -> RecalibrationMap:
    """Return the map of a segment: `pooled` itself where nothing is added to it.

    The map has the version of ``pooled``. It is exact up to rounding.

    Raises
    ------
    ValueError
        if the segment has an engine of its own: then two maps are mixed.
    """
    corrections = segments.corrections
    if segments.has_own(names):
        raise ValueError(
            f"segment {shown(names[0])} is served by an engine of its own as well, so that no single map"
            " does what is served; with own_engines=0 there is none"
        )
    centre = corrections.centre

    def added(logits: Floats) -> Floats:
        return np.array([sum(corrections.added(each, names)) for each in logits.tolist()])

    bends = np.array([centre - corrections.farthest, centre + corrections.farthest])
    if not added(bends).any():
        return pooled
    if pooled.values:
        values = shift_correction(np.array(pooled.values), pooled.weights)
        logits = np.array([logit_of(each) for each in values.tolist()])
        corrected = expit(logits + added(logits))
        return RecalibrationMap(version=pooled.version, edges=pooled.edges, values=tuple(corrected.tolist()))
    knots = np.array(pooled.knots) if pooled.knots else _ENDS
    heights = np.array(pooled.log_odds) if pooled.knots else _ENDS
    w0, w1 = pooled.weights
    heights = heights + (np.log(w1) - np.log(w0) if min(w0, w1) > 0.0 else np.copysign(50.0, w1 - w0))
    most = logit_of(1.0)
    for level in (*bends.tolist(), -most, most):
        knots, heights = _with_crossings(knots, heights, level)
    heights = np.clip(heights, -most, most)
    kept = np.append(True, np.diff(knots) >= _APART)
    knots, heights = knots[kept], heights[kept]
    corrected = heights + added(heights)
    return RecalibrationMap(
        version=pooled.version, kind="linear", knots=tuple(knots.tolist()), log_odds=tuple(corrected.tolist())
    )


def _with_crossings(knots: Floats, heights: Floats, level: float) -> tuple[Floats, Floats]:
    """Return knots and heights of the same lines, with a knot wherever they cross a level."""
    crosses = np.flatnonzero((heights[:-1] - level) * (heights[1:] - level) < 0.0)
    part = (level - heights[crosses]) / (heights[crosses + 1] - heights[crosses])
    at = knots[crosses] + part * (knots[crosses + 1] - knots[crosses])
    return np.insert(knots, crosses + 1, at), np.insert(heights, crosses + 1, level)
