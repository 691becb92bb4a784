"""RecentLabels: the latest labelled scores in their order.

Memory: 4 bytes each, three times as many once one of them has a weight, and room for up to 2,048 more.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.base.values import NO_CELLS, Cells, Floats, Labels
from streamcal.sketch import grid
from streamcal.sketch.counts_c import count_sorted, pack_labels
from streamcal.sketch.decoding import Part, Positive, within
from streamcal.sketch.weighing import Weighed, joined

_LAST: Final = 2 * (grid.LAST_KEY >> grid.MIN_LEVEL) + 1  # the largest cell with its label
_SPARE: Final = 2048  # labels for which there is room behind the packed ones, at most


class RecentLabels(Part, dict=True):
    """The latest labels, with the cells of their scores on the finest grid; its fields are its state."""

    size: Positive
    """Number of labels to keep."""
    packed: Cells = NO_CELLS
    """Cell of each label, with the label as the lowest bit, int32[m]."""
    weights: Floats | None = None
    """Weights, float64[m]; None: all are 1."""

    def __post_init__(self) -> None:
        """Check a decoded state; raise ValueError if it is none."""
        self._set(within(self.packed, 0, _LAST, "cells of the newest labels"))

    def _set(self, packed: Cells, more: int = 0) -> None:
        """Set the packed labels, and make room behind them: to move all takes longer than to add a few."""
        self._end: int = len(packed)
        self._buffer: Cells = np.empty(self._end + more + min((self._end + more) // 4, _SPARE), np.int32)
        self._buffer[: self._end] = packed
        self.packed = self._buffer[: self._end]

    def __len__(self) -> int:
        return len(self.packed)

    def counts(self, length: int) -> tuple[Cells, Floats]:
        """Return the occupied cells of the latest ``length`` labels, and their labels per class and cell.

        Returns
        -------
        int32[m], ascending; float64[2, m].
        """
        return count_sorted(np.sort(self.packed[-length:]))

    def weighed(self, length: int) -> tuple[Cells, Weighed]:
        """Return the occupied cells of the latest ``length`` labels, and their weighted counts."""
        cells, counts = self.counts(length)
        if self.weights is None:
            return cells, Weighed(counts, counts[0] + counts[1])
        latest, weights = self.packed[-length:], self.weights[-length:]
        columns, sums = np.searchsorted(cells, latest >> np.int32(1)), np.zeros((3, len(cells)))
        np.add.at(sums, (latest & np.int32(1), columns), weights)
        np.add.at(sums[2], columns, weights**2)
        return cells, Weighed(sums[:2], sums[2])

    def latest(self, length: int) -> tuple[Floats, Labels, Floats | None]:
        """Return the latest ``length`` labels: scores, float64[m], labels, int8[m], and weights, float64[m].

        The scores are the middles of their cells; there are no weights if all are 1.
        """
        first = len(self.packed) - length
        latest = self.packed[first:]
        middles = grid.middles(latest >> np.int32(1), grid.MIN_LEVEL)
        weights = None if self.weights is None else self.weights[first:]
        return middles, (latest & np.int32(1)).astype(np.int8), weights

    def add(self, scores: Floats, labels: Labels, weights: Floats | None = None) -> None:
        """Add checked labels as the latest, float64[k] and int8[k].

        ``weights`` are theirs, float64[k]; None: all are 1.
        """
        scores, labels = scores[-self.size :], labels[-self.size :]
        own = None if weights is None else weights[-self.size :]
        self.weights = joined((len(self.packed), self.weights), (len(scores), own), size=self.size)
        kept, end = min(len(self.packed) + len(scores), self.size), self._end + len(scores)
        if end > len(self._buffer):
            self._set(self.packed, len(scores))
            end = self._end + len(scores)
        pack_labels(scores, labels, grid.MIN_LEVEL, self._buffer[self._end : end])
        self._end = end
        self.packed = self._buffer[end - kept : end]
