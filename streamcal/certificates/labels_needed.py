"""Forecast of the number of labels that a bound needs to claim something.

It is an estimate for people, not a claim. Twice, four times, … as many labels with the same scores and rates
are assumed, until the bound computed from them claims something.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import numpy as np

from streamcal.maps.isotonic_c import isotonic
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Counts

__all__ = ["NO_CLAIM", "doubled", "labels_needed"]

NO_CLAIM: Final = 0.25
"""Bound from which on nothing is claimed: the constant ½ has at most this risk, without a label."""

_DOUBLINGS: Final = 10
"""Largest number of doublings: a claim that needs over a thousand times as many labels is not foreseen."""


def labels_needed(labels: int, risk_after: Callable[[int], float]) -> int | None:
    """Return the number of labels at which a first claim is expected; None if none is foreseen.

    Parameters
    ----------
    labels
        number of labels now.
    risk_after
        the bound with 2^d times as many labels, by d ≥ 1.
    """
    doublings = range(1, _DOUBLINGS + 1)
    if not labels or risk_after(_DOUBLINGS) >= NO_CLAIM:
        return None
    at = bisect_left(doublings[:-1], True, key=lambda d: risk_after(d) < NO_CLAIM)
    return labels << doublings[at]


def doubled(sketch: ScoreSketch, doublings: int) -> ScoreSketch:
    """Return a sketch doubled d ≥ 0 times, each time by as many expected scores as it has."""
    many = sketch.at_level(sketch.level)
    for _ in range(doublings):
        many.merge(many.with_counts(_expected(many.counts)))
    return many


def _expected(counts: Counts) -> Counts:
    """Return the expected counts of as many scores again; of labels, without their noise."""
    if len(counts) == 1:
        return counts
    totals = counts.sum(axis=0)
    starts, rates = isotonic(counts[1] / totals, totals.astype(np.float64))
    positives = np.rint(totals * np.repeat(rates, np.diff(starts))).astype(np.int64)
    return np.stack((totals - positives, positives))
