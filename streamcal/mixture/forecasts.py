"""Forecasts of every candidate at one moment."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np

from streamcal.maps.platt import logit
from streamcal.mixture.forecasts_c import Snapshot, forecast
from streamcal.mixture.names import DISCOUNTS, NAMES, WINDOWS
from streamcal.values import Floats

__all__ = ["LOGISTIC_ROWS", "Points", "Snapshot", "forecasts"]

LOGISTIC_ROWS: Final = len(WINDOWS) + 1 + len(DISCOUNTS)
"""Number of rows of `Snapshot.logistic` before those of `names.DELAYED`."""


class Points(NamedTuple):
    """Scores and their logits, at which the maps are evaluated."""

    scores: Floats
    """Scores, float64[n] in [0, 1]."""
    logits: Floats
    """Logits, float64[n], finite."""

    @classmethod
    def of(cls, scores: Floats) -> Self:
        """Return the points of scores, float64[n] in [0, 1]."""
        return cls(scores, logit(scores))


def forecasts(snapshot: Snapshot, points: Points) -> Floats:
    """Return the forecast of every candidate for every score, float64[K, n] in [0, 1]."""
    values = np.empty((len(NAMES) + len(snapshot.logistic) - LOGISTIC_ROWS, len(points.scores)))
    forecast(snapshot, points.scores, points.logits, values)
    return values
