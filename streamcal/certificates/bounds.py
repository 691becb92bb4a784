"""Certified bounds of one map version, from the cells as they were when it was formed.

Every bound is computed when it is first asked for, and cached: while a version stands, mode ``auto`` may
serve many mixtures that are all certified by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from streamcal.certificates.bin_limits import BinningLimits, VersionLimits
from streamcal.certificates.path_bounds import PathBounds
from streamcal.certificates.prequential import Forecasts
from streamcal.certificates.source import Centre, RiskBound, certify_served
from streamcal.certificates.target import LabelCounts, certify_target, shift_limits
from streamcal.events import Domain
from streamcal.maps.binning import bin_sums
from streamcal.maps.curves_c import isotonic
from streamcal.maps.platt import expit
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import NO_SHIFT, shift_odds
from streamcal.maps.uniform_mass import form
from streamcal.sketch import grid
from streamcal.sketch.decoding import Number, require
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Counts, Flags, Floats

__all__ = ["Bounds", "ErrorBudget", "TargetData", "VersionData", "doubled"]


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

    def check(self, *, matured: bool) -> None:
        """Raise ValueError if the parts of a state do not fit each other or the options."""
        self.labels.checked_as(ScoreSketch())
        require((self.predictions is not None) == matured, "cohorts do not fit the options")
        scores = self.scores.checked_as(ScoreSketch(labelled=not matured))
        require(len(scores.cells) > 0 and (self.bins is None or self.labels.n > 0), "a version of no scores")
        require(self.bins is None or not matured, "the bins do not fit the cohorts")


class TargetData(NamedTuple):
    """Scores and labels of the target when a certificate is asked for, and the domains with weights."""

    scores: Callable[[], ScoreSketch]
    """Function that returns a sketch of its scores, labelled or not; called only if needed."""
    labels: LabelCounts
    """Labels of the target."""
    weighted: Collection[Domain] = ()
    """Domains with a label whose weight is not 1."""
    sampled: bool = True
    """Whether labels as they came may be a sample: not while one class may come later."""

    def doubled(self, doublings: int) -> TargetData:
        """Return a target with 2^d times as many scores and labels, at the rate that the labels suggest.

        The rate is (S + ½)/(N + 1): labels of one class only do not stay so for ever.
        """
        positives, labels, version, _ = self.labels
        many = labels << doublings
        expected = round(many * (positives + 0.5) / (labels + 1))
        return TargetData(lambda: doubled(self.scores(), doublings), LabelCounts(expected, many, version))


class ErrorBudget(NamedTuple):
    """Error probabilities that the bounds of a version may spend, each in (0, 1)."""

    limits: float
    """Probability for the limits of bins (lemmas 2 to 10)."""
    masses: float
    """Probability for the masses of any intervals (lemma 16)."""
    once: float
    """Probability for the likelihood sets of all versions together (lemma 15)."""
    observed: float = 0.0
    """Probability for the masses of any intervals by all observed scores, at all their counts together (lemma
    16); 0: no bound rests on these."""


class Bounds:
    """Bounds on the risk of maps, all on one event.

    Parameters
    ----------
    data
        labels of the version, and the rule of its bins.
    budget
        error probabilities of the version.
    forecasts
        forecasts of the labels of the version's domain, as of this version or an earlier one; None if there
        are none.
    windowed
        whether the cells are those of a sliding window.
    """

    def __init__(
        self,
        data: VersionData,
        budget: ErrorBudget,
        forecasts: Forecasts | None = None,
        *,
        windowed: bool = False,
    ) -> None:
        self._data, self._budget, self._windowed = data, budget, windowed
        self._forecasts = forecasts
        self.domain = data.domain
        """Domain of the version's labels."""

    @cached_property
    def _formed(self) -> tuple[Counts, int]:
        """First cell of each bin, then m, int64[B+1]; and the number of binnings compared by their labels."""
        data = self._data
        if data.bins is None:
            return np.array([0, len(data.scores.cells)], np.int64), 1
        formed = form(data.labels, data.bins)
        return formed.splits, formed.choices

    @property
    def _splits(self) -> Counts:
        return self._formed[0]

    @cached_property
    def labels(self) -> LabelCounts:
        """Labels that the version was formed from."""
        _, negatives, positives, pending = self._data.cells
        version = self._data.versions_before if self._windowed else None
        labelled = int((negatives + positives).sum())
        return LabelCounts(int(positives.sum()), labelled, version, int(pending.sum()))

    @cached_property
    def _ends(self) -> Counts:
        """Upper end of each bin but the last, in cells of the finest grid."""
        sketch = self._data.scores
        return (sketch.cells[self._splits[1:-1] - 1].astype(np.int64) + 1) << sketch.level

    @cached_property
    def _atoms(self) -> Floats:
        """The score of each bin that holds one only, else NaN."""
        splits = self._splits
        return np.where(np.diff(splits) == 1, self._data.scores.atoms[splits[:-1]], np.nan)

    @cached_property
    def _edges(self) -> Floats:
        """Edges of the map that was formed, to recognise it."""
        return _left_edges(self._data.scores, self._splits[1:-1])

    @cached_property
    def _values(self) -> Floats:
        """Values of the map that was formed, to recognise it."""
        splits, (_, negatives, positives, _) = self._splits, self._data.cells
        return bin_sums(positives, splits) / np.maximum(bin_sums(negatives + positives, splits), 1)

    @cached_property
    def limits(self) -> BinningLimits:
        """Certified limits on the bins of the version."""
        return BinningLimits(self._version, *self._formed)

    @cached_property
    def own(self) -> RiskBound:
        """Bound on the map that was formed."""
        splits, choices = self._formed
        return certify_served(self._version, splits, self._best[0], choices)

    @cached_property
    def log_likelihoods(self) -> tuple[float, ...]:
        """Log likelihoods of the forecasts of the version's labels; empty if they were not forecast."""
        # Forecasts of labels that the version does not have are of a later one.
        if self._forecasts is None or self._forecasts.labels > self._data.labels.n:
            return ()
        forecasts = self._forecasts.scored.copy()
        forecasts.score(self._data.labels)
        return tuple(forecasts.log_likelihoods.tolist())

    def bound_of(self, served: RecalibrationMap, *, scores: ScoreSketch | None = None) -> RiskBound:
        """Return the smaller of two bounds on R of any map in the version's domain, if there are two.

        They are that from the limits of bins, and that over the likelihood set (lemma 17).

        Parameters
        ----------
        served
            the map with its weights.
        scores
            all observed scores of the version's domain, labelled or not; None: not known.
        """
        bound, paths = self.by_limits(served), self._paths
        if paths is None or not bound.monotone:
            return bound
        spent = bound._replace(delta=bound.delta + self._budget.masses)
        if not paths.monotone:
            return spent.withdrawn(monotone=False)
        risk = min(bound.risk, paths.risk(partial(_range, served), scores=scores))
        return spent._replace(
            calibration=min(bound.calibration, risk), sharpness=min(bound.sharpness, risk), risk=risk
        )

    def reads(self, scores: ScoreSketch | None) -> bool:
        """Return whether `bound_of` a map rests on these observed scores."""
        paths = self._paths
        return scores is not None and paths is not None and paths.reads(scores)

    def refutes_monotone(self, served: RecalibrationMap) -> bool:
        """Whether `bound_of` a map claims nothing because h* is not monotone; faster than `bound_of`."""
        paths = self._paths
        return not self.by_limits(served).monotone or (paths is not None and not paths.monotone)

    def by_limits(self, served: RecalibrationMap) -> RiskBound:
        """Return the bound from the limits of bins.

        For the map that was formed it is `own`. For any other, and from matured cohorts for all, it follows
        from the triangle inequality (lemma 9).
        """
        matured = self._data.predictions is not None
        if (
            not matured
            and served.bins == len(self._values)  # seldom: a mixture has more
            and np.array_equal(served.values, self._values)
            and np.array_equal(served.edges[1:-1], self._edges)
        ):
            return self.own
        centre, inner, atoms = self._best
        best = centre.bound
        risk = centre.bound_of(*_range(served, inner), _at(served, atoms)) if best.monotone else 1.0
        # No two scores share a value under the identity, so it loses no sharpness. Of another map we know
        # only that neither part exceeds the whole.
        sharpness = min(risk, 0.25) if served.values or served.knots else 0.0
        return best._replace(
            calibration=risk,
            sharpness=sharpness,
            risk=risk,
            bins=best.bins if matured else len(self._values),
            delta=self._budget.limits,
        )

    def doubled(self, doublings: int) -> Bounds:
        """Return the bounds of a version of 2^d times as many labels at like rates, d ≥ 0."""
        forecasts, many = self._forecasts, self._data.labels
        for _ in range(doublings):
            forecasts = None if forecasts is None else forecasts.updated(many)
            many = doubled(many, 1)
        data = msgspec.structs.replace(self._data, labels=many)
        bounds = Bounds(data, self._budget, forecasts, windowed=self._windowed)
        bounds._formed = self._formed
        return bounds

    def target_risk(self, served: RecalibrationMap, target: TargetData, *, delta: float) -> float:
        """Return a bound in [0, 1] on R_Q of the served map, by label shift (lemma 13).

        Parameters
        ----------
        served
            the served map with its weights.
        target
            scores and labels of the target.
        delta
            error probability of the target's priors and masses, in (0, 1): if the labels were forecast, half
            of it for each of two bounds, of which the smaller is taken.
        """
        lowest, highest = _range(served, self._edges)
        scores, paths = target.scores(), self._paths
        share = delta if paths is None else delta / 2
        bound = certify_target(
            self.limits,
            lowest,
            highest,
            _at(served, self._atoms),
            *self.bin_counts(scores),
            scores=scores.n,
            source_labels=self.labels,
            target_labels=target.labels,
            delta=share,
        )
        if paths is None:
            return bound
        return min(
            bound, paths.risk(partial(_range, served), shift_limits(self.labels, target.labels, share))
        )

    def bin_counts(self, scores: ScoreSketch) -> tuple[Counts, Counts, Flags]:
        """Return the numbers of scores below and in the bins.

        Returns
        -------
        The number that certainly lie below each bin, and the number that may lie in it or below, int64[B]
        each: they differ by the scores of the bin, and by cells that its edges split. And bool[B]: whether
        the bin holds one source score only, and no other score may lie in it.
        """
        starts = scores.cells.astype(np.int64) << scores.level
        ends = starts + (1 << scores.level)
        below = np.concatenate(([0], np.cumsum(scores.totals)))
        first = np.concatenate(([0], np.searchsorted(ends, self._ends, side="right")))
        last = np.concatenate((np.searchsorted(starts, self._ends, side="left"), [len(starts)]))
        held = np.append(scores.atoms, np.nan)[first]  # the one score of the first cell in the bin
        single = ~np.isnan(self._atoms) & ((last == first) | ((last == first + 1) & (held == self._atoms)))
        return below[first], below[last], single

    @cached_property
    def _paths(self) -> PathBounds | None:
        """Bounds over the likelihood set; None if the labels were not forecast."""
        forecasts, budget = self.log_likelihoods, self._budget
        if not forecasts:
            return None
        return PathBounds(self._data.labels, forecasts, budget.once, budget.masses, budget.observed)

    @property
    def _version(self) -> VersionLimits:
        """Cells and shared limits of the version, not cached: they take much memory."""
        data, (scores, negatives, positives, pending) = self._data, self._data.cells
        # Half goes to the best map, half to the one that was formed: matured cohorts certify the best only.
        delta = self._budget.limits / (2 if data.predictions is None else 1)
        return VersionLimits(negatives, positives, delta, ~np.isnan(scores.atoms), pending)

    @cached_property
    def _best(self) -> tuple[Centre, Floats, Floats]:
        """Best certified map, the edges between its groups of cells, and each group's score if single."""
        sketch = self._data.scores
        centre = Centre.best_of(self._version)
        return centre, _left_edges(sketch, centre.starts[1:]), sketch.atoms[centre.starts]


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


def _left_edges(sketch: ScoreSketch, splits: Counts) -> Floats:
    """Return the edges before these cells, float64[m]. A gap before a cell belongs to that cell."""
    return grid.left_edges(sketch.cells[splits - 1] + np.int32(1), sketch.level)


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


def _at(served: RecalibrationMap, atoms: Floats) -> Floats:
    """Return the value of a map at each of these scores, float64[m]; 0 at NaN."""
    values, known = np.zeros(len(atoms)), ~np.isnan(atoms)
    if known.any():  # few versions have any
        values[known] = served.apply_checked(atoms[known], served.weights)
    return values


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
