"""Figures of decisions, by sums over their labels: what they save, precision and recall.

They are compared with decisions by the raw score, and with acting on all or on none. Its intervals are
confidence sequences: they hold together at any time, whatever labels depend on (docs/proofs/decisions.md).
Where labels are seen with known chances, these count (lemma 4 there).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.values import Counts, Floats
from streamcal.delayed.delay_laws_c import COMPLETE
from streamcal.quality.decisions import ACT, DECISIONS, PASS, Costs, Decision, Thresholds
from streamcal.quality.groups import STAKES
from streamcal.quality.history import GRAIN
from streamcal.quality.label_sums import gain_table, limits
from streamcal.quality.verdict import Arrival

AGAINST: Final = ("the raw score", "acting on all", "acting on none")
"""Other decisions on the same predictions, which those by the served probability are compared with."""

CELLS: Final = len(DECISIONS) ** 2
"""Number of cells: by the decision that was made, and by the one that the score would have been."""

_NAMES: Final = np.array(DECISIONS)
_SERVED, _RAW = np.divmod(np.arange(CELLS), len(DECISIONS))
_FAMILY: Final = 6  # intervals that hold together: three savings, and those of precision and recall


def decision_names(cells: Counts | Sequence[int]) -> npt.NDArray[np.str_]:
    """Return the decisions of cells, str[n]; a cell is 3 times the decision, plus that on the score."""
    return _NAMES[np.asarray(cells, np.int64) // len(DECISIONS)]


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


class Cells(NamedTuple):
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


def rate(figures: DecisionFigures, cells: Cells, arrival: Arrival) -> None:
    """Add the figures by labels to figures of decisions."""
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


def _limits(cells: Cells, slopes: Floats) -> tuple[float, float]:
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


def count_limits(found: int, n: int) -> tuple[float, float, float]:
    """Return a count, and limits of the sum of the probabilities that there were of counting (lemma 2)."""
    processes = np.concatenate([found * np.log1p(STAKES), found * np.log1p(-STAKES)])
    low, high, _ = limits(processes[None], STAKES, np.zeros(1))
    return found, max(float(low[0]), 0.0), min(float(high[0]), float(n))
