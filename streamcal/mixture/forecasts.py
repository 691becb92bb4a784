"""What every candidate forecasts at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from streamcal.maps.logistic import apply_logistic
from streamcal.maps.platt import logit
from streamcal.maps.shift_c import shift_by
from streamcal.mixture.fits import Counts, Floats, Line, Source
from streamcal.mixture.forecasts_c import mix
from streamcal.mixture.names import DISCOUNTS, NAMES, WINDOWS
from streamcal.mixture.windows import Fits

__all__ = ["LOGISTIC_ROWS", "Points", "Snapshot", "forecasts", "forecasts_in_turn", "refill"]

T = TypeVar("T")

LOGISTIC_ROWS: Final = len(WINDOWS) + 1 + len(DISCOUNTS)
"""Rows of `Snapshot.logistic` before those of `names.EXPOSURES`."""

# The rows of each kind of map, in the order of `names.NAMES`.
_ISOTONIC: Final = 1
_CURVE: Final = _ISOTONIC + len(WINDOWS)
_LOGISTIC: Final = slice(_CURVE + 1, _CURVE + 1 + LOGISTIC_ROWS)
_SHIFTED: Final = slice(_LOGISTIC.stop, len(NAMES))


class Snapshot(NamedTuple):
    """What was served at one moment: everything from which the forecasts of all candidates follow."""

    observed: int
    """How many target scores had been observed when it was first served."""
    weights: Floats
    """Those of the candidates, and those by each tracker, float64[3, K]: see `weights.Weights`."""
    logistic: Floats
    """θ (`streamcal.maps.logistic`) of the hinge maps and the online Platt scalings, float64[R, 7]; behind
    them those of `names.EXPOSURES` where these are candidates."""
    isotonic: tuple[Line, ...]
    """One map per window; none before the first labels: these candidates equal the identity then."""
    curve: Line | None
    """None before the first labels."""
    source: Source | None
    odds: tuple[float, float]
    """κ = w₁/w₀ (eq. 13) of both composites, positive. Without a source, these equal the identity."""
    by_scores: bool
    """Whether scores, too, told of the target's prior."""

    @property
    def knows(self) -> bool:
        """Whether it knew any label; else all candidates forecast the same."""
        return self.curve is not None or self.source is not None

    @classmethod
    def of(
        cls,
        observed: int,
        weights: Floats,
        fits: Fits,
        platt: Floats,
        source: Source | None = None,
        odds: tuple[float, float] = (1.0, 1.0),
        *,
        by_scores: bool = False,
    ) -> Snapshot:
        """Return a snapshot of these maps; ``platt`` are the other logistic rows, float64[r, 7]."""
        logistic = np.concatenate((fits.hinges, platt))
        return cls(observed, weights, logistic, fits.isotonic, fits.curve, source, odds, by_scores)


class Points:
    """Scores, with what the maps are evaluated at.

    Parameters
    ----------
    scores
        float64[n] in [0, 1].
    logits
        float64[n], their logits, finite.
    """

    __slots__ = ("_at", "_line", "logits", "scores")

    def __init__(self, scores: Floats, logits: Floats) -> None:
        self.scores, self.logits = scores, logits
        self._line: Line | None = None

    def along(self, line: Line) -> Floats:
        """Return the values of a line here, which are kept until another is asked for."""
        if line is not self._line:
            self._line, self._at = line, line.at(self.logits)
        return self._at

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
    """Bring forecasts for the same points, float64[K, n], up to date in place, and return them.

    Parameters
    ----------
    before
        The snapshot that they are of, to which an isotonic or a source map may be added, but none is taken
        away; None: they are the scores in every row.
    """
    source = snapshot.source
    for row, line in enumerate(snapshot.isotonic):
        if before is None or not before.isotonic or line is not before.isotonic[row]:
            line.put(points.logits, values[_ISOTONIC + row])
    if snapshot.curve is not None and (before is None or snapshot.curve is not before.curve):
        snapshot.curve.put(points.logits, values[_CURVE])
    all_of_them = np.array([len(points.scores)])
    theta = snapshot.logistic[np.newaxis]
    _fill_logistic(theta, points.logits, all_of_them, values, None if before is None else before.logistic)
    if source is not None and (before is None or source is not before.source or snapshot.odds != before.odds):
        for row, odds in zip(range(_SHIFTED.start, _SHIFTED.stop), snapshot.odds, strict=True):
            shift_by(points.along(source.curve), np.array([odds]), all_of_them, values[row])
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
    bounds = lengths.cumsum()
    ends = bounds.tolist()
    values = np.empty((_candidates(snapshots[0]), len(points.scores)))
    values[:] = points.scores
    for row in range(len(WINDOWS)):
        lines = [snapshot.isotonic[row] if snapshot.isotonic else None for snapshot in snapshots]
        for line, part in _runs(lines, ends):
            line.put(points.logits[part], values[_ISOTONIC + row, part])
    for curve, part in _runs([snapshot.curve for snapshot in snapshots], ends):
        curve.put(points.logits[part], values[_CURVE, part])
    for source, part in _runs([snapshot.source for snapshot in snapshots], ends):
        source.curve.put(points.logits[part], values[_SHIFTED.start, part])
        values[_SHIFTED.start + 1 :, part] = values[_SHIFTED.start, part]
    odds = np.array([snapshot.odds for snapshot in snapshots])
    for number, row in enumerate(range(_SHIFTED.start, _SHIFTED.stop)):
        shift_by(values[row], odds[:, number], bounds, values[row])
    _fill_logistic(np.array([snapshot.logistic for snapshot in snapshots]), points.logits, bounds, values)
    mixed = np.empty((3, len(points.scores)))
    mix(np.array([snapshot.weights for snapshot in snapshots]), values, bounds, mixed)
    return values, mixed


def _fill_logistic(
    theta: Floats, logits: Floats, ends: Counts, values: Floats, before: Floats | None = None
) -> None:
    """Bring the rows of logistic maps up to date; the parameters are those of `apply_logistic`."""
    mine, others = (None, None) if before is None else (before[:LOGISTIC_ROWS], before[LOGISTIC_ROWS:])
    apply_logistic(theta[:, :LOGISTIC_ROWS], logits, ends, values[_LOGISTIC], mine)
    if theta.shape[1] > LOGISTIC_ROWS:
        apply_logistic(theta[:, LOGISTIC_ROWS:], logits, ends, values[len(NAMES) :], others)


def _candidates(snapshot: Snapshot) -> int:
    """Return how many candidates there are."""
    return len(NAMES) + len(snapshot.logistic) - LOGISTIC_ROWS


def _runs(things: Sequence[T | None], ends: Sequence[int]) -> Iterator[tuple[T, slice]]:
    """Yield each thing but None with its places, which end at ``ends``; equal neighbours come as one."""
    start = 0
    for place, end in enumerate(ends):
        thing = things[place]
        if place + 1 == len(ends) or things[place + 1] is not thing:
            if thing is not None:
                yield thing, slice(start, end)
            start = end
