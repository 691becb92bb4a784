"""Figures of groups of predictions, such as segments: a few sums each, and which of them surely deviate.

The gap of a group has a confidence sequence, as that of all labels has (`streamcal.quality.sequences`), from
fewer sums and so a little wider: docs/proofs/verdict.md, lemma 6.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.quality.sequences import DELTA, limits
from streamcal.values import Floats

__all__ = ["SUMS", "GroupFigures", "add_label", "group_figures"]

SUMS: Final = 6
"""Number of sums of a group."""

_STAKES: Final = 0.45 * 2.0 ** -np.arange(14.0)
_PENALTIES: Final = -np.log1p(-2.0 * _STAKES) - 2.0 * _STAKES


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
    """Whether the gap is surely not 0: of those found so, at most `DELTA` are wrong on average."""

    @property
    def worst_first(self) -> npt.NDArray[np.intp]:
        """Indices of the groups: those that deviate, then by the gap that is sure, then by labels."""
        sure = np.maximum(np.maximum(self.low, -self.high), 0.0)
        return np.lexsort((-self.labels, -np.nan_to_num(sure), ~self.deviates))


def add_label(sums: list[float], score: float, forecast: float, label: int) -> None:
    """Add a label to the sums of its group, in the order in which labels come.

    Parameters
    ----------
    sums
        Labels, sum of the forecasts, sum of the labels, sum of squares about the mean difference so far, and
        squared errors of scores and of forecasts: `SUMS` numbers, 0 at the beginning.
    score, forecast
        Score and served probability, in [0, 1].
    label
        0 or 1.
    """
    expected = (sums[2] - sums[1]) / sums[0] if sums[0] else 0.0
    error = label - forecast
    sums[0] += 1.0
    sums[1] += forecast
    sums[2] += label
    sums[3] += (error - expected) * (error - expected)
    sums[4] += (score - label) * (score - label)
    sums[5] += error * error


def group_figures(sums: Floats) -> GroupFigures:
    """Return the figures of groups, given their sums: float64[n, `SUMS`]."""
    labels, forecasts, positives, squares, before, after = sums.T
    excess = positives - forecasts
    penalty = squares[:, None] / 4.0 * _PENALTIES
    processes = np.concatenate([excess[:, None] * _STAKES, -excess[:, None] * _STAKES], axis=1)
    low, high, log_e = limits(processes - np.tile(penalty, 2), _STAKES, np.zeros(len(sums)))
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
            _found(log_e),
        )


def _found(log_e: Floats) -> npt.NDArray[np.bool_]:
    """Return which hypotheses fall by the procedure of Benjamini and Hochberg for e-values.

    It needs nothing of how they depend on one another, and may be used at any time (Wang and Ramdas 2022).
    """
    order = np.argsort(-log_e, kind="stable")
    needed = np.log(len(log_e) / (DELTA * np.arange(1, len(log_e) + 1)))
    passed = np.flatnonzero(log_e[order] >= needed)
    found = np.zeros(len(log_e), np.bool_)
    if len(passed):
        found[order[: passed[-1] + 1]] = True
    return found
