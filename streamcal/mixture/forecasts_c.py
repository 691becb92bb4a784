"""Forecasts of every candidate at one moment, score after score, and their losses on labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from streamcal.sketch.decoding import require, within
from streamcal.values import Counts, Floats, Labels

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SLOPES", "Line", "MixedSteps", "Snapshot", "forecast", "lose"]

SLOPES: Final = np.array((1.0, 0.85, 0.7, 0.5))
"""Factors by which the log odds of the mixture may be drawn towards those of the class prior."""


_FACTORS: Final = SLOPES
_LARGEST: Final = 700.0  # e^700 does not overflow, and no number of labels can tell expit(−700) from 0
_LEAST, _MOST = 2.0**-1022, 1.0 - 2.0**-53  # the ends of the grid, where lines end
# Logistic maps tell no scores apart that are nearer to 0 or 1 than 2⁻⁴⁰.
_LEAST_LOGIT: Final = math.log(2.0**-40 / (1.0 - 2.0**-40))
_MOST_LOGIT: Final = math.log((1.0 - 2.0**-40) / 2.0**-40)
# Of a state: bounds on logits of knots, and on log odds, which the priors of the fits keep far below.
_FARTHEST, _STEEPEST = 1000.0, 1e11


class Line:
    """A forecast that is piecewise linear in the logit (`platt.wide_logit`), and constant beyond its ends.

    Parameters
    ----------
    logits
        float64[p], p at least 1, the knots, ascending; two of them may be equal.
    values
        float64[p].
    log_odds
        whether the values are log odds of the forecast, not the forecast itself.
    """

    def __init__(self, logits: Floats, values: Floats, log_odds: bool = False) -> None:
        self.logits, self.values, self.log_odds = logits, values, log_odds
        self._knots, self._heights, self._slopes = logits, values, np.zeros(len(logits))
        self._draw()

    def _draw(self) -> None:
        """Work out the slope behind each knot."""
        for i in range(len(self._knots) - 1):
            run = self._knots[i + 1] - self._knots[i]
            if run > 0.0:
                self._slopes[i] = (self._heights[i + 1] - self._heights[i]) / run

    def to_bytes(self) -> bytes:
        """Return the state."""
        numbers = np.concatenate((self.logits, self.values)).astype("<f8", copy=False)
        return bytes((self.log_odds,)) + numbers.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the line of a state; raise ValueError if it is none."""
        log_odds, size = data[:1] == b"\1", len(data) // 16
        require(size and len(data) == 1 + 16 * size, f"a line of {len(data)} bytes")
        logits, values = np.frombuffer(data[1:], "<f8").astype(np.float64).reshape(2, size)
        within(logits, -_FARTHEST, _FARTHEST, "knots")
        require((logits[1:] >= logits[:-1]).all(), "the knots of a line descend")
        most = _STEEPEST if log_odds else 1.0
        return cls(logits, within(values, -most if log_odds else 0.0, most, "values"), log_odds)

    def at(self, logits: Floats) -> Floats:
        """Return the forecasts at logits, float64[n]."""
        values = np.empty(len(logits))
        out = values
        for i in range(len(logits)):
            out[i] = self.one(logits[i])
        return values

    def one(self, logit: float) -> float:
        """Return the forecast at one logit."""
        return expit(self.value(logit)) if self.log_odds else self.value(logit)

    def value(self, logit: float) -> float:
        """Return the value of the line at one logit."""
        last = self._knots.shape[0] - 1
        if logit >= self._knots[last]:
            return self._heights[last]  # type: ignore[no-any-return]
        if logit < self._knots[0]:
            return self._heights[0]  # type: ignore[no-any-return]
        low, size = 0, last  # the last knot that is not above the logit is one of so many from here on
        while size > 1:
            half = size // 2
            low += half * (self._knots[low + half] <= logit)  # a branch would often be foretold wrong
            size -= half
        return self._slopes[low] * (logit - self._knots[low]) + self._heights[low]  # type: ignore[no-any-return]


class Snapshot:
    """The state of all candidates at one moment, from which their forecasts follow.

    Parameters
    ----------
    lines
        line of each candidate, K of them; of None the forecast is the score.
    observed
        number of target scores observed before it was first served.
    weights
        weights of the candidates, and the weights by each tracker, float64[3, K]: see `weights.Weights`.
    odds
        κ = w₁/w₀ (eq. 13) by which the forecasts of each line are corrected, float64[K], positive and finite.
    knows
        whether it knew any label; if not, all candidates forecast the same.
    by_scores
        whether the target's prior was estimated from scores, too.
    limits
        The least and the greatest probability that is served, in (0, 1), ascending.
    slopes
        weights of the factors `SLOPES`, float64[S].
    centre
        log odds towards which the factors draw.
    """

    def __init__(
        self,
        lines: tuple[Line | None, ...],
        observed: int,
        weights: Floats,
        odds: Floats,
        knows: bool,
        by_scores: bool,
        limits: tuple[float, float],
        slopes: Floats,
        centre: float,
    ) -> None:
        self.observed, self.weights, self.lines, self.odds = observed, weights, lines, odds
        self.knows, self.by_scores, self.limits = knows, by_scores, limits
        self.slopes, self.centre = slopes, centre
        self._least, self._most = limits
        self._parts, self._odds, self._slopes = weights, odds, slopes

    def fields(self) -> tuple[Any, ...]:
        """Return the arguments of the constructor but for the lines."""
        own = self.observed, self.weights, self.odds, self.knows, self.by_scores
        return *own, self.limits, self.slopes, self.centre

    def put(self, score: float, logit: float, out: Floats) -> None:
        """Put the forecast of every candidate for one score into ``out``, float64[K].

        ``logit`` is its `platt.wide_logit`.
        """
        for k in range(self._parts.shape[1]):
            line = self.lines[k]
            out[k] = score if line is None else shifted(self._odds[k], line.one(logit))

    def mixed(self, score: float, logit: float, row: Floats) -> float:
        """Return the mixture for one score; ``row``, float64[K], gets the forecast of every candidate."""
        self.put(score, logit, row)
        value = 0.0
        for k in range(len(row)):
            weight = self._parts[0, k]
            if weight != 0.0:
                value += weight * row[k]
        value = min(max(value, self._least), self._most)
        if not self.knows:
            return value
        served = 0.0
        for j in range(len(self._slopes)):
            if self._slopes[j] != 0.0:
                served += self._slopes[j] * self.drawn(value, j)
        return min(max(served, self._least), self._most)

    def drawn(self, value: float, j: int) -> float:
        """Return a mixed forecast, not 0 or 1, whose log odds are drawn towards the centre by a factor."""
        factor = _FACTORS[j]
        if factor == 1.0:
            return value
        exponent = factor * math.log(value / (1.0 - value)) + (1.0 - factor) * self.centre
        return expit(exponent)


class MixedSteps:
    """The mixture of a moment as a step function, of which each step is worked out when it is met.

    Parameters
    ----------
    cells
        inner edges of the intervals, float64[p − 1], and the scores and wide logits in their middles,
        float64[p]: at these the candidates forecast.
    snapshot
        the candidates.
    """

    def __init__(self, cells: tuple[Floats, Floats, Floats], snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._edges, self._middles, self._logits = cells
        self._values = np.full(len(self._middles), np.nan)  # NaN: not worked out yet
        self._row = np.empty(snapshot.weights.shape[1])

    def one(self, score: float) -> float:
        """Return the value at one score in [0, 1]."""
        return self._value(interval_of(self._edges, score))

    def values(self) -> Floats:
        """Return the values of all steps, float64[p]."""
        for place in range(len(self._values)):
            self._value(place)
        return np.asarray(self._values)

    def _value(self, place: int) -> float:
        """Return the value of one step."""
        value = self._values[place]
        if value != value:
            value = self._snapshot.mixed(self._middles[place], self._logits[place], self._row)
            self._values[place] = value
        return float(value)  # where nothing is compiled, a number of NumPy, which JSON has not


def interval_of(edges: Floats, score: float) -> int:
    """Return the number of inner edges of intervals, ascending, that are at most a score."""
    low, size = 0, len(edges)
    while size > 0:
        half = (size + 1) // 2
        low += half * (edges[low + half - 1] <= score)  # a branch would often be foretold wrong
        size -= half
    return low


def expit(exponent: float) -> float:
    """Return 1 / (1 + e^−t)."""
    return 1.0 / (1.0 + math.exp(min(-exponent, _LARGEST)))


def shifted(odds: float, probability: float) -> float:
    """Return κp / (κp + 1 − p) (eq. 13)."""
    if odds == 1.0:
        return probability
    positive = odds * probability
    return positive / (positive + (1.0 - probability))


def forecast(snapshot: Snapshot, scores: Floats, logits: Floats, out: Floats) -> None:
    """Put the forecasts of every candidate for n scores into ``out``, float64[K, n]; the logits are wide."""
    row = np.empty(len(out))
    for i in range(len(scores)):
        snapshot.put(scores[i], logits[i], row)
        for k in range(len(out)):
            out[k, i] = row[k]


def lose(
    arrival: Snapshot,
    served: Sequence[Snapshot],
    which: Counts | None,
    cells: tuple[Floats, Floats, Floats] | None,
    scores: Floats,
    labels: Labels,
    limits: tuple[float, float],
    counted: Floats,
    logits: Floats,
    losses: Floats,
    tracked: Floats,
    sloped: Floats,
) -> None:
    """Put the log losses of forecasts for n scores into ``losses``, ``tracked`` and ``sloped``.

    Parameters
    ----------
    arrival
        the snapshot served when the labels came.
    served, which
        snapshots, and for each label the index of the one served when its prediction was made, int64[n].
        None: the snapshot served on arrival.
    cells
        inner edges of the table served on arrival, and the scores and wide logits at which it forecasts;
        None: the snapshot served on arrival is evaluated at the scores themselves.
    labels
        int8[n].
    limits
        The least and the greatest probability that a loss is of, in (0, 1).
    counted
        what each label counts for, float64[n].
    logits
        float64[n], filled with the logits of the scores, as `platt.logit` has them.
    losses
        filled with the losses, float64[2, K, n], as of the prediction and on arrival; float64[1, K, n]: as of
        the prediction only.
    tracked
        filled with the losses of each tracker as of the prediction, float64[2, n].
    sloped
        filled with the losses of the mixture with each of `SLOPES` as of the prediction, float64[S, n]; 0
        where it knew no label.
    """
    kinds, candidates, row = losses.shape[0], losses.shape[1], np.empty(losses.shape[1])
    least, most = limits
    edges, middles, places = (scores, scores, scores) if cells is None else cells
    for i in range(len(scores)):
        score, weight = scores[i], counted[i]
        inside = min(max(score, _LEAST), _MOST)
        x = math.log(inside / (1.0 - inside))
        logits[i] = min(max(x, _LEAST_LOGIT), _MOST_LOGIT)
        if which is None or kinds > 1:
            if cells is None:
                arrival.put(score, x, row)
            else:
                place = interval_of(edges, score)
                arrival.put(middles[place], places[place], row)
            for k in range(candidates):
                losses[kinds - 1, k, i] = weight * loss_of(row[k], labels[i], least, most)
        then = arrival
        if which is not None:
            then = served[which[i]]
            then.put(score, x, row)
            for k in range(candidates):
                losses[0, k, i] = weight * loss_of(row[k], labels[i], least, most)
        for tracker in range(2):
            mixed = 0.0
            for k in range(candidates):
                mixed += then._parts[1 + tracker, k] * row[k]
            tracked[tracker, i] = weight * loss_of(mixed, labels[i], least, most)
        mixed = 0.0
        for k in range(candidates):
            mixed += then._parts[0, k] * row[k]
        mixed = min(max(mixed, then._least), then._most)
        for j in range(len(sloped)):
            loss = 0.0
            if then.knows:
                loss = weight * loss_of(then.drawn(mixed, j), labels[i], least, most)
            sloped[j, i] = loss


def loss_of(forecast: float, label: int, least: float, most: float) -> float:
    """Return the log loss in nats of one forecast, kept within limits."""
    inside = min(max(forecast, least), most)
    return -math.log(inside if label == 1 else 1.0 - inside)
