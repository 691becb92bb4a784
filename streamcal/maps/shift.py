"""Label shift: class priors, the weights that follow from them, and the correction g (eq. 13).

Equation 13 is written down in `streamcal.maps.functions_c`; equation 16 is the same with estimated weights.
The paper's weights (w₀, w₁) and their ratio κ = w₁/w₀ give the same g: `shift_odds` is the correction with
weights (1, κ).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.maps.functions_c import class_prior, shift_correction, shift_correction_one, shift_weights
from streamcal.values import Floats

__all__ = [
    "NO_SHIFT",
    "class_prior",
    "shift_correction",
    "shift_correction_one",
    "shift_odds",
    "shift_weights",
]

NO_SHIFT: Final = (1.0, 1.0)
"""Weights (w₀, w₁) of g that leave h unchanged."""


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
