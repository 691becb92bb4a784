"""What a step map does to many scores at once."""

from __future__ import annotations

import numpy as np

from streamcal.maps.lookup import Lookup
from streamcal.maps.shift import shift_correction
from streamcal.sketch.arrays import Scores

__all__ = ["StepFunction"]


class StepFunction:
    """h as a step function: one value for each bin, corrected by g.

    Parameters
    ----------
    inner
        the edges between the bins, strictly ascending inside (0, 1).
    values
        one value for each bin, one more than there are edges.
    """

    __slots__ = ("_lookup", "_values")

    def __init__(self, inner: tuple[float, ...], values: tuple[float, ...]) -> None:
        self._lookup, self._values = Lookup(np.array(inner)), np.array(values)

    def apply(self, scores: Scores, weights: tuple[float, float], out: Scores) -> None:
        """Write g(h(score)) of each checked score, float64[n], to ``out``, float64[n]."""
        values = shift_correction(self._values, weights)
        for piece, bins in self._lookup.chunks(scores):
            # Unlike "raise", mode="clip" writes to ``out`` without a copy.
            values.take(bins, out=out[piece], mode="clip")
