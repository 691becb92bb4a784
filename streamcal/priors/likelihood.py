"""The class prior of the target, q = Q[Y=1], by maximum likelihood from its scores, its labels, or both.

Let p = P[Y=1] be the prior of the source, and μ the label mean of a bin under the source. Under label shift,
a target score in that bin has the density q μ/p + (1−q)(1−μ)/(1−p) relative to the source (maximum likelihood
label shift, MLLS: Saerens et al. 2002; Garg et al. 2020; h_Q^ML in the paper's appendix). A label has
probability q or 1 − q. The log of their product is concave in q. The estimate from scores is the paper's; its
fusion with labels goes beyond the paper.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.values import Counts, Floats

__all__ = ["fused_prior"]

_MOST_STEPS: Final = 1100  # as many bisections lead from 1 to the smallest float
_CLOSE: Final = 1e-12  # relative: after a Newton step this short, the error is below double precision


def fused_prior(
    masses: Floats | Counts,
    means: Floats,
    source_prior: float,
    positives: float = 0.0,
    labels: float = 0.0,
) -> float | None:
    """Return the likeliest prior of the target, given unlabelled scores and labels.

    This is the q in [0, 1] that maximises Σ m_b log(q μ_b/p + (1−q)(1−μ_b)/(1−p)) + S log q + (N−S) log(1−q),
    to double precision.

    Parameters
    ----------
    masses
        m_b ≥ 0, [B]: the number of unlabelled target scores in each bin, not necessarily whole.
    means
        μ_b in [0, 1], float64[B]: the label mean of each bin under the source.
    source_prior
        p in [0, 1], P[Y=1]. At 0 or 1, scores say nothing about the target, and do not count.
    positives, labels
        S and N, 0 ≤ S ≤ N: the number of target labels that are 1, and of all. Smoothing adds s to S and 2s
        to N.

    Returns
    -------
    float in [0, 1]; None if there are no labels, and no scores outside bins with μ = p: scores in such bins
    are equally likely under every q.
    """
    ones, zeros = float(positives), float(labels - positives)
    if not 0.0 < source_prior < 1.0 or not len(masses):
        return ones / (ones + zeros) if ones + zeros else None
    # Relative to p(1 − p), the two class densities of a bin: finite however near p is to 0 or 1.
    one, zero = means * (1.0 - source_prior), (1.0 - means) * source_prior
    # At μ = 0 or 1 a score is as good as its label. Once it counts as one, all densities left are positive.
    sure_one, sure_zero = zero == 0.0, one == 0.0
    ones += float(masses @ sure_one)
    zeros += float(masses @ sure_zero)
    counted = np.flatnonzero((masses > 0) & (one != zero) & ~(sure_one | sure_zero))
    if not len(counted):
        return ones / (ones + zeros) if ones + zeros else None
    m, one, zero = masses[counted].astype(np.float64), one[counted], zero[counted]
    # At q = 0 the likelihood is 0 if there is a positive label; if not, its maximum may lie there. So at 1.
    with np.errstate(over="ignore"):  # a slope may overflow to ∞, and still compares correctly
        if not ones and m @ (one / zero - 1.0) <= zeros:
            return 0.0
        if not zeros and m @ (zero / one - 1.0) <= ones:
            return 1.0
    return _root(m, one, zero, ones, zeros)


def _root(m: Floats, one: Floats, zero: Floats, ones: float, zeros: float) -> float:
    """Return the root of the slope of the log-likelihood, which lies inside (0, 1).

    This is Newton's method inside a bracket, applied to q(1−q) times the slope: that product has no poles,
    and is linear if there are only labels.
    """
    low, high = 0.0, 1.0
    difference = one - zero
    q = (float(m @ (one / (one + zero))) + ones + 0.5) / (float(m.sum()) + ones + zeros + 1.0)
    for _ in range(_MOST_STEPS):
        ratio = difference / (q * one + (1.0 - q) * zero)
        slope = float(m @ ratio) + ones / q - zeros / (1.0 - q)
        if slope > 0.0:
            low = q
        elif slope < 0.0:
            high = q
        else:
            return q
        bend = -float(m @ (ratio * ratio)) - ones / (q * q) - zeros / ((1.0 - q) * (1.0 - q))
        change = (1.0 - 2.0 * q) * slope + q * (1.0 - q) * bend
        proposed = q - q * (1.0 - q) * slope / change if change < 0.0 else low
        if abs(proposed - q) <= _CLOSE * min(q, 1.0 - q):
            return proposed
        if not low < proposed < high:
            proposed = 0.5 * (low + high)
            if not low < proposed < high:  # neighbours
                return proposed
        q = proposed
    return q
