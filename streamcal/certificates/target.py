"""The target certificate: what may be claimed of a map in a target domain, under label shift.

The source's certified limits on h*, pushed through the odds ratio of the priors. On top of the source's
assumptions: label shift (P and Q share the law of the score given the label), and target scores and
labels independent and identically distributed under Q. Lemmas 10 to 13 of docs/certificates.md.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streamcal.certificates.bin_limits import LOG_GRID, BinIntervals
from streamcal.certificates.inequalities import chernoff_upper, greedy_fill, prior_limits

__all__ = ["certify_target", "odds_limits", "shift_odds"]

Counts = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


def odds_limits(
    source_labels: tuple[int, int], target_labels: tuple[int, int], delta: float
) -> tuple[float, float]:
    """Return limits on κ = w₁/w₀ that hold at all numbers of labels at once (lemma 12).

    Parameters
    ----------
    source_labels, target_labels
        (positives, labels) under P and under Q.
    delta
        in (0, 1); each domain spends half of it, once for the whole life of the stream.

    Returns
    -------
    (lower, upper), 0 ≤ lower ≤ upper ≤ ∞; (0, ∞) where nothing is known.
    """
    p_low, p_high = prior_limits(*source_labels, delta / 2)
    q_low, q_high = prior_limits(*target_labels, delta / 2)
    lower = 0.0 if p_high >= 1.0 else _odds(q_low) / _odds(p_high)
    upper = math.inf if p_low <= 0.0 else _odds(q_high) / _odds(p_low)
    return lower, upper


def shift_odds(rates: npt.ArrayLike, odds: float) -> Reals:
    """Return g_κ(z) = κz/(κz + 1 − z) for rates z in [0, 1] and κ in [0, ∞]; g_∞(0) = 1, g_0(1) = 0.

    The limits are taken outward: they bound what any κ near them can give.
    """
    z = np.asarray(rates, dtype=np.float64)
    if odds == math.inf:
        return np.ones_like(z)
    if odds == 0.0:
        return np.zeros_like(z)
    return np.asarray(odds * z / (odds * z + (1.0 - z)))


def certify_target(
    intervals: BinIntervals,
    lowest: Reals,
    highest: Reals,
    target_counts: Counts,
    *,
    scores: int,
    source_labels: tuple[int, int],
    target_labels: tuple[int, int],
    delta: float,
) -> float:
    """Return a bound on R_Q of a map, true at all target counts at once (lemmas 10, 11, 13).

    Parameters
    ----------
    intervals
        `streamcal.certificates.bin_limits.bin_intervals` of the source version; its own δ is spent there.
    lowest, highest
        float64[B], the map's least and greatest value in each bin: equal for the composite ĝ∘ĥ, ĝ at the
        bin's two edges for label shift alone.
    target_counts
        int64[B], target scores per bin (labelled or not); scores of which it is not known in which of some
        bins they are count in each of these.
    scores
        the number of target scores.
    source_labels, target_labels
        (positives, labels) of either domain so far.
    delta
        what the target's side may spend in all, in (0, 1): half on the priors, half on the masses.

    Returns
    -------
    A bound in [0, 1]; 1 when nothing can be said, or when h* was seen not to be monotone.
    """
    if not intervals.monotone:
        return 1.0
    low, high = odds_limits(source_labels, target_labels, delta / 2)
    floor, ceiling = shift_odds(intervals.floor, low), shift_odds(intervals.ceiling, high)
    mean_low = np.clip(shift_odds(intervals.mean_lower, low), floor, ceiling)
    mean_high = np.clip(shift_odds(intervals.mean_upper, high), floor, ceiling)
    # E(v − H)² for H in [floor, ceiling] with mean m is at most (v − m)² + (ceiling − m)(m − floor),
    # linear in m: the worst mean is at one end
    fixed = np.maximum(*(_spread(lowest, mean, floor, ceiling) for mean in (mean_low, mean_high)))
    moving = np.maximum(np.abs(ceiling - lowest), np.abs(highest - floor)) ** 2
    loss = np.where(lowest == highest, fixed, moving)
    n = scores
    if n == 0:
        return min(1.0, float(loss.max()))
    pairs = min(math.log(n + 1) + math.log(n + 2) - math.log(2), LOG_GRID)
    exponent = pairs + math.log(n) + math.log(n + 1) - math.log(delta / 2)
    caps = chernoff_upper(np.minimum(target_counts / n, 1.0), exponent / n)
    return min(1.0, greedy_fill(np.clip(loss, 0.0, 1.0), caps))


def _spread(value: Reals, mean: Reals, floor: Reals, ceiling: Reals) -> Reals:
    return np.asarray((value - mean) ** 2 + (ceiling - mean) * (mean - floor))


def _odds(prior: float) -> float:
    return math.inf if prior >= 1.0 else prior / (1.0 - prior)
