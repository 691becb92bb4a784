"""What others do: recalibration of a stream by known methods, each one event at a time.

Every method has ``predict(score)``, the probability in [0, 1], and ``learn(score, label)``. Before the first
fit the probability is the score. What scikit-learn fits is served by a binary search or a formula of our own:
its ``predict`` is made for arrays, and a call for a single score would be most of a peer's time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from streamcal.maps.binning import cube_root
from streamcal.maps.uniform_mass import uniform_mass_binning

__all__ = [
    "PEERS",
    "CumulativeBinning",
    "Method",
    "OnlinePlatt",
    "OnlinePlattCalibeating",
    "SlidingBeta",
    "SlidingIsotonic",
    "SlidingPlatt",
]

WINDOW: Final = 5_000
REFIT_EVERY: Final = 500
_NEAREST: Final = 1e-6  # a score nearer than that to 0 or 1 has the logit of this one: ±13.8

Floats = NDArray[np.float64]


class Method(Protocol):
    """A way to recalibrate a stream."""

    def predict(self, score: float) -> float:
        """Return the probability of one score."""

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label, 0 or 1."""


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


class OnlinePlatt:
    """Online Platt scaling: p = sigmoid(a·logit z + b), an online Newton step in (a, b) after every label.

    With the gradient g of the label's log loss, A ← A + g gᵀ and (a, b) ← (a, b) − A⁻¹g / γ, from (1, 0) and
    A = ρI: Gupta and Ramdas, "Online Platt Scaling with Calibeating" (2023), with their γ = 0.1 and ρ = 100.
    Their projection onto the ball of radius 100 is left out.

    Raises
    ------
    ArithmeticError
        by `learn`, where the projection would have acted.
    """

    RADIUS: Final = 100.0

    def __init__(self) -> None:
        self.slope, self.intercept = 1.0, 0.0
        self._aa, self._ab, self._bb = 100.0, 0.0, 100.0

    def predict(self, score: float) -> float:
        """Return the probability of one score."""
        return _sigmoid(self.slope * logit(score) + self.intercept)

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label."""
        x = logit(score)
        excess = _sigmoid(self.slope * x + self.intercept) - label
        along_a, along_b = excess * x, excess
        self._aa += along_a * along_a
        self._ab += along_a * along_b
        self._bb += along_b * along_b
        scale = 10.0 / (self._aa * self._bb - self._ab * self._ab)
        self.slope -= scale * (self._bb * along_a - self._ab * along_b)
        self.intercept -= scale * (self._aa * along_b - self._ab * along_a)
        if math.hypot(self.slope, self.intercept) > self.RADIUS:
            raise ArithmeticError(f"(a, b) = ({self.slope}, {self.intercept}) left the ball of {self.RADIUS}")


class OnlinePlattCalibeating:
    """Online Platt scaling with calibeating: the mean label of the events whose forecasts were alike.

    "Tracking" of Gupta and Ramdas (2023), after Foster and Hart, "Calibeating" (2023): the forecasts of
    `OnlinePlatt` fall into bins of width 0.1, and the mean of the labels of a bin is what is served. A bin
    without labels serves the forecast itself. A label counts in the bin of the forecast that was made for it.
    """

    BINS: Final = 10

    def __init__(self) -> None:
        self._first = OnlinePlatt()
        self._asked: deque[int] = deque()  # the bins of forecasts whose labels are still to come
        self._positives, self._labels = [0] * self.BINS, [0] * self.BINS

    def predict(self, score: float) -> float:
        """Return the probability of one score; its label must come by `learn`, in the same order."""
        forecast = self._first.predict(score)
        place = self._place(forecast)
        self._asked.append(place)
        return self._positives[place] / self._labels[place] if self._labels[place] else forecast

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label; one for which no forecast was asked counts as asked just now."""
        place = self._asked.popleft() if self._asked else self._place(self._first.predict(score))
        self._labels[place] += 1
        self._positives[place] += label
        self._first.learn(score, label)

    def _place(self, forecast: float) -> int:
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


PEERS: Final[dict[str, Callable[[], Method]]] = {
    "sliding isotonic": SlidingIsotonic,
    "sliding Platt": SlidingPlatt,
    "sliding beta": SlidingBeta,
    "online Platt": OnlinePlatt,
    "online Platt, calibeating": OnlinePlattCalibeating,
    "cumulative binning": CumulativeBinning,
}
"""The peers by their names in the tables."""


def logit(score: float) -> float:
    """Return log(z / (1 − z)), within ±13.8."""
    inside = min(max(score, _NEAREST), 1.0 - _NEAREST)
    return math.log(inside / (1.0 - inside))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0
