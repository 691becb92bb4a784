"""Figures of groups of predictions, such as segments: a few sums each, and which of them surely deviate.

The gap of a group has a confidence sequence, as that of all labels has (`streamcal.quality.sequences`), from
fewer sums and so a little wider: docs/proofs/verdict.md, lemma 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.values import Floats
from streamcal.delayed.delay_laws_c import COMPLETE
from streamcal.quality.label_sums import DELTA, LabelSums, discoveries, limits
from streamcal.sketch.counts_c import add_labels

KEPT: Final = 1000
"""Number of groups of a field, or of keys, that a run keeps at least: those with the most labels."""

_SUMS: Final = 6
_TOLERANCE: Final = 0.1  # of the rarer class
STAKES: Final = 0.45 * 2.0 ** -np.arange(14.0)
_PENALTIES: Final = -np.log1p(-2.0 * STAKES) - 2.0 * STAKES


class GroupFigures(NamedTuple):
    """Figures of n groups, each float64[n]; NaN without labels."""

    labels: Floats
    forecast: Floats
    """Mean served probability."""
    rate: Floats
    """Rate of label 1."""
    gap: Floats
    """Mean served probability − rate."""
    low: Floats
    high: Floats
    """Confidence sequence of the gap, of each group alone, with probability 1 − `DELTA`."""
    brier_before: Floats
    brier_after: Floats
    """Brier scores of the scores and of the served probabilities."""
    deviates: npt.NDArray[np.bool_]
    """Whether the gap is surely more than a tenth of the rarer class: at most `DELTA` of those are wrong."""

    @property
    def worst_first(self) -> npt.NDArray[np.intp]:
        """Indices of the groups: those that deviate, then by the gap that is sure, then by labels."""
        sure = np.maximum(np.maximum(self.low, -self.high), 0.0)
        return np.lexsort((-self.labels, -np.nan_to_num(sure), ~self.deviates))


class Groups(msgspec.Struct, dict=True):
    """Sums of groups by name; None is a name, too. Its fields are its state."""

    names: list[str | None] = []
    """Names of the groups."""
    sums: Floats = msgspec.field(default_factory=lambda: np.empty((0, _SUMS)))
    """Sums of each group, see `add_labels`: float64[n, 6]."""

    def __post_init__(self) -> None:
        """Check a decoded state; raise ValueError if it is none."""
        self.kept: int | None = KEPT
        """Number of groups that `prune` leaves; None: all."""
        self._places = {name: place for place, name in enumerate(self.names)}
        self.sums = self.sums.reshape(len(self.names), _SUMS)  # one row in a state

    def __len__(self) -> int:
        return len(self.names)

    def add(self, names: Sequence[str | None], forecasts: Floats, labels: Floats) -> None:
        """Add labels in the order in which they came.

        Parameters
        ----------
        names
            group of each; of fewer names, they begin again and again.
        forecasts, labels
            scores and served probabilities, float64[2, n]; labels, float64[n].
        """
        places = self._places
        at = np.array([places.setdefault(name, len(places)) for name in names], np.int64)
        if len(places) > len(self.names):
            self.names = list(places)
            self.sums = np.concatenate([self.sums, np.zeros((len(places) - len(self.sums), _SUMS))])
        every = np.tile(at, len(labels) // max(len(at), 1) + 1)[: len(labels)]
        add_labels(self.sums, every, np.ascontiguousarray(forecasts), labels)

    def prune(self) -> None:
        """Forget the groups with the fewest labels, once there are twice as many as are kept."""
        if self.kept is None or len(self) <= 2 * self.kept:
            return
        chosen = np.sort(np.argsort(-self.sums[:, 0], kind="stable")[: self.kept])
        self.sums, self.names = self.sums[chosen], [self.names[place] for place in chosen]
        self._places = {name: place for place, name in enumerate(self.names)}


def group_figures(sums: Floats) -> GroupFigures:
    """Return the figures of groups, given their sums: float64[n, 6]."""
    labels, forecasts, positives, squares, before, after = sums.T
    excess, tolerated = positives - forecasts, _TOLERANCE * np.minimum(forecasts, labels - forecasts)
    penalty, even = squares[:, None] / 4.0 * _PENALTIES, np.zeros(len(sums))

    def processes(slack: Floats) -> Floats:
        above, below = excess - slack, -excess - slack
        return np.concatenate([above[:, None] * STAKES - penalty, below[:, None] * STAKES - penalty], axis=1)

    low, high, _ = limits(processes(even), STAKES, even)
    *_, log_e = limits(processes(tolerated), STAKES, even)
    with np.errstate(invalid="ignore", divide="ignore"):
        forecast, rate = forecasts / labels, positives / labels
        low, high = np.maximum(-high / labels, forecast - 1.0), np.minimum(-low / labels, forecast)
        return GroupFigures(
            labels,
            forecast,
            rate,
            forecast - rate,
            low,
            high,
            before / labels,
            after / labels,
            discoveries(log_e),
        )


def ranked(by_field: Mapping[str, Groups]) -> tuple[list[tuple[str, str | None]], GroupFigures]:
    """Return field and name of all groups, and their figures: the worst first."""
    figures = group_figures(
        np.concatenate([np.empty((0, _SUMS)), *(each.sums for each in by_field.values())])
    )
    return _sorted([(field, name) for field, groups in by_field.items() for name in groups.names], figures)


def by_propensity(by_key: Mapping[str, LabelSums]) -> tuple[list[tuple[str, str | None]], GroupFigures]:
    """Return figures of keys as `ranked` does, of predictions of which some are labelled by chance.

    One of n keys deviates if its interval with 1 − `DELTA`/n says so.
    """
    rows, found = list[tuple[float, ...]](), {key: sums for key, sums in by_key.items() if sums.labels}
    for sums in found.values():
        gap, sure = (sums.gaps("after", main=True, delta=DELTA / count) for count in (1, len(found)))
        forecast, mean, low, high = (float(each[0, 0]) for each in (gap.level, gap.mean, gap.low, gap.high))
        tolerated = _TOLERANCE * min(forecast, 1.0 - forecast)
        tolerated += (1.0 - COMPLETE) * forecast * (1.0 - forecast)  # labels may be missing
        deviates = max(float(sure.low[0, 0]), -float(sure.high[0, 0])) > tolerated
        gain = sums.gains(main=True)
        briers = float(gain.level[0]), float((gain.level - gain.mean)[0])
        rows.append((sums.labels, forecast, forecast - mean, mean, low, high, *briers, deviates))
    columns = np.array(rows, np.float64).reshape(-1, len(GroupFigures._fields)).T
    return _sorted([("key", key) for key in found], GroupFigures._make([*columns[:-1], columns[-1] > 0.0]))


def _sorted(
    named: Sequence[tuple[str, str | None]], figures: GroupFigures
) -> tuple[list[tuple[str, str | None]], GroupFigures]:
    order = figures.worst_first
    return [named[at] for at in order], GroupFigures._make(column[order] for column in figures)
