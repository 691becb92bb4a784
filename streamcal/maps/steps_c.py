"""StepFunction: one value for each bin, score after score.

Of equal parts of the grid, a guide says how many edges lie before each, so that there are few edges, mostly
one or none, left to compare a score with. Memory: up to 176 bytes a bin.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamcal.maps.shift import shift_correction
from streamcal.sketch import keys_c

__all__ = ["StepFunction"]

_SLOTS = 40  # of the guide, for each edge


class StepFunction:
    """h as a step function, corrected by g.

    Parameters
    ----------
    inner
        the edges between the bins, strictly ascending inside (0, 1).
    values
        one value for each bin, one more than there are edges.
    """

    def __init__(self, inner: tuple[float, ...], values: tuple[float, ...]) -> None:
        self._edges, self._values = np.array(inner, np.float64), np.array(values, np.float64)
        self._last, self._shift, self._first = len(inner), 0, 0
        keys = np.array([keys_c.key_of(edge) for edge in inner], np.int64)
        if inner:
            self._first = int(keys[0])
            self._shift = ((int(keys[-1]) - self._first) // (_SLOTS * len(inner))).bit_length()
        slots = (keys - self._first) >> self._shift
        before = np.arange(int(slots[-1]) + 2 if inner else 0)
        self._guide = np.searchsorted(slots, before).astype(np.int32)

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
        slot = (keys_c.key_of(score) - self._first) >> self._shift
        low, high = self._guide[slot], self._guide[slot + 1]
        while low < high:
            middle = (low + high) >> 1
            if self._edges[middle] <= score:
                low = middle + 1
            else:
                high = middle
        return low  # type: ignore[no-any-return]

    def one(self, score: float) -> float:
        """Return h of one checked score."""
        return float(self._values[self.bin_of(score)])

    def apply(
        self,
        scores: npt.NDArray[np.float64],
        weights: tuple[float, float],
        out: npt.NDArray[np.float64],
    ) -> None:
        """Put g(h(score)) of each checked score, float64[n], into ``out``, float64[n]."""
        values = shift_correction(np.asarray(self._values), weights)
        for i in range(len(scores)):
            out[i] = values[self.bin_of(scores[i])]
