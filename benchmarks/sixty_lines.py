"""Refits with a ridge to the identity: the plain mixture of "sixty lines", and Platt scaling of all labels.

`SixtyLines` is what a good engineer writes in an afternoon, and what the default must beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

__all__ = ["REFIT_EVERY", "CumulativePlatt", "Floats", "Labels", "Places", "SixtyLines"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]
Places = NDArray[np.int64]

REFIT_EVERY: Final = 500


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


class CumulativePlatt:
    """Platt scaling of all labels so far, refitted every 500, with a ridge of 1 to the identity.

    Before any positive label the probability is the score.
    """

    LEAST: Final = 1e-7

    def __init__(self) -> None:
        self._known = _Known()
        self._fitted_to = 0
        self._parameters = np.array([1.0, 0.0])

    def predict(self, scores: Floats) -> Floats:
        """Return the probabilities of scores, float64[n]."""
        scored, labels = self._known.latest(len(self._known) // REFIT_EVERY * REFIT_EVERY)
        if len(labels) > self._fitted_to and labels.any():
            self._fitted_to = len(labels)
            self._parameters = fit_ridge(self._columns(scored), labels, (1.0, 0.0), 1.0, self._parameters)
        return expit(self._columns(scores) @ self._parameters) if self._fitted_to else scores

    def learn(self, scores: Floats, labels: Labels, _places: Places | None = None, /) -> None:
        """Learn n scores with their labels."""
        self._known.add(scores, labels)

    def _columns(self, scores: Floats) -> Floats:
        inside = np.clip(scores, self.LEAST, 1.0 - self.LEAST)
        return np.column_stack((np.log(inside) - np.log1p(-inside), np.ones(len(inside))))


class _Known:
    """Labels that have come, with their scores; at least the latest so many of them."""

    def __init__(self, window: int | None = None) -> None:
        self._window = window
        self._scores, self._labels = np.empty(1_024), np.empty(1_024, np.int8)
        self._held = self._n = 0

    def __len__(self) -> int:
        return self._n

    def add(self, scores: Floats, labels: Labels) -> None:
        held = self._held + len(scores)
        if held > len(self._scores):
            # A little more than the window: what is fitted may end before the latest label.
            kept = self._held if self._window is None else min(self._held, self._window + REFIT_EVERY)
            old, room = slice(self._held - kept, self._held), kept + 2 * len(scores)
            self._scores = np.concatenate((self._scores[old], np.empty(room)))
            self._labels = np.concatenate((self._labels[old], np.empty(room, np.int8)))
            self._held, held = kept, kept + len(scores)
        self._scores[self._held : held], self._labels[self._held : held] = scores, labels
        self._held, self._n = held, self._n + len(scores)

    def latest(self, known: int) -> tuple[Floats, Labels]:
        """Return the latest scores and labels among the first so many."""
        end = self._held - (self._n - known)
        begin = 0 if self._window is None else max(0, end - self._window)
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
