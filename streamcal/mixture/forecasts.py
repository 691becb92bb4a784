"""What every candidate forecasts: for many scores at one moment, and for scores of many moments at once.

A `Snapshot` holds the fits of one moment, from which all candidates follow. The table of the served map asks
for the forecasts of one snapshot, and evaluates again only what has changed (`refill`). Late labels belong to
predictions of many moments, a few to each, and ask for the forecasts of all those moments in one pass
(`Hindsight`). Both evaluate fits with `FitStack`, and give the same bits.

Memory: a `FitStack` takes as much as its fits, and half as much again for its search keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from streamcal.maps.platt import apply_platt, logit
from streamcal.maps.shift import shift_odds
from streamcal.mixture.fits import Cells, Counts, Fit, Floats, Source
from streamcal.mixture.names import ALL, FAMILIES, NAMES, PRIORS, TARGET_ONLY, UNIFORM_FROM
from streamcal.sketch import grid

__all__ = ["FitStack", "Hindsight", "Points", "Snapshot", "refill"]

_UNIFORM, _ISOTONIC, _PLATT = range(len(FAMILIES))
_FIRST_WINDOW: Final = (UNIFORM_FROM, 0, 0)  # of each family
_SOURCE: Final = ALL + 1  # the index of the source among the fits of a snapshot, after the windows
# The rows of each family among the candidates fitted to target labels: see `names.FITTED`.
_FIRST_ROW: Final = tuple(
    1 + sum(ALL + 1 - first for first in _FIRST_WINDOW[:family]) for family in range(len(FAMILIES))
)
_BASES: Final = TARGET_ONLY + len(FAMILIES)  # the first row of the candidates that assume label shift
_CELL_BITS: Final = (grid.LAST_KEY >> grid.MIN_LEVEL).bit_length()
# Logits are compared in whole units. Those of two cells are equal, or at least ten million units apart.
_UNIT: Final = 2.0**-45
_LOGIT_BITS: Final = 53  # logits of scores lie in ±28, and knots in ±100; there are far fewer fits than 2¹⁰


class Snapshot(NamedTuple):
    """The fits of one moment, from which all candidates follow."""

    observed: int
    """How many target scores had been observed when it was first served."""
    source: Source | None
    fits: tuple[Fit, ...]
    """One fit per window, then that of all labels, which also stands for windows that are not full yet. Empty
    before the first target labels."""
    fused: float | None
    """The target prior from labels and scores together, in (0, 1), if known."""

    @property
    def used(self) -> tuple[Fit | None, ...]:
        """The fits that its candidates use: one per window, and that of the source.

        Before the first target labels, the source's fit is used for every window. None where there is none.
        """
        source = None if self.source is None else self.source.fit
        return (*(self.fits or (source,) * (ALL + 1)), source)


class Points(NamedTuple):
    """Scores, with what the fits are evaluated at."""

    scores: Floats
    """float64[n] in [0, 1]."""
    cells: Cells
    """int32[n], their cells on the finest grid."""
    logits: Floats
    """float64[n], their logits, finite."""
    units: Counts
    """int64[n], their logits in whole units of 2⁻⁴⁵: the search keys for the knots of isotonic maps."""

    @classmethod
    def of(cls, scores: Floats) -> Points:
        """Return the points of scores, float64[n] in [0, 1]."""
        logits = logit(scores)
        return cls(scores, grid.cells_of(scores, grid.MIN_LEVEL), logits, _whole(logits))

    def take(self, order: Counts) -> Points:
        """Return the points at these indices, int64[m]."""
        return Points(self.scores[order], self.cells[order], self.logits[order], self.units[order])


class FitStack:
    """Fits laid end to end, so that one pass evaluates many of them.

    The value at a score depends on that score and its fit alone, not on other scores or fits.

    Parameters
    ----------
    fits
        F fits, at least one.
    """

    __slots__ = (
        "_bin_keys",
        "_bin_values",
        "_binned",
        "_first",
        "_knot_keys",
        "_knot_units",
        "_knots",
        "_platt",
        "_slopes",
        "_values",
    )

    def __init__(self, fits: Sequence[Fit]) -> None:
        self._platt: Floats = np.array([fit.platt for fit in fits]).T
        steps = [fit.uniform for fit in fits if len(fit.uniform.values)]
        if steps:
            # Each key is a cell with the number of its map above it.
            self._binned: Counts = np.cumsum([len(fit.uniform.values) > 0 for fit in fits]) - 1
            number = np.repeat(np.arange(len(steps)), [len(step.edges) for step in steps])
            self._bin_keys: Counts = np.concatenate([step.edges for step in steps]) + (number << _CELL_BITS)
            self._bin_values: Floats = np.concatenate([step.values for step in steps])
        sizes = np.array([len(fit.isotonic.logits) for fit in fits])
        ends = np.cumsum(sizes)
        self._first: Counts = ends - sizes  # the index of the first knot of each fit
        self._knots: Floats = np.concatenate([fit.isotonic.logits for fit in fits])
        self._values: Floats = np.concatenate([fit.isotonic.values for fit in fits])
        self._knot_units: Counts = _whole(self._knots)
        self._knot_keys: Counts | None = None  # made when first searched: the table never does
        # From each knot to the next. A block of one cell has two equal knots; the line ends level.
        self._slopes: Floats = np.zeros(len(self._knots))
        gaps = self._knots[1:] - self._knots[:-1]
        gaps[ends[:-1] - 1] = 0.0
        rises = self._values[1:] - self._values[:-1]
        np.divide(rises, gaps, out=self._slopes[:-1], where=gaps > _UNIT)

    def uniform(self, chosen: Counts, points: Points) -> Floats:
        """Return the values of uniform-mass maps.

        Parameters
        ----------
        chosen
            The fits, int64 in [0, F) of any shape that broadcasts against the points. Each must have bins.
        points
            n scores.

        Returns
        -------
        float64 in [0, 1], of the shape that both broadcast to.
        """
        maps = self._binned[chosen]
        found = np.searchsorted(self._bin_keys, points.cells + (maps << _CELL_BITS), side="right")
        # Each map has one edge fewer than it has bins.
        values: Floats = self._bin_values[found + maps]
        return values

    def isotonic(self, chosen: Counts, points: Points) -> Floats:
        """Return the values of isotonic maps; otherwise as `uniform`."""
        if self._knot_keys is None:
            number = np.zeros(len(self._knots), np.int64)
            number[self._first[1:]] = 1
            self._knot_keys = self._knot_units + (number.cumsum() << _LOGIT_BITS)
        found = np.searchsorted(self._knot_keys, points.units + (chosen << _LOGIT_BITS), side="right") - 1
        np.maximum(found, self._first[chosen], out=found)
        return self._interpolated(found, points)

    def isotonic_of_all(self, points: Points) -> Floats:
        """Return the values of the isotonic maps of all fits at points in ascending order, float64[F, n]."""
        # Searching for the few knots among the points is faster than the other way round.
        n, first = len(points.units), self._first
        starts = np.searchsorted(points.units, self._knot_units)
        starts[first] = 0
        ends = np.append(starts[1:], n)
        ends[first[1:] - 1] = n
        found = np.repeat(np.arange(len(starts)), ends - starts).reshape(len(first), n)
        return self._interpolated(found, points)

    def platt(self, chosen: Counts, points: Points) -> Floats:
        """Return the values of Platt maps; otherwise as `uniform`."""
        slopes, intercepts = self._platt
        return apply_platt(slopes[chosen], intercepts[chosen], points.logits)

    def _interpolated(self, found: Counts, points: Points) -> Floats:
        """Return the values at points, for the index of the last knot up to each, or of the first knot."""
        # The line is level before the first knot. A score less than a unit below a knot may find that knot.
        values = points.logits - self._knots[found]
        np.maximum(values, 0.0, out=values)
        values *= self._slopes[found]
        values += self._values[found]
        return values


class Hindsight:
    """The forecasts of several snapshots, each score with a snapshot of its own.

    Parameters
    ----------
    snapshots
        S snapshots, at least one.
    """

    __slots__ = ("_numbers", "_odds", "_stack")

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        fits, self._numbers = _distinct(snapshots)
        self._stack = FitStack(fits) if fits else None
        self._odds = _odds_ratios(snapshots, fits, self._numbers)

    def forecasts(self, which: Counts, points: Points, *, sourced: bool) -> Floats:
        """Return what every candidate of its snapshot forecasts for each score.

        Before the first target labels, candidates fitted to them equal those of the source of the same
        family, and without a source the identity. A fused prior that is not known equals that of all labels.

        Parameters
        ----------
        which
            int64[n] in [0, S), the snapshot of each score.
        points
            The n scores.
        sourced
            Whether to include the candidates that need a source. Where a snapshot has no source, they equal
            the identity.

        Returns
        -------
        float64[K, n] in [0, 1], or float64[`TARGET_ONLY`, n] unless ``sourced``.
        """
        rows = len(NAMES) if sourced else TARGET_ONLY
        stack, numbers = self._stack, self._numbers
        if stack is None:
            return np.tile(points.scores, (rows, 1))
        # Searching for neighbours one after another takes half the time.
        order = np.argsort(64.0 * which + points.logits)
        which, points = which[order], points.take(order)
        scores = points.scores
        chosen = (numbers if sourced else numbers[:_SOURCE])[:, which]
        out = np.empty((rows, len(which)))
        out[0] = scores
        for family, values in (
            (_UNIFORM, stack.uniform(chosen[UNIFORM_FROM:], points)),
            (_ISOTONIC, stack.isotonic(chosen, points)),
            (_PLATT, stack.platt(chosen, points)),
        ):
            size = ALL + 1 - _FIRST_WINDOW[family]
            out[_FIRST_ROW[family] :][:size] = values[:size]
            if sourced:
                out[TARGET_ONLY + family] = values[-1]
        if sourced:
            _shift(out, self._odds[:, which])
        # Where a snapshot has no fit, another fit was evaluated: the score itself replaces its values.
        missing = numbers[[ALL, _SOURCE]] < 0
        for first, without in zip((0, TARGET_ONLY), missing, strict=True):
            if without.any():
                at = np.flatnonzero(without[which])
                out[first:, at] = scores[at]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return out.take(back, axis=1)


def refill(snapshot: Snapshot, points: Points, before: tuple[Snapshot, Floats] | None = None) -> Floats:
    """Return what every candidate of one snapshot forecasts for every score, as `Hindsight.forecasts` does.

    Parameters
    ----------
    points
        The n scores, in ascending order.
    before
        Another snapshot, and what it gave at the same points. That array is updated and returned, if its
        shape is right.

    Returns
    -------
    float64[K, n] in [0, 1]; without a source float64[`TARGET_ONLY`, n].
    """
    used, scores = snapshot.used, points.scores
    rows = TARGET_ONLY if snapshot.source is None else len(NAMES)
    if before is not None and len(before[1]) == rows:
        out, old = before[1], before[0].used
    else:
        out, old = np.empty((rows, len(scores))), (None,) * len(used)
        out[:TARGET_ONLY] = scores
    changed = [
        (index, fit) for index, (fit, was) in enumerate(zip(used, old, strict=True)) if fit is not was and fit
    ]
    if changed:
        # Each distinct fit once, those without bins first.
        fits = sorted(
            {id(fit): fit for _, fit in changed}.values(), key=lambda fit: len(fit.uniform.values) > 0
        )
        row_of = {id(fit): row for row, fit in enumerate(fits)}
        unbinned = sum(not len(fit.uniform.values) for fit in fits)
        stack, chosen = FitStack(fits), np.arange(len(fits))[:, np.newaxis]
        if unbinned < len(fits):
            values = stack.uniform(chosen[unbinned:], points)
            _put(out, _UNIFORM, values, ((index, row_of[id(fit)] - unbinned) for index, fit in changed))
        for family, values in (
            (_ISOTONIC, stack.isotonic_of_all(points)),
            (_PLATT, stack.platt(chosen, points)),
        ):
            _put(out, family, values, ((index, row_of[id(fit)]) for index, fit in changed))
    if snapshot.source is not None:
        _shift(out, _odds_ratios([snapshot], *_distinct([snapshot])))
    return out


def _put(out: Floats, family: int, values: Floats, changed: Iterable[tuple[int, int]]) -> None:
    """Copy the values of one family to its candidates: (index of window or source, row of ``values``)."""
    first = _FIRST_WINDOW[family]
    for index, row in changed:
        if index == _SOURCE:
            out[TARGET_ONLY + family] = values[row]
        elif index >= first:
            out[_FIRST_ROW[family] + index - first] = values[row]


def _shift(out: Floats, odds: Floats) -> None:
    """Work out the candidates that assume label shift from those of the source and the identity.

    ``odds`` are float64[PRIORS, n], or [PRIORS, 1] for the same at all scores.
    """
    probabilities = np.concatenate((out[TARGET_ONLY:_BASES], out[:1]))[:, np.newaxis]
    shift_odds(probabilities, odds, out=out[_BASES:].reshape(len(probabilities), len(PRIORS), -1))


def _distinct(snapshots: Sequence[Snapshot]) -> tuple[list[Fit], Counts]:
    """Return each fit that the snapshots use once, and which of them each snapshot uses.

    The latter is int64[ALL + 2, S], one row for every window and one for the source; −1 where there is none.
    """
    held = [fit for snapshot in snapshots for fit in snapshot.used]
    once = {id(fit): fit for fit in held if fit is not None}
    number = dict(zip(once, range(len(once)), strict=True))
    numbers = np.array([number.get(id(fit), -1) for fit in held]).reshape(len(snapshots), -1).T
    return list(once.values()), numbers


def _odds_ratios(snapshots: Sequence[Snapshot], fits: Sequence[Fit], numbers: Counts) -> Floats:
    """Return κ = w₁/w₀ (eq. 13) for each of `PRIORS` and every snapshot, finite and positive.

    It is float64[PRIORS, S]. ``fits`` and ``numbers`` are those of `_distinct`. Where there is no source, it
    means nothing.
    """
    if not fits:
        return np.ones((len(PRIORS), len(snapshots)))
    priors = np.array([fit.prior for fit in fits])
    target, source = priors[numbers[[*range(ALL + 1), ALL]]], priors[numbers[_SOURCE]]
    for column, snapshot in enumerate(snapshots):
        if snapshot.fused is not None:
            target[-1 if snapshot.fits else slice(None), column] = snapshot.fused
    odds: Floats = target / (1.0 - target) * ((1.0 - source) / source)
    for column, snapshot in enumerate(snapshots):
        if not snapshot.fits and snapshot.fused is None:
            odds[:, column] = 1.0  # nothing is known of the target: exactly, not up to rounding
    return odds


def _whole(logits: Floats) -> Counts:
    """Return logits in whole units, rounded down."""
    return np.floor(logits / _UNIT).astype(np.int64)
