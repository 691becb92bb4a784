"""What a map does to many scores at once: as a step function, or as a line between knots in log-odds."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from streamcal.maps.lookup import Lookup
from streamcal.maps.platt import expit, inside, logit
from streamcal.maps.shift import shift_correction
from streamcal.sketch import grid
from streamcal.sketch.arrays import Scores

__all__ = ["LinearFunction", "StepFunction"]


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


class LinearFunction:
    """h as a line between knots: the log-odds of h is linear in that of the score, and constant beyond.

    Parameters
    ----------
    knots
        log-odds of scores, strictly ascending, within ±28.
    log_odds
        one log-odds of h for each knot.
    """

    __slots__ = ("_edges", "_lookup", "_parts", "_segments")

    def __init__(self, knots: tuple[float, ...], log_odds: tuple[float, ...]) -> None:
        x, y = np.array(knots), np.array(log_odds)
        if len(x) == 1:
            x, y = np.append(x, x + 1.0), np.append(y, y)
        # Of each segment: where it begins, one over its width, its value there, and how much it rises.
        self._parts = x[:-1], 1.0 / np.diff(x), y[:-1], np.diff(y)
        self._segments = list(zip(*(part.tolist() for part in self._parts), strict=True))
        edges = expit(x[1:-1].copy())
        self._lookup, self._edges = Lookup(edges), edges.tolist()

    def one(self, score: float) -> float:
        """Return h of one checked score, with the same bits as `apply`."""
        score = inside(score)
        start, scale, low, rise = self._segments[bisect_right(self._edges, score)]
        # NumPy's functions: those of `math` differ in the last bit here and there.
        part = (float(np.log(score / (1.0 - score))) - start) * scale
        return 1.0 / (1.0 + float(np.exp(-(min(max(part, 0.0), 1.0) * rise + low))))

    def apply(self, scores: Scores, weights: tuple[float, float], out: Scores) -> None:
        """Write g(h(score)) of each checked score, float64[n], to ``out``, float64[n]."""
        of_all = np.empty(min(len(scores), grid.CHUNK))
        for piece, segments in self._lookup.chunks(scores):
            exponents = logit(scores[piece], out[piece])
            of_each = of_all[: len(exponents)]
            starts, scales, lows, rises = self._parts
            # Unlike "raise", mode="clip" writes to ``out`` without a copy.
            exponents -= starts.take(segments, out=of_each, mode="clip")
            exponents *= scales.take(segments, out=of_each, mode="clip")
            np.maximum(exponents, 0.0, out=exponents)
            np.minimum(exponents, 1.0, out=exponents)
            exponents *= rises.take(segments, out=of_each, mode="clip")
            exponents += lows.take(segments, out=of_each, mode="clip")
            expit(exponents)
            if weights[0] != weights[1]:
                out[piece] = shift_correction(exponents, weights)
