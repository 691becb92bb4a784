"""Forecasts of every candidate at one moment, score after score, and their losses on labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from streamcal.maps.logistic import KNOTS
from streamcal.values import Counts, Floats, Labels

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from streamcal.mixture.fits import Source

__all__ = ["Line", "Snapshot", "forecast", "look", "lose", "mix", "put_rows", "served_at"]

_BENDS: Final = KNOTS
_HINGES: Final = len(KNOTS)
# How many windows there are, and the first row of each kind of map, in the order of `names.NAMES`.
_WINDOWS: Final = 4
_CURVE: Final = 1 + _WINDOWS
_LOGISTIC: Final = _CURVE + 1
_SHIFTED: Final = _LOGISTIC + 7
_DELAYED: Final = _SHIFTED + 2
_LARGEST: Final = 700.0  # e^700 does not overflow, and no number of labels can tell expit(−700) from 0
_END: Final = 2.0**-40  # scores nearer to 0 or 1 share one cell of the grid


class Line:
    """A piecewise linear function of the logit of the score, constant beyond its ends.

    Parameters
    ----------
    logits
        float64[p], p at least 1, the knots, ascending; two of them may be equal.
    values
        float64[p].
    """

    def __init__(self, logits: Floats, values: Floats) -> None:
        self.logits, self.values = logits, values
        self._knots, self._heights = logits, values

    def at(self, logits: Floats) -> Floats:
        """Return the values at logits, float64[n]."""
        values = np.empty(len(logits))
        out = values
        for i in range(len(logits)):
            out[i] = self.one(logits[i])
        return values

    def one(self, logit: float) -> float:
        """Return the value at one logit."""
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
        slope = (self._heights[low + 1] - self._heights[low]) / (self._knots[low + 1] - self._knots[low])
        return slope * (logit - self._knots[low]) + self._heights[low]  # type: ignore[no-any-return]


class Snapshot:
    """The state of all candidates at one moment, from which their forecasts follow.

    Parameters
    ----------
    observed
        number of target scores observed before it was first served.
    weights
        weights of the candidates, and the weights by each tracker, float64[3, K]: see `weights.Weights`.
    logistic
        θ (`streamcal.maps.logistic`) of the hinge maps and the online Platt scalings, float64[R, 7]; behind
        them those of `names.DELAYED` where these are candidates.
    isotonic
        One map per window; none before the first labels: these candidates equal the identity then.
    curve
        None before the first labels.
    source
        None: the composites equal the identity.
    odds
        κ = w₁/w₀ (eq. 13) of both composites, positive and finite.
    by_scores
        whether the target's prior was estimated from scores, too.
    """

    def __init__(
        self,
        observed: int,
        weights: Floats,
        logistic: Floats,
        isotonic: tuple[Line, ...],
        curve: Line | None,
        source: Source | None,
        odds: tuple[float, float],
        by_scores: bool,
    ) -> None:
        self.observed, self.weights, self.logistic = observed, weights, logistic
        self.isotonic, self.curve, self.source = isotonic, curve, source
        self.odds, self.by_scores = odds, by_scores
        self._parts, self._theta = weights, logistic
        self._shifted = None if source is None else source.curve
        self._all_odds, self._recent_odds = odds

    @property
    def knows(self) -> bool:
        """Whether it knew any label; if not, all candidates forecast the same."""
        return self.curve is not None or self.source is not None

    def leader(self) -> int:
        """Return the candidate with the largest weight."""
        best = 0
        for k in range(self._parts.shape[1]):
            if self._parts[0, k] > self._parts[0, best]:
                best = k
        return best

    def put(self, score: float, logit: float, out: Floats) -> None:
        """Put the forecast of every candidate for one score into ``out``, float64[K]."""
        out[0] = score
        for row in range(_WINDOWS):
            out[1 + row] = self.isotonic_at(row, score, logit)
        out[_CURVE] = self.curve_at(score, logit)
        for row in range(self._theta.shape[0]):
            place = row + (_LOGISTIC if row < _SHIFTED - _LOGISTIC else _DELAYED - _SHIFTED + _LOGISTIC)
            out[place] = self.logistic_at(row, logit)
        out[_SHIFTED] = out[_SHIFTED + 1] = score
        if self._shifted is not None:
            forecast = self._shifted.one(logit)
            out[_SHIFTED] = shifted(self._all_odds, forecast)
            out[_SHIFTED + 1] = shifted(self._recent_odds, forecast)

    def isotonic_at(self, row: int, score: float, logit: float) -> float:
        """Return the forecast of one window's isotonic map."""
        if not self.isotonic:
            return score
        line = self.isotonic[row]
        return line.one(logit)

    def curve_at(self, score: float, logit: float) -> float:
        """Return the forecast of the curve of all labels."""
        return score if self.curve is None else self.curve.one(logit)

    def logistic_at(self, row: int, logit: float) -> float:
        """Return the forecast of one logistic map."""
        exponent = self._theta[row, 0] * logit + self._theta[row, 1]
        for j in range(_HINGES):
            if logit > _BENDS[j]:
                exponent += self._theta[row, 2 + j] * (logit - _BENDS[j])
        return 1.0 / (1.0 + math.exp(min(-exponent, _LARGEST)))

    def fill(
        self, before: Snapshot | None, scores: Floats, logits: Floats, base: Floats, out: Floats
    ) -> None:
        """Bring forecasts for n scores up to date, in place.

        Parameters
        ----------
        before
            the snapshot that the forecasts in ``out`` come from: only changed maps are evaluated. None: all
            maps are evaluated.
        scores, logits
            float64[n].
        base
            probabilities of the source's map, float64[n], to which the correction is applied.
        out
            float64[K, n].
        """
        n = len(scores)
        if before is None:
            for i in range(n):
                out[0, i] = scores[i]
        for row in range(_WINDOWS):
            if before is not None and (
                self.isotonic[row] is before.isotonic[row]
                if self.isotonic and before.isotonic
                else not self.isotonic and not before.isotonic
            ):
                continue
            for i in range(n):
                out[1 + row, i] = self.isotonic_at(row, scores[i], logits[i])
        if before is None or self.curve is not before.curve:
            for i in range(n):
                out[_CURVE, i] = self.curve_at(scores[i], logits[i])
        for row in range(self._theta.shape[0]):
            same = before is not None
            if before is not None:
                for j in range(2 + _HINGES):
                    if self._theta[row, j] != before._theta[row, j]:
                        same = False
            if not same:
                place = row + (_LOGISTIC if row < _SHIFTED - _LOGISTIC else _DELAYED - _SHIFTED + _LOGISTIC)
                for i in range(n):
                    out[place, i] = self.logistic_at(row, logits[i])
        new = before is None or self._shifted is not before._shifted
        if new:
            for i in range(n):
                base[i] = scores[i] if self._shifted is None else self._shifted.one(logits[i])
        for row in range(2):
            odds = self._recent_odds if row else self._all_odds
            earlier = odds if before is None else before._recent_odds if row else before._all_odds
            if not new and odds == earlier:
                continue
            for i in range(n):
                out[_SHIFTED + row, i] = base[i] if self._shifted is None else shifted(odds, base[i])


def shifted(odds: float, probability: float) -> float:
    """Return κp / (κp + 1 − p) (eq. 13)."""
    positive = odds * probability
    return positive / (positive + (1.0 - probability))


def forecast(snapshot: Snapshot, scores: Floats, logits: Floats, out: Floats) -> None:
    """Put the forecasts of every candidate for n scores into ``out``, float64[K, n]."""
    row = np.empty(len(out))
    for i in range(len(scores)):
        snapshot.put(scores[i], logits[i], row)
        for k in range(len(out)):
            out[k, i] = row[k]


def mix(
    snapshot: Snapshot,
    before: Snapshot | None,
    scores: Floats,
    logits: Floats,
    base: Floats,
    values: Floats,
    out: Floats,
) -> None:
    """Bring forecasts up to date, and put their mixture into ``out``, float64[n].

    The other parameters are those of `Snapshot.fill`.
    """
    if before is not snapshot:
        snapshot.fill(before, scores, logits, base, values)
    for i in range(len(out)):
        out[i] = 0.0
    for k in range(len(values)):
        weight = snapshot._parts[0, k]
        if weight != 0.0:
            for i in range(len(out)):
                out[i] += weight * values[k, i]
    for i in range(len(out)):
        out[i] = min(out[i], 1.0)  # rounding may lead above 1 by one ulp


def served_at(ends: array[int], first: int, prediction_index: Counts, out: Counts) -> int:
    """Find the snapshot that was served after each number of scores; return the least index.

    Parameters
    ----------
    ends
        numbers of scores observed when the next of K snapshots was first served, uint64[K − 1].
    first
        index of the first snapshot that knew a label; K stands for snapshots before it, and for negative
        counts.
    prediction_index, out
        int64[n]; ``out`` gets the indices.
    """
    number = len(ends) + 1
    least = number
    for i in range(len(prediction_index)):
        low, high = 0, len(ends)
        if prediction_index[i] < 0:
            low = number
        else:
            while low < high:
                middle = (low + high) // 2
                if ends[middle] <= prediction_index[i]:
                    low = middle + 1
                else:
                    high = middle
            if low < first:
                low = number
        out[i] = low
        least = min(least, low)
    return least


def put_rows(hinges: Floats, platt: Floats, out: Floats) -> None:
    """Put θ of hinge maps, float64[W, 7], and (a, b) of Platt maps behind them into ``out``, float64[R, 7].

    ``platt`` is float64[G, p] with a and b in the first two columns; rows behind both become 0.
    """
    windows, scalings = len(hinges), len(platt)
    for row in range(len(out)):
        for j in range(out.shape[1]):
            out[row, j] = hinges[row, j] if row < windows else 0.0
        if windows <= row < windows + scalings:
            out[row, 0], out[row, 1] = platt[row - windows, 0], platt[row - windows, 1]


def look(prediction_index: Counts, at_once: int, observed: int, newer: bool) -> tuple[int, bool, int]:
    """Find the latest predictions of labels.

    Parameters
    ----------
    prediction_index
        int64[n], n at least 1, as in `mixture.Mixture.learn`.
    at_once
        the stand-in for a label that came together with its prediction.
    observed
        The number of scores observed at the latest step.
    newer
        whether scores were observed since that step.

    Returns
    -------
    The greatest of the counts; whether a label came at once; and the number of predictions since the latest
    step.
    """
    newest, some_at_once, fresh = prediction_index[0], False, 0
    for i in range(len(prediction_index)):
        newest = max(newest, prediction_index[i])
        if prediction_index[i] == at_once:
            some_at_once = True
        if prediction_index[i] < 0 or (newer and prediction_index[i] >= observed):
            fresh += 1
    return newest, some_at_once, fresh


def lose(
    arrival: Snapshot,
    served: Sequence[Snapshot],
    which: Counts | None,
    cells: tuple[Floats, Floats, Floats] | None,
    scores: Floats,
    labels: Labels,
    least: float,
    counted: Floats,
    logits: Floats,
    losses: Floats,
    tracked: Floats,
) -> None:
    """Put the log losses of forecasts for n scores into ``losses`` and ``tracked``.

    Parameters
    ----------
    arrival
        the snapshot served when the labels came.
    served, which
        snapshots, and for each label the index of the one served when its prediction was made, int64[n].
        None: the snapshot served on arrival.
    cells
        inner edges of the table served on arrival, and the scores and logits at which it forecasts; None: the
        snapshot served on arrival is evaluated at the scores themselves.
    labels
        int8[n].
    least
        smallest distance of a forecast from 0 or 1, in (0, ½].
    counted
        what each label counts for, float64[n].
    logits
        float64[n], filled with the logits of the scores.
    losses
        filled with the losses, float64[2, K, n], as of the prediction and on arrival; float64[1, K, n]: as of
        the prediction only.
    tracked
        filled with the losses of each tracker as of the prediction, float64[2, n].
    """
    kinds, candidates, row = losses.shape[0], losses.shape[1], np.empty(losses.shape[1])
    edges, middles, places = (scores, scores, scores) if cells is None else cells
    last = len(edges)
    for i in range(len(scores)):
        score, weight = scores[i], counted[i]
        inside = min(max(score, _END), 1.0 - _END)
        x = logits[i] = math.log(inside / (1.0 - inside))
        if which is None or kinds > 1:
            if cells is None:
                arrival.put(score, x, row)
            else:
                low, size = 0, last
                while size > 0:
                    half = (size + 1) // 2
                    low += half * (edges[low + half - 1] <= score)
                    size -= half
                arrival.put(middles[low], places[low], row)
            for k in range(candidates):
                losses[kinds - 1, k, i] = weight * loss_of(row[k], labels[i], least)
        then = arrival
        if which is not None:
            then = served[which[i]]
            then.put(score, x, row)
            for k in range(candidates):
                losses[0, k, i] = weight * loss_of(row[k], labels[i], least)
        for tracker in range(2):
            mixed = 0.0
            for k in range(candidates):
                mixed += then._parts[1 + tracker, k] * row[k]
            tracked[tracker, i] = weight * loss_of(mixed, labels[i], least)


def loss_of(forecast: float, label: int, least: float) -> float:
    """Return the log loss in nats of one forecast."""
    right = forecast if label == 1 else 1.0 - forecast
    return -math.log(min(max(right, least), 1.0 - least))
