"""Methods that recalibrate a stream, ours and known ones, and the replay of a stream through one of them.

A `Method` predicts and learns blocks of events. Some peers take one event at a time, as a `Single`; `InTurn`
makes a method of one. Before the first fit the probability is the score. What scikit-learn fits is served by
a binary search or a formula of our own: its ``predict`` is made for arrays, and a call for a single score
would be most of a peer's time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from streamcal import Recalibrator
from streamcal.engine.config import Mode

__all__ = [
    "LATE_BLOCK",
    "PEERS",
    "Floats",
    "InTurn",
    "Labels",
    "Method",
    "Protected",
    "Raw",
    "River",
    "Single",
    "SixtyLines",
    "SlidingIsotonic",
    "SlidingPlatt",
    "Streamcal",
    "arrivals",
    "brier_losses",
    "exponential",
    "log_losses",
    "replay",
]

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]
Places = NDArray[np.int64]

WINDOW: Final = 5_000
REFIT_EVERY: Final = 500
LEAST: Final = 1e-6
"""A score nearer than that to 0 or 1 has the logit of this one: ±13.8; a probability, its log loss."""

LATE_BLOCK: Final = 100
"""Events of a block where labels are late: they are that late, and at most a block more."""


class Method(Protocol):
    """A way to recalibrate a stream, in blocks of events."""

    def predict(self, scores: Floats) -> Floats:
        """Return the probabilities of the next n scores, float64[n]."""

    def learn(self, scores: Floats, labels: Labels, places: Places | None = None, /) -> None:
        """Learn n scores with their labels.

        Parameters
        ----------
        scores, labels
            float64[n] in [0, 1]; int8[n], 0 or 1; in the order in which the labels came.
        places
            int64[n], which predictions they answer, counted from 0; None: labels of the source, for which no
            prediction was asked.
        """


class Single(Protocol):
    """A way to recalibrate a stream, one event at a time."""

    def predict(self, score: float) -> float:
        """Return the probability of one score."""

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label, 0 or 1."""


class InTurn:
    """A method that hands its events to a `Single` one by one."""

    def __init__(self, single: Single) -> None:
        self.single = single

    def predict(self, scores: Floats) -> Floats:
        """Return the probabilities of scores, float64[n]."""
        return np.array([self.single.predict(score) for score in scores.tolist()])

    def learn(self, scores: Floats, labels: Labels, _places: Places | None = None, /) -> None:
        """Learn n scores with their labels; which predictions they answer does not matter."""
        for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
            self.single.learn(score, label)


class Raw:
    """The score as it came."""

    def predict(self, scores: Floats) -> Floats:
        """Return the scores."""
        return scores

    def learn(self, scores: Floats, labels: Labels, places: Places | None = None, /) -> None:
        """Learn nothing."""


class Streamcal:
    """An engine with default options but for the mode, told of every label when its score was predicted."""

    def __init__(self, mode: Mode | None = None) -> None:
        self.engine = Recalibrator() if mode is None else Recalibrator(mode=mode)
        self._memos: list[bytes] = []  # by prediction

    def predict(self, scores: Floats) -> Floats:
        """Return the probabilities of scores, float64[n], and let the engine observe them."""
        if len(scores) == 1:
            answer = self.engine.answer_one(scores.item())
            self._memos.append(answer.memo)
            return np.array([answer.probability])
        answers = self.engine.answer_many(scores)
        self._memos += answers.memos
        return answers.probabilities

    def learn(self, scores: Floats, labels: Labels, places: Places | None = None, /) -> None:
        """Learn n scores with their labels."""
        if places is None:
            self.engine.learn_many(scores, labels, "source")
        elif len(places) == 1:
            self.engine.learn_one(scores.item(), labels.item(), memo=self._memos[places.item()])
        else:
            memos = [self._memos[place] for place in places.tolist()]
            self.engine.learn_many(scores, labels, memos=memos)


class _Sliding(ABC):
    """A map fitted to the latest labels, anew after every so many.

    Parameters
    ----------
    window
        how many labels it is fitted to.
    every
        after how many labels it is fitted anew.
    """

    def __init__(self, window: int = WINDOW, every: int = REFIT_EVERY) -> None:
        self._every = every
        self._scores = np.empty(window)
        self._labels = np.empty(window, np.int8)
        self._n = 0
        self._fitted = False

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label."""
        place = self._n % len(self._scores)
        self._scores[place], self._labels[place] = score, label
        self._n += 1
        if self._n % self._every == 0:
            known = min(self._n, len(self._scores))
            self._fitted |= self._fit(self._scores[:known], self._labels[:known])

    @abstractmethod
    def _fit(self, scores: Floats, labels: Labels) -> bool:
        """Fit the map; return whether it could be."""


class SlidingIsotonic(_Sliding):
    """scikit-learn's isotonic regression of the labels in a sliding window, linear between its steps."""

    def predict(self, score: float) -> float:
        """Return the probability of one score."""
        if not self._fitted:
            return score
        ends, values = self._ends, self._values
        above = bisect_right(ends, score)
        if above == 0:
            return values[0]
        if above == len(ends):
            return values[-1]
        left, right = ends[above - 1], ends[above]
        low, high = values[above - 1], values[above]
        return low if low == high else low + (high - low) * (score - left) / (right - left)

    def _fit(self, scores: Floats, labels: Labels) -> bool:
        fitted = IsotonicRegression(y_min=0.0, y_max=1.0).fit(scores, labels)
        self._ends: list[float] = fitted.X_thresholds_.tolist()
        self._values: list[float] = fitted.y_thresholds_.tolist()
        return True


class SlidingPlatt(_Sliding):
    """Platt scaling of the labels in a sliding window: scikit-learn's logistic regression on the logit.

    While all labels of the window are alike there is nothing to fit, and the map stays what it was.
    """

    def predict(self, score: float) -> float:
        """Return the probability of one score."""
        return _sigmoid(self._slope * logit(score) + self._intercept) if self._fitted else score

    def _fit(self, scores: Floats, labels: Labels) -> bool:
        if labels.min() == labels.max():
            return False
        inside = np.clip(scores, LEAST, 1.0 - LEAST)
        fitted = LogisticRegression().fit(np.log(inside / (1.0 - inside)).reshape(-1, 1), labels)
        self._slope, self._intercept = float(fitted.coef_[0, 0]), float(fitted.intercept_[0])
        return True


class OnlinePlatt:
    """Online Platt scaling: p = sigmoid(a·logit z + b), an online Newton step in (a, b) after every label.

    With the gradient g of the label's log loss, A ← A + g gᵀ and θ ← θ − A⁻¹g / γ, from the identity and
    A = ρI: Gupta and Ramdas, "Online Platt Scaling with Calibeating" (2023), with their γ = 0.1 and ρ = 100.
    Their projection onto the ball of radius 100 is left out; no stream here comes near to it.
    """

    def __init__(self) -> None:
        self.parameters = (1.0, 0.0)
        self._inverse = (0.01, 0.0, 0.01)  # of A, kept by the formula of Sherman and Morrison

    def predict(self, score: float) -> float:
        """Return the probability of one score."""
        slope, intercept = self.parameters
        return _sigmoid(slope * logit(score) + intercept)

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label."""
        (slope, intercept), (p, q, r) = self.parameters, self._inverse
        x = logit(score)
        excess = _sigmoid(slope * x + intercept) - label
        u, v = excess * (p * x + q), excess * (q * x + r)
        scale = 1.0 / (1.0 + excess * (u * x + v))
        self._inverse = (p - scale * u * u, q - scale * u * v, r - scale * v * v)
        self.parameters = (slope - 10.0 * scale * u, intercept - 10.0 * scale * v)


class River:
    """river's logistic regression on the logit, which learns label by label."""

    def __init__(self) -> None:
        from river.linear_model import LogisticRegression

        self._model = LogisticRegression()

    def predict(self, score: float) -> float:
        """Return the probability of one score."""
        return float(self._model.predict_proba_one({"logit": logit(score)})[True])

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label."""
        self._model.learn_one({"logit": logit(score)}, bool(label))


class Protected:
    """Protected probabilistic classification: Cox calibrators that jump, beside the score as it is.

    Vovk, Petej and Gammerman, "Protected probabilistic classification" (2021), with the settings of
    `protected-classification` 0.1.5 on PyPI: odds to the power ½, 1 or 2, times e^−1, 1 or e, at jumping
    rates .01, .001 and .0001; half of the first weight is passive. Forecasts are merged for the Brier loss.
    The package's own code predicts and learns an event in one call of 3 ms, so labels cannot be late there.
    Labels of the source are earlier labels of the stream.
    """

    BETAS: Final = (1.0, 0.5, 2.0)
    # One for each way to raise or lower one of the two classes: two of them are the same.
    SHIFTS: Final = (0.0, -1.0, 1.0, 1.0, -1.0)
    RATES: Final = (1e-2, 1e-3, 1e-4)
    PASSIVE: Final = 0.5

    def __init__(self) -> None:
        self._betas = np.tile(self.BETAS, len(self.SHIFTS))
        self._shifts = np.repeat(self.SHIFTS, len(self.BETAS))
        self._rates = np.array(self.RATES)[:, np.newaxis]
        self._passive = self.PASSIVE
        self._active = np.zeros((len(self.RATES), len(self._betas)))
        self._active[:, 0] = (1.0 - self.PASSIVE) / len(self.RATES)
        self._jump()

    def predict(self, scores: Floats) -> Floats:
        """Return the probabilities of scores, float64[n]."""
        said = self._said(scores)
        weights = np.append(self._active.sum(axis=0), self._passive)
        # The two classes count twice in the package's Brier loss.
        if_one, if_zero = (-np.log(np.exp(-2.0 * (said - label) ** 2) @ weights) for label in (1.0, 0.0))
        return np.clip((2.0 + if_zero - if_one) / 4.0, 0.0, 1.0)

    def learn(self, scores: Floats, labels: Labels, _places: Places | None = None, /) -> None:
        """Learn n scores with their labels."""
        for factors in np.exp(-2.0 * (self._said(scores) - labels[:, np.newaxis]) ** 2):
            self._active *= factors[:-1]
            self._passive *= factors[-1]
            total = self._active.sum() + self._passive
            self._active /= total
            self._passive /= total
            self._jump()

    def _jump(self) -> None:
        evenly = self._active.mean(axis=1, keepdims=True)
        self._active = (1.0 - self._rates) * self._active + self._rates * evenly

    def _said(self, scores: Floats) -> Floats:
        """Return what each calibrator says, and last the score itself; float64[n, K + 1]."""
        inside = np.clip(scores, LEAST, 1.0 - LEAST)[:, np.newaxis]
        calibrated = expit(self._betas * (np.log(inside) - np.log1p(-inside)) + self._shifts)
        return np.hstack((calibrated, scores[:, np.newaxis]))


class SixtyLines:
    """The plain mixture: twelve maps, weighed by their log loss as of the prediction.

    Platt, beta, a hinge spline on the logit, and isotonic regression, each on the latest 1,000, 5,000 and
    20,000 labels, those of the source among them, refitted every 500 labels. A label multiplies the weight of
    a map by the probability that the map gave it when the label's score was predicted (η = 1), then a
    thousandth of all weight is shared out evenly. Labels of the source do not move weights: nothing was
    predicted for them.
    """

    WINDOWS: Final = (1_000, 5_000, 20_000)
    SHARE: Final = 0.001
    LEAST: Final = 1e-4
    """Scores are clipped to it from both ends."""
    KNOTS: Final = (-3.0, -1.5, 0.0, 1.5, 3.0)
    IDENTITY: Final = ((1, 0, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 1, 1, 0), (1, 0, 0, 0, 0, 0, 0, 0, 0))
    """The coefficients of Platt, beta and hinge at which they are the identity; see `_columns`."""
    USED: Final = ((0, 8), (6, 7, 8), (0, 1, 2, 3, 4, 5, 8))
    """Their columns."""
    RIDGES: Final = (1.0, 1.0, 4.0)
    ISOTONIC_FROM: Final = 200
    ISOTONIC_LEAST: Final = 0.001

    def __init__(self) -> None:
        self._known = _Known(self.WINDOWS[-1])
        self._fitted_to = 0
        self._smooth = np.repeat(np.array(self.IDENTITY, np.float64), len(self.WINDOWS), axis=0)
        self._isotonic: list[tuple[Floats, Floats]] = []
        self._weights = np.full(4 * len(self.WINDOWS), 0.25 / len(self.WINDOWS))
        self._asked = np.empty((1_024, len(self._weights)))
        self._predicted = 0

    def predict(self, scores: Floats) -> Floats:
        """Return the probabilities of scores, float64[n]."""
        known = len(self._known) // REFIT_EVERY * REFIT_EVERY
        if known > self._fitted_to:
            self._fitted_to = known
            self._fit(known)
        first, self._predicted = self._predicted, self._predicted + len(scores)
        while self._predicted > len(self._asked):
            self._asked = np.concatenate((self._asked, np.empty_like(self._asked)))
        each = self._asked[first : self._predicted]
        inside = np.clip(scores, self.LEAST, 1.0 - self.LEAST)
        smooth = len(self._smooth)
        each[:, :smooth] = expit(self._columns(inside) @ self._smooth.T)
        each[:, smooth:] = inside[:, np.newaxis]
        for i, (ends, values) in enumerate(self._isotonic):
            each[:, smooth + i] = np.interp(inside, ends, values)
        return each @ self._weights

    def learn(self, scores: Floats, labels: Labels, places: Places | None = None, /) -> None:
        """Learn n scores with their labels."""
        self._known.add(scores, labels)
        if places is None:
            return
        weights, evenly = self._weights, self.SHARE / len(self._weights)
        said = self._asked[places]
        for given in np.where(labels[:, np.newaxis], said, 1.0 - said):
            weights = weights * given
            weights *= (1.0 - self.SHARE) / weights.sum()
            weights += evenly
        self._weights = weights

    def _columns(self, inside: Floats) -> Floats:
        """Return logit, a hinge for each knot, log z, −log(1 − z), 1; float64[n, 9]."""
        log, log_other = np.log(inside), -np.log1p(-inside)
        x = log + log_other
        hinges = (np.maximum(x - knot, 0.0) for knot in self.KNOTS)
        return np.column_stack((x, *hinges, log, log_other, np.ones(len(x))))

    def _fit(self, known: int) -> None:
        scores, labels = self._known.latest(known)
        inside = np.clip(scores, self.LEAST, 1.0 - self.LEAST)
        columns = self._columns(inside)
        self._isotonic = []
        for i, window in enumerate(self.WINDOWS):
            # Windows that hold all that is known are the same.
            recent = slice(-window, None)
            for j, (used, ridge) in enumerate(zip(self.USED, self.RIDGES, strict=True)):
                row, kept = j * len(self.WINDOWS) + i, list(used)
                identity = np.array(self.IDENTITY[j], np.float64)[kept]
                self._smooth[row, kept] = fit_ridge(
                    columns[recent][:, kept], labels[recent], identity, ridge, self._smooth[row, kept]
                )
            if known >= self.ISOTONIC_FROM:
                fitted = IsotonicRegression(y_min=self.ISOTONIC_LEAST, y_max=1.0 - self.ISOTONIC_LEAST)
                fitted.fit(inside[recent], labels[recent])
                self._isotonic.append((fitted.X_thresholds_, fitted.y_thresholds_))


class _Known:
    """The latest labels that have come, with their scores."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._scores, self._labels = np.empty(1_024), np.empty(1_024, np.int8)
        self._held = self._n = 0

    def __len__(self) -> int:
        return self._n

    def add(self, scores: Floats, labels: Labels) -> None:
        held = self._held + len(scores)
        if held > len(self._scores):
            # A little more than the window: what is fitted may end before the latest label.
            kept = min(self._held, self._window + REFIT_EVERY)
            old, room = slice(self._held - kept, self._held), kept + 2 * len(scores)
            self._scores = np.concatenate((self._scores[old], np.empty(room)))
            self._labels = np.concatenate((self._labels[old], np.empty(room, np.int8)))
            self._held, held = kept, kept + len(scores)
        self._scores[self._held : held], self._labels[self._held : held] = scores, labels
        self._held, self._n = held, self._n + len(scores)

    def latest(self, known: int) -> tuple[Floats, Labels]:
        """Return the latest scores and labels among the first so many."""
        end = self._held - (self._n - known)
        begin = max(0, end - self._window)
        return self._scores[begin:end], self._labels[begin:end]


def fit_ridge(
    columns: Floats, labels: Labels, centre: Sequence[float] | Floats, ridge: float, start: Floats
) -> Floats:
    """Return the θ of least log loss Σ −log P[label; θ·x] + ridge·|θ − centre|²/2, by Newton's method.

    Parameters
    ----------
    columns, labels
        float64[n, k]; int8[n], 0 or 1.
    centre
        float64[k].
    ridge
        ≥ 0.
    start
        float64[k], where to begin.
    """
    middle = np.asarray(centre, np.float64)

    def objective(at: Floats) -> float:
        exponents = columns @ at
        losses = np.logaddexp(0.0, exponents).sum() - exponents @ labels
        return float(losses + 0.5 * ridge * ((at - middle) ** 2).sum())

    here = np.array(start, np.float64)
    least = objective(here)
    for _ in range(50):
        rates = expit(columns @ here)
        gradient = columns.T @ (rates - labels) + ridge * (here - middle)
        hessian = (columns * (rates * (1.0 - rates))[:, np.newaxis]).T @ columns
        step = np.linalg.solve(hessian + ridge * np.eye(len(here)), gradient)
        # Half the Newton decrement is what is left to gain, in nats over all labels.
        if gradient @ step < 1e-4:
            break
        while (found := objective(here - step)) > least and np.abs(step).max() > 1e-9:
            step /= 2.0
        here, least = here - step, found
    return here


PEERS: Final[dict[str, Callable[[], Method]]] = {
    "sliding isotonic": lambda: InTurn(SlidingIsotonic()),
    "sliding Platt": lambda: InTurn(SlidingPlatt()),
    "online Platt": lambda: InTurn(OnlinePlatt()),
    "protected classification": Protected,
    "sixty lines": SixtyLines,
}
"""The peers by their names in the tables."""


def logit(score: float) -> float:
    """Return log(z / (1 − z)), within ±13.8."""
    inside = min(max(score, LEAST), 1.0 - LEAST)
    return math.log(inside / (1.0 - inside))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0


def replay(
    method: Method, scores: Floats, labels: Labels, delays: ArrayLike = 0, block: int | None = None
) -> Floats:
    """Return the forecast of every event, float64[n].

    Parameters
    ----------
    method
        what predicts and learns.
    scores, labels
        float64[n] in [0, 1]; int8[n], 0 or 1.
    delays
        how many events late the labels are, ≥ 0: one number, or int64[n].
    block
        how many events are predicted, and then learned, at a time; None: 1 if all labels come at once, else
        `LATE_BLOCK`.
    """
    size = block or (LATE_BLOCK if np.any(delays) else 1)
    order, known = arrivals(len(scores), delays, size)
    forecasts = np.empty(len(scores))
    learned = 0
    for begin in range(0, len(scores), size):
        if known[begin] > learned:
            places = order[learned : known[begin]]
            method.learn(scores[places], labels[places], places)
            learned = known[begin]
        forecasts[begin : begin + size] = method.predict(scores[begin : begin + size])
    return forecasts


def arrivals(n: int, delays: ArrayLike, block: int) -> tuple[Places, Places]:
    """Return the events in the order in which their labels arrive, and how many are known to each forecast.

    Both are int64[n]. All events of a block are forecast before labels that arrive in it are known.
    """
    times = np.arange(n) + np.asarray(delays)
    order = np.argsort(times, kind="stable")
    starts = np.arange(n) // block * block
    return order, np.searchsorted(times[order], starts)


def exponential(n: int, mean: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return exponential delays of n labels, int64[n] events."""
    return rng.exponential(mean, n).astype(np.int64)


def log_losses(forecasts: Floats, labels: Labels, least: float = LEAST) -> Floats:
    """Return the log loss of every event in nats, probabilities clipped to [least, 1 − least]."""
    inside = np.clip(forecasts, least, 1.0 - least)
    return -np.log(np.where(labels, inside, 1.0 - inside))


def brier_losses(forecasts: Floats, labels: Labels) -> Floats:
    """Return the Brier loss of every event."""
    return np.square(forecasts - labels)
