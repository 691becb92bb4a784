"""Forecasts of every candidate at one moment, score after score, and their losses on labels.

Weights of the candidates move by these losses (`weights`), and online Platt scalings by labels (`online`).

Compiled where there is a C compiler; `forecasts_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Self

import numpy as np

from streamcal.base.values import Bytes, Counts, Floats, Labels
from streamcal.sketch.counts_c import AT_ONCE
from streamcal.sketch.decoding import require

compiled: Final = not __file__.endswith(".py")
"""Whether this module was compiled when the package was installed."""

SLOPES: Final = np.array((1.0, 0.85, 0.7, 0.5))
"""Factors by which the log odds of the mixture may be drawn towards those of the class prior."""


_FACTORS: Final = SLOPES
_AT_ONCE: Final = AT_ONCE
_LARGEST: Final = 700.0  # e^700 does not overflow, and no number of labels can tell expit(−700) from 0
_LEAST, _MOST = 2.0**-1022, 1.0 - 2.0**-53  # the ends of the grid, where lines end
# Logistic maps tell no scores apart that are nearer to 0 or 1 than 2⁻⁴⁰.
_LEAST_LOGIT: Final = math.log(2.0**-40 / (1.0 - 2.0**-40))
_MOST_LOGIT: Final = math.log((1.0 - 2.0**-40) / 2.0**-40)
_BLOCK: Final = 32  # labels of a step of an online scaling, at most
_LEAST_CURVATURE: Final = 1e-3


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
        return cls(logits, values, log_odds)

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
        line of each candidate, K of them; of None it is the score.
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
        before = None
        for k in range(self._parts.shape[1]):
            line = self.lines[k]
            if k > 0 and line is before and self._odds[k] == self._odds[k - 1]:
                out[k] = out[k - 1]  # windows that are not full have one line
            else:
                out[k] = shifted(self._odds[k], score if line is None else line.one(logit))
            before = line

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
        served, log_odds = 0.0, math.log(value / (1.0 - value))
        for j in range(len(self._slopes)):
            if self._slopes[j] != 0.0:
                served += self._slopes[j] * self.drawn(value, log_odds, j)
        return min(max(served, self._least), self._most)

    def drawn(self, value: float, log_odds: float, j: int) -> float:
        """Return a mixed forecast, not 0 or 1, with its log odds drawn towards the centre by a factor."""
        factor = _FACTORS[j]
        if factor == 1.0:
            return value
        return expit(factor * log_odds + (1.0 - factor) * self.centre)


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
        self._values = np.empty(len(self._middles))
        self._values[:] = np.nan  # not worked out yet
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
    served: list[tuple[int, Snapshot]],
    which: Counts | None,
    cells: tuple[Floats, Floats, Floats] | None,
    scores: Floats,
    labels: Labels,
    limits: tuple[float, float],
    counted: Floats,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the log losses of forecasts for n scores.

    Parameters
    ----------
    arrival
        the snapshot served when the labels came.
    served, which
        numbers of steps and snapshots; and for each label the index of the one served when its prediction
        was made, int64[n], behind the last that served on arrival. None: it is that for all.
    cells
        inner edges of the table served on arrival, and the scores and wide logits at which it forecasts;
        None: the snapshot served on arrival is evaluated at the scores themselves.
    labels
        int8[n].
    limits
        The least and the greatest probability that a loss is of, in (0, 1).
    counted
        what each label counts for, float64[n].

    Returns
    -------
    The logits of the scores, as `platt.logit` has them, float64[n]; the losses of every candidate as of the
    prediction and on arrival, float64[2, K, n], or float64[1, K, n] where one is enough; and the losses as of
    the prediction of each tracker, float64[2, n], and of the mixture with each of `SLOPES`, float64[S, n]: 0
    where it knew no label.
    """
    n, candidates, row = len(scores), arrival._parts.shape[1], np.empty(arrival._parts.shape[1])
    # What scores tell of now is not what labels of the past confirm.
    kinds = 1 if which is None or arrival.by_scores else 2
    out = np.empty(n), np.empty((kinds, candidates, n)), np.empty((2, n)), np.empty((len(_FACTORS), n))
    logits, losses, tracked, sloped = out
    least, most = limits
    edges, middles, places = (scores, scores, scores) if cells is None else cells
    for i in range(len(scores)):
        score, weight = scores[i], counted[i]
        inside = min(max(score, _LEAST), _MOST)
        x = math.log(inside / (1.0 - inside))
        logits[i] = min(max(x, _LEAST_LOGIT), _MOST_LOGIT)
        then = arrival
        for kind in range(kinds - 1, -1, -1):  # on arrival; as of the prediction
            is_late = False
            if kind == 0 and which is not None:
                is_late = True
                if which[i] < len(served):
                    then = snapshot_of(served[which[i]])
            if is_late or cells is None:
                then.put(score, x, row)
            else:
                place = interval_of(edges, score)
                then.put(middles[place], places[place], row)
            for k in range(candidates):
                if k > 0 and row[k] == row[k - 1]:  # a logarithm less
                    losses[kind, k, i] = losses[kind, k - 1, i]
                else:
                    losses[kind, k, i] = weight * loss_of(row[k], labels[i], least, most)
        for tracker in range(2):
            mixed = 0.0
            for k in range(candidates):
                mixed += then._parts[1 + tracker, k] * row[k]
            tracked[tracker, i] = weight * loss_of(mixed, labels[i], least, most)
        mixed = 0.0
        for k in range(candidates):
            mixed += then._parts[0, k] * row[k]
        mixed = min(max(mixed, then._least), then._most)
        log_odds = math.log(mixed / (1.0 - mixed))
        for j in range(len(sloped)):
            loss = 0.0
            if then.knows:
                loss = weight * loss_of(then.drawn(mixed, log_odds, j), labels[i], least, most)
            sloped[j, i] = loss
    return out


def loss_of(forecast: float, label: int, least: float, most: float) -> float:
    """Return the log loss in nats of one forecast, kept within limits."""
    inside = min(max(forecast, least), most)
    return -math.log(inside if label == 1 else 1.0 - inside)


def look(prediction_index: Counts, observed: int, is_later: bool) -> tuple[int, bool, int]:
    """Return what predictions say of when labels came, by the number of scores before each, int64[n].

    Returns
    -------
    The greatest number; whether one is `AT_ONCE`; and how many labels were predicted after a step at so many
    observed scores, of which only ``is_later`` tells, if the number is not negative.
    """
    newest, at_once, fresh = prediction_index[0], False, 0
    for i in range(len(prediction_index)):
        number = prediction_index[i]
        newest = max(newest, number)
        at_once |= number == _AT_ONCE
        fresh += number < 0 or (is_later and number >= observed)
    return newest, bool(at_once), fresh


def put_served(entries: list[tuple[int, Snapshot]], prediction_index: Counts, index: Counts) -> int:
    """Put the index of the snapshot served after each number of scores into ``index``; return the least.

    Parameters
    ----------
    entries
        numbers of steps and K snapshots, whose counts of observed scores ascend.
    prediction_index, index
        int64[n]. K stands for negative numbers, and for snapshots that knew no label: their candidates
        forecast the same, so no label can distinguish them.
    """
    count, first = len(entries), 0
    moments = np.empty(count, np.int64)
    for j in range(count):
        moments[j] = snapshot_of(entries[j]).observed
    while first < count and not snapshot_of(entries[first]).knows:
        first += 1
    first, least = first if first < count else 0, count
    for i in range(len(prediction_index)):
        low, high = 1, count  # the first of the later entries that was served after this number
        while low < high:
            middle = (low + high) // 2
            if moments[middle] <= prediction_index[i]:
                low = middle + 1
            else:
                high = middle
        place = low - 1
        if prediction_index[i] < 0 or place < first:
            place = count
        index[i] = place
        least = min(least, place)
    return least


def thinned(entries: list[tuple[int, Snapshot]], oldest: int, young: int) -> list[tuple[int, Snapshot]]:
    """Return the snapshots to keep, of those with the numbers of their steps.

    The first is kept, and those less than ``young`` steps old. Of the others, until they are ``oldest`` steps
    old, four of every doubling of their age are kept.
    """
    kept, now, count = [], entries[len(entries) - 1][0], len(entries)
    for i in range(count):
        step = entries[i][0]
        age, apart = now - step, 1
        while age >= 8 * apart:
            apart *= 2
        if step == 0 or age < young or (age < oldest and step % apart == 0):
            kept.append(entries[i])
    return kept


def snapshot_of(entry: tuple[int, Snapshot]) -> Snapshot:
    """Return the snapshot of an entry."""
    return entry[1]


def moved_slopes(weights: Floats, losses: Floats, first: Floats, rate: float, share: float) -> Floats:
    """Return the weights of `SLOPES` after labels; see `weights.Slopes`.

    Parameters
    ----------
    weights, first
        weights now, and the first ones, float64[S].
    losses
        log losses of the mixture with each, float64[S, n].
    rate, share
        η, and the part that goes back at a label.
    """
    s, n, out = len(weights), losses.shape[1], np.empty(len(weights))
    moved, total, least, kept = out, 0.0, math.inf, math.pow(1.0 - share, float(losses.shape[1]))
    for j in range(s):
        moved[j] = 0.0
        for i in range(n):
            moved[j] += losses[j, i]
        least = min(least, moved[j])
    for j in range(s):
        moved[j] = weights[j] * math.exp(-rate * (moved[j] - least))
        total += moved[j]
    for j in range(s):
        moved[j] = kept * (moved[j] / total) + (1.0 - kept) * first[j]
    return out


def add_up(losses: Floats, sums: Floats) -> None:
    """Add the losses of candidates as of the prediction, the first of float64[k, K, n], to ``sums``."""
    for k in range(losses.shape[1]):
        for i in range(losses.shape[2]):
            sums[k] += losses[0, k, i]


def learn_labels(fits: Floats, discounts: Floats, logits: Floats, labels: Labels, shares: Floats) -> None:
    """Let every online Platt scaling take its steps for the next labels, in place; see `mixture.online`.

    Parameters
    ----------
    fits
        float64[G, 5], for every discount a and b; H of a a, a b and b b.
    discounts
        float64[G].
    logits, labels
        float64[n], finite, and int8[n].
    shares
        what each label counts for, float64[n].
    """
    n, block, least = len(labels), _BLOCK, _LEAST_CURVATURE
    for start in range(0, n, block):
        end = min(start + block, n)
        low = high = logits[start]
        for i in range(start, end):
            low = min(low, logits[i])
            high = max(high, logits[i])
        for k in range(len(fits)):
            discount = discounts[k]
            a, b = fits[k, 0], fits[k, 1]
            aa, ab, bb = fits[k, 2], fits[k, 3], fits[k, 4]
            slope_a = slope_b = 0.0
            for i in range(start, end):
                # With t = tanh((a·x + b) / 2), p − y is (t − (2y − 1)) / 2, and p (1 − p) is (1 − t²) / 4.
                x, t = logits[i], math.tanh(0.5 * (a * logits[i] + b))
                first, second = 0.5 * (t + 1.0) - labels[i], max(0.25 * (1.0 - t * t), least)
                first *= shares[i]
                second *= shares[i]
                slope_a = discount * slope_a + first * x
                slope_b = discount * slope_b + first
                aa = discount * aa + second * x * x
                ab = discount * ab + second * x
                bb = discount * bb + second
            determinant = (aa + 1.0) * (bb + 1.0) - ab * ab
            step_a = ((bb + 1.0) * slope_a - ab * slope_b) / determinant
            step_b = ((aa + 1.0) * slope_b - ab * slope_a) / determinant
            farthest = max(abs(low * step_a + step_b), abs(high * step_a + step_b))
            length = math.log1p(farthest) / farthest if farthest > 0.0 else 1.0
            fits[k, 0], fits[k, 1] = a - length * step_a, b - length * step_b
            fits[k, 2], fits[k, 3], fits[k, 4] = aa, ab, bb


class Rates(NamedTuple):
    """Constants of the recursion; `mixture.weights` and `engine.multiclass.mixing` say why."""

    rate: float
    """η times the mean loss a label, where η is below its maximum of 1."""
    early: float
    """Increase of the rate at the beginning."""
    share: float
    """Part of the weights that goes back at a label as uncertain as a coin toss."""
    lead_rate: float
    """Rate of the weights of the trackers."""
    trust: float
    """First weight of the first tracker."""
    kept: float = 0.5 ** (1.0 / 2000.0)
    """Factor on the mean loss, a label."""
    coin: float = math.log(2.0)
    """Log loss of the forecast ½."""
    least: float = 1e-300
    """Loss that nothing is divided by."""
    least_trust: float = 1e-12
    """Least weight of a tracker."""


def move(
    served: Floats,
    sums: Floats,
    lead: float,
    losses: Floats,
    tracked: Floats,
    counted: Floats,
    first: Floats,
    asleep: Bytes,
    earlier: float,
    rates: Rates,
) -> float:
    """Move the weights of both trackers by log losses, in place; return the lead of the first.

    Parameters
    ----------
    served
        weights by both trackers, and behind them the weights by each, float64[3, K].
    sums
        The discounted log loss of each tracker, and the discounted number of labels, float64[3].
    lead
        lead of the first tracker: the log odds of its weight.
    losses, tracked, counted
        As in `Weights.track`.
    first
        The first weights, float64[K].
    asleep
        candidates that keep their weight, 1 or 0, uint8[K].
    earlier
        number of target labels that came before; negative: the labels are the source's.
    """
    block = 64
    rate, early, share, lead_rate, first_trust, kept_a_label, coin, least_loss, least_trust = rates
    candidates, n, kinds = losses.shape[1], losses.shape[2], losses.shape[0]
    lost, each = np.empty(candidates), served[1:]
    for start in range(0, n, block):
        end = min(start + block, n)
        known = 0.0
        for i in range(start, end):
            known += counted[i]
        product = rate
        if earlier >= 0.0:
            product = rate * (1.0 + early / (earlier + start + 0.5 * block))
        least_mean = math.inf
        returned = math.inf  # the least part of the weights that goes back
        kept = math.pow(kept_a_label, float(end - start))
        for tracker in range(2):
            kind = tracker if kinds > 1 else 0
            mean = sums[tracker] / sums[2]
            total = own = 0.0
            least = math.inf
            for k in range(candidates):
                if asleep[k]:
                    continue
                loss = 0.0
                for i in range(start, end):
                    loss += losses[kind, k, i]
                lost[k] = loss
                total += each[tracker, k]
                own += each[tracker, k] * loss
                if each[tracker, k] > 0.0:
                    least = min(least, loss)
            eta = min(1.0, product / max(mean, least_loss))
            moved = 0.0
            for k in range(candidates):
                if not asleep[k]:
                    lost[k] = each[tracker, k] * math.exp(min(eta * (least - lost[k]), 0.0))
                    moved += lost[k]
            back = 1.0 - math.pow(1.0 - share * min(1.0, mean / coin), known)
            for k in range(candidates):
                if not asleep[k]:
                    each[tracker, k] = lost[k] * (total / moved)
                each[tracker, k] += back * (first[k] - each[tracker, k])
            sums[tracker] = kept * sums[tracker] + own / total
            least_mean = min(least_mean, mean)
            returned = min(returned, back)
        ahead = 0.0
        for i in range(start, end):
            ahead += tracked[1, i]
            ahead -= tracked[0, i]
        if ahead != 0.0:
            trusted = trust(lead + min(1.0, lead_rate / max(least_mean, least_loss)) * ahead)
            trusted += (first_trust - trusted) * returned
            trusted = min(max(trusted, least_trust), 1.0 - least_trust)
            lead = math.log(trusted / (1.0 - trusted))
        sums[2] = kept * sums[2] + known
    trusted = trust(lead)
    for k in range(candidates):
        served[0, k] = trusted * each[0, k] + (1.0 - trusted) * each[1, k]
    return lead


def trust(lead: float) -> float:
    """Return the weight of the first tracker, by its log odds."""
    most = 30.0  # of one tracker over the other, in log odds
    return 1.0 / (1.0 + math.exp(min(max(-lead, -most), most)))
