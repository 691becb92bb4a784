"""What the mixture computes, written plainly from its definitions: label by label, or with scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from streamcal.mixture import forecasts_c
from streamcal.mixture.candidates import CANDIDATES, EARLY, are, names_of
from streamcal.mixture.forecasts_c import Snapshot

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]

WITH_EARLY = (*CANDIDATES, *EARLY)
NAMES, DELAYED = names_of(CANDIDATES), names_of(EARLY)
COMPOSITE = are("source", CANDIDATES)
"""Mask of the composites, bool[K]."""


def logits_of(scores: Floats) -> Floats:
    """Return the logits, clipped as logistic maps take them."""
    return logit(np.clip(scores, 2.0**-40, 1.0 - 2.0**-40))


def wide_logits_of(scores: Floats) -> Floats:
    """Return the logits, clipped where doubles end."""
    return logit(np.clip(scores, 2.0**-1022, 1.0 - 2.0**-53))


def log_losses(forecasts: Floats, labels: Labels, least: float, most: float | None = None) -> Floats:
    """Return the losses in nats of forecasts, float64[..., n], kept from least to most (1 − least)."""
    inside = np.clip(forecasts, least, 1.0 - least if most is None else most)
    losses: Floats = -np.log(np.where(labels == 1, inside, 1.0 - inside))
    return losses


def limits_of(n: int, positives: float) -> tuple[float, float]:
    """Return the least and greatest probability that n labels allow to be served, so many of them 1.

    Of a class, one label in n + 1, of n at most 16,000, or a fiftieth of its share, if that is less.
    """
    if not n:
        return 1e-4, 1.0 - 1e-4
    one = 1.0 / (min(n, 16_000) + 1.0)
    of_ones, of_zeros = (0.02 * (labels + 0.5) / (n + 1.0) for labels in (positives, n - positives))
    return min(one, of_ones), 1.0 - min(one, of_zeros)


FACTORS = (1.0, 0.85, 0.7, 0.5)


def drawn(forecasts: Floats, centre: float) -> Floats:
    """Return forecasts, float64[n], with log odds drawn towards the centre by each factor, float64[4, n]."""
    values = [expit(factor * logit(forecasts) + (1.0 - factor) * centre) for factor in FACTORS]
    return np.stack(values)


def served(snapshot: Snapshot, forecasts: Floats) -> Floats:
    """Return what a snapshot serves where its candidates forecast so, float64[K, n]."""
    mixed: Floats = np.clip(snapshot.weights[0] @ forecasts, *snapshot.limits)
    if not snapshot.knows:
        return mixed
    return np.clip(snapshot.slopes @ drawn(mixed, snapshot.centre), *snapshot.limits)


def slopes_after(start: Floats, calls: Sequence[Floats], rate: float, share: float, first: Floats) -> Floats:
    """Return the weights of the slopes after calls with these losses, float64[4, n], factor by factor."""
    weights = [*start.tolist()]
    for losses in calls:
        moved = [w * np.exp(-rate * sum(row)) for w, row in zip(weights, losses.tolist(), strict=True)]
        kept = 1.0
        for _ in range(losses.shape[1]):
            kept *= 1.0 - share
        weights = [kept * m / sum(moved) + (1.0 - kept) * f for m, f in zip(moved, first, strict=True)]
    return np.array(weights)


def online_platt(
    calls: Sequence[tuple[Floats, Labels]], discount: float, *, damped: bool = True
) -> tuple[Floats, float]:
    """Return (a, b) after calls of ``learn`` with these logits and labels, and the largest |a| or |b|."""
    theta, curvature, largest = np.array([1.0, 0.0]), np.zeros((2, 2)), 0.0
    for logits, labels in calls:
        for start in range(0, len(labels), forecasts_c._BLOCK):
            slope = np.zeros(2)
            curvature = discount ** len(labels[start : start + forecasts_c._BLOCK]) * curvature
            block = [*zip(logits, labels, strict=True)][start : start + forecasts_c._BLOCK]
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
