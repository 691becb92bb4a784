"""Hindsight: what every candidate would have said of each score when it was predicted.

Labels that come late belong to predictions of many moments, a few to each. They are evaluated all at once,
as `candidates.forecasts` would one snapshot after another: the fits that the snapshots share are laid end to
end, and one search among all their knots finds every score's place in every window.

Memory: that of the fits over again, and half as much for what is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from streamcal.maps.platt import expit
from streamcal.mixture.fits import PRIOR_SMOOTHING, Cells, Counts, Fit, Floats, Points, Snapshot, stand_in
from streamcal.mixture.names import ALL, FAMILIES, FITTED, NAMES, PRIORS, TARGET_ONLY, UNIFORM_FROM
from streamcal.sketch import grid

__all__ = ["Hindsight"]

_FAMILY, _PLACE = np.array(FITTED).T
_CELL_BITS: Final = (grid.LAST_KEY >> grid.MIN_LEVEL).bit_length()
_UNIT: Final = 2.0**-45  # of logits: those of cells are equal, or ten million times as far apart
_LOGIT_BITS: Final = 53  # logits of scores lie in ±28, and none beyond ±100; fits are far fewer than 2¹⁰
_BASES: Final = TARGET_ONLY + len(FAMILIES)


class Hindsight:
    """Snapshots laid end to end.

    Parameters
    ----------
    snapshots
        S of them, at least one.
    """

    __slots__ = ("_fits", "_lines", "_numbers", "_odds", "_platt", "_steps")

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        fits, self._numbers = _distinct(snapshots)
        self._fits = len(fits)
        if not fits:
            return
        self._steps, self._lines = _Steps.of(fits), _Lines.of(fits)
        self._platt: Floats = np.array([fit.platt for fit in fits]).T
        positives, labels = np.array([(fit.positives, fit.labels) for fit in fits], np.float64).T
        priors = (positives + PRIOR_SMOOTHING) / (labels + 2.0 * PRIOR_SMOOTHING)
        self._odds = _odds_ratios(snapshots, priors, self._numbers)

    def forecasts(self, which: Counts, points: Points, *, sourced: bool) -> Floats:
        """Return what every candidate of its snapshot says of each score, float64[K, n] in [0, 1].

        It is that of `candidates.forecasts`. Where a snapshot has no source, those that need one say the
        score. What is said of one score depends on no other, nor on the snapshots of no score.

        Parameters
        ----------
        which
            int64[n] in [0, S), the snapshot of each score.
        points
            the n scores.
        sourced
            False leaves out the candidates that need a source: float64[`TARGET_ONLY`, n].
        """
        numbers = self._numbers
        if not self._fits:
            return np.tile(points.scores, (len(NAMES) if sourced else TARGET_ONLY, 1))
        # Searches for neighbours one after another take half the time.
        order = np.argsort(64.0 * which + points.logits)
        which, scores, logits = which[order], points.scores[order], points.logits[order]
        out = np.empty((len(NAMES) if sourced else TARGET_ONLY, len(which)))
        chosen = (numbers if sourced else numbers[:-1])[:, which]
        families = np.empty((len(FAMILIES), *chosen.shape))
        families[0, UNIFORM_FROM:] = self._steps.at(chosen[UNIFORM_FROM:], points.cells[order])
        families[1] = self._lines.at(chosen, logits)
        slopes, intercepts = self._platt
        families[2] = expit(slopes[chosen] * logits + intercepts[chosen])
        out[0] = scores
        out[1:TARGET_ONLY] = families[_FAMILY, _PLACE]
        if sourced:
            out[TARGET_ONLY:_BASES] = families[:, -1]
            h = np.concatenate((families[:, -1], scores[np.newaxis]))[:, np.newaxis]
            shifted = out[_BASES:].reshape(len(h), len(PRIORS), -1)
            # g(h) = κh / (κh + 1 − h) with κ = w₁/w₀ (eq. 13)
            np.multiply(self._odds[:, which], h, out=shifted)
            shifted /= shifted + (1.0 - h)
        # Where there is no fit, what was taken in its place is written over.
        missing = numbers[[ALL, -1]] < 0
        for first, without in zip((0, TARGET_ONLY), missing, strict=True):
            if without.any():
                places = np.flatnonzero(without[which])
                out[first:, places] = scores[places]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return out.take(back, axis=1)


class _Steps(NamedTuple):
    """The uniform-mass maps of the fits that have one, one after another."""

    number: Counts
    """For each fit, which of them is its."""
    keys: Counts
    """Edges, above them the number of their map."""
    values: Floats

    @classmethod
    def of(cls, fits: Sequence[Fit]) -> _Steps:
        number = np.cumsum([len(fit.uniform.values) > 0 for fit in fits]) - 1
        edges, values = zip(*(fit.uniform for fit in fits if len(fit.uniform.values)), strict=True)
        first = np.repeat(np.arange(len(edges)), [len(inner) for inner in edges])
        return cls(number, np.concatenate(edges) + (first << _CELL_BITS), np.concatenate(values))

    def at(self, chosen: Counts, cells: Cells) -> Floats:
        """Return what the maps of the fits chosen say at the cell of each column, float64[r, n]."""
        chosen = self.number[chosen]
        found = np.searchsorted(self.keys, cells + (chosen << _CELL_BITS), side="right")
        # Every map has one edge less than bins.
        said: Floats = self.values[found + chosen]
        return said


class _Lines(NamedTuple):
    """The isotonic maps of all fits, one after another."""

    knots: Floats
    values: Floats
    keys: Counts
    """Knots in whole units, above them the number of their fit."""
    first: Counts
    """For each fit the place of its first knot."""
    last: Counts
    """And of its last."""

    @classmethod
    def of(cls, fits: Sequence[Fit]) -> _Lines:
        knots, values = (np.concatenate(parts) for parts in zip(*(fit.isotonic for fit in fits), strict=True))
        sizes = np.array([len(fit.isotonic.logits) for fit in fits])
        ends = np.cumsum(sizes)
        keys = _whole(knots) + (np.repeat(np.arange(len(fits)), sizes) << _LOGIT_BITS)
        return cls(knots, values, keys, ends - sizes, ends - 1)

    def at(self, chosen: Counts, logits: Floats) -> Floats:
        """Return what the maps of the fits chosen say at the logit of each column, float64[r, n]."""
        knots, values = self.knots, self.values
        found = np.searchsorted(self.keys, _whole(logits) + (chosen << _LOGIT_BITS), side="right") - 1
        np.maximum(found, self.first[chosen], out=found)
        following = np.minimum(found + 1, self.last[chosen])
        left, below = knots[found], values[found]
        gaps = knots[following] - left
        # A block of one cell has two knots in one place; and beyond the last one the line is level.
        slopes = np.divide(values[following] - below, gaps, out=np.zeros(gaps.shape), where=gaps > _UNIT)
        # Before the first it is level too; and less than a unit below a knot, that knot may be found.
        said: Floats = below + slopes * np.maximum(logits - left, 0.0)
        return said


def _distinct(snapshots: Sequence[Snapshot]) -> tuple[list[Fit], Counts]:
    """Return the fits of all snapshots, each once, and which are whose.

    The latter is int64[ALL + 2, S], one row for every window and one for the source; −1 where there is none.
    """
    held: list[Fit | None] = []
    for snapshot in snapshots:
        held += stand_in(snapshot)
        held.append(snapshot.source.fit if snapshot.source else None)
    keys = list(map(id, held))
    once = dict(zip(keys, held, strict=True))
    once.pop(id(None), None)
    number = dict(zip(once, range(len(once)), strict=True)) | {id(None): -1}
    numbers = np.array([number[key] for key in keys]).reshape(len(snapshots), -1).T
    return [fit for fit in once.values() if fit is not None], numbers


def _whole(logits: Floats) -> Counts:
    """Return logits in whole units, rounded down: what is found for one must depend on no other."""
    return np.floor(logits / _UNIT).astype(np.int64)


def _odds_ratios(snapshots: Sequence[Snapshot], priors: Floats, numbers: Counts) -> Floats:
    """Return w₁/w₀ (eq. 13) for each of `PRIORS` and every snapshot, float64[PRIORS, S].

    Parameters
    ----------
    priors
        of the labels of each fit.
    numbers
        as `_distinct` gives them.
    """
    q = priors[numbers[[*range(ALL + 1), ALL]]]
    for column, snapshot in enumerate(snapshots):
        if snapshot.fused is not None:
            q[-1 if snapshot.fits else slice(None), column] = snapshot.fused
    p = priors[numbers[-1]]
    odds: Floats = q / (1.0 - q) * ((1.0 - p) / p)
    return odds
