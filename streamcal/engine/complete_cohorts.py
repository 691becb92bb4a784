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
from typing import Final, NamedTuple

import msgspec
import numpy as np

from streamcal.sketch.decoding import Count, Part
from streamcal.sketch.score_sketch import ScoreSketch

_LEAST: Final = 64  # predictions of a cohort: fewer certify nothing
_WAITING: Final = 4096  # predictions or labels that wait to be counted


class Cohort(NamedTuple):
    """Scores and labels of one cohort, or of several together."""

    end: Count
    """Number of the first prediction after it."""
    predictions: ScoreSketch
    """Scores of the predictions, without labels; do not change it."""
    labels: ScoreSketch
    """Scores of the predictions with a label, and these labels; do not change it."""


class CompleteCohorts(Part, dict=True):
    """Cohorts of predictions with the labels that have come; after `count`, its fields are its state."""

    first: Count
    """Number of the first prediction."""
    exact: bool = True
    """Whether every label had the number of its prediction."""
    number: Count = 0
    """Number of matured cohorts."""
    whole: Cohort = msgspec.field(default_factory=lambda: _cohort(0))
    """All matured cohorts as one."""
    open: list[Cohort] = msgspec.field(default_factory=list)
    """The others, one after the other."""

    def __post_init__(self) -> None:
        self._predicted, self._scores = array("d"), array("d")
        self._labels, self._numbers = array("b"), array("q")
        self.n = sum(cohort.predictions.n for cohort in (self.whole, *self.open))
        """Number of predictions counted."""

    def predict(self, score: float) -> None:
        """Take the checked score of the next prediction."""
        self._predicted.append(score)
        if len(self._predicted) >= _WAITING:
            self.count()

    def label(self, score: float, label: int, number: int) -> None:
        """Take the one checked label of the prediction with this number; earlier ones are left out."""
        if number >= self.first:
            self._scores.append(score)
            self._labels.append(label)
            self._numbers.append(number - self.first)
            if len(self._scores) >= _WAITING:
                self.count()

    def matured(self, end: int) -> tuple[Cohort, int] | None:
        """Return the cohorts up to prediction ``end`` as one, and their number; None if there are none.

        Whatever ``end`` depends on, the ends of cohorts do not.
        """
        self.count()
        while self.open and self.open[0].end <= min(end - self.first, self.n):
            cohort = self.open.pop(0)
            self.whole.predictions.merge(cohort.predictions)
            self.whole.labels.merge(cohort.labels)
            self.whole = self.whole._replace(end=cohort.end)
            self.number += 1
        return (self.whole, self.number) if self.number and self.exact else None

    def count(self) -> None:
        """Count the predictions and labels that wait."""
        predicted, start = np.array(self._predicted, np.float64), 0
        while start < len(predicted):
            if not self.open or self.open[-1].end <= self.n:
                self.open.append(_cohort(_next_end(self.n)))
            cohort = self.open[-1]
            part = predicted[start : start + cohort.end - self.n]
            cohort.predictions.add_checked(part, None)
            start += len(part)
            self.n += len(part)
        scores, labels = np.array(self._scores, np.float64), np.array(self._labels, np.int8)
        ends = [self.whole.end, *(cohort.end for cohort in self.open)]
        owners = np.searchsorted(ends, np.array(self._numbers, np.int64), side="right")
        for owner, cohort in enumerate((self.whole, *self.open)):
            own = owners == owner
            if own.any():
                cohort.labels.add_checked(scores[own], labels[own])
        self._predicted, self._scores = array("d"), array("d")
        self._labels, self._numbers = array("b"), array("q")


def _cohort(end: int) -> Cohort:
    return Cohort(end, ScoreSketch(labelled=False), ScoreSketch())


def _next_end(end: int) -> int:
    """Return the end of a cohort that begins at this number."""
    return end + max(_LEAST, end)
