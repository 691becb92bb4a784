"""Bounds on the risk of any map, from the likelihood set of one version (lemmas 15 to 17).

They hold for all maps at once, so the map may be chosen by the same labels: steps, lines, Platt scaling, or a
mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from streamcal.base.values import Floats
from streamcal.certificates.likelihood_set import LikelihoodSet, likelihood_set, usable_level
from streamcal.certificates.monotone_maximum import MapValues, MassLimits, largest_risk
from streamcal.certificates.prequential import LEVELS, MOST_CELLS
from streamcal.certificates.target import NO_SHIFT, Shift
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

_ENOUGH: Final = 2  # observed scores for each label
_HEAD_START: Final = 1 << 14  # observed scores

Ranges = Callable[[Floats, Floats], MapValues]
"""Function that returns the values of a map between edges, float64[s−1], and the ends 0 and 1, and at the one
score in each segment, float64[s], where it is not NaN."""


class PathBounds:
    """Bounds on the risk of any map.

    Parameters
    ----------
    sketch
        the labels of a version, at least one.
    log_likelihoods
        log likelihoods of the forecasts of these labels, see `Prequential`.
    once
        δ of the likelihood sets of all versions together, in (0, 1).
    delta
        error probability of masses by this version's own scores, in (0, 1).
    observed
        δ of the masses by all observed scores, at all their counts together, in [0, 1); 0: never by these.
    drawn
        whether labels were drawn by scores and earlier labels (lemma 22): masses are then those of all
        observed scores alone.
    """

    __slots__ = ("_atoms", "_cells", "_edges", "_known", "_level", "_masses", "_n", "_observed")

    def __init__(
        self,
        sketch: ScoreSketch,
        log_likelihoods: Sequence[float],
        once: float,
        delta: float,
        observed: float = 0.0,
        *,
        drawn: bool = False,
    ) -> None:
        level = usable_level(sketch, MOST_CELLS)
        self._known: LikelihoodSet | None = None
        self._observed = observed
        if level is not None:
            cells = sketch if drawn else sketch.at_level(level)
            counts, atoms, place = cells.counts, cells.atoms, np.arange(len(cells.cells))
            if drawn:  # a cell of several scores is two: first its labels 0, then its labels 1
                place = np.repeat(place, 1 + (np.isnan(atoms) & counts.all(axis=0)))
                counts, second = counts[:, place], np.diff(place, prepend=-1) == 0
                counts[0, second] = counts[1, np.append(second[1:], False)] = 0
            self._known = likelihood_set(counts, level, log_likelihoods[LEVELS.index(level)], once)
            self._cells, self._level, self._n = cells.cells[place], cells.level, cells.n
            self._edges = grid.left_edges(self._cells[:-1] + np.int32(1), self._level)
            self._atoms = atoms[place]
            self._masses = None if drawn else MassLimits.of(cells.totals, cells.n, delta)

    @property
    def monotone(self) -> bool:
        """Whether the likelihood set does not refute that h* is non-decreasing."""
        return self._known is None or self._known.monotone

    def reads(self, scores: ScoreSketch) -> bool:
        """Return whether `risk` uses these observed scores, which are `_ENOUGH` to gain by them or needed."""
        enough = not scores.labelled if self._masses is None else scores.n >= _ENOUGH * self._n
        return self._known is not None and self._observed > 0.0 and enough

    def risk(self, ranges: Ranges, shift: Shift = NO_SHIFT, scores: ScoreSketch | None = None) -> float:
        """Return a bound in [0, 1] on the risk of a map (lemma 17), or on that in another domain (lemma 18).

        Parameters
        ----------
        ranges
            ranges of the map to be served in that domain.
        shift
            to that domain; by default there is none. Of one without limits nothing is known.
        scores
            all observed scores of the labels' domain, as an unlabelled sketch; None: only scores with labels
            are known.
        """
        usable = self._known is not None and self._known.monotone and 0.0 < shift.low <= shift.high < math.inf
        if self._known is None or not usable:
            return 1.0
        risk = 1.0
        if self._masses is not None:
            risk = largest_risk(self._known, ranges(self._edges, self._atoms), self._masses, shift)
        if scores is not None and self.reads(scores):
            edges, atoms, masses = self._by_observed(scores)
            risk = min(risk, largest_risk(self._known, ranges(edges, atoms), masses, shift))
        return risk

    def _by_observed(self, scores: ScoreSketch) -> tuple[Floats, Floats, MassLimits]:
        """Return the inner edges of segments, the one score in each or NaN, and masses by observed scores.

        Cells of one cell of the scores' sketch are one segment, as no score tells them apart.
        """
        level = max(self._level, scores.level)
        coarse = self._cells >> (level - self._level)
        begins = np.diff(coarse, prepend=-1) > 0
        ends = coarse[begins]
        known = scores.at_level(level)
        upto = np.concatenate(([0], np.cumsum(known.totals)))
        last = np.searchsorted(known.cells, ends, side="right")
        last[-1] = len(known.cells)  # what follows the last cell
        counts, segment = np.diff(upto[last], prepend=0), np.searchsorted(ends, coarse)
        edges = grid.left_edges(ends[:-1] + np.int32(1), level)
        single = (np.bincount(segment) == 1) & (np.diff(last, prepend=0) == 1)
        atoms = np.where(single & (self._atoms[begins] == known.atoms[last - 1]), self._atoms[begins], np.nan)
        return edges, atoms, MassLimits.of(counts, known.n, observed_delta(self._observed, known.n), segment)


def observed_delta(delta: float, n: int) -> float:
    """Return the share of δ for n ≥ 1 observed scores: δ a/((n+a−1)(n+a)), a = 2¹⁴.

    The sum over all n telescopes to δ, so limits on masses hold at all numbers of scores together.
    """
    return delta * _HEAD_START / ((n + _HEAD_START - 1) * (n + _HEAD_START))
