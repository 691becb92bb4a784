"""CompleteCohorts: predictions since one class was found to come later, in their order, for certificates.

Labels as they come are then no sample, and those that are released are chosen by labels. The first N
predictions since a moment that does not depend on their labels are one, whichever have a label. A pending one
counts as whatever makes the bound larger (lemma 19). Labels that were found by exclusion do not count.

Predictions are known by their numbers. Where a number may stand for a batch, nothing is certified.
"""

from __future__ import annotations

from array import array
from typing import Final, Self

import msgspec
import numpy as np

from streamcal.engine.cohorts import Cohort, Cohorts, CohortsState
from streamcal.sketch.decoding import Count, require

__all__ = ["CompleteCohorts", "CompleteState"]

_GROWTH: Final = 2.0
_WAITING: Final = 4096  # predictions or labels that wait to be counted


class CompleteState(msgspec.Struct):
    """State of `CompleteCohorts`."""

    first: Count
    exact: bool
    cohorts: CohortsState


class CompleteCohorts:
    """Cohorts of predictions with the labels that have come.

    Parameters
    ----------
    max_cells
        largest number of cells of each sketch.
    first
        number of the first prediction.
    """

    def __init__(self, max_cells: int, first: int) -> None:
        self.first = first
        self.exact = True
        """Whether every label had the number of its prediction."""
        self._cohorts = Cohorts(max_cells, None, _GROWTH)
        self._predicted, self._scores = array("d"), array("d")
        self._labels, self._numbers = array("b"), array("q")

    def predict(self, score: float) -> None:
        """Take the checked score of the next prediction."""
        self._predicted.append(score)
        if len(self._predicted) >= _WAITING:
            self._count()

    def label(self, score: float, label: int, number: int) -> None:
        """Take a checked label of the prediction with this number; earlier predictions are left out."""
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
        self._cohorts.mature(end - self.first)
        matured = self._cohorts.matured
        return None if matured is None or not self.exact else (matured, self._cohorts.number)

    def to_state(self) -> CompleteState:
        """Return the state."""
        self._count()
        return CompleteState(self.first, self.exact, self._cohorts.to_state())

    def restore(self, state: CompleteState, predictions: int) -> Self:
        """Replace the state by another, of an engine with so many predictions."""
        require(state.first + state.cohorts.n == predictions, "cohorts of other predictions")
        self.first, self.exact = state.first, state.exact
        self._cohorts.restore(state.cohorts)
        return self

    def _count(self) -> None:
        self._cohorts.predict(np.array(self._predicted, np.float64))
        if self._scores:
            labels, numbers = np.array(self._labels, np.int8), np.array(self._numbers, np.int64)
            self._cohorts.label(np.array(self._scores, np.float64), labels, numbers)
        self._predicted, self._scores = array("d"), array("d")
        self._labels, self._numbers = array("b"), array("q")
