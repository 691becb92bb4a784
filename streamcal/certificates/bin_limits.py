"""Certified limits on the bins of one version: their rates, masses, shapes and noise.

They follow from counts per cell, by lemmas 1 to 7 of docs/proofs/certificates.md. A version may be certified
for several candidate binnings. All candidates share the error probability of some limits (`VersionLimits`);
the other limits spend a share for each candidate (`BinningLimits`).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streamcal.base.values import Counts, Flags, Floats
from streamcal.certificates.inequalities import (
    bennett_factor,
    chernoff_upper,
    largest_proxy,
    largest_variance,
)
from streamcal.maps.binning import bin_sums

LOG_GRID: Final = 36.2
"""Log of the number of intervals of the grid at its finest level, rounded up."""

# Shares of a version's δ. Masses, shapes, end bins and total noise spend theirs once. The shares of the means
# and the squares are divided among the candidates. `streamcal.certificates.source` spends the rest.
_MASSES, _SHAPES, _ENDS, _NOISE = 0.10, 0.08, 0.06, 0.06
_INTERVALS, _SQUARES = 0.08, 0.15
_POOL_GROWTH: Final = 4
_LAMBDAS: Final = np.geomspace(0.02, 40.0, 14)  # λ for sums of squares; only those below 1/(2s) are useful
_GAUSS_MARGIN: Final = 4.0
_GAUSS_LOSS: Final = 6.4e-5  # −log(1 − 2Φ̄(4)), rounded up


class VersionLimits:
    """The cells of one version, and the limits that all its candidates share (lemmas 4, 5, 6).

    Parameters
    ----------
    negatives, positives
        int64[m], counts per cell by label, m ≥ 1. Cells ascend in score, and none is empty.
    delta
        δ_j in (0, 1), the error probability that the version may spend.
    single
        bool[m], whether a cell holds one score only, however often; None: not known.
    pending
        int64[m], scores per cell whose label is not known. It counts as 0 or 1, whichever gives the larger
        bound (lemma 19). None: all labels are known.

    Attributes
    ----------
    totals
        All scores per cell, int64[m]; their number is ``n``.
    mass_exponent
        Exponent x with n kl(N/n, p) ≤ x for all intervals together (lemma 4).
    gap
        Upper limit on the mass of every interval that holds none of the scores (lemma 4).
    shape_exponent
        Exponent x of lemma 5 for all intervals together, see `shape_error`.
    end_exponent
        Exponent x of lemma 8e for the end bins of all candidates together.
    noise
        Upper bound on Σ h_i(1 − h_i) over the scores, at most n/4 (lemma 6).
    """

    def __init__(
        self,
        negatives: Counts,
        positives: Counts,
        delta: float,
        single: Flags | None = None,
        pending: Counts | None = None,
    ) -> None:
        pending = np.zeros_like(negatives) if pending is None else pending
        self.positives, self.pending, self.delta = positives, pending, delta
        self.totals: Counts = negatives + positives + pending
        self.single = np.zeros(len(self.totals), bool) if single is None else single
        self.n = n = int(self.totals.sum())
        pairs = math.log(n + 1) + math.log(n + 2) - math.log(2)
        windows = min(math.log(n) + math.log(n + 1), LOG_GRID + math.log(2))
        self.mass_exponent = min(pairs, LOG_GRID) - math.log(_MASSES * delta)
        self.gap = float(chernoff_upper(0.0, self.mass_exponent / n))
        self.shape_exponent = windows - math.log(_SHAPES * delta)
        self.end_exponent = math.log(2 * n / (_ENDS * delta))
        self.noise = noise_limit(negatives + pending, positives + pending, n, _NOISE * delta)

    def sums(self, splits: Counts) -> tuple[Floats, Floats, Floats]:
        """Return scores per bin, and the least and largest possible number of labels 1, float64[B] each."""
        counts = self.totals, self.positives, self.positives + self.pending
        totals, hits, most = (bin_sums(each, splits).astype(np.float64) for each in counts)
        return totals, hits, most

    def masses(self, totals: Floats) -> Floats:
        """Return the upper limits on the masses of intervals with so many scores each (lemma 4)."""
        return chernoff_upper(totals / self.n, self.mass_exponent / self.n)


class BinningLimits:
    """One of ``choices`` candidate binnings with its certified limits (lemmas 1 to 5 and 7).

    They hold for all bins together.

    Parameters
    ----------
    version
        the cells.
    splits
        first cell of each bin, then m, int64[B+1].
    choices
        number of candidates among which δ_j is divided; ``share`` is what this one may spend.

    Attributes
    ----------
    totals
        Scores per bin N_b, float64[B], as all others but ``monotone``, ``squares`` and ``share``.
    rates
        Least possible share μ̂_b of label 1 per bin: pending labels count as 0.
    most
        Largest possible share of label 1 per bin: pending labels count as 1 (lemma 19).
    lower, upper
        Limits on the mean of h* over the scores in the bin.
    floor, ceiling
        Limits on h* everywhere in the bin.
    mass
        Upper limit on P[Z in bin].
    ratio
        Upper limit on the mass of a bin over its share N_b/n of the scores.
    shape
        Shape error τ_b of lemma 5.
    atom
        Share ε_b of lemma 8i, see `atom_shares`.
    monotone
        False if the labels refute that h* is non-decreasing.
    squares
        Upper bound on Σ mass_b (μ̂_b − μ̃_b)².
    """

    def __init__(self, version: VersionLimits, splits: Counts, choices: int = 1) -> None:
        self.splits, self.share = splits, version.delta / choices
        self.totals, hits, most = version.sums(splits)
        self.rates, self.most = hits / self.totals, most / self.totals
        bins = len(self.totals)
        self.lower, self.upper, self.monotone = mean_limits(hits, most, self.totals, _INTERVALS * self.share)
        self.floor = np.concatenate(([0.0], self.lower[:-1]))
        self.ceiling = np.concatenate((self.upper[1:], [1.0]))
        self.shape = shape_error(self.totals, version.shape_exponent)
        self.mass = version.masses(self.totals)
        self.ratio = self.mass * version.n / self.totals
        self.atom = atom_shares(version, splits, self.mass)
        exponent = math.log(2 * bins * len(pool_widths(bins)) / (_INTERVALS * self.share))
        squares = squares_limit(
            self.lower, self.upper, self.totals, self.ratio, version.noise, exponent, _SQUARES * self.share
        )
        self.squares = squares / version.n


def noise_limit(negatives: Counts, positives: Counts, n: int, delta: float) -> float:
    """Return an upper bound on Σ h_i(1 − h_i) over n scores, at most n/4 (lemma 6).

    It is a limit on the expected number of labels that a threshold on the score gets wrong, at the best of
    the m + 1 thresholds. A label that is not known counts as a negative and as a positive.
    """
    below = np.concatenate(([0], np.cumsum(positives)))
    above = int(negatives.sum()) - np.concatenate(([0], np.cumsum(negatives)))
    wrong = int((below + above).min())
    limit = chernoff_upper(wrong / n, math.log(len(below) / delta) / n)
    return min(0.25, float(limit)) * n


def atom_shares(version: VersionLimits, splits: Counts, mass: Floats) -> Floats:
    """Return ε_b (lemma 8i): the share of a bin's mass that may lie beside its score, if it holds only one.

    Parameters
    ----------
    version
        cells of the version.
    splits
        int64[B+1], the cells where the bins begin.
    mass
        upper limits on the masses of the bins, float64[B].

    Returns
    -------
    float64[B], the limit on the mass of a gap over that of the bin, at most 1; 1 for bins of several scores.
    """
    alone = (np.diff(splits) == 1) & version.single[splits[:-1]]
    return np.where(alone, np.minimum(version.gap / mass, 1.0), 1.0)


def pool_widths(bins: int) -> list[int]:
    """Return the widths 1, 4, 16, … of the pools of neighbouring bins, at most ``bins`` (lemma 2)."""
    return [_POOL_GROWTH**i for i in range(1 + int(math.log(bins, _POOL_GROWTH)))]


def mean_limits(hits: Floats, most: Floats, totals: Floats, delta: float) -> tuple[Floats, Floats, bool]:
    """Return limits on the mean of h* over each bin's scores, from pools of 1, 4, 16, … bins (lemma 2).

    h* does not decrease. The mean of a pool that ends at bin b is therefore at most the mean of bin b, and
    the mean of a pool that begins at b is at least that. At least ``hits`` and at most ``most`` of each bin's
    scores have label 1 (lemma 19).

    Returns
    -------
    (lower, upper, monotone): float64[B] twice, and False if limits contradict each other, so that
    the labels refute that h* is non-decreasing.
    """
    bins = len(totals)
    widths = pool_widths(bins)
    exponent = math.log(2 * bins * len(widths) / delta)
    size = _pooled(totals, widths)
    rates = np.concatenate((_pooled(most, widths) / size, 1.0 - _pooled(hits, widths) / size))
    limits = chernoff_upper(rates, np.tile(exponent / size, 2))
    uppers, lowers = limits[: len(size)], 1.0 - limits[len(size) :]
    lower, upper = np.zeros(bins), np.ones(bins)
    monotone = True
    start = 0
    for width in widths:
        pools = bins - width + 1
        pool = slice(start, start + pools)
        lower[width - 1 :] = np.maximum(lower[width - 1 :], lowers[pool])
        upper[:pools] = np.minimum(upper[:pools], uppers[pool])
        start += pools
    lower = np.maximum.accumulate(lower)
    upper = np.minimum.accumulate(upper[::-1])[::-1]
    if (lower > upper).any():
        monotone = False
        lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
    return lower, upper, monotone


def _pooled(counts: Floats, widths: list[int]) -> Floats:
    """Return the sums over all pools of each width in turn."""
    sums = np.concatenate(([0.0], np.cumsum(counts)))
    return np.concatenate([sums[width:] - sums[:-width] for width in widths])


def shape_error(totals: Floats, exponent: float) -> Floats:
    """Return τ: the largest error of a bin's share of scores beyond a point against its mass (lemma 5).

    Parameters
    ----------
    totals
        scores per bin, float64[B].
    exponent
        log(n(n+1)/d), where d is the probability of failure.
    """
    others = np.maximum(totals - 1.0, 1.0)
    return np.asarray(
        np.where(totals > 1, np.minimum(1.0, 1 / others + np.sqrt(exponent / (2 * others))), 1.0)
    )


def squares_limit(
    lower: Floats,
    upper: Floats,
    totals: Floats,
    ratio: Floats,
    noise: float,
    exponent: float,
    delta: float,
) -> float:
    """Return V with Σ ratio_b N_b (μ̂_b − μ̃_b)² ≤ V, with probability 1 − δ (lemmas 3 and 7).

    The sub-Gaussian proxy of a bin is at most min(KS, v φ(θ)), where KS is Kearns and Saul's and v the
    variance of the bin. Each v has a cap of its own, and Σ N_b v_b ≤ noise caps them together.

    Parameters
    ----------
    lower, upper, totals, ratio
        limits of the bins, float64[B] each, see `BinningLimits`.
    noise
        see `noise_limit`.
    exponent
        x with N_b kl(μ̂_b, μ̃_b) ≤ x for all bins together.
    delta
        δ in (0, 1).
    """
    proxy = largest_proxy(lower, upper)
    variance = largest_variance(lower, upper)
    grid = _LAMBDAS / ratio.max()
    scaled = np.multiply.outer(grid, ratio)
    step = exponent / totals
    reach = np.sqrt(totals) * (step / 3 + np.sqrt(step * step / 9 + 2 * variance * step))
    tilt = np.sqrt(2 * scaled)
    factor = bennett_factor(tilt * (tilt * reach + _GAUSS_MARGIN) / np.sqrt(totals))
    caps = np.maximum(np.minimum(variance, proxy / factor), 1e-300)
    inner = 1.0 - 2.0 * scaled * caps * factor
    usable = (inner > 1e-9).all(axis=1)
    if not usable.any():
        return math.inf
    inner, caps, grid = inner[usable], caps[usable], grid[usable]
    cost = -0.5 * np.log(inner) + _GAUSS_LOSS
    total = cost.sum(axis=1)
    over = (caps @ totals) > noise
    if over.any():
        total[over] = _knapsack(cost[over] - _GAUSS_LOSS, caps[over], totals, noise)
        total[over] += _GAUSS_LOSS * len(totals)
    return float(((math.log(len(_LAMBDAS) / delta) + total) / grid).min())


def _knapsack(cost: Floats, caps: Floats, totals: Floats, noise: float) -> Floats:
    """Return the largest Σ (cost_b/caps_b) v_b over 0 ≤ v_b ≤ caps_b with Σ N_b v_b ≤ noise, for each row."""
    weight = caps * totals
    order = np.argsort(-cost / weight, axis=1)
    weight = np.take_along_axis(weight, order, axis=1)
    cost = np.take_along_axis(cost, order, axis=1)
    before = np.cumsum(weight, axis=1) - weight
    taken = np.clip((noise - before) / weight, 0.0, 1.0)
    return np.asarray((taken * cost).sum(axis=1))
