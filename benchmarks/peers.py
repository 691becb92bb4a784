"""Peers: known methods that recalibrate a stream, and the plain mixture of "sixty lines".

A `Method` predicts and learns blocks of events. Most peers take one event at a time, as a `Single`; `InTurn`
makes a method of one. Before the first fit the probability is the score. What scikit-learn fits is served by
a binary search or a formula of our own: its ``predict`` is made for arrays, and a call for a single score
would be most of a peer's time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from operator import mul
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sixty_lines import REFIT_EVERY, CumulativePlatt, Floats, Labels, Places, SixtyLines
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from streamcal.maps.binning import cube_root
from streamcal.maps.uniform_mass import uniform_mass_binning

__all__ = [
    "PEERS",
    "CumulativeBinning",
    "CumulativePlatt",
    "InTurn",
    "Method",
    "OnlineBeta",
    "OnlinePlatt",
    "OnlinePlattCalibeating",
    "Protected",
    "Single",
    "SixtyLines",
    "SlidingBeta",
    "SlidingIsotonic",
    "SlidingPlatt",
]

WINDOW: Final = 5_000
_NEAREST: Final = 1e-6  # a score nearer than that to 0 or 1 has the logit of this one: ±13.8


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
    def _fit(self, scores: Floats, labels: NDArray[np.int8]) -> bool:
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

    def _fit(self, scores: Floats, labels: NDArray[np.int8]) -> bool:
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

    def _fit(self, scores: Floats, labels: NDArray[np.int8]) -> bool:
        if labels.min() == labels.max():
            return False
        inside = np.clip(scores, _NEAREST, 1.0 - _NEAREST)
        fitted = LogisticRegression().fit(np.log(inside / (1.0 - inside)).reshape(-1, 1), labels)
        self._slope, self._intercept = float(fitted.coef_[0, 0]), float(fitted.intercept_[0])
        return True


class SlidingBeta(_Sliding):
    """Beta calibration of the labels in a sliding window: p = sigmoid(a·log z − b·log(1 − z) + c), a, b ≥ 0.

    Kull, Silva Filho and Flach, "Beta calibration" (2017): logistic regression on log z and −log(1 − z),
    without a penalty; where a coefficient comes out negative, its column is left out and the rest fitted
    again. While all labels of the window are alike, the map stays what it was.
    """

    def predict(self, score: float) -> float:
        """Return the probability of one score."""
        if not self._fitted:
            return score
        inside = min(max(score, _NEAREST), 1.0 - _NEAREST)
        return _sigmoid(self._a * math.log(inside) - self._b * math.log(1.0 - inside) + self._c)

    def _fit(self, scores: Floats, labels: NDArray[np.int8]) -> bool:
        if labels.min() == labels.max():
            return False
        inside = np.clip(scores, _NEAREST, 1.0 - _NEAREST)
        columns = np.column_stack((np.log(inside), -np.log1p(-inside)))
        kept = np.array([True, True])
        while True:
            # So weak a penalty only keeps the fit finite where the classes can be separated.
            fitted = LogisticRegression(C=1e6, max_iter=1_000).fit(columns[:, kept], labels)
            if (fitted.coef_[0] >= 0.0).all():
                break
            kept[np.flatnonzero(kept)[fitted.coef_[0].argmin()]] = False
            if not kept.any():
                return False
        slopes = np.zeros(2)
        slopes[kept] = fitted.coef_[0]
        self._a, self._b = slopes.tolist()
        self._c = float(fitted.intercept_[0])
        return True


class _OnlineNewton(ABC):
    """Online logistic regression: p = sigmoid(θ·x), an online Newton step in θ after every label.

    With the gradient g of the label's log loss, A ← A + g gᵀ and θ ← θ − A⁻¹g / γ, from the identity and
    A = ρI: Gupta and Ramdas, "Online Platt Scaling with Calibeating" (2023), with their γ = 0.1 and ρ = 100.
    Their projection onto the ball of radius 100 is left out.

    Raises
    ------
    ArithmeticError
        by `learn`, where the projection would have acted.
    """

    RADIUS: Final = 100.0
    IDENTITY: tuple[float, ...]
    """The first θ, with which p is the score."""

    def __init__(self) -> None:
        self.parameters = list(self.IDENTITY)
        # A⁻¹ is kept by the formula of Sherman and Morrison.
        self._inverse = [[0.01 * (i == j) for j in self._all] for i in self._all]

    @property
    def _all(self) -> range:
        return range(len(self.IDENTITY))

    @staticmethod
    @abstractmethod
    def columns(score: float) -> tuple[float, ...]:
        """Return x of a score."""

    def predict(self, score: float) -> float:
        """Return the probability of one score."""
        return _sigmoid(sum(map(mul, self.parameters, self.columns(score))))

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label."""
        columns, parameters, inverse = self.columns(score), self.parameters, self._inverse
        excess = _sigmoid(sum(map(mul, parameters, columns))) - label
        along = [excess * sum(map(mul, row, columns)) for row in inverse]
        scale = 1.0 / (1.0 + excess * sum(map(mul, along, columns)))
        for i, row in enumerate(inverse):
            for j in self._all:
                row[j] -= scale * along[i] * along[j]
            parameters[i] -= 10.0 * scale * along[i]
        if math.hypot(*parameters) > self.RADIUS:
            raise ArithmeticError(f"{tuple(parameters)} left the ball of {self.RADIUS}")


class OnlinePlatt(_OnlineNewton):
    """Online Platt scaling: p = sigmoid(a·logit z + b)."""

    IDENTITY = (1.0, 0.0)

    @staticmethod
    def columns(score: float) -> tuple[float, ...]:
        """Return (logit z, 1)."""
        return logit(score), 1.0


class OnlineBeta(_OnlineNewton):
    """Online beta scaling: p = sigmoid(a·log z − b·log(1 − z) + c)."""

    IDENTITY = (1.0, 1.0, 0.0)

    @staticmethod
    def columns(score: float) -> tuple[float, ...]:
        """Return (log z, −log(1 − z), 1)."""
        inside = min(max(score, _NEAREST), 1.0 - _NEAREST)
        return math.log(inside), -math.log(1.0 - inside), 1.0


class OnlinePlattCalibeating:
    """Online Platt scaling with calibeating: the mean label of the events whose forecasts were alike.

    "Tracking" of Gupta and Ramdas (2023), after Foster and Hart, "Calibeating" (2023): the forecasts of
    `OnlinePlatt` fall into bins of width 0.1, and the mean of the labels of a bin is what is served. A bin
    without labels serves the forecast itself. A label counts in the bin of the forecast that was made for it.
    """

    BINS: Final = 10

    def __init__(self) -> None:
        self._first = OnlinePlatt()
        self._asked: list[int] = []  # the bin of every forecast
        self._positives, self._labels = [0] * self.BINS, [0] * self.BINS

    def predict(self, scores: Floats) -> Floats:
        """Return the probabilities of scores, float64[n]."""
        served = []
        for forecast in map(self._first.predict, scores.tolist()):
            place = self._bin(forecast)
            self._asked.append(place)
            labels = self._labels[place]
            served.append(self._positives[place] / labels if labels else forecast)
        return np.array(served)

    def learn(self, scores: Floats, labels: Labels, places: Places | None = None, /) -> None:
        """Learn n scores with their labels; those of the source count as asked just now."""
        for i, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
            place = self._bin(self._first.predict(score)) if places is None else self._asked[places[i]]
            self._labels[place] += 1
            self._positives[place] += label
            self._first.learn(score, label)

    def _bin(self, forecast: float) -> int:
        return min(int(forecast * self.BINS), self.BINS - 1)


class CumulativeBinning:
    """The paper's uniform-mass binning of all labels so far, B = ⌊n^(1/3)⌋ (section 4.2).

    It is fitted anew each time n has grown by a tenth, from 64 labels on, as streamcal's own maps are.
    """

    def __init__(self) -> None:
        self._scores: list[float] = []
        self._labels: list[int] = []
        self._due = 64
        self._inner_edges: list[float] = []
        self._values: list[float] = []

    def predict(self, score: float) -> float:
        """Return the probability of one score."""
        return self._values[bisect_right(self._inner_edges, score)] if self._values else score

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label."""
        self._scores.append(score)
        self._labels.append(label)
        n = len(self._labels)
        if n >= self._due:
            self._due = math.ceil(1.1 * n)
            fitted = uniform_mass_binning(np.array(self._scores), np.array(self._labels), cube_root(n))
            self._inner_edges, self._values = list(fitted.edges[1:-1]), list(fitted.values)


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
        inside = np.clip(scores, _NEAREST, 1.0 - _NEAREST)[:, np.newaxis]
        calibrated = expit(self._betas * (np.log(inside) - np.log1p(-inside)) + self._shifts)
        return np.hstack((calibrated, scores[:, np.newaxis]))


PEERS: Final[dict[str, Callable[[], Method]]] = {
    "sliding isotonic": lambda: InTurn(SlidingIsotonic()),
    "sliding Platt": lambda: InTurn(SlidingPlatt()),
    "sliding beta": lambda: InTurn(SlidingBeta()),
    "online Platt": lambda: InTurn(OnlinePlatt()),
    "online beta": lambda: InTurn(OnlineBeta()),
    "online Platt, calibeating": OnlinePlattCalibeating,
    "cumulative binning": lambda: InTurn(CumulativeBinning()),
    "protected classification": Protected,
    "sixty lines": SixtyLines,
}
"""The peers by their names in the tables."""


def logit(score: float) -> float:
    """Return log(z / (1 − z)), within ±13.8."""
    inside = min(max(score, _NEAREST), 1.0 - _NEAREST)
    return math.log(inside / (1.0 - inside))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0
