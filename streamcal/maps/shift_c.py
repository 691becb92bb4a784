"""The correction for label shift, one probability after the other (eq. 13)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["shift_by"]

Floats = npt.NDArray[np.float64]


def shift_by(probabilities: Floats, odds: Floats, ends: npt.NDArray[np.int64], out: Floats) -> None:
    """Put κp / (κp + 1 − p) into ``out``, float64[n].

    Parameters
    ----------
    probabilities
        float64[n] in [0, 1].
    odds
        κ = w₁/w₀ of s parts, positive and finite, float64[s].
    ends
        Where each part ends, int64[s]; the last is n.
    """
    start = 0
    for each in range(len(ends)):
        for i in range(start, ends[each]):
            positive = odds[each] * probabilities[i]
            out[i] = positive / (positive + (1.0 - probabilities[i]))
        start = ends[each]
