"""Differences between segments: the prior of a correction, estimated from the corrections of all segments.

The correction of a segment is an offset and a slope on the logit, (a, b) ~ N(0, diag(τ_a², τ_b²)). Labels of
a segment give a Gaussian likelihood with information H, float[2, 2], and score vector g = H·estimate. The
marginal likelihood of one segment under (τ_a, τ_b), over that under (0, 0), is

    log m = −½ log det(I + Λ⁻¹ H) + ½ gᵀ (H + Λ)⁻¹ g,    Λ = diag(τ_a⁻², τ_b⁻²),

and sums over segments on a grid give the posterior of (τ_a, τ_b) under a uniform prior. It uses the same
first two moments of a segment as a method of moments, but weighs segments of 10 and of 10⁵ labels rightly for
every τ, and says how sure it is. Served are the geometric means of τ_a and τ_b under this posterior.

The Bayes factor of the grid against no difference at all, with prior odds 1:4, is the `share` of each
correction that is served. If segments do not differ, the Bayes factor tends to the part of the grid that is
too fine to be told from none, so the share stays near 0.03, and little is lost.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streamcal.values import Floats

__all__ = ["GRID", "BetweenSegments"]

_OFFSETS: Final = 0.01 * 2.0 ** np.arange(9)  # 0.01 to 2.56
_SLOPES: Final = 0.01 * 4.0 ** np.arange(5)  # 0.01 to 2.56
GRID: Final = (len(_OFFSETS), len(_SLOPES))
"""Number of values of τ_a and of τ_b on the grid."""

_OFFSET_PRECISION: Final = np.repeat(_OFFSETS**-2.0, GRID[1]).reshape(GRID)
_SLOPE_PRECISION: Final = np.tile(_SLOPES**-2.0, GRID[0]).reshape(GRID)
_ODDS: Final = 4.0  # against any difference, before there is evidence
_SURE: Final = 50.0  # log of a Bayes factor that leaves no doubt


class BetweenSegments:
    """Posterior of the standard deviations between the segments of a field, and what follows from it."""

    __slots__ = ("evidence", "offset_precision", "share", "slope_precision")

    def __init__(self) -> None:
        self.evidence: Floats = np.zeros(GRID)
        """Log marginal likelihood of all segments over that of no difference, float64[GRID]."""
        self.offset_precision: float
        """1 / τ_a²."""
        self.slope_precision: float
        """1 / τ_b²."""
        self.share: float
        """Probability that the segments differ, in (0, 1)."""
        self.refresh()

    def replace(self, old: list[float], new: list[float]) -> None:
        """Replace what the labels of one segment say; both are H_aa, H_ab, H_bb, g_a, g_b."""
        self.evidence += log_evidence(*new) - log_evidence(*old)
        self.refresh()

    def refresh(self) -> None:
        """Work out the prior and the share anew."""
        top = float(self.evidence.max())
        posterior = np.exp(self.evidence - top)
        log_factor = top + math.log(float(posterior.mean()))
        factor = math.exp(min(log_factor, _SURE))
        self.share = factor / (factor + _ODDS)
        posterior /= posterior.sum()
        self.offset_precision = math.exp(-2.0 * float(posterior.sum(axis=1) @ np.log(_OFFSETS)))
        self.slope_precision = math.exp(-2.0 * float(posterior.sum(axis=0) @ np.log(_SLOPES)))


def log_evidence(aa: float, ab: float, bb: float, offset_score: float, slope_score: float) -> Floats:
    """Return log m of one segment on the grid, float64[GRID]; see the module."""
    a, b = aa + _OFFSET_PRECISION, bb + _SLOPE_PRECISION
    determinant = a * b - ab * ab
    quadratic = offset_score**2 * b - 2.0 * offset_score * slope_score * ab + slope_score**2 * a
    ratio = determinant / (_OFFSET_PRECISION * _SLOPE_PRECISION)
    out: Floats = 0.5 * (quadratic / determinant - np.log(ratio))
    return out
