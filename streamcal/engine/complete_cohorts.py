"""CompleteCohorts: predictions since one class was found to come later, in their order, for certificates.

Labels as they come are then no sample, and those that are released are chosen by labels. The first N
predictions since a moment that does not depend on their labels are one, whichever have a label. A pending one
counts as whatever makes the bound larger (lemma 19). Labels that were found by exclusion do not count.

Predictions are counted by number into cohorts that end at 64, 128, 256, … predictions. Where a number may
stand for a batch, nothing is certified. Memory: two sketches for the matured cohorts together, and two for
each later one.
"""

from __future__ import annotations

from array import array
from typing import Annotated, Final, NamedTuple, Self

import msgspec
import numpy as np

from streamcal.sketch.decoding import Count, require
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["Cohort", "CompleteCohorts", "CompleteState"]

_LEAST: Final = 64  # predictions of a cohort: fewer certify nothing
_WAITING: Final = 4096  # predictions or labels that wait to be counted


class Cohort(NamedTuple):
    """Scores and labels of one cohort, or of several together."""

    end: int
    """Number of the first prediction after it."""
    predictions: ScoreSketch
    """Scores of the predictions, without labels; do not change it."""
    labels: ScoreSketch
    """Scores of the predictions with a label, and these labels; do not change it."""


class CompleteState(msgspec.Struct):
    """State of `CompleteCohorts`."""

    first: Count
    exact: bool
    number: Count
    end: Count
    sketches: Annotated[list[tuple[ScoreSketch, ScoreSketch]], msgspec.Meta(min_length=1)]
    """Predictions and labels of the matured cohorts together, then of each other one."""


class CompleteCohorts:
    """Cohorts of predictions with the labels that have come.

    Parameters
    ----------
    first
        number of the first prediction.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.exact = True
        """Whether every label had the number of its prediction."""
        self._n = 0  # predictions counted
        self._number = 0  # of matured cohorts
        self._whole = self._cohort(0)  # all matured ones as one
        self._open: list[Cohort] = []  # the others, one after the other
        self._predicted, self._scores = array("d"), array("d")
        self._labels, self._numbers = array("b"), array("q")

    def predict(self, score: float) -> None:
        """Take the checked score of the next prediction."""
        self._predicted.append(score)
        if len(self._predicted) >= _WAITING:
            self._count()

    def label(self, score: float, label: int, number: int) -> None:
        """Take the one checked label of the prediction with this number; earlier ones are left out."""
        if number >= self.first:
            self._scores.append(score)
            self._labels.append(label)
            self._numbers.append(number - self.first)
            if len(self._scores) >= _WAITING:
                self._count()

    def matured(self, end: int) -> tuple[Cohort, int] | None:
        """Return the cohorts up to prediction ``end`` as one, and their number; None if there are none.

        Whatever ``end`` depends on, the ends of cohorts do not.
        """
        self._count()
        while self._open and self._open[0].end <= min(end - self.first, self._n):
            cohort = self._open.pop(0)
            self._whole.predictions.merge(cohort.predictions)
            self._whole.labels.merge(cohort.labels)
            self._whole = self._whole._replace(end=cohort.end)
            self._number += 1
        return (self._whole, self._number) if self._number and self.exact else None

    def to_state(self) -> CompleteState:
        """Return the state."""
        self._count()
        sketches = [(each.predictions, each.labels) for each in (self._whole, *self._open)]
        return CompleteState(self.first, self.exact, self._number, self._whole.end, sketches)

    def restore(self, state: CompleteState, predictions: int) -> Self:
        """Replace the state by another, of an engine with so many predictions."""
        self.first, self.exact, self._number = state.first, state.exact, state.number
        self._n = predictions - state.first
        start, end, cohorts, like = 0, state.end, [], self._whole
        for scores, labels in state.sketches:
            scores.checked_as(like.predictions)
            cohorts.append(Cohort(end, scores, labels.checked_as(like.labels)))
            expected = min(end, self._n) - start
            require(scores.n == expected, f"a cohort of {scores.n} predictions, not {expected}")
            start, end = start + expected, _next_end(end)
        require(start == self._n, f"cohorts of {start} predictions, not {self._n}")
        require(
            self._number <= state.end and (self._number == 0) == (state.end == 0),
            f"{self._number} matured cohorts of {state.end} predictions",
        )
        self._whole, *self._open = cohorts
        return self

    def _cohort(self, end: int) -> Cohort:
        return Cohort(end, ScoreSketch(labelled=False), ScoreSketch())

    def _count(self) -> None:
        """Count the predictions and labels that wait."""
        predicted, start = np.array(self._predicted, np.float64), 0
        while start < len(predicted):
            if not self._open or self._open[-1].end == self._n:
                self._open.append(self._cohort(_next_end(self._n)))
            cohort = self._open[-1]
            part = predicted[start : start + cohort.end - self._n]
            cohort.predictions.add_checked(part, None)
            start += len(part)
            self._n += len(part)
        scores, labels = np.array(self._scores, np.float64), np.array(self._labels, np.int8)
        ends = [self._whole.end, *(cohort.end for cohort in self._open)]
        owners = np.searchsorted(ends, np.array(self._numbers, np.int64), side="right")
        for owner, cohort in enumerate((self._whole, *self._open)):
            own = owners == owner
            if own.any():
                cohort.labels.add_checked(scores[own], labels[own])
        self._predicted, self._scores = array("d"), array("d")
        self._labels, self._numbers = array("b"), array("q")


def _next_end(end: int) -> int:
    """Return the end of a cohort that begins at this number."""
    return end + max(_LEAST, end)
