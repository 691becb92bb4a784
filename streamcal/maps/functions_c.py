"""Functions of one score after the other: steps, lines in log-odds, and the correction g (eq. 13).

Compiled where there is a C compiler; `functions_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.sketch import counts_c
from streamcal.values import Floats

__all__ = [
    "APART",
    "LinearFunction",
    "StepFunction",
    "class_prior",
    "shift_correction",
    "shift_correction_one",
    "shift_weights",
]

APART: Final = 1e-9
"""Least distance between knots: nearer ones would make a line too steep for float64."""

_NO_SHIFT = (1.0, 1.0)


def class_prior(positives: float, n: float) -> float | None:
    """Return (S + ½) / (N + 1), the estimate of the probability of class 1; None if N is 0.

    The estimator is Krichevsky and Trofimov's: never 0 or 1, unlike the paper's plug-in S / N.
    """
    return (positives + 0.5) / (n + 1.0) if n > 0.0 else None


def shift_weights(source: float | None, target: float | None) -> tuple[float, float]:
    """Return (w₀, w₁), w_k = Q̂[Y=k] / P̂[Y=k]: eq. 13 with estimated priors, which is eq. 16.

    Parameters
    ----------
    source, target
        the class priors, in [0, 1]; None where there is no estimate yet.

    Returns
    -------
    (1, 1), no correction, until there are estimates of both; also if that of the source is 0 or 1: the weight
    of an unseen class is undefined.
    """
    if source is None or target is None:
        return _NO_SHIFT
    p, q = source, target
    if not 0.0 < p < 1.0:
        return _NO_SHIFT
    return ((1.0 - q) / (1.0 - p), q / p)


def shift_correction(probabilities: Floats, weights: tuple[float, float]) -> Floats:
    """Apply the label-shift correction g (eq. 13).

    Parameters
    ----------
    probabilities
        float64[n] in [0, 1], probabilities under the source.
    weights
        (w₀, w₁), w_k = Q[Y=k] / P[Y=k], not negative, not both 0.

    Returns
    -------
    float64[n] in [0, 1]; g(0) = 0 and g(1) = 1 whatever the weights (as in the proof of Theorem 2).
    """
    if weights[0] == weights[1]:
        return probabilities
    positive = weights[1] * probabilities
    total = positive + weights[0] * (1.0 - probabilities)
    # total is 0 only where p is 0 or 1 and the other class has all the weight: g(p) = p there.
    corrected: Floats = np.divide(positive, total, out=probabilities.copy(), where=total > 0.0)
    return corrected


def shift_correction_one(probability: float, weights: tuple[float, float]) -> float:
    """Apply `shift_correction` to one probability, with the same bits."""
    w0, w1 = weights
    if w0 == w1:
        return probability
    positive = w1 * probability
    total = positive + w0 * (1.0 - probability)
    return positive / total if total > 0.0 else probability


class LinearFunction:
    """h as a line between knots: the log-odds of h is linear in that of the score, and constant beyond.

    A score is taken for at least 2⁻⁴⁰ away from 0 and 1.

    Parameters
    ----------
    knots
        log-odds of scores, strictly ascending, within ±28.
    log_odds
        one log-odds of h for each knot.
    """

    def __init__(self, knots: tuple[float, ...], log_odds: tuple[float, ...]) -> None:
        x, y = np.array(knots), np.array(log_odds)
        self._knots, self._log_odds = x, y
        self._slopes = np.diff(y) / np.diff(x)
        # Of equal parts of the range of the knots: the last knot that is not beyond the start of each.
        slots = 4 * len(x)
        least, greatest = x.min(), x.max()
        starts = np.linspace(least, greatest, slots + 1)
        self._guide = np.maximum(np.searchsorted(x, starts, "right") - 1, 0)
        self._density = slots / (greatest - least) if len(x) > 1 else 0.0
        # The identity between its ends gives a score itself, not one that went through a logarithm.
        self._clips = bool((x == y).all())
        self._low, self._high = (1.0 / (1.0 + math.exp(-end)) for end in (least, greatest))

    def __reduce__(self) -> tuple[type[LinearFunction], tuple[tuple[float, ...], tuple[float, ...]]]:
        knots, log_odds = tuple(np.asarray(self._knots).tolist()), tuple(np.asarray(self._log_odds).tolist())
        return LinearFunction, (knots, log_odds)

    def one(self, score: float) -> float:
        """Return h of one checked score."""
        if self._clips:
            return min(max(score, self._low), self._high)
        end, largest = 2.0**-40, 700.0
        score = min(max(score, end), 1.0 - end)
        x, last = math.log(score / (1.0 - score)), len(self._knots) - 1
        if x <= self._knots[0]:
            exponent = self._log_odds[0]
        elif x >= self._knots[last]:
            exponent = self._log_odds[last]
        else:
            slot = int((x - self._knots[0]) * self._density)
            place = self._guide[slot]
            # The part was found by rounded arithmetic.
            while place > 0 and self._knots[place] > x:
                place -= 1
            while self._knots[place + 1] <= x:
                place += 1
            exponent = self._log_odds[place] + (x - self._knots[place]) * self._slopes[place]
        return 1.0 / (1.0 + math.exp(min(-exponent, largest)))

    def apply(self, scores: Floats, out: Floats) -> None:
        """Put h of each checked score, float64[n], into ``out``, float64[n]."""
        for i in range(len(scores)):
            out[i] = self.one(scores[i])


_SLOTS = 40  # of the guide, for each edge
_FEW = 8  # scores for each edge, after which the guide has paid for itself


class StepFunction:
    """h as a step function, corrected by g.

    A map that answers many scores gets a guide. It divides the grid into equal parts and stores how many
    edges lie before each part, so a score is compared with few edges, mostly one or none. Memory: up to 176
    bytes a bin. Most maps of mode ``auto`` answer few scores, and have no guide.

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
        keys = np.array([counts_c.key_of(edge) for edge in edges.tolist()], np.int64)
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
            slot = (counts_c.key_of(score) - self._first) >> self._shift
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
