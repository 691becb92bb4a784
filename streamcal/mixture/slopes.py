"""Sharpness of what is served: log odds of the mixture, drawn towards those of the class prior by a factor.

A map that was fitted to the past is too sharp for the future, the more so the later labels come: scores lose
their meaning while nobody sees it. How much, the mixture itself cannot tell, as all of its candidates are
fitted to the same past. So its forecasts with each factor (`forecasts_c.SLOPES`) are weighed, as experts, by
their log losses when the prediction was made.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streamcal.values import Floats

__all__ = ["RATE", "SHARE", "Slopes"]

RATE: Final = 0.05
"""η: weights are multiplied by e^(−η·loss) at every label. Far below 1, as late labels err together."""

SHARE: Final = 1e-5
"""Part of the weights that goes back to the first ones at a label."""

_FIRST: Final = np.array((0.9, 0.05, 0.03, 0.02))


class Slopes:
    """Weights of the factors of `forecasts_c.SLOPES`."""

    __slots__ = ("weights",)

    def __init__(self) -> None:
        self.weights: Floats = _FIRST
        """Weights, float64[S] with sum 1, in an array that is never changed in place."""

    def track(self, losses: Floats) -> None:
        """Move the weights by the log losses of the forecasts with each factor, float64[S, n]."""
        # Lists: NumPy takes longer on four numbers.
        sums, first = losses.sum(axis=1).tolist(), _FIRST.tolist()
        least, kept = min(sums), (1.0 - SHARE) ** losses.shape[1]
        pairs = zip(self.weights.tolist(), sums, strict=True)
        moved = [weight * math.exp(-RATE * (lost - least)) for weight, lost in pairs]
        total = sum(moved)
        shares = zip(moved, first, strict=True)
        self.weights = np.array([kept * (each / total) + (1.0 - kept) * back for each, back in shares])
