"""What every candidate forecasts at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from streamcal.maps.platt import apply_platt, logit
from streamcal.maps.shift import shift_odds
from streamcal.mixture.fits import Counts, Floats, Line, Source, Steps
from streamcal.mixture.names import DISCOUNTS, NAMES, WINDOWS

__all__ = ["Points", "Snapshot", "forecasts", "forecasts_in_turn", "refill"]

T = TypeVar("T")

# The rows of each family, in the order of `names.NAMES`.
_ISOTONIC: Final = 1
_UNIFORM: Final = _ISOTONIC + len(WINDOWS)
_PLATT: Final = slice(_UNIFORM + 1, _UNIFORM + 1 + len(DISCOUNTS) + 1)  # the last is a composite
_SHIFTED: Final = _PLATT.stop
_EXPOSED: Final = _SHIFTED + 1
_SCALED: Final = len(DISCOUNTS) + 1  # rows of `Snapshot.platt` before those of `names.EXPOSURES`


class Snapshot(NamedTuple):
    """What was served at one moment: everything from which the forecasts of all candidates follow."""

    observed: int
    """How many target scores had been observed when it was first served."""
    weights: Floats
    """Those of the candidates, and those by each tracker, float64[3, K]: see `weights.Weights`."""
    platt: Floats
    """(a, b) of every online Platt scaling and of the composite's Platt map, float64[G + 1, 2]; behind them
    those of `names.EXPOSURES` where these are candidates, [G + 3, 2]."""
    isotonic: tuple[Line, ...]
    """One map per window; none before the first labels: these candidates equal the identity then."""
    uniform: Steps | None
    """None before the first labels."""
    source: Source | None
    odds: float
    """κ = w₁/w₀ (eq. 13) of the composite with the source's curve, positive. Without a source, that
    equals the identity."""
    by_scores: bool
    """Whether scores, too, told of the target's prior."""


class Points:
    """Scores, with what the maps are evaluated at.

    Parameters
    ----------
    scores
        float64[n] in [0, 1].
    logits
        float64[n], their logits, finite.
    """

    __slots__ = ("_line", "_values", "logits", "scores")

    def __init__(self, scores: Floats, logits: Floats) -> None:
        self.scores, self.logits = scores, logits
        self._line: Line | None = None

    def along(self, line: Line) -> Floats:
        """Return the values of a line here, which are kept until another is asked for."""
        if line is not self._line:
            self._line, self._values = line, line.at(self.logits)
        return self._values

    def __getitem__(self, places: Counts) -> Points:
        """Return the points at these places, int64[k]."""
        return Points(self.scores[places], self.logits[places])

    @classmethod
    def of(cls, scores: Floats) -> Points:
        """Return the points of scores, float64[n] in [0, 1]."""
        return cls(scores, logit(scores))


def forecasts(snapshot: Snapshot, points: Points) -> Floats:
    """Return what every candidate forecasts for every score, float64[K, n] in [0, 1]."""
    values = np.empty((_candidates(snapshot), len(points.scores)))
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
    slopes, intercepts = snapshot.platt[:, :1], snapshot.platt[:, 1:]
    apply_platt(slopes[:_SCALED], intercepts[:_SCALED], points.logits, out=values[_PLATT])
    if len(slopes) > _SCALED:
        apply_platt(slopes[_SCALED:], intercepts[_SCALED:], points.logits, out=values[_EXPOSED:])
    if source is not None and (before is None or source is not before.source or snapshot.odds != before.odds):
        values[_SHIFTED] = shift_odds(points.along(source.curve), snapshot.odds)
    return values


def forecasts_in_turn(
    snapshots: Sequence[Snapshot], lengths: Counts, points: Points
) -> tuple[Floats, Floats]:
    """Return what each snapshot in turn forecasts for so many of the next scores.

    What snapshots share is evaluated once for all their scores, which lie end to end.

    Parameters
    ----------
    snapshots, lengths
        S of them, of the same candidates, in any order; int64[S], positive, with sum n.

    Returns
    -------
    What every candidate forecasts, float64[K, n] in [0, 1]; and what the mixture and each tracker forecast,
    float64[3, n].
    """
    ends = lengths.cumsum().tolist()
    values = np.empty((_candidates(snapshots[0]), len(points.scores)))
    values[:] = points.scores
    for row in range(len(WINDOWS)):
        lines = [snapshot.isotonic[row] if snapshot.isotonic else None for snapshot in snapshots]
        for line, part in _runs(lines, ends):
            values[_ISOTONIC + row, part] = line.at(points.logits[part])
    for steps, part in _runs([snapshot.uniform for snapshot in snapshots], ends):
        values[_UNIFORM, part] = steps.at(points.scores[part])
    platt = np.array([snapshot.platt for snapshot in snapshots]).T.repeat(lengths, axis=2)
    apply_platt(platt[0, :_SCALED], platt[1, :_SCALED], points.logits, out=values[_PLATT])
    if len(platt[0]) > _SCALED:
        apply_platt(platt[0, _SCALED:], platt[1, _SCALED:], points.logits, out=values[_EXPOSED:])
    odds = np.array([snapshot.odds for snapshot in snapshots]).repeat(lengths)
    for source, part in _runs([snapshot.source for snapshot in snapshots], ends):
        values[_SHIFTED, part] = shift_odds(source.curve.at(points.logits[part]), odds[part])
    weights = np.array([snapshot.weights for snapshot in snapshots]).T.repeat(lengths, axis=2)
    return values, np.einsum("ktn,kn->tn", weights, values)


def _candidates(snapshot: Snapshot) -> int:
    """Return how many candidates there are."""
    return len(NAMES) + len(snapshot.platt) - _SCALED


def _runs(things: Sequence[T | None], ends: Sequence[int]) -> Iterator[tuple[T, slice]]:
    """Yield each thing but None with its places, which end at ``ends``; equal neighbours come as one."""
    start = 0
    for place, end in enumerate(ends):
        thing = things[place]
        if place + 1 == len(ends) or things[place + 1] is not thing:
            if thing is not None:
                yield thing, slice(start, end)
            start = end
