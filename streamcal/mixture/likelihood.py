"""The class prior of the target, q = Q[Y=1], by maximum likelihood from its scores.

Let p = P[Y=1] be the prior of the source, and μ the label mean of a bin under the source. Under label shift,
a target score in that bin has the density q μ/p + (1−q)(1−μ)/(1−p) relative to the source (maximum likelihood
label shift, MLLS: Saerens et al. 2002; Garg et al. 2020; h_Q^ML in the paper's appendix). The log of their
product is concave in q.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from streamcal.base.values import Cells, Counts, Floats
from streamcal.maps.platt import expit, logit
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

_MOST_STEPS: Final = 1100  # as many bisections lead from 1 to the smallest float
_FARTHEST: Final = 100.0  # log odds between a score and any prior
_BISECTIONS: Final = 60
_CLOSE: Final = 1e-12  # relative: after a Newton step this short, the error is below double precision


class SourceMap(msgspec.Struct, frozen=True):
    """A step map h of the source, through which scores are evidence; the fields are the state."""

    edges: Floats
    """Edges between bins, float64[B+1] ascending from 0 to 1."""
    values: Floats
    """Values of the bins, float64[B] in [0, 1]."""
    prior: float
    """Class prior P[Y=1] of the source, in [0, 1]."""

    def means(self, cells: Cells, level: int) -> Floats:
        """Return the mean value of the map in each cell, int32[m], of a level: float64[m].

        The mean assumes that scores are uniform inside a bin, and that all bins have the same mass, as in a
        uniform-mass map without ties. It is exactly the value of the bin where a cell lies inside one bin.
        """
        left, right = grid.left_edges(cells, level), grid.left_edges(cells + np.int32(1), level)
        edges, values = self.edges, self.values
        first_bin = np.minimum(np.searchsorted(edges, left, side="right") - 1, len(values) - 1)
        last_bin = np.maximum(np.searchsorted(edges, right, side="left") - 1, first_bin)
        bins = np.arange(len(edges), dtype=np.float64)
        sums = np.concatenate(([0.0], np.cumsum(values)))
        mass = np.interp(right, edges, bins) - np.interp(left, edges, bins)
        value = np.interp(right, edges, sums) - np.interp(left, edges, sums)
        means = values[first_bin]
        across = last_bin > first_bin
        means[across] = np.clip(value[across] / mass[across], 0.0, 1.0)
        return means


def matched_odds(scores: ScoreSketch, prior: float) -> float:
    """Return κ such that the scores, corrected by it (eq. 13), have this mean.

    Let scores be calibrated where the model was trained. By label shift, κ is then that from there to a
    deployment whose class prior is ``prior``, in (0, 1). There has to be a score. Those of 0 and 1 count as
    2⁻⁴⁰ and 1 − 2⁻⁴⁰.
    """
    logits, counts = logit(grid.middles(scores.cells, scores.level)), scores.totals
    low, high, n = -_FARTHEST, _FARTHEST, float(counts.sum())
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if float(counts @ expit(logits + middle)) < prior * n:
            low = middle
        else:
            high = middle
    return math.exp(low)


def likeliest_prior(masses: Counts, means: Floats, source_prior: float) -> float | None:
    """Return the likeliest prior of the target, given its scores.

    This is the q in (0, 1) that maximises Σ m_b log(q μ_b/p + (1−q)(1−μ_b)/(1−p)) + ½ log q + ½ log(1−q), to
    double precision: half a label of each class is evidence, too (Krichevsky–Trofimov).

    Parameters
    ----------
    masses
        m_b ≥ 0, int64[B]: the number of target scores in each bin.
    means
        μ_b in [0, 1], float64[B]: the label mean of each bin under the source.
    source_prior
        p in [0, 1], P[Y=1].

    Returns
    -------
    float in (0, 1); None without scores, or if p is 0 or 1: scores then say nothing about the target.
    """
    if not 0.0 < source_prior < 1.0 or not masses.any():
        return None
    # Relative to p(1 − p), the two class densities of a bin: finite however near p is to 0 or 1.
    one, zero = means * (1.0 - source_prior), (1.0 - means) * source_prior
    # At μ = 0 or 1 a score is as good as its label. Once it counts as one, all densities left are positive.
    sure_one, sure_zero = zero == 0.0, one == 0.0
    ones = 0.5 + float(masses @ sure_one)
    zeros = 0.5 + float(masses @ sure_zero)
    counted = np.flatnonzero((masses > 0) & (one != zero) & ~(sure_one | sure_zero))
    if not len(counted):
        return ones / (ones + zeros)
    m, one, zero = masses[counted].astype(np.float64), one[counted], zero[counted]
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
