"""What the mixture computes, written plainly from its definitions: label by label, or with scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from streamcal.mixture import newton_c as newton

__all__ = [
    "expit",
    "hinge",
    "isotonic",
    "log_losses",
    "logits_of",
    "online_platt",
    "shifted",
    "wide_logits_of",
]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


def logits_of(scores: Floats) -> Floats:
    """Return the logits, clipped as logistic maps take them."""
    return logit(np.clip(scores, 2.0**-40, 1.0 - 2.0**-40))


def wide_logits_of(scores: Floats) -> Floats:
    """Return the logits, clipped where doubles end."""
    return logit(np.clip(scores, 2.0**-1022, 1.0 - 2.0**-53))


def log_losses(forecasts: Floats, labels: Labels, least: float) -> Floats:
    """Return the losses in nats of forecasts, float64[..., n], none taken for nearer to 0 or 1 than so."""
    right = np.where(labels == 1, forecasts, 1.0 - forecasts)
    losses: Floats = -np.log(np.clip(right, least, 1.0 - least))
    return losses


def online_platt(
    calls: Sequence[tuple[Floats, Labels]], discount: float, *, damped: bool = True
) -> tuple[Floats, float]:
    """Return (a, b) after calls of ``learn`` with these logits and labels, and the largest |a| or |b|."""
    theta, curvature, largest = np.array([1.0, 0.0]), np.zeros((2, 2)), 0.0
    for logits, labels in calls:
        for start in range(0, len(labels), newton._BLOCK):
            slope = np.zeros(2)
            curvature = discount ** len(labels[start : start + newton._BLOCK]) * curvature
            block = [*zip(logits, labels, strict=True)][start : start + newton._BLOCK]
            for age, (x, y) in enumerate(reversed(block)):
                row = np.array([x, 1.0])
                p = expit(np.clip(theta @ row, -30.0, 30.0))
                slope += discount**age * (p - y) * row
                curvature = curvature + discount**age * max(p * (1.0 - p), 1e-3) * np.outer(row, row)
            step = np.linalg.solve(curvature + np.eye(2), slope)
            farthest = max(abs(step @ [x, 1.0]) for x, _ in block)
            theta = theta - step * (np.log1p(farthest) / farthest if damped else 1.0)
            largest = max(largest, float(np.abs(theta).max()))
    return theta, largest


def isotonic(scores: Floats, labels: Labels, at: Floats) -> Floats:
    """Return isotonic regression with half a label of each class more at each end, linear in the logit."""
    values, place = np.unique(scores, return_inverse=True)
    totals = np.bincount(place).astype(float)
    positives = np.bincount(place, labels)
    for end in (0, -1)[: len(values)]:
        totals[end] += 1.0
        positives[end] += 0.5
    fitted = IsotonicRegression().fit_transform(values, positives / totals, sample_weight=totals)
    return np.interp(wide_logits_of(at), wide_logits_of(values), fitted)


def hinge(scores: Floats, labels: Labels, at: Floats) -> Floats:
    """Return the ridge regression of labels on the logit and five hinges, fitted label by label."""

    def row(x: Floats) -> Floats:
        return np.stack([x, np.ones(len(x)), *(np.maximum(x - knot, 0.0) for knot in (-3, -1.5, 0, 1.5, 3))])

    here, centre = row(logits_of(scores)), np.eye(7)[0]
    ridge = np.array([1.0, 1.0, 4.0, 4.0, 4.0, 4.0, 4.0])

    def loss(theta: Floats) -> tuple[float, Floats]:
        t, away = theta @ here, theta - centre
        value = np.logaddexp(0.0, t).sum() - t @ labels + 0.5 * ridge @ away**2
        return float(value), here @ (expit(t) - labels) + ridge * away

    best = minimize(loss, centre, jac=True, method="BFGS", options={"gtol": 1e-6})
    said: Floats = expit(best.x @ row(logits_of(at)))
    return said


def shifted(forecasts: Floats, prior: float, to: float) -> Floats:
    """Return forecasts corrected from one prior to another (eq. 13)."""
    ones, zeros = forecasts * to / prior, (1.0 - forecasts) * (1.0 - to) / (1.0 - prior)
    return ones / (ones + zeros)
