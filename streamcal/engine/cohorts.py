"""Cohorts: the target's predictions in the order in which they were made, with the labels that have come.

Predictions are counted by number into cohorts, whose ends depend on nothing but the options. A cohort is
matured once ``horizon`` predictions were made after its end. The matured cohorts together are the first
predictions of the stream, whether their labels have come or are pending.

A prediction has one label: the first. The state depends only on the scores in their order and on the labels
in theirs. Memory: two sketches for the matured cohorts, two for each of at most about `PARTS` others, and a
bit for each of the newest predictions (`REMEMBERED`).
"""

from __future__ import annotations

import math
from typing import Annotated, Final, NamedTuple, Self

import msgspec
import numpy as np

from streamcal.engine.number_set import NumberSet, NumberSetState
from streamcal.sketch.decoding import MOST, Count, require
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Counts, Floats, Labels

__all__ = ["PARTS", "REMEMBERED", "Cohort", "Cohorts", "CohortsState"]

PARTS: Final = 16
"""Parts that the horizon is divided into: a cohort is at least one of them."""

REMEMBERED: Final = 4
"""Number of horizons for which labelled predictions are remembered; a later label is not counted."""

_LEAST_REMEMBERED: Final = 1 << 16  # predictions
_LEAST: Final = 64  # predictions of a cohort: fewer certify nothing


class Cohort(NamedTuple):
    """Scores and labels of one cohort, or of several together."""

    end: int
    """Number of the first prediction after it."""
    predictions: ScoreSketch
    """Scores of the predictions, without labels; do not change it."""
    labels: ScoreSketch
    """Scores of the predictions with a label, and these labels; do not change it."""


class CohortsState(msgspec.Struct):
    """The state of `Cohorts`."""

    number: Count
    end: Count
    n: Count
    sketches: Annotated[list[tuple[ScoreSketch, ScoreSketch]], msgspec.Meta(min_length=1)]
    """Predictions and labels of the matured cohorts together, then of each other one."""
    labelled: NumberSetState = msgspec.field(default_factory=NumberSetState)


class Cohorts:
    """Scores of predictions and their labels, by the number of the prediction.

    Parameters
    ----------
    max_cells
        largest number of cells of each sketch.
    horizon
        number of later predictions after which a cohort is matured, at least 1; None: `mature` says when.
    growth
        ρ > 1; a cohort has at least (ρ − 1) times as many predictions as there are before it.
    """

    __slots__ = ("_growth", "_horizon", "_max_cells", "_open", "_whole", "labelled", "n", "number")

    def __init__(self, max_cells: int, horizon: int | None, growth: float) -> None:
        self._max_cells, self._horizon, self._growth = max_cells, horizon, growth
        self.n = 0
        """Number of predictions made."""
        self.number = 0
        """Number of matured cohorts."""
        self._whole = self._cohort(0)  # all matured ones as one
        self._open: list[Cohort] = []  # the others, one after the other
        self.labelled = NumberSet(max(REMEMBERED * (horizon or 0), _LEAST_REMEMBERED))
        """Numbers of predictions that have a label. Callers of `label` take the numbers from it first."""

    @property
    def first(self) -> int:
        """Number of predictions at which the next cohort matures."""
        return self._next_end(0) + (self._horizon or 0)

    @property
    def matured(self) -> Cohort | None:
        """The matured cohorts together; None if there is none."""
        return self._whole if self.number else None

    def predict(self, scores: Floats) -> None:
        """Take the checked scores of the next predictions, float64[k]."""
        start = 0
        while start < len(scores):
            if not self._open or self._open[-1].end == self.n:
                self._open.append(self._cohort(self._next_end(self.n)))
            cohort = self._open[-1]
            part = scores[start : start + cohort.end - self.n]
            cohort.predictions.add_checked(part, None)
            start += len(part)
            self.n += len(part)
            if self._horizon is not None:
                self.mature(self.n - self._horizon)

    def mature(self, end: int) -> None:
        """Count the cohorts up to this number of predictions as matured."""
        while self._open and self._open[0].end <= min(end, self.n):
            self._mature()

    def label(self, scores: Floats, labels: Labels, numbers: Counts) -> None:
        """Take checked labels, int8[k], with the scores and the numbers of their predictions, int64[k].

        No number may come twice, see `labelled`. A label whose number is negative or not below `n` belongs to
        no prediction, and is left out.
        """
        ends = [0, self._whole.end, *(cohort.end for cohort in self._open[:-1]), self.n]
        owners = np.searchsorted(ends, numbers, side="right") - 1
        for owner, cohort in enumerate((self._whole, *self._open)):
            own = owners == owner
            if own.any():
                cohort.labels.add_checked(scores[own], labels[own])

    def to_state(self) -> CohortsState:
        """Return the state."""
        sketches = [(each.predictions, each.labels) for each in (self._whole, *self._open)]
        return CohortsState(self.number, self._whole.end, self.n, sketches, self.labelled.to_state())

    def restore(self, state: CohortsState) -> Self:
        """Replace the state by another."""
        self.number, self.n = state.number, state.n
        start, end, cohorts, like = 0, state.end, [], self._cohort(0)
        for predictions, labels in state.sketches:
            predictions.checked_as(like.predictions)
            cohorts.append(Cohort(end, predictions, labels.checked_as(like.labels)))
            expected = min(end, self.n) - start
            require(predictions.n == expected, f"a cohort of {predictions.n} predictions, not {expected}")
            start, end = start + expected, self._next_end(end)
        require(
            start == self.n and self.number <= state.end and (self.number == 0) == (state.end == 0),
            f"{self.number} matured cohorts of {state.end} predictions, of {self.n}",
        )
        self._whole, *self._open = cohorts
        self.labelled.restore(state.labelled)
        return self

    def _next_end(self, end: int) -> int:
        """Return the end of a cohort that begins at this number."""
        growth = min(end * (self._growth - 1.0), float(MOST))
        return end + max(_LEAST, -(-(self._horizon or 0) // PARTS), math.ceil(growth))

    def _cohort(self, end: int) -> Cohort:
        return Cohort(end, ScoreSketch(self._max_cells, labelled=False), ScoreSketch(self._max_cells))

    def _mature(self) -> None:
        """Add the oldest of the others to the matured ones."""
        cohort = self._open.pop(0)
        self._whole.predictions.merge(cohort.predictions)
        self._whole.labels.merge(cohort.labels)
        self._whole = self._whole._replace(end=cohort.end)
        self.number += 1
