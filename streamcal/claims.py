"""What may be claimed of one map version, from the cells as they were when it was formed.

Everything is worked out when it is first asked for, and kept: while a version stands, mode ``auto`` publishes
one mixture after another that is certified by it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal import grid
from streamcal.bin_limits import BinIntervals, bin_intervals
from streamcal.binning import bin_sums
from streamcal.certify import Centre, RiskBound, certify_best, certify_own, default_candidates
from streamcal.certify_target import certify_target, shift_odds
from streamcal.config import Domain
from streamcal.maps import RecalibrationMap
from streamcal.sketch import ScoreSketch

__all__ = ["Claims", "Formed", "Target"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Formed(NamedTuple):
    """A map version as it was formed."""

    cells: bytes
    """The labelled sketch it was formed from, as bytes: a quarter of its size."""
    splits: Counts
    """int64[B+1], its bins."""
    choices: int
    """From how many binnings it was chosen with the labels in view."""
    place: int
    """j: how many versions its domain had formed before it."""
    domain: Domain
    """Where the labels are from."""


class Target(NamedTuple):
    """What is known of the target when a certificate is asked for."""

    scores: Callable[[], ScoreSketch]
    """Gives its scores, labelled or not: they are only counted where they are needed."""
    labels: tuple[int, int]
    """(positives, labels)."""
    served: RecalibrationMap
    """The map that is served, with its weights."""


class Claims:
    """What is certain of a version, on one event of probability 1 − δ_j.

    Parameters
    ----------
    formed
        the version.
    delta
        δ_j in (0, 1), what it may spend.
    """

    def __init__(self, formed: Formed, delta: float) -> None:
        self._splits = formed.splits
        self._choices = formed.choices
        self._delta = delta
        sketch = ScoreSketch.from_bytes(formed.cells)
        self._counts: Counts = sketch.counts
        self._cells, self._level = sketch.cells, sketch.level
        self.labels = sketch.n_positives, sketch.n
        """(positives, labels) it was formed from."""

    @cached_property
    def limits(self) -> BinIntervals:
        """What is certain of its own bins."""
        negatives, positives = self._counts
        return bin_intervals(negatives, positives, self._splits, delta=self._delta / 2, choices=self._choices)

    @cached_property
    def own(self) -> RiskBound:
        """The bound on the map that it formed."""
        negatives, positives = self._counts
        return certify_own(negatives, positives, self._splits, self._centre, choices=self._choices)

    def bound_of(self, served: RecalibrationMap) -> RiskBound:
        """Bound R of any map: of another than it formed by the triangle inequality (lemma 9)."""
        if served.values == self._values and served.edges[1:-1] == self._edges:
            return self.own
        best = self._centre.bound
        lowest, highest = _range(served, self._groups)
        risk = self._centre.bound_of(lowest, highest) if best.monotone else 1.0
        # Of the identity, two scores never share a value: it loses no sharpness. Of a step map nothing finer
        # is known here than that neither part exceeds the whole.
        sharpness = min(risk, 0.25) if served.values else 0.0
        return best._replace(
            calibration=risk,
            sharpness=sharpness,
            risk=risk,
            bins=len(self._values),
            delta=self._delta,
        )

    def target_risk(self, target: Target, *, composite: bool, delta: float) -> float:
        """Bound R_Q of the served map by label shift (lemma 13).

        Parameters
        ----------
        target
            what is known of the target.
        composite
            whether the served map is the one that was formed, shifted by weights; else it may be any.
        delta
            what the claims on the target's priors and masses may spend.
        """
        if composite:
            weights = target.served.weights
            odds = weights[1] / weights[0] if weights[0] else np.inf
            lowest = highest = shift_odds(np.array(self._values), odds)
        else:
            lowest, highest = _range(target.served, np.array(self._edges))
        scores = target.scores()
        return certify_target(
            self.limits,
            lowest,
            highest,
            self.bin_counts(scores),
            scores=scores.n,
            source_labels=self.labels,
            target_labels=target.labels,
            delta=delta,
        )

    def bin_counts(self, scores: ScoreSketch) -> Counts:
        """Count the scores of every bin, int64[B]; a cell that an edge splits counts on both sides."""
        inner = (self._cells[self._splits[1:-1] - 1].astype(np.int64) + 1) << self._level
        starts = scores.cells.astype(np.int64) << scores.level
        ends = starts + (1 << scores.level)
        below = np.concatenate(([0], np.cumsum(scores.totals)))
        first = below[np.searchsorted(ends, inner, side="right")]
        last = below[np.searchsorted(starts, inner, side="left")]
        return np.concatenate((last, below[-1:])) - np.concatenate(([0], first))

    @cached_property
    def _centre(self) -> Centre:
        """The best certified map."""
        negatives, positives = self._counts
        candidates = default_candidates(self.labels[1], len(negatives))
        best, splits = certify_best(negatives, positives, candidates, delta=self._delta / 2)
        return Centre.of(negatives, positives, splits, best)

    @cached_property
    def _groups(self) -> Floats:
        """Where the groups of cells of the best certified map meet."""
        return grid.left_edges(self._cells[self._centre.starts[1:] - 1] + np.int32(1), self._level)

    @cached_property
    def _values(self) -> tuple[float, ...]:
        """What the formed map says of every bin."""
        hits, totals = (bin_sums(counts, self._splits) for counts in (self._counts[1], self._counts.sum(0)))
        return tuple((hits / totals).tolist())

    @cached_property
    def _edges(self) -> tuple[float, ...]:
        """Where the bins of the formed map meet."""
        ends = self._cells[self._splits[1:-1] - 1] + np.int32(1)
        return tuple(grid.left_edges(ends, self._level).tolist())


def _range(served: RecalibrationMap, inner: Floats) -> tuple[Floats, Floats]:
    """Return the least and the greatest value of a map between these edges, 0 and 1: float64[m] each."""
    left, right = np.concatenate(([0.0], inner)), np.concatenate((inner, [1.0]))
    weights = served.weights
    odds = weights[1] / weights[0] if weights[0] else np.inf
    if not served.values:
        return shift_odds(left, odds), shift_odds(right, odds)
    steps = np.array(served.edges[1:-1])
    first, last = np.searchsorted(steps, left, "right"), np.searchsorted(steps, right, "left")
    values = shift_odds(np.array([*served.values, served.values[-1]]), odds)
    runs = np.column_stack((first, last + 1)).ravel()
    return np.minimum.reduceat(values, runs)[::2], np.maximum.reduceat(values, runs)[::2]
