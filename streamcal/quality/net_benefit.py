"""Net benefit of decisions, by the labels that came later.

They are compared with decisions by the raw score, and with acting on all or on none. Its intervals are
confidence sequences: they hold together at any time, whatever labels depend on (docs/proofs/decisions.md).
What is kept is bounded, and depends on the order of the labels alone.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from streamcal.delayed.delay_laws_c import COMPLETE
from streamcal.quality.decisions import ACT, DECISIONS, PASS, REVIEW, Capacity, Costs, Decision, Thresholds
from streamcal.quality.figures import Unrated
from streamcal.quality.groups import STAKES
from streamcal.quality.history import GRAIN
from streamcal.quality.label_sums import limits
from streamcal.quality.panes import Panes
from streamcal.quality.verdict import Arrival
from streamcal.sketch.counts_c import add_labels
from streamcal.sketch.decoding import Count, Finite, require
from streamcal.values import Floats

__all__ = ["AGAINST", "DecisionFigures", "DecisionRule", "DecisionSums", "Estimate"]

AGAINST: Final = ("the raw score", "acting on all", "acting on none")
"""Other decisions on the same predictions, which those by the served probability are compared with."""

_CODES: Final = len(DECISIONS)
_CELLS: Final = _CODES**2  # by the decision that was made, and by the one that the score would have been
_SUMS: Final = 6  # of `add_labels`
_SERVED, _RAW = np.divmod(np.arange(_CELLS), _CODES)
_FAMILY: Final = 6  # intervals that hold together: three savings, and those of precision and recall


class DecisionRule(msgspec.Struct, frozen=True):
    """Rule of a run."""

    costs: Costs | None = None
    capacity_per_day: int | None = None
    currency: str = ""
    """Unit of the costs, such as ``EUR``."""


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
    labels: int = 0
    """Labels that the figures below rest on."""
    precision: Estimate | None = None
    recall: Estimate | None = None
    expected: dict[str, float] = {}
    """Precision and recall that were to be expected of the predictions of these labels."""
    saved: dict[str, Estimate] = {}
    """Cost of each of `AGAINST` − cost of the decisions, per label."""


class _Panes(Panes):
    """Sums of cells in panes of event time."""

    @property
    def _columns(self) -> int:
        return _CELLS * _SUMS

    def _count(self, row: int, forecasts: Floats, labels: Floats, begin: int, end: int) -> None:
        _add_cells(self.sums[row].reshape(_CELLS, _SUMS), forecasts[:, begin:end], labels[begin:end])


class DecisionSums(msgspec.Struct):
    """Decisions of one run, and sums over their labels; its fields are its state.

    Examples
    --------
    >>> sums = DecisionSums(DecisionRule(Costs(1.0, 19.0)))
    >>> [sums.take(None, probability, None) for probability in (0.01, 0.5)]
    ['pass', 'act']
    """

    rule: DecisionRule
    capacity: Capacity | None = None
    acted_on: list[str | None] = []
    """Under a capacity: ids of the latest predictions acted on, at most twice as many as of a day."""
    counts: list[Count] = msgspec.field(default_factory=lambda: [0] * _CODES)
    """Number of predictions by decision."""
    forecasts: list[Finite] = msgspec.field(default_factory=lambda: [0.0] * _CODES)
    """Sum of their probabilities."""
    sums: Floats = msgspec.field(default_factory=partial(np.zeros, _CELLS * _SUMS))
    """Sums of `add_labels` of each cell."""
    panes: _Panes = msgspec.field(default_factory=_Panes)

    def __post_init__(self) -> None:
        self.sums = self.sums.reshape(_CELLS, _SUMS)
        require(len(self.counts) == len(self.forecasts) == _CODES, "counts by decision")
        if self.rule.capacity_per_day is not None and self.capacity is None:
            self.capacity = Capacity(self.rule.capacity_per_day)

    @property
    def _thresholds(self) -> Thresholds:
        if self.rule.costs is not None:
            return self.rule.costs.thresholds
        threshold = self.capacity.threshold if self.capacity is not None else 0.0
        return Thresholds(threshold, threshold)

    def take(self, id_: str | None, probability: float, time: float | None) -> Decision:
        """Return the decision on the next prediction, and count it."""
        if self.capacity is None:
            code = self._thresholds.code(probability)
        elif (code := self.capacity.take(probability, time)) == ACT:
            self.acted_on.append(id_)
            del self.acted_on[: -2 * self.capacity.limit]
        self.counts[code] += 1
        self.forecasts[code] += round(probability / GRAIN) * GRAIN
        return DECISIONS[code]

    def again(self, id_: str | None, probability: float, time: float | None) -> Decision:  # noqa: ARG002
        """Return the decision on a prediction that was taken before; under a capacity, of the latest days."""
        if self.capacity is None:
            return DECISIONS[self._thresholds.code(probability)]
        return DECISIONS[ACT if id_ in self.acted_on else PASS]

    def restore(self, state: Self) -> None:
        """Go on from a state, if it is of the same rule; else all is counted anew."""
        if state.rule == self.rule:
            for name in self.__struct_fields__:
                setattr(self, name, getattr(state, name))

    def add(self, unrated: Unrated) -> None:
        """Add joined labels, in the order in which they came."""
        if self.rule.costs is None or not unrated.labels:
            return
        forecasts, labels = np.array([unrated.scores, unrated.probabilities]), np.array(unrated.labels, float)
        raw, served = self.rule.costs.thresholds.codes(forecasts)
        columns = np.vstack([forecasts, _CODES * served + raw])
        _add_cells(self.sums, columns, labels)
        self.panes.add(columns, labels, np.array(unrated.predicted_at))

    def figures(
        self, arrival: Arrival, until: float, days: float, calibrated: bool, weighted: bool
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
        weighted
            whether labels have weights: no label counts then.
        """
        acted, total, costs = self.counts[ACT], sum(self.forecasts), self.rule.costs
        figures = DecisionFigures(
            self.rule,
            self._thresholds,
            dict(zip(DECISIONS, self.counts, strict=True)),
            Estimate(*(each / days for each in _count(acted, sum(self.counts)))) if days else None,
            self.forecasts[ACT] / acted if acted and calibrated else None,
            sum(self.forecasts[REVIEW:]) / total if total and calibrated else None,
        )
        sums = self.sums
        if not arrival.fair:
            ended, _, _ = self.panes.ended(until - arrival.age)
            sums = ended[:1].sum(axis=0).reshape(_CELLS, _SUMS)
        if costs is not None and not weighted and sums[:, 0].any():
            _rate(figures, costs, sums, arrival)
        return figures


def _add_cells(sums: Floats, columns: Floats, labels: Floats) -> None:
    """Add labels to the sums of their cells; columns are scores, served probabilities, and cells."""
    columns, labels = np.ascontiguousarray(columns), np.ascontiguousarray(labels)
    add_labels(sums, columns[2].astype(np.int64), columns[:2], labels)


def _rate(figures: DecisionFigures, costs: Costs, sums: Floats, arrival: Arrival) -> None:
    """Add the figures by labels, given the sums of the cells: float64[cells, 6]."""
    labels, forecasts, positives = sums.T[:3]
    n, ones, table = float(labels.sum()), float(positives.sum()), costs.table
    # Labels may be missing, all of the class that comes later, or of either where it is not known.
    incomplete = 0.0 if arrival.fair else 1.0 / COMPLETE - 1.0
    classes, by_class = (0, 1) if arrival.late is None else (arrival.late,), (labels - positives, positives)

    for name, other in zip(AGAINST, (_RAW, np.full(_CELLS, ACT), np.full(_CELLS, PASS)), strict=True):
        gain = table[other] - table[_SERVED]  # by cell and label
        sure, slope = float(gain[:, 0] @ labels) / n, gain[:, 1] - gain[:, 0]
        mean, (low, high) = sure + float(slope @ positives) / n, _limits(sums, slope)
        slack = incomplete * max(abs(float((gain[:, label] - mean) @ by_class[label])) for label in classes)
        figures.saved[name] = Estimate(mean, sure + (low - slack) / n, sure + (high + slack) / n)
    acts, caught = _SERVED == ACT, _SERVED != PASS
    low, high, found, most, passed, missed = (
        end for cells in (acts, caught, ~caught) for end in _limits(sums, cells.astype(float))
    )
    if count := float(labels[acts].sum()):
        mean, figures.expected["precision"] = (
            float(each[acts].sum()) / count for each in (positives, forecasts)
        )
        slack = incomplete * mean * (1.0 - mean)
        figures.precision = Estimate(mean, max(low / count - slack, 0.0), min(high / count + slack, 1.0))
    if ones:  # of these, as many may be missing where they were caught as where they were not
        ends = found and found / (found + missed), most and most / (most + passed)
        figures.recall = Estimate(float(positives[caught].sum()) / ones, *ends)
    figures.labels = round(n)
    figures.expected["recall"] = float(forecasts[caught].sum() / max(forecasts.sum(), GRAIN))


def _limits(sums: Floats, slopes: Floats) -> tuple[float, float]:
    """Return limits of the sum of slope · P[Y = 1 | past] over all labels, given the slope of each cell.

    Proofs of decisions, lemma 1.
    """
    labels, forecasts, positives, squares = sums.T[:4]
    scale = float(np.abs(slopes).max(initial=0.0)) or 1.0
    unit = slopes / scale
    gain = STAKES * float(unit @ (positives - forecasts))
    u = 2.0 * np.outer(STAKES, np.abs(unit))
    penalty = (-np.log1p(-u) - u) @ squares / 4.0
    processes = np.concatenate([gain - penalty, -gain - penalty])[None]
    ends = limits(processes, STAKES, np.array([-np.log(_FAMILY)]))
    low, high = (scale * (float(end[0]) + float(unit @ forecasts)) for end in ends[:2])
    reach = np.minimum(slopes, 0.0) @ labels, np.maximum(slopes, 0.0) @ labels
    return max(low, float(reach[0])), min(high, float(reach[1]))


def _count(found: int, n: int) -> tuple[float, float, float]:
    """Return a count, and limits of the sum of the probabilities that there were of counting (lemma 2)."""
    processes = np.concatenate([found * np.log1p(STAKES), found * np.log1p(-STAKES)])
    low, high, _ = limits(processes[None], STAKES, np.zeros(1))
    return found, max(float(low[0]), 0.0), min(float(high[0]), float(n))
