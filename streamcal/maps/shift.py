"""Label shift: class priors, the weights that follow from them, and the correction g (eq. 13)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["class_prior", "shift_correction", "shift_correction_one", "shift_weights"]


def class_prior(positives: int, n: int, smoothing: float) -> float | None:
    """Return the estimate (S + s) / (N + 2s) of the probability of class 1, None where undefined.

    ``smoothing`` ½ is the Krichevsky–Trofimov estimate, which is never 0 or 1; 0 is the paper's plug-in.
    """
    total = n + 2.0 * smoothing
    return (positives + smoothing) / total if total > 0.0 else None


def shift_weights(source: float | None, target: float | None) -> tuple[float, float]:
    """Return (w₀, w₁), w_k = Q̂[Y=k] / P̂[Y=k] (eq. 13).

    Parameters
    ----------
    source, target
        the class priors, in [0, 1]; None where there is no estimate yet.

    Returns
    -------
    (1, 1), no correction, until there are estimates of both; and without smoothing until the source has shown
    both classes, since the weight of an unseen class is undefined.
    """
    if source is None or target is None or not 0.0 < source < 1.0:
        return (1.0, 1.0)
    return ((1.0 - target) / (1.0 - source), target / source)


def shift_correction(
    probabilities: npt.NDArray[np.float64], weights: tuple[float, float]
) -> npt.NDArray[np.float64]:
    """Apply the label-shift correction g(p) = w₁p / (w₁p + w₀(1−p)) (eq. 13).

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
    positive = weights[1] * probabilities
    total = positive + weights[0] * (1.0 - probabilities)
    # total is 0 only where p is 0 or 1 and the other class has all the weight: g(p) = p there.
    return np.divide(positive, total, out=probabilities.copy(), where=total > 0.0)


def shift_correction_one(probability: float, weights: tuple[float, float]) -> float:
    """Apply `shift_correction` to one probability, to the same bit."""
    if weights[0] == weights[1]:
        return probability
    positive = weights[1] * probability
    total = positive + weights[0] * (1.0 - probability)
    return positive / total if total > 0.0 else probability
