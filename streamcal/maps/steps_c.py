"""StepFunction: one value for each bin, score after score.

A map that answers many scores gets a guide. It divides the grid into equal parts and stores how many edges
lie before each part, so a score is compared with few edges, mostly one or none. Memory: up to 176 bytes a
bin. Most maps of mode ``auto`` answer few scores, and have no guide.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamcal.maps.shift import shift_correction
from streamcal.sketch import keys_c
from streamcal.values import Floats

__all__ = ["StepFunction"]

_SLOTS = 40  # of the guide, for each edge
_FEW = 8  # scores for each edge, after which the guide has paid for itself


class StepFunction:
    """h as a step function, corrected by g.

    Parameters
    ----------
    inner
        float64[B−1], the edges between the bins, strictly ascending inside (0, 1).
    values
        float64[B], one value for each bin.
    """

    def __init__(self, inner: npt.ArrayLike, values: npt.ArrayLike) -> None:
        self._edges, self._values = np.array(inner, np.float64), np.array(values, np.float64)
        self._last, self._shift, self._first = len(self._edges), 0, 0
        self._guide = np.empty(0, np.int32)
        self._without = _FEW * len(self._edges)  # scores that are looked up before the guide is made

    def _make_guide(self) -> None:
        edges = np.asarray(self._edges)
        keys = np.array([keys_c.key_of(edge) for edge in edges.tolist()], np.int64)
        self._first = int(keys[0])
        self._shift = ((int(keys.max()) - self._first) // (_SLOTS * len(keys))).bit_length()
        slots = (keys - self._first) >> self._shift
        self._guide = np.searchsorted(slots, np.arange(int(slots.max()) + 2)).astype(np.int32)

    def _count(self, scores: int) -> None:
        """Count scores to be looked up; make the guide when there are enough."""
        if self._without > 0:
            left = self._without - scores
            if left <= 0:
                self._make_guide()
            self._without = left  # only now, so that no look-up trusts a guide for which there was no memory

    def __reduce__(self) -> tuple[type[StepFunction], tuple[tuple[float, ...], tuple[float, ...]]]:
        edges, values = tuple(np.asarray(self._edges).tolist()), tuple(np.asarray(self._values).tolist())
        return StepFunction, (edges, values)

    def bin_of(self, score: float) -> int:
        """Return the number of edges that are at most a checked score."""
        last = self._last
        if last == 0 or score < self._edges[0]:
            return 0
        if score >= self._edges[last - 1]:
            return last
        low, high = 0, last
        if self._without <= 0:
            slot = (keys_c.key_of(score) - self._first) >> self._shift
            low, high = self._guide[slot], self._guide[slot + 1]
        while low < high:
            middle = (low + high) >> 1
            if self._edges[middle] <= score:
                low = middle + 1
            else:
                high = middle
        return low

    def one(self, score: float) -> float:
        """Return h of one checked score."""
        self._count(1)
        return float(self._values[self.bin_of(score)])

    def apply(
        self,
        scores: Floats,
        weights: tuple[float, float],
        out: Floats,
    ) -> None:
        """Put g(h(score)) of each checked score, float64[n], into ``out``, float64[n]."""
        self._count(len(scores))
        values = shift_correction(np.asarray(self._values), weights)
        for i in range(len(scores)):
            out[i] = values[self.bin_of(scores[i])]
