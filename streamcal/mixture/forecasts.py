"""What every candidate forecasts at one moment."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np

from streamcal.maps.platt import logit
from streamcal.mixture.fits import Floats
from streamcal.mixture.forecasts_c import Snapshot, forecast
from streamcal.mixture.names import DISCOUNTS, NAMES, WINDOWS

__all__ = ["LOGISTIC_ROWS", "Points", "Snapshot", "forecasts"]

LOGISTIC_ROWS: Final = len(WINDOWS) + 1 + len(DISCOUNTS)
"""Rows of `Snapshot.logistic` before those of `names.EXPOSURES`."""


class Points(NamedTuple):
    """Scores, and what the maps are evaluated at."""

    scores: Floats
    """float64[n] in [0, 1]."""
    logits: Floats
    """float64[n], finite."""

    @classmethod
    def of(cls, scores: Floats) -> Self:
        """Return the points of scores, float64[n] in [0, 1]."""
        return cls(scores, logit(scores))


def forecasts(snapshot: Snapshot, points: Points) -> Floats:
    """Return what every candidate forecasts for every score, float64[K, n] in [0, 1]."""
    values = np.empty((len(NAMES) + len(snapshot.logistic) - LOGISTIC_ROWS, len(points.scores)))
    forecast(snapshot, points.scores, points.logits, values)
    return values
