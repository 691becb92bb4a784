"""Net benefit of decisions, by the labels that came later.

They are compared with decisions by the raw score, and with acting on all or on none. Its intervals are
confidence sequences: they hold together at any time, whatever labels depend on (docs/proofs/decisions.md).
Where labels are seen with known chances, these count (lemma 4 there). What is kept is bounded, and depends on
the order of the labels alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.delayed.delay_laws_c import COMPLETE
from streamcal.quality.decisions import ACT, DECISIONS, PASS, REVIEW, Capacity, Costs, Decision, Thresholds
from streamcal.quality.figures import Unrated
from streamcal.quality.groups import STAKES
from streamcal.quality.history import GRAIN
from streamcal.quality.label_sums import gain_table, limits
from streamcal.quality.panes import Panes
from streamcal.quality.sampled_sums import SampledPanes
from streamcal.quality.verdict import Arrival
from streamcal.sketch.counts_c import add_labels
from streamcal.sketch.decoding import Count, Finite, require
from streamcal.values import Counts, Floats

__all__ = ["AGAINST", "DecisionFigures", "DecisionRule", "DecisionSums", "Estimate", "decision_names"]

AGAINST: Final = ("the raw score", "acting on all", "acting on none")
"""Other decisions on the same predictions, which those by the served probability are compared with."""

_NAMES: Final = np.array(DECISIONS)
_CODES: Final = len(DECISIONS)
_CELLS: Final = _CODES**2  # by the decision that was made, and by the one that the score would have been
_SUMS: Final = 6  # of `add_labels`, and of `_SampledPanes`
_SERVED, _RAW = np.divmod(np.arange(_CELLS), _CODES)
_SAMPLED_STAKES: Final = 0.9 * 2.0 ** -np.arange(18.0)
_FAMILY: Final = 6  # intervals that hold together: three savings, and those of precision and recall


def decision_names(cells: Counts | Sequence[int]) -> npt.NDArray[np.str_]:
    """Return the decisions of cells, str[n]; a cell is 3 times the decision, plus that on the score."""
    return _NAMES[np.asarray(cells, np.int64) // _CODES]


class DecisionRule(msgspec.Struct, frozen=True):
    """Rule of a run."""

    costs: Costs | None = None
    capacity_per_day: int | None = None
    currency: str = ""
    """Unit of the costs, such as ``EUR``."""

    @property
    def rated_by(self) -> Costs:
        """Costs by which decisions are rated; under a capacity, 1 for each label 1 that is not acted on."""
        return Costs(0.0, 1.0) if self.costs is None else self.costs

    @property
    def unit(self) -> str:
        """Unit of what is saved."""
        return "labels 1" if self.costs is None else self.currency


class Estimate(NamedTuple):
    """A mean with its confidence sequence."""

    mean: float
    low: float
    high: float


class DecisionFigures(msgspec.Struct):
    """Figures of the decisions of a run."""

    rule: DecisionRule
    thresholds: Thresholds
    """Thresholds; under a capacity, those of the present day."""
    predictions: dict[Decision, int]
    """Number of predictions by decision."""
    acts_a_day: Estimate | None
    """Decisions to act by day of event time; None: times are not known."""
    expected_precision: float | None
    """Share of labels 1 to be expected among the predictions acted on, before labels come; None: withheld, or
    there is none."""
    expected_recall: float | None
    """Share to be expected of the labels 1 that are acted on or reviewed."""
    withheld: str = ""
    """Reason why no label counts; empty: they count."""
    labels: int = 0
    """Labels that the figures below rest on."""
    rated: int = 0
    """Number that means are over: of these labels, or of all predictions if some are labelled by chance."""
    precision: Estimate | None = None
    recall: Estimate | None = None
    expected: dict[str, float] = {}
    """Precision and recall that were to be expected of the predictions of these labels."""
    saved: dict[str, Estimate] = {}
    """Mean cost of each of `AGAINST` − cost of the decisions; under a capacity, acting on all is left out."""


class _Panes(Panes):
    """Sums of cells in panes of event time."""

    @property
    def _columns(self) -> int:
        return _CELLS * _SUMS

    def _count(self, row: int, forecasts: Floats, labels: Floats, begin: int, end: int) -> None:
        _add_cells(self.sums[row].reshape(_CELLS, _SUMS), forecasts[:, begin:end], labels[begin:end])


class _SampledPanes(SampledPanes):
    """Sums of cells, for each range of weights, where some predictions are labelled by chance.

    They are the number of predictions, and the sum of their forecasts p; of labels 1 that of u (1 − p), of
    labels 0 that of u p, of both that of the squares, and the number of labels. u is the weight over the end
    of its range.
    """

    @property
    def _columns(self) -> int:
        return _CELLS * _SUMS * len(self.ranges)

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
        return ends, _SUMS * (_CELLS * places + cells.astype(np.int64))


class _Cells(NamedTuple):
    """Sums over each cell that labels give, float64[n] each; n is 9, or as many for each range of weights."""

    number: Floats
    """Number of labels, or of predictions where some are labelled by chance."""
    forecasts: Floats
    """Sum of their forecasts."""
    excess: Floats
    """Estimated sum of label − forecast."""
    squares: Floats
    """Sum of the squares of its terms, each of which is at least −`bounds`."""
    bounds: Floats
    stakes: Floats
    classes: Floats
    """Numbers of labels 0 and of labels 1; where some are labelled by chance, their parts of `excess`:
    float64[2, n]."""
    sampled: bool
    labels: int

    @property
    def positives(self) -> Floats:
        """Estimated sum of the labels."""
        return self.forecasts + self.excess

    @classmethod
    def of_labels(cls, sums: Floats) -> Self:
        """Return the cells by sums of all labels, float64[cells · 6]."""
        labels, forecasts, positives, squares = sums.reshape(_CELLS, _SUMS).T[:4]
        classes, bounds = np.array([labels - positives, positives]), np.full(_CELLS, 2.0)
        number = round(labels.sum())
        return cls(labels, forecasts, positives - forecasts, squares, bounds, STAKES, classes, False, number)

    @classmethod
    def of_sampled(cls, sums: Floats, ranges: Sequence[int]) -> Self:
        """Return the cells by sums of `_SampledPanes`, float64[ranges · cells · 6]."""
        number, forecasts, ones, zeros, squares, labels = sums.reshape(-1, _SUMS).T
        ends = np.repeat(np.exp2(np.array(ranges, float)), _CELLS)
        classes, squares = ends * np.array([-zeros, ones]), ends**2 * squares
        excess, seen = classes.sum(axis=0), round(labels.sum())
        return cls(number, forecasts, excess, squares, ends, _SAMPLED_STAKES, classes, True, seen)


class DecisionSums(msgspec.Struct):
    """Decisions of one run, and sums over their labels; its fields are its state.

    Examples
    --------
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
    sums: Floats = msgspec.field(default_factory=partial(np.zeros, _CELLS * _SUMS))
    """Sums of `add_labels` of each cell."""
    panes: _Panes = msgspec.field(default_factory=_Panes)
    sampled: _SampledPanes | None = None
    """Sums by propensity, of all predictions; None: labels have none."""

    def __post_init__(self) -> None:
        self.sums = self.sums.reshape(_CELLS, _SUMS)  # flat in a state
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

    def _cells(self, arrival: Arrival, until: float) -> _Cells:
        """Return what is known of the cells, by the labels of complete predictions where that matters."""
        if self.sampled is not None:
            sums, _, _ = self.sampled.ended(until - arrival.age)
            return _Cells.of_sampled(sums[:1].sum(axis=0), self.sampled.ranges)
        if arrival.fair:
            return _Cells.of_labels(self.sums)
        sums, _, _ = self.panes.ended(until - arrival.age)
        return _Cells.of_labels(sums[:1].sum(axis=0))

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
            Estimate(*(each / days for each in _count(acted, sum(self.counts)))) if days else None,
            self.forecasts[ACT] / acted if acted and calibrated else None,
            sum(self.forecasts[REVIEW:]) / total if total and calibrated else None,
            withheld,
        )
        cells = self._cells(arrival, until)
        if not withheld and cells.labels:
            _rate(figures, cells, arrival)
        return figures


def _add_cells(sums: Floats, columns: Floats, labels: Floats) -> None:
    """Add labels to the sums of their cells; columns are scores, served probabilities, and cells."""
    columns, labels = np.ascontiguousarray(columns), np.ascontiguousarray(labels)
    add_labels(sums, columns[2].astype(np.int64), columns[:2], labels)


def _rate(figures: DecisionFigures, cells: _Cells, arrival: Arrival) -> None:
    """Add the figures by labels."""
    number, forecasts, positives = cells.number, cells.forecasts, cells.positives
    n, ones, table = float(number.sum()), float(positives.sum()), figures.rule.rated_by.table
    served, raw = (np.resize(codes, len(number)) for codes in (_SERVED, _RAW))
    # Labels may be missing, all of the class that comes later, or of either where it is not known.
    incomplete = 0.0 if arrival.fair else 1.0 / COMPLETE - 1.0
    late = (0, 1) if arrival.late is None else (arrival.late,)

    def slack(gain: Floats, mean: float, part: Any = slice(None)) -> float:
        """Return the most that missing labels add to or take from a sum of gains, float64[n, 2]."""
        moved = gain[:, 1:] - gain[:, :1] if cells.sampled else gain - mean
        each = np.broadcast_to(moved.T, cells.classes.shape) * cells.classes
        return incomplete * float(np.abs(each[:, part].sum(axis=1))[[*late]].max())

    for name, other in zip(AGAINST, (raw, np.full_like(raw, ACT), np.full_like(raw, PASS)), strict=True):
        if figures.rule.costs is None and other.min() == ACT:
            continue
        gain = table[other] - table[served]  # by cell and label
        sure, slope = float(gain[:, 0] @ number) / n, gain[:, 1] - gain[:, 0]
        mean, (low, high) = sure + float(slope @ positives) / n, _limits(cells, slope)
        more = slack(gain, mean)
        figures.saved[name] = Estimate(mean, sure + (low - more) / n, sure + (high + more) / n)
    acts, caught, is_one = served == ACT, served != PASS, np.tile([0.0, 1.0], (len(number), 1))
    low, high, found, most, passed, missed = (
        end for some in (acts, caught, ~caught) for end in _limits(cells, some.astype(float))
    )
    if count := float(number[acts].sum()):
        mean, figures.expected["precision"] = (
            float(each[acts].sum()) / count for each in (positives, forecasts)
        )
        more = slack(is_one, mean, acts)
        mean, low, high = (min(max(end / count, 0.0), 1.0) for end in (mean * count, low - more, high + more))
        figures.precision = Estimate(mean, low, high)
    if ones > 0.0:
        if cells.sampled:  # else as many may be missing where they were caught as where they were not
            more, others = (slack(is_one, 0.0, part) for part in (caught, ~caught))
            found, most = max(found - more, 0.0), most + more
            passed, missed = max(passed - others, 0.0), missed + others
        mean = float(positives[caught].sum()) / ones
        ends = found and found / (found + missed), most and most / (most + passed)
        figures.recall = Estimate(min(max(mean, 0.0), 1.0), *ends)
    figures.labels, figures.rated = cells.labels, round(n)
    figures.expected["recall"] = float(forecasts[caught].sum() / max(forecasts.sum(), GRAIN))


def _limits(cells: _Cells, slopes: Floats) -> tuple[float, float]:
    """Return limits of the sum of slope · P[Y = 1 | past], given the slope of each cell.

    Proofs of decisions, lemmas 1 and 4.
    """
    scale = float(np.abs(slopes).max(initial=0.0)) or 1.0
    unit = slopes / scale
    gain, squares, size = unit * cells.excess, unit**2 * cells.squares, np.abs(unit)
    processes = []
    for sign in (1, -1):  # without a label to be seen, what may be lost is forecast
        lost = size * np.where(sign * unit > 0.0, cells.forecasts, cells.number - cells.forecasts)
        table = gain_table(size * cells.bounds, cells.stakes, sign)
        processes.append(np.stack([gain, squares, lost], axis=1).reshape(-1) @ table)
    ends = limits(np.concatenate(processes)[None], cells.stakes, np.array([-np.log(_FAMILY)]))
    low, high = (scale * (float(end[0]) + float(unit @ cells.forecasts)) for end in ends[:2])
    reach = np.minimum(slopes, 0.0) @ cells.number, np.maximum(slopes, 0.0) @ cells.number
    return max(low, float(reach[0])), min(high, float(reach[1]))


def _count(found: int, n: int) -> tuple[float, float, float]:
    """Return a count, and limits of the sum of the probabilities that there were of counting (lemma 2)."""
    processes = np.concatenate([found * np.log1p(STAKES), found * np.log1p(-STAKES)])
    low, high, _ = limits(processes[None], STAKES, np.zeros(1))
    return found, max(float(low[0]), 0.0), min(float(high[0]), float(n))
