"""Hindsight: what every candidate would have said of each score when it was predicted.

Labels that come late belong to predictions of many moments, a few to each. They are evaluated all at once,
as `candidates.forecasts` would one snapshot after another: the fits that the snapshots share are laid end to
end, and one search among all their knots finds every score's place in every window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from streamcal import grid
from streamcal.candidates import PRIOR_SMOOTHING, Cells, Counts, Fit, Floats, Points, Snapshot, stand_in
from streamcal.platt import expit
from streamcal.roster import ALL, FAMILIES, FITTED, NAMES, PRIORS, TARGET_ONLY, UNIFORM_FROM

__all__ = ["hindsight"]

_FAMILY, _PLACE = np.array(FITTED).T
_CELL_BITS: Final = (grid.LAST_KEY >> grid.MIN_LEVEL).bit_length()
_UNIT: Final = 2.0**-45  # of logits: those of cells are equal, or ten million times as far apart
_LOGIT_BITS: Final = 53  # logits of scores lie in ±28, and none beyond ±100; fits are far fewer than 2¹⁰
_BASES: Final = TARGET_ONLY + len(FAMILIES)


def hindsight(snapshots: Sequence[Snapshot], which: Counts, points: Points, *, sourced: bool) -> Floats:
    """Return what every candidate of its snapshot says of each score, float64[K, n] in [0, 1].

    It is that of `candidates.forecasts`. Where a snapshot has no source, those that need one say the score.

    Parameters
    ----------
    snapshots
        S of them, at least one.
    which
        int64[n] in [0, S), the snapshot of each score.
    points
        the n scores.
    sourced
        False leaves out the candidates that need a source: float64[`TARGET_ONLY`, n].
    """
    fits, numbers = _distinct(snapshots)
    if not fits:
        return np.tile(points.scores, (len(NAMES) if sourced else TARGET_ONLY, 1))
    # Searches for neighbours one after another take half the time.
    order = np.argsort(64.0 * which + points.logits)
    which, scores, logits = which[order], points.scores[order], points.logits[order]
    out = np.empty((len(NAMES) if sourced else TARGET_ONLY, len(which)))
    rows = numbers if sourced else numbers[:-1]
    chosen = rows[:, which]
    families = np.empty((len(FAMILIES), *chosen.shape))
    families[0, UNIFORM_FROM:] = _by_steps(fits, chosen[UNIFORM_FROM:], points.cells[order])
    families[1] = _by_lines(fits, chosen, logits)
    slopes, intercepts, positives, labels = np.array(
        [(*fit.platt, fit.positives, fit.labels) for fit in fits]
    ).T
    families[2] = expit(slopes[chosen] * logits + intercepts[chosen])
    out[0] = scores
    out[1:TARGET_ONLY] = families[_FAMILY, _PLACE]
    if sourced:
        out[TARGET_ONLY:_BASES] = families[:, -1]
        h = np.concatenate((families[:, -1], scores[np.newaxis]))[:, np.newaxis]
        shifted = out[_BASES:].reshape(len(h), len(PRIORS), -1)
        # g(h) = κh / (κh + 1 − h) with κ = w₁/w₀ (eq. 13)
        priors = (positives + PRIOR_SMOOTHING) / (labels + 2.0 * PRIOR_SMOOTHING)
        np.multiply(_odds_ratios(snapshots, priors, numbers)[:, which], h, out=shifted)
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


def _by_steps(fits: Sequence[Fit], chosen: Counts, cells: Cells) -> Floats:
    """Return what the uniform-mass maps of the fits chosen say at the cell of each column, float64[r, n]."""
    number = np.cumsum([len(fit.uniform.values) > 0 for fit in fits]) - 1  # of those that have such a map
    edges, values = zip(*(fit.uniform for fit in fits if len(fit.uniform.values)), strict=True)
    first = np.repeat(np.arange(len(edges)), [len(inner) for inner in edges])
    keys = np.concatenate(edges) + (first << _CELL_BITS)
    chosen = number[chosen]
    found = np.searchsorted(keys, cells + (chosen << _CELL_BITS), side="right")
    # Every map has one edge less than bins.
    said: Floats = np.concatenate(values)[found + chosen]
    return said


def _by_lines(fits: Sequence[Fit], chosen: Counts, logits: Floats) -> Floats:
    """Return what the isotonic maps of the fits chosen say at the logit of each column, float64[r, n]."""
    knots, values = (np.concatenate(parts) for parts in zip(*(fit.isotonic for fit in fits), strict=True))
    sizes = np.array([len(fit.isotonic.logits) for fit in fits])
    ends = np.cumsum(sizes)
    keys = _whole(knots) + (np.repeat(np.arange(len(fits)), sizes) << _LOGIT_BITS)
    found = np.searchsorted(keys, _whole(logits) + (chosen << _LOGIT_BITS), side="right") - 1
    np.maximum(found, (ends - sizes)[chosen], out=found)
    following = np.minimum(found + 1, (ends - 1)[chosen])
    left, below = knots[found], values[found]
    gaps = knots[following] - left
    # A block of one cell has two knots in one place; and beyond the last one the line is level.
    slopes = np.divide(values[following] - below, gaps, out=np.zeros(gaps.shape), where=gaps > _UNIT)
    # Before the first it is level too; and less than a unit below a knot, that knot may be found.
    said: Floats = below + slopes * np.maximum(logits - left, 0.0)
    return said


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
