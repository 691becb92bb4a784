"""Label shift: class priors, the weights that follow from them, and the correction g (eq. 13).

This is the only place where equation 13 is written down; equation 16 is the same with estimated weights.
The paper's weights (w₀, w₁) and their ratio κ = w₁/w₀ give the same g: `shift_odds` is the correction with
weights (1, κ).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "NO_SHIFT",
    "class_prior",
    "running_weights",
    "shift_correction",
    "shift_correction_one",
    "shift_corrections",
    "shift_odds",
    "shift_weights",
]

Floats = npt.NDArray[np.float64]

NO_SHIFT: Final = (1.0, 1.0)
"""The weights of g where h is served as it is."""


def class_prior(positives: float, n: float, smoothing: float) -> float | None:
    """Return the estimate (S + s) / (N + 2s) of the probability of class 1, None where undefined.

    ``smoothing`` ½ is the Krichevsky–Trofimov estimate, which is never 0 or 1; 0 is the paper's plug-in.
    """
    total = n + 2.0 * smoothing
    return (positives + smoothing) / total if total > 0.0 else None


def shift_weights(source: float | None, target: float | None) -> tuple[float, float]:
    """Return (w₀, w₁), w_k = Q̂[Y=k] / P̂[Y=k]: eq. 13 with estimated priors, which is eq. 16.

    Parameters
    ----------
    source, target
        the class priors, in [0, 1]; None where there is no estimate yet.

    Returns
    -------
    (1, 1), no correction, until there are estimates of both. Without smoothing also until the source has
    shown both classes: the weight of an unseen class is undefined.
    """
    if source is None or target is None or not 0.0 < source < 1.0:
        return NO_SHIFT
    return ((1.0 - target) / (1.0 - source), target / source)


def running_weights(
    positives: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    smoothing: float,
    other: float | None,
    *,
    of_source: bool,
) -> Floats:
    """Return `shift_weights` where one domain's prior is `class_prior` of each of some counts: the same bits.

    Parameters
    ----------
    positives, labels, smoothing
        int64[n], at least 1 label each: what `class_prior` takes.
    other
        the prior of the other domain.
    of_source
        whether the counts are of the source.

    Returns
    -------
    float64[n, 2].
    """
    prior = (positives + smoothing) / (labels + 2.0 * smoothing)
    weights = np.ones((len(prior), 2))
    if other is not None and of_source:
        defined = (prior > 0.0) & (prior < 1.0)
        weights[defined, 0] = (1.0 - other) / (1.0 - prior[defined])
        weights[defined, 1] = other / prior[defined]
    elif other is not None and 0.0 < other < 1.0:
        weights[:, 0], weights[:, 1] = (1.0 - prior) / (1.0 - other), prior / other
    return weights


def shift_correction(probabilities: Floats, weights: tuple[float, float]) -> Floats:
    """Apply the label-shift correction g (eq. 13).

    Parameters
    ----------
    probabilities
        float64[n] in [0, 1], probabilities under the source.
    weights
        (w₀, w₁), w_k = Q[Y=k] / P[Y=k], not negative, not both 0.

    Returns
    -------
    float64[n] in [0, 1]; g(0) = 0 and g(1) = 1 whatever the weights (as in the proof of Theorem 2).
    """
    if weights[0] == weights[1]:
        return probabilities
    positive, total = _parts(probabilities, *weights)
    # total is 0 only where p is 0 or 1 and the other class has all the weight: g(p) = p there.
    corrected: Floats = np.divide(positive, total, out=probabilities.copy(), where=total > 0.0)
    return corrected


def shift_corrections(probabilities: Floats, weights: Floats) -> Floats:
    """Apply `shift_correction` to each probability under weights of its own, float64[n, 2]."""
    positive, total = _parts(probabilities, weights[:, 0], weights[:, 1])
    moves = (weights[:, 0] != weights[:, 1]) & (total > 0.0)
    corrected: Floats = np.divide(positive, total, out=probabilities.copy(), where=moves)
    return corrected


def shift_correction_one(probability: float, weights: tuple[float, float]) -> float:
    """Apply `shift_correction` to one probability, with the same bits.

    This is `_parts` written out: a call would take as long as the arithmetic.
    """
    w0, w1 = weights
    if w0 == w1:
        return probability
    positive = w1 * probability
    total = positive + w0 * (1.0 - probability)
    return positive / total if total > 0.0 else probability


def shift_odds(probabilities: npt.ArrayLike, odds: npt.ArrayLike, out: Floats | None = None) -> Floats:
    """Apply the correction with weights (1, κ): κp / (κp + 1 − p).

    Parameters
    ----------
    probabilities
        in [0, 1], any shape.
    odds
        κ = w₁/w₀ in [0, ∞], broadcast against ``probabilities``. At its ends the result is the limit taken
        outward, which bounds what any κ near them gives: 0 everywhere for κ = 0, 1 everywhere for κ = ∞.
    out
        Where to put the result for odds of any shape but (), float64 of the shape that both broadcast to.

    Returns
    -------
    float64 in [0, 1], of the shape that both broadcast to.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if np.ndim(odds) == 0:
        if odds == math.inf:
            return np.ones_like(p)
        if odds == 0.0:
            return np.zeros_like(p)
    positive, total = _parts(p, 1.0, odds, out)
    return np.divide(positive, total, out=out)


def _parts(
    p: Floats, w0: npt.ArrayLike, w1: npt.ArrayLike, out: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return numerator and denominator of w₁p / (w₁p + w₀(1−p)) (eq. 13), for arrays that broadcast.

    ``out`` is an array for the numerator.
    """
    positive = np.multiply(w1, p, out=out)
    return positive, positive + np.multiply(w0, 1.0 - p)
