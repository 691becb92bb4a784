"""Certified bounds of one map version, from the cells as they were when it was formed.

Every bound is computed when it is first asked for, and cached: while a version stands, mode ``auto`` may
serve many mixtures that are all certified by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.certificates.bin_limits import VersionLimits
from streamcal.certificates.monotone_maximum import MapValues
from streamcal.certificates.path_bounds import PathBounds
from streamcal.certificates.prequential import Forecasts, replayed
from streamcal.certificates.source import Centre, RiskBound
from streamcal.certificates.target import LabelCounts, shift_limits
from streamcal.events import Domain
from streamcal.maps.fits_c import isotonic
from streamcal.maps.platt import expit
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import NO_SHIFT, shift_odds
from streamcal.maps.uniform_mass import form
from streamcal.sketch import grid
from streamcal.sketch.decoding import Number
from streamcal.sketch.score_sketch import ScoreSketch


class VersionData(msgspec.Struct, frozen=True, omit_defaults=True):
    """Labels that a map version was formed from: at least one label, or matured predictions."""

    labels: ScoreSketch
    """Labelled sketch of its domain at that moment."""
    bins: Literal["auto", "cube_root"] | Annotated[int, msgspec.Meta(ge=1, le=65_536)] | None
    """Rule of its bins; None: no map was formed, and all labels are in one bin."""
    versions_before: Number
    """Number j of versions formed from its domain before."""
    domain: Domain
    """Domain of the labels."""
    predictions: ScoreSketch | None = None
    """Sketch of the scores of matured cohorts; ``labels`` are then those of them that have come. They are one
    bin, and ``versions_before`` is the number of cohorts less one. None: the labels so far."""

    @property
    def scores(self) -> ScoreSketch:
        """Sketch of all scores: with labels, or of matured cohorts without labels."""
        return self.labels if self.predictions is None else self.predictions

    @property
    def cells(self) -> tuple[ScoreSketch, Counts, Counts, Counts]:
        """Scores, and labels 0, labels 1 and pending labels in each of their cells, int64[m] each."""
        labelled = self.labels
        if self.predictions is None:
            negatives, positives = labelled.counts
            return labelled, negatives, positives, np.zeros_like(negatives)
        scores = self.predictions
        labelled = labelled.at_level(scores.level)
        negatives, positives = counts = np.zeros((2, len(scores.cells)), np.int64)
        columns = np.minimum(np.searchsorted(scores.cells, labelled.cells), len(scores.cells) - 1)
        if labelled.level == scores.level and (scores.cells[columns] == labelled.cells).all():
            counts[:, columns] = labelled.counts
        # More labels than scores in a cell are not the labels of these scores: none of them counts.
        counts[:, scores.totals < negatives + positives] = 0
        return scores, negatives, positives, scores.totals - negatives - positives


class TargetData(NamedTuple):
    """Scores and labels of the target when a certificate is asked for, and the domains with weights."""

    scores: Callable[[], ScoreSketch]
    """Function that returns a sketch of its scores, labelled or not; called only if needed."""
    labels: LabelCounts
    """Labels of the target."""
    weighted: Collection[Domain] = ()
    """Domains whose labels have more than one weight."""
    sampled: bool = True
    """Whether labels as they came may be a sample: not while one class may come later."""
    drawn: bool = False
    """Whether labels were drawn by scores and earlier labels (lemma 22); the target is then `weighted`."""


class ErrorBudget(NamedTuple):
    """Error probabilities that the bounds of a version may spend, each in [0, 1)."""

    limits: float
    """Probability for the limits of bins (lemmas 2 to 9)."""
    masses: float = 0.0
    """Probability for the masses of any intervals (lemma 16)."""
    likelihood: float = 0.0
    """Probability for the likelihood set: of all versions together, or of one version of a window (lemma 15);
    0: there is none."""
    observed: float = 0.0
    """Probability for the masses of any intervals by all observed scores, at all their counts together (lemma
    16); 0: no bound rests on these."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds on the risk of maps, all on one event."""

    data: VersionData
    """Labels of the version, and the rule of its bins."""
    budget: ErrorBudget
    """Error probabilities of the version."""
    forecasts: Forecasts | None = None
    """Forecasts of the labels of the version's domain, as of this version or an earlier one; None if they are
    those of a sliding window, or of matured cohorts."""
    windowed: bool = False
    """Whether the cells are those of a sliding window."""
    drawn: bool = False
    """Whether the labels were drawn by scores and earlier labels (lemma 22)."""

    @cached_property
    def by_draws(self) -> Bounds:
        """Bounds by the same labels, drawn by scores and earlier labels."""
        return replace(self, drawn=True)

    @property
    def domain(self) -> Domain:
        """Domain of the version's labels."""
        return self.data.domain

    @cached_property
    def bins(self) -> int:
        """Number of bins of the uniform-mass map of the labels; 1 if there is no rule for them."""
        data = self.data
        return 1 if data.bins is None else len(form(data.labels, data.bins).splits) - 1

    @property
    def delta(self) -> float:
        """Share of δ that this version spends."""
        once = 0.0 if self.windowed else self.budget.likelihood
        return sum(self.budget) - once - self.budget.observed

    @cached_property
    def labels(self) -> LabelCounts:
        """Labels that the version was formed from."""
        _, negatives, positives, pending = self.data.cells
        version = self.data.versions_before if self.windowed else None
        labelled = int((negatives + positives).sum())
        return LabelCounts(int(positives.sum()), labelled, version, int(pending.sum()))

    @cached_property
    def log_likelihoods(self) -> tuple[float, ...]:
        """Log likelihoods of the forecasts of the version's labels; empty if they were not forecast."""
        labels, forecasts = self.data.labels, self.forecasts
        if self.data.predictions is not None:
            return ()
        if self.windowed:
            return tuple(replayed(labels).log_likelihoods.tolist())
        # Forecasts of labels that the version does not have are of a later one.
        if forecasts is None or forecasts.labels > labels.n:
            return ()
        scored = forecasts.scored.copy()
        scored.score(labels)
        return tuple(scored.log_likelihoods.tolist())

    def bound_of(self, served: RecalibrationMap, *, scores: ScoreSketch | None = None) -> RiskBound:
        """Return the smaller of two bounds on R of any map in the version's domain, if there are two.

        One is the distance from the best map that the limits of bins certify (lemma 9), the other the largest
        risk over the likelihood set (lemma 17). Drawn labels have the other alone.

        Parameters
        ----------
        served
            the map with its weights.
        scores
            all observed scores of the version's domain, labelled or not; None: not known.
        """
        if self.refutes_monotone:
            return RiskBound(1.0, monotone=False)
        risk = 1.0
        if not self.drawn:
            centre, inner, atoms = self._best
            risk = centre.bound_of(_values_of(served, inner, atoms))
        if self._paths is not None:
            risk = min(risk, self._paths.risk(partial(_values_of, served), scores=scores))
        return RiskBound(risk, monotone=True)

    def reads(self, scores: ScoreSketch | None) -> bool:
        """Return whether `bound_of` a map rests on these observed scores."""
        paths = self._paths
        return scores is not None and paths is not None and paths.reads(scores)

    @property
    def refutes_monotone(self) -> bool:
        """Whether `bound_of` a map claims nothing because h* is not monotone."""
        if not (self.drawn or self._best[0].bound.monotone):
            return True
        return self._paths is not None and not self._paths.monotone

    def doubled(self, doublings: int) -> Bounds:
        """Return the bounds of a version of 2^d times as many labels at like rates, d ≥ 0."""
        forecasts, many = self.forecasts, self.data.labels
        for _ in range(doublings):
            forecasts = None if forecasts is None else forecasts.updated(many)
            many = doubled(many, 1)
        return replace(self, data=msgspec.structs.replace(self.data, labels=many), forecasts=forecasts)

    def target_risk(self, served: RecalibrationMap, target: LabelCounts, *, delta: float) -> float:
        """Return a bound in [0, 1] on R_Q of the served map, by label shift (lemma 18).

        Parameters
        ----------
        served
            the served map with its weights.
        target
            labels of the target.
        delta
            error probability of the priors of both domains, in (0, 1).
        """
        if self._paths is None:
            return 1.0
        return self._paths.risk(partial(_values_of, served), shift_limits(self.labels, target, delta))

    @cached_property
    def _paths(self) -> PathBounds | None:
        """Bounds over the likelihood set; None if the labels were not forecast."""
        if not self.log_likelihoods:
            return None
        _, masses, once, observed = self.budget
        return PathBounds(self.data.labels, self.log_likelihoods, once, masses, observed, drawn=self.drawn)

    @cached_property
    def _best(self) -> tuple[Centre, Floats, Floats]:
        """Best certified map, the edges between its groups of cells, and each group's score if single."""
        sketch, negatives, positives, pending = self.data.cells
        single = ~np.isnan(sketch.atoms)
        centre = Centre.best_of(VersionLimits(negatives, positives, self.budget.limits, single, pending))
        edges = grid.left_edges(sketch.cells[centre.starts[1:] - 1] + np.int32(1), sketch.level)
        return centre, edges, np.where(centre.single, sketch.atoms[centre.starts], np.nan)


def doubled(sketch: ScoreSketch, doublings: int) -> ScoreSketch:
    """Return a sketch doubled d ≥ 0 times, each time by as many expected scores as it has."""
    many = sketch.at_level(sketch.level)
    for _ in range(doublings):
        many.merge(many.with_counts(_expected(many.counts)))
    return many


def _expected(counts: Counts) -> Counts:
    """Return the expected counts of as many scores again; of labels, without their noise."""
    if len(counts) == 1:
        return counts
    totals = counts.sum(axis=0)
    starts, rates = isotonic(counts[1] / totals, totals.astype(np.float64))
    positives = np.rint(totals * np.repeat(rates, np.diff(starts))).astype(np.int64)
    return np.stack((totals - positives, positives))


def _values_of(served: RecalibrationMap, inner: Floats, atoms: Floats) -> MapValues:
    """Return the values of a map between these edges, 0 and 1, and at these scores; NaN at NaN."""
    values, known = np.full(len(atoms), np.nan), ~np.isnan(atoms)
    if known.any():  # few versions have any
        values[known] = served.apply_checked(atoms[known], served.weights)
    return MapValues(*_range(served, inner), values)


def _range(served: RecalibrationMap, inner: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest value of a map in each bin between these edges, 0 and 1.

    Parameters
    ----------
    served
        the map with its weights.
    inner
        float64[m−1], ascending inside (0, 1).

    Returns
    -------
    float64[m] each.
    """
    left, right = np.concatenate(([0.0], inner)), np.concatenate((inner, [1.0]))
    weights = served.weights
    odds = weights[1] / weights[0] if weights[0] else np.inf
    if served.knots:
        return _range_of_line(served, left, right, odds)
    if not served.values:
        return shift_odds(left, odds), shift_odds(right, odds)
    steps = np.array(served.edges[1:-1])
    first, last = np.searchsorted(steps, left, "right"), np.searchsorted(steps, right, "left")
    values = shift_odds(np.array([*served.values, served.values[-1]]), odds)
    runs = np.column_stack((first, last + 1)).ravel()
    return np.minimum.reduceat(values, runs)[::2], np.maximum.reduceat(values, runs)[::2]


def _range_of_line(
    served: RecalibrationMap, left: Floats, right: Floats, odds: float
) -> tuple[Floats, Floats]:
    """Return `_range` of a linear map: its least and largest values are at knots, or at the ends of a bin."""
    knots = expit(np.array(served.knots))
    ends = served.apply_checked(np.concatenate((left, right, knots)), NO_SHIFT)
    at_left, at_right, at_knots = np.split(ends, (len(left), 2 * len(left)))
    lowest, highest = np.minimum(at_left, at_right), np.maximum(at_left, at_right)
    owner = np.searchsorted(left, knots, side="right") - 1
    np.minimum.at(lowest, owner, at_knots)
    np.maximum.at(highest, owner, at_knots)
    return shift_odds(lowest, odds), shift_odds(highest, odds)
