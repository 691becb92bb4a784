"""LinearFunction: a line between knots in log-odds, score after score."""

from __future__ import annotations

import math

import numpy as np

from streamcal.values import Floats

__all__ = ["LinearFunction"]


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
