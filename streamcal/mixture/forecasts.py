"""What every candidate forecasts at one moment."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from streamcal.maps.platt import apply_platt, logit
from streamcal.maps.shift import shift_odds
from streamcal.mixture.fits import Floats, Line, Source, Steps
from streamcal.mixture.names import DISCOUNTS, NAMES, WINDOWS

__all__ = ["Points", "Snapshot", "forecasts", "refill"]

_PLATT: Final = 1  # the first row of each family, in the order of `names.NAMES`
_ISOTONIC: Final = _PLATT + len(DISCOUNTS)
_UNIFORM: Final = _ISOTONIC + len(WINDOWS)
_COMPOSITE: Final = _UNIFORM + 1  # the Platt map; then isotonic ones
_BY_PLATT: Final = np.array([*range(_PLATT, _ISOTONIC), _COMPOSITE])


class Snapshot(NamedTuple):
    """What was served at one moment: everything from which the forecasts of all candidates follow."""

    observed: int
    """How many target scores had been observed when it was first served."""
    weights: Floats
    """Those of the candidates, float64[K]."""
    online: Floats
    """(a, b) of every online Platt scaling, float64[G, 2]."""
    isotonic: tuple[Line, ...]
    """One map per window; none before the first labels: these candidates equal the identity then."""
    uniform: Steps | None
    """None before the first labels."""
    source: Source | None
    odds: tuple[float, ...]
    """κ = w₁/w₀ (eq. 13) of every composite, positive. Without a source, these equal the identity."""
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
    online, source = snapshot.online, snapshot.source
    for row, line in enumerate(snapshot.isotonic):
        if before is None or not before.isotonic or line is not before.isotonic[row]:
            values[_ISOTONIC + row] = line.at(points.logits)
    if snapshot.uniform is not None and (before is None or snapshot.uniform is not before.uniform):
        values[_UNIFORM] = snapshot.uniform.at(points.scores)
    if source is None:
        values[_PLATT:_ISOTONIC] = apply_platt(online[:, :1], online[:, 1:], points.logits)
        return values
    by_platt, *by_isotonic = snapshot.odds
    slope, intercept = source.platt
    lines = np.append(online, [[slope, intercept + np.log(by_platt)]], axis=0)
    values[_BY_PLATT] = apply_platt(lines[:, :1], lines[:, 1:], points.logits)
    if before is None or source is not before.source or snapshot.odds != before.odds:
        odds = np.array(by_isotonic)[:, np.newaxis]
        shift_odds(source.isotonic.at(points.logits), odds, out=values[_COMPOSITE + 1 :])
    return values
