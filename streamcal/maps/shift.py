"""Label shift: class priors, the weights that follow from them, and the correction g (eq. 13).

Equation 16 is the same with estimated weights. The paper's weights (w₀, w₁) and their ratio κ = w₁/w₀ give
the same g: `shift_odds` is the correction with weights (1, κ).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streamcal.base.values import Floats
from streamcal.maps.fits_c import NO_SHIFT, class_prior, shift_correction_one, shift_weights

__all__ = [
    "NO_SHIFT",
    "class_prior",
    "shift_correction",
    "shift_correction_one",
    "shift_odds",
    "shift_weights",
]


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
    positive = weights[1] * probabilities
    total = positive + weights[0] * (1.0 - probabilities)
    # total is 0 only where p is 0 or 1 and the other class has all the weight: g(p) = p there.
    corrected: Floats = np.divide(positive, total, out=probabilities.copy(), where=total > 0.0)
    return corrected


def shift_odds(probabilities: npt.ArrayLike, odds: float) -> Floats:
    """Apply the correction with weights (1, κ): κp / (κp + 1 − p).

    Parameters
    ----------
    probabilities
        in [0, 1], any shape.
    odds
        κ = w₁/w₀ in [0, ∞]. At its ends the result is the limit taken outward, which bounds what any κ near
        them gives: 0 everywhere for κ = 0, 1 everywhere for κ = ∞.

    Returns
    -------
    float64 in [0, 1], of the shape of ``probabilities``.
    """
    p = np.asarray(probabilities, dtype=np.float64)
    if odds == math.inf:
        return np.ones_like(p)
    if odds == 0.0:
        return np.zeros_like(p)
    positive = odds * p
    return np.asarray(positive / (positive + (1.0 - p)))
