"""Decisions of a run, and sums over the labels that came later.

What is kept is bounded, and depends on the order of the labels alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Self

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.quality.decision_figures import (
    CELLS,
    Cells,
    DecisionFigures,
    DecisionRule,
    Estimate,
    count_limits,
    rate,
)
from streamcal.quality.decisions import ACT, DECISIONS, REVIEW, Capacity, Thresholds
from streamcal.quality.figures import Unrated
from streamcal.quality.groups import STAKES
from streamcal.quality.history import GRAIN
from streamcal.quality.panes import Panes
from streamcal.quality.sampled_sums import SampledPanes
from streamcal.quality.verdict import Arrival
from streamcal.sketch.counts_c import add_labels
from streamcal.sketch.decoding import Count, Finite, require

_CODES: Final = len(DECISIONS)
_SUMS: Final = 6  # of `add_labels`, and of `_SampledPanes`
_SAMPLED_STAKES: Final = 0.9 * 2.0 ** -np.arange(18.0)


class _Panes(Panes):
    """Sums of cells in panes of event time."""

    @property
    def _columns(self) -> int:
        return CELLS * _SUMS

    def _count(self, row: int, forecasts: Floats, labels: Floats, begin: int, end: int) -> None:
        _add_cells(self.sums[row].reshape(CELLS, _SUMS), forecasts[:, begin:end], labels[begin:end])


class _SampledPanes(SampledPanes):
    """Sums of cells, for each range of weights, where some predictions are labelled by chance.

    They are the number of predictions, and the sum of their forecasts p; of labels 1 that of u (1 − p), of
    labels 0 that of u p, of both that of the squares, and the number of labels. u is the weight over the end
    of its range.
    """

    @property
    def _columns(self) -> int:
        return CELLS * _SUMS * len(self.ranges)

    def predict(self, columns: Floats, weights: Floats, times: Floats) -> None:
        """Add predictions: scores, served probabilities and cells, float64[3, n]."""
        self._begin(times)
        _, at = self._column(columns[2], weights)
        self._sum(times, [(at, np.ones(len(weights))), (at + 1, columns[1])])

    def label(self, columns: Floats, labels: Floats, weights: Floats, times: Floats) -> None:
        """Add labels of predictions that were added."""
        end, at = self._column(columns[2], weights)
        share, one = weights / end, labels == 1.0
        excess = share * np.where(one, 1.0 - columns[1], columns[1])
        squares = np.ceil(excess**2 / GRAIN) * GRAIN
        self._sum(times, [(at + np.where(one, 2, 3), excess), (at + 4, squares), (at + 5, np.ones(len(end)))])

    def _column(self, cells: Floats, weights: Floats) -> tuple[Floats, Counts]:
        ends, places = self._places(weights)
        return ends, _SUMS * (CELLS * places + cells.astype(np.int64))


class DecisionSums(msgspec.Struct):
    """Decisions of one run, and sums over their labels; its fields are its state.

    Examples
    --------
    >>> from streamcal.quality.decision_figures import decision_names
    >>> from streamcal.quality.decisions import Costs
    >>> sums = DecisionSums(DecisionRule(Costs(1.0, 19.0)))
    >>> p = np.array([0.01, 0.5])
    >>> decision_names(sums.take(p, p, np.full(2, np.nan))).tolist()
    ['pass', 'act']
    """

    rule: DecisionRule
    capacity: Capacity | None = None
    by_score: Capacity | None = None
    """The same capacity, of decisions by the score."""
    begin: Finite | None = None
    """Event time of the run when the rule began, in seconds; None: with the run."""
    counts: list[Count] = msgspec.field(default_factory=lambda: [0] * _CODES)
    """Number of predictions by decision."""
    forecasts: list[Finite] = msgspec.field(default_factory=lambda: [0.0] * _CODES)
    """Sum of their probabilities."""
    sums: Floats = msgspec.field(default_factory=partial(np.zeros, CELLS * _SUMS))
    """Sums of `add_labels` of each cell."""
    panes: _Panes = msgspec.field(default_factory=_Panes)
    sampled: _SampledPanes | None = None
    """Sums by propensity, of all predictions; None: labels have none."""

    def __post_init__(self) -> None:
        self.sums = self.sums.reshape(CELLS, _SUMS)  # flat in a state
        require(len(self.counts) == len(self.forecasts) == _CODES, "counts by decision")
        if self.rule.capacity_per_day is not None and self.capacity is None:
            self.capacity, self.by_score = (Capacity(self.rule.capacity_per_day) for _ in range(2))

    @property
    def _thresholds(self) -> Thresholds:
        if self.rule.costs is not None:
            return self.rule.costs.thresholds
        threshold = self.capacity.threshold if self.capacity is not None else 0.0
        return Thresholds(threshold, threshold)

    def take(self, scores: Floats, probabilities: Floats, times: Floats) -> Counts:
        """Return the cells of the decisions on the next predictions, int64[n]; a time is NaN: none."""
        if self.capacity is not None:
            each = map(self.take_one, scores.tolist(), probabilities.tolist(), times.tolist())
            return np.fromiter(each, np.int64, len(scores))
        cells = self.again(scores, probabilities, times)
        grains = np.rint(probabilities / GRAIN) * GRAIN
        for code in range(_CODES):
            some = cells // _CODES == code
            self.counts[code] += int(np.count_nonzero(some))
            self.forecasts[code] += float(grains[some].sum())
        return cells

    def take_one(self, score: float, probability: float, time: float | None) -> int:
        """Return the cell of the decision on the next prediction, under a capacity."""
        assert self.capacity is not None  # noqa: S101  # else decisions are made many at a time
        assert self.by_score is not None  # noqa: S101
        code = self.capacity.take(probability, time)
        self.counts[code] += 1
        self.forecasts[code] += round(probability / GRAIN) * GRAIN
        return _CODES * code + self.by_score.take(score, time)

    def again(self, scores: Floats, probabilities: Floats, times: Floats | None = None) -> Counts:  # noqa: ARG002
        """Return the cells of decisions by costs, int64[n], without counting them."""
        thresholds = self._thresholds
        return _CODES * thresholds.codes(probabilities) + thresholds.codes(scores)

    def restore(self, state: Self | None, clock: float | None) -> None:
        """Go on from a state, if it is of the same rule; else all is counted anew, from an event time on."""
        if state is None or state.rule != self.rule:
            self.begin = clock
            return
        for name in self.__struct_fields__:
            setattr(self, name, getattr(state, name))

    def add(self, unrated: Unrated) -> None:
        """Add predictions that have propensities, and joined labels, in the order in which they came."""
        if unrated.sampled:
            self.sampled = self.sampled or _SampledPanes()
            probabilities, chances, _, kept = zip(*unrated.sampled, strict=True)
            predicted = self._columns(unrated.predictions, probabilities, kept)
            self.sampled.predict(predicted, np.array(chances), np.array(unrated.prediction_times))
        each, times = range(len(unrated.labels)), np.array(unrated.predicted_at)
        known = np.full(len(each), True) if self.begin is None else times > self.begin
        if not known.any():
            return
        decided = [unrated.decided.get(index, 0) for index in each]
        columns = self._columns(unrated.scores, unrated.probabilities, decided)[:, known]
        labels, times = np.array(unrated.labels, float)[known], times[known]
        if self.sampled is None:
            _add_cells(self.sums, columns, labels)
            self.panes.add(columns, labels, times)
        else:
            weights = np.array([unrated.weights.get(index, 1.0) for index in each])[known]
            self.sampled.label(columns, labels, weights, times)

    def _columns(
        self, scores: Sequence[float], probabilities: Sequence[float], decided: Sequence[int]
    ) -> Floats:
        """Return scores, served probabilities and cells, float64[3, n]; under a capacity those decided."""
        forecasts = np.array([scores, probabilities])
        cells: Any = decided if self.capacity is not None else self.again(*forecasts)
        return np.vstack([forecasts, cells])

    def _cells(self, arrival: Arrival, until: float) -> Cells:
        """Return what is known of the cells, by the labels of complete predictions where that matters."""
        if self.sampled is not None:
            sums, _, _ = self.sampled.ended(until - arrival.age)
            return _of_sampled(sums[:1].sum(axis=0), self.sampled.ranges)
        if arrival.fair:
            return _of_labels(self.sums)
        sums, _, _ = self.panes.ended(until - arrival.age)
        return _of_labels(sums[:1].sum(axis=0))

    def figures(
        self, arrival: Arrival, until: float, days: float, calibrated: bool, withheld: str
    ) -> DecisionFigures:
        """Return the figures.

        Parameters
        ----------
        arrival
            what is known of how labels come: where they are no fair sample, those of complete predictions
            count, as in the verdict.
        until
            latest event time of a label, in seconds; −inf: unknown.
        days
            event time from the first prediction to the last; 0: unknown.
        calibrated
            whether the verdict says so: if not, what is to be expected before labels is withheld.
        withheld
            reason why no label counts, as of `Quality.bias`; empty: they count.
        """
        acted, total = self.counts[ACT], sum(self.forecasts)
        figures = DecisionFigures(
            self.rule,
            self._thresholds,
            dict(zip(DECISIONS, self.counts, strict=True)),
            Estimate(*(each / days for each in count_limits(acted, sum(self.counts)))) if days else None,
            self.forecasts[ACT] / acted if acted and calibrated else None,
            sum(self.forecasts[REVIEW:]) / total if total and calibrated else None,
            withheld,
        )
        cells = self._cells(arrival, until)
        if not withheld and cells.labels:
            rate(figures, cells, arrival)
        return figures


def _add_cells(sums: Floats, columns: Floats, labels: Floats) -> None:
    """Add labels to the sums of their cells; columns are scores, served probabilities, and cells."""
    columns, labels = np.ascontiguousarray(columns), np.ascontiguousarray(labels)
    add_labels(sums, columns[2].astype(np.int64), columns[:2], labels)


def _of_labels(sums: Floats) -> Cells:
    """Return the cells by sums of all labels, float64[cells · 6]."""
    labels, forecasts, positives, squares = sums.reshape(CELLS, _SUMS).T[:4]
    classes, bounds = np.array([labels - positives, positives]), np.full(CELLS, 2.0)
    number = round(labels.sum())
    return Cells(labels, forecasts, positives - forecasts, squares, bounds, STAKES, classes, False, number)


def _of_sampled(sums: Floats, ranges: Sequence[int]) -> Cells:
    """Return the cells by sums of `_SampledPanes`, float64[ranges · cells · 6]."""
    number, forecasts, ones, zeros, squares, labels = sums.reshape(-1, _SUMS).T
    ends = np.repeat(np.exp2(np.array(ranges, float)), CELLS)
    classes, squares = ends * np.array([-zeros, ones]), ends**2 * squares
    excess, seen = classes.sum(axis=0), round(labels.sum())
    return Cells(number, forecasts, excess, squares, ends, _SAMPLED_STAKES, classes, True, seen)
