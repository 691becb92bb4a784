"""The target certificate: a bound on a map's risk in the target domain, under label shift.

It carries the source's certified limits on h* over to the target by the odds ratio of the priors. It assumes
what the source certificate assumes, and in addition label shift (P and Q share the law of the score given the
label) and target scores and labels that are independent and identically distributed under Q. The proofs are
lemmas 10 to 13 of docs/proofs/certificates.md.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from streamcal.certificates.bin_limits import LOG_GRID, BinningLimits
from streamcal.certificates.inequalities import Masses, chernoff_upper, prior_limits, prior_limits_once
from streamcal.certificates.source import version_delta
from streamcal.maps.shift import shift_odds
from streamcal.values import Counts, Flags, Floats

__all__ = ["NO_SHIFT", "LabelCounts", "Shift", "certify_target", "shift_limits"]


class LabelCounts(NamedTuple):
    """Labels of one domain."""

    positives: int
    n: int
    """Number of labels."""
    version: int | None = None
    """Number of versions before, if these are the labels of a sliding window; None: all labels so far."""
    pending: int = 0
    """Number of labels that are still to come for predictions of the same cohorts (lemma 19)."""

    def prior_limits(self, alpha: float) -> tuple[float, float]:
        """Return limits on the domain's prior; all together fail with probability at most α (lemma 12)."""
        if self.version is None:
            limits = prior_limits(self.positives, self.n + self.pending, alpha)
            if not self.pending:
                return limits
            most = prior_limits(self.positives + self.pending, self.n + self.pending, alpha)
            return limits[0], most[1]
        return prior_limits_once(self.positives, self.n, version_delta(alpha, self.version))


class Shift(NamedTuple):
    """A range of label shifts, from the domain of the labels to that of the risk (lemma 18)."""

    low: float
    """Smallest κ = w₁/w₀, at least 0."""
    high: float
    """Largest κ, at most ∞."""
    negatives: float
    """Largest w₀, at most ∞."""


NO_SHIFT: Final = Shift(1.0, 1.0, 1.0)
"""Shift of the labels' own domain: none."""


def shift_limits(source_labels: LabelCounts, target_labels: LabelCounts, delta: float) -> Shift:
    """Return limits on the shift that hold at all numbers of labels, and all versions, together (lemma 12).

    Parameters
    ----------
    source_labels, target_labels
        labels under P and under Q.
    delta
        in (0, 1). Each domain spends half of it, once for the whole life of the stream.
    """
    p_low, p_high = source_labels.prior_limits(delta / 2)
    q_low, q_high = target_labels.prior_limits(delta / 2)
    if p_high < 1.0:
        low, negatives = _odds(q_low) / _odds(p_high), (1.0 - q_low) / (1.0 - p_high)
    else:
        low, negatives = 0.0, math.inf
    return Shift(low, math.inf if p_low <= 0.0 else _odds(q_high) / _odds(p_low), negatives)


def certify_target(
    limits: BinningLimits,
    lowest: Floats,
    highest: Floats,
    at: Floats,
    below: Counts,
    upto: Counts,
    single: Flags,
    *,
    scores: int,
    source_labels: LabelCounts,
    target_labels: LabelCounts,
    delta: float,
) -> float:
    """Return a bound on R_Q of a map that holds at all target counts together (lemmas 10 to 13).

    Parameters
    ----------
    limits
        limits on the source version's bins; they spend a δ of their own.
    lowest, highest
        float64[B], the map's smallest and largest value in each bin: equal for the composite ĝ∘ĥ; for label
        shift alone, ĝ at the two edges of the bin.
    at
        float64[B], the map's value at the one score of each bin that is ``single``; any value for other bins.
    below, upto
        int64[B], numbers of target scores, labelled or not, that certainly lie below each bin, and that may
        lie in it or below it.
    single
        bool[B], whether all source scores in the bin are one score, and all target scores that may lie in it
        equal it.
    scores
        number of target scores, at least 0.
    source_labels, target_labels
        labels of each domain. If the target's labels are of a window, so are its scores.
    delta
        error probability of the target's side in all, in (0, 1): half for the priors, half for the masses.

    Returns
    -------
    A bound in [0, 1]. It is 1 if nothing can be claimed, or if the data refute that h* is monotone.
    """
    if not limits.monotone:
        return 1.0
    low, high, _ = shift_limits(source_labels, target_labels, delta / 2)
    floor, ceiling = shift_odds(limits.floor, low), shift_odds(limits.ceiling, high)
    mean_low = np.clip(shift_odds(limits.mean_lower, low), floor, ceiling)
    mean_high = np.clip(shift_odds(limits.mean_upper, high), floor, ceiling)
    # E(v − H)² for H in [floor, ceiling] with mean m is at most (v − m)² + (ceiling − m)(m − floor). That is
    # linear in m, so the worst mean is at one end.
    fixed = np.maximum(*(_spread(lowest, mean, floor, ceiling) for mean in (mean_low, mean_high)))
    moving = np.maximum(np.abs(ceiling - lowest), np.abs(highest - floor)) ** 2
    loss = np.where(lowest == highest, fixed, moving)
    # At a single score, h* is what the source's labels are of.
    rates = shift_odds(limits.lower, low), shift_odds(limits.upper, high)
    at_score = np.maximum(*(np.abs(at - rate) for rate in rates)) ** 2
    n = scores
    if n == 0:
        return min(1.0, float(loss.max()))
    exponent = min(math.log(n + 1) + math.log(n + 2) - math.log(2), LOG_GRID)
    if target_labels.version is None:
        # The scores may be those of all predictions, or those with labels alone. Each sample spends half.
        exponent += math.log(n) + math.log(n + 1) - math.log(delta / 4)
    else:
        exponent -= math.log(version_delta(delta / 2, target_labels.version))
    caps = chernoff_upper((upto - below) / n, exponent / n)
    masses = Masses(caps, below, upto, n, exponent)
    loss, at_score, moving = (np.clip(each, 0.0, 1.0) for each in (loss, at_score, moving))
    return min(1.0, masses.fill_atoms(loss, at_score, moving, single))


def _spread(value: Floats, mean: Floats, floor: Floats, ceiling: Floats) -> Floats:
    return np.asarray((value - mean) ** 2 + (ceiling - mean) * (mean - floor))


def _odds(prior: float) -> float:
    return math.inf if prior >= 1.0 else prior / (1.0 - prior)
