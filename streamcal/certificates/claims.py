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

from streamcal.certificates.bin_limits import BinIntervals, bin_intervals
from streamcal.certificates.source import Centre, RiskBound, certify_served
from streamcal.certificates.target import certify_target
from streamcal.events import Domain
from streamcal.maps.binning import bin_sums
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import shift_odds
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

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
        self._formed = formed
        self._delta = delta
        sketch = self._sketch
        negatives, positives = sketch.counts
        self.labels = sketch.n_positives, sketch.n
        """(positives, labels) it was formed from."""
        splits = formed.splits
        self._ends: Counts = (sketch.cells[splits[1:-1] - 1].astype(np.int64) + 1) << sketch.level
        # The map that was formed, to tell it from others.
        self._edges = _left_edges(sketch, splits[1:-1])
        self._values = bin_sums(positives, splits) / bin_sums(negatives + positives, splits)

    @cached_property
    def limits(self) -> BinIntervals:
        """What is certain of its own bins."""
        formed, (negatives, positives) = self._formed, self._sketch.counts
        return bin_intervals(
            negatives, positives, formed.splits, delta=self._delta / 2, choices=formed.choices
        )

    @cached_property
    def own(self) -> RiskBound:
        """The bound on the map that it formed."""
        formed, (negatives, positives) = self._formed, self._sketch.counts
        return certify_served(negatives, positives, formed.splits, self._best[0], choices=formed.choices)

    def bound_of(self, served: RecalibrationMap) -> RiskBound:
        """Bound R of any map: of another than it formed by the triangle inequality (lemma 9)."""
        if np.array_equal(served.values, self._values) and np.array_equal(served.edges[1:-1], self._edges):
            return self.own
        centre, inner = self._best
        best = centre.bound
        risk = centre.bound_of(*_range(served, inner)) if best.monotone else 1.0
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
            lowest = highest = shift_odds(self._values, odds)
        else:
            lowest, highest = _range(target.served, self._edges)
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
        starts = scores.cells.astype(np.int64) << scores.level
        ends = starts + (1 << scores.level)
        below = np.concatenate(([0], np.cumsum(scores.totals)))
        first = below[np.searchsorted(ends, self._ends, side="right")]
        last = below[np.searchsorted(starts, self._ends, side="left")]
        return np.concatenate((last, below[-1:])) - np.concatenate(([0], first))

    @property
    def _sketch(self) -> ScoreSketch:
        # Not kept: it is four times as large as its bytes.
        return ScoreSketch.from_bytes(self._formed.cells)

    @cached_property
    def _best(self) -> tuple[Centre, Floats]:
        """The best certified map, and where its groups of cells meet."""
        sketch = self._sketch
        centre = Centre.best_of(*sketch.counts, delta=self._delta / 2)
        return centre, _left_edges(sketch, centre.starts[1:])


def _left_edges(sketch: ScoreSketch, places: Counts) -> Floats:
    """Return where the cells at these places begin; a gap before one of them is its own."""
    return grid.left_edges(sketch.cells[places - 1] + np.int32(1), sketch.level)


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
