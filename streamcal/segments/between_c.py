"""Differences between segments: the prior of a correction, estimated from the corrections of all segments.

The correction of a segment is an offset and a slope on the logit, (a, b) ~ N(0, diag(τ_a², τ_b²)). Labels of
a segment give a Gaussian likelihood with information H, float[2, 2], and score vector g = H·estimate. The
marginal likelihood of one segment under (τ_a, τ_b), over that under (0, 0), is

    log m = −½ log det(I + Λ⁻¹ H) + ½ gᵀ (H + Λ)⁻¹ g,    Λ = diag(τ_a⁻², τ_b⁻²),

and sums over segments on a grid give the posterior of (τ_a, τ_b) under a uniform prior. It uses the same
first two moments of a segment as a method of moments, but weighs segments of 10 and of 10⁵ labels rightly for
every τ, and says how sure it is. Served are the geometric means of τ_a and τ_b under this posterior.

Each segment counts in multiples of 2⁻²⁰, so sums below 2³³ are exact, whatever the order of the segments.

The Bayes factor of the grid against no difference at all, with prior odds 1:4, is the `share` of each
correction that is served. If segments do not differ, the Bayes factor tends to the part of the grid that is
too fine to be told from none, so the share stays near 0.03, and little is lost.

Compiled where there is a C compiler; `between_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamcal.sketch.decoding import within
from streamcal.values import Floats

__all__ = ["BetweenSegments", "determinant"]

# As C has them. The grid: τ_a of 0.01 to 2.56 by factors of 2, τ_b by factors of 4.
_OFFSETS, _SLOPES, _SIZE = 9, 5, 45
_OFFSET_PRECISION: Any = (0.01 * 2.0 ** np.arange(_OFFSETS)) ** -2.0
_SLOPE_PRECISION: Any = (0.01 * 4.0 ** np.arange(_SLOPES)) ** -2.0
_PRIOR_VARIANCE: Any = (1.0 / np.outer(_OFFSET_PRECISION, _SLOPE_PRECISION)).ravel()
_LOG_OFFSET_PRECISION: Any = np.log(_OFFSET_PRECISION)
_LOG_SLOPE_PRECISION: Any = np.log(_SLOPE_PRECISION)
_ODDS = 4.0  # against any difference, before there is evidence
_SURE = 50.0  # log of a Bayes factor that leaves no doubt
_NOTHING = -60.0  # log of a part of the sum of exponentials that changes no bit of it


class BetweenSegments:
    """Posterior of the standard deviations between the segments of a field, and what follows from it.

    `offset_precision` is 1 / τ_a², `slope_precision` is 1 / τ_b², and `share` is the probability that the
    segments differ, in (0, 1).
    """

    def __init__(self) -> None:
        self._evidence: Any = np.zeros(_SIZE)
        self.refresh()

    @property
    def evidence(self) -> Floats:
        """Log marginal likelihood of all segments over that of no difference, float64[45], τ_b inmost."""
        return np.array(self._evidence)

    def restore(self, evidence: Floats) -> None:
        """Set the evidence; raise ValueError if it cannot be one."""
        self._evidence = within(evidence, -1e15, 1e15, "evidence", _SIZE).copy()
        self.refresh()

    def replace(self, rows: Any, old: int, new: int) -> None:
        """Replace what the labels of one segment say.

        Parameters
        ----------
        rows
            numbers, float32[n].
        old, new
            where H_aa, H_ab, H_bb, g_a and g_b are in it.
        """
        aa, ab, bb = float(rows[new]), float(rows[new + 1]), float(rows[new + 2])
        a, b = float(rows[new + 3]), float(rows[new + 4])
        old_aa, old_ab, old_bb = float(rows[old]), float(rows[old + 1]), float(rows[old + 2])
        old_a, old_b = float(rows[old + 3]), float(rows[old + 4])
        self._add(1.0, aa, ab, bb, a, b)
        if old_aa != 0.0 or old_a != 0.0:  # it had labels
            self._add(-1.0, old_aa, old_ab, old_bb, old_a, old_b)

    def _add(self, sign: float, aa: float, ab: float, bb: float, a: float, b: float) -> None:
        """Add log m of one segment, or take it away, for each cell: in multiples of 2⁻²⁰."""
        rest, cross = max(aa * bb - ab * ab, 0.0), 2.0 * a * b * ab
        for i in range(_OFFSETS):
            first = _OFFSET_PRECISION[i]
            one, other = first * bb, b * b * (aa + first)
            for j in range(_SLOPES):
                second, at = _SLOPE_PRECISION[j], _SLOPES * i + j
                both = first * second + one + second * aa + rest  # see `determinant`
                found = (a * a * (bb + second) - cross + other) / both
                log_m = 0.5 * (found - math.log(both * _PRIOR_VARIANCE[at]))
                # Added and taken away, 1.5 · 2⁵² rounds to whole numbers.
                parts = (1048576.0 * log_m + 6755399441055744.0) - 6755399441055744.0
                self._evidence[at] += sign * parts * (1.0 / 1048576.0)

    def refresh(self) -> None:
        """Work out the prior and the share anew."""
        top = self._evidence[0]
        for k in range(1, _SIZE):
            top = max(top, self._evidence[k])
        total = offset = slope = 0.0
        for i in range(_OFFSETS):
            for j in range(_SLOPES):
                behind = self._evidence[_SLOPES * i + j] - top
                if behind < _NOTHING:
                    continue
                part = math.exp(behind)
                total += part
                offset += part * _LOG_OFFSET_PRECISION[i]
                slope += part * _LOG_SLOPE_PRECISION[j]
        factor = math.exp(min(top + math.log(total / _SIZE), _SURE))
        self.share = factor / (factor + _ODDS)
        self.offset_precision = math.exp(offset / total)
        self.slope_precision = math.exp(slope / total)


def determinant(offset_precision: float, slope_precision: float, aa: float, ab: float, bb: float) -> float:
    """Return det(H + Λ), which is positive whatever rounding did to H."""
    return (
        offset_precision * slope_precision
        + offset_precision * bb
        + slope_precision * aa
        + max(aa * bb - ab * ab, 0.0)
    )
