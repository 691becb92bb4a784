"""What every candidate forecasts at one moment."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from streamcal.maps.platt import apply_platt, logit
from streamcal.maps.shift import shift_odds
from streamcal.mixture.fits import Floats, Line, Source, Steps
from streamcal.mixture.names import DISCOUNTS, NAMES, WINDOWS

__all__ = ["Points", "Snapshot", "forecasts", "refill"]

# The rows of each family, in the order of `names.NAMES`.
_ISOTONIC: Final = 1
_UNIFORM: Final = _ISOTONIC + len(WINDOWS)
_PLATT: Final = slice(_UNIFORM + 1, _UNIFORM + 1 + len(DISCOUNTS) + 1)  # the last is a composite
_SHIFTED: Final = _PLATT.stop


class Snapshot(NamedTuple):
    """What was served at one moment: everything from which the forecasts of all candidates follow."""

    observed: int
    """How many target scores had been observed when it was first served."""
    weights: Floats
    """Those of the candidates, and those by each tracker, float64[3, K]: see `weights.Weights`."""
    platt: Floats
    """(a, b) of every online Platt scaling and of the composite's Platt map, float64[G + 1, 2]."""
    isotonic: tuple[Line, ...]
    """One map per window; none before the first labels: these candidates equal the identity then."""
    uniform: Steps | None
    """None before the first labels."""
    source: Source | None
    odds: float
    """κ = w₁/w₀ (eq. 13) of the composite with the source's isotonic map, positive. Without a source, that
    equals the identity."""
    by_scores: bool
    """Whether scores, too, told of the target's prior."""


class Points(NamedTuple):
    """Scores, with what the maps are evaluated at."""

    scores: Floats
    """float64[n] in [0, 1]."""
    logits: Floats
    """float64[n], their logits, finite."""

    @classmethod
    def of(cls, scores: Floats) -> Points:
        """Return the points of scores, float64[n] in [0, 1]."""
        return cls(scores, logit(scores))


def forecasts(snapshot: Snapshot, points: Points) -> Floats:
    """Return what every candidate forecasts for every score, float64[K, n] in [0, 1]."""
    values = np.empty((len(NAMES), len(points.scores)))
    values[:] = points.scores
    return refill(snapshot, points, values, None)


def refill(snapshot: Snapshot, points: Points, values: Floats, before: Snapshot | None) -> Floats:
    """Bring `forecasts` of another snapshot at the same points up to date, in place; return them.

    Parameters
    ----------
    values
        float64[K, n], those of ``before``.
    before
        None: every row is the scores themselves.
    """
    source = snapshot.source
    for row, line in enumerate(snapshot.isotonic):
        if before is None or not before.isotonic or line is not before.isotonic[row]:
            values[_ISOTONIC + row] = line.at(points.logits)
    if snapshot.uniform is not None and (before is None or snapshot.uniform is not before.uniform):
        values[_UNIFORM] = snapshot.uniform.at(points.scores)
    values[_PLATT] = apply_platt(snapshot.platt[:, :1], snapshot.platt[:, 1:], points.logits)
    if source is not None and (before is None or source is not before.source or snapshot.odds != before.odds):
        values[_SHIFTED] = shift_odds(source.isotonic.at(points.logits), snapshot.odds)
    return values
