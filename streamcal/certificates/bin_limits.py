"""What is certain of the bins of one version: their rates, masses, shapes and noise (lemmas 1 to 7).

Everything follows from counts per cell; the lemmas are those of docs/certificates.md. What a version's
candidates share is paid for once (`Version`), the rest by each candidate (`Binning`).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.certificates.inequalities import (
    bennett_factor,
    chernoff_upper,
    largest_proxy,
    largest_variance,
)
from streamcal.maps.binning import bin_sums

__all__ = [
    "LOG_GRID",
    "BinIntervals",
    "Binning",
    "Version",
    "bin_intervals",
    "certain_binning",
    "certain_version",
    "mass_exponent",
    "shape_error",
]

Counts = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

LOG_GRID: Final = 36.2
"""The log of the number of intervals of the grid at its finest level, rounded up."""

# Shares of a version's δ: for masses, shapes, end bins and total noise once; for the means and the squares
# divided among the candidates. `streamcal.certify` spends the rest.
_MASSES, _SHAPES, _ENDS, _NOISE = 0.10, 0.08, 0.06, 0.06
_INTERVALS, _SQUARES = 0.08, 0.15
_POOL_GROWTH: Final = 4
_LAMBDAS: Final = np.geomspace(0.02, 40.0, 14)  # λ for sums of squares; the useful ones are below 1/(2s)
_GAUSS_MARGIN: Final = 4.0
_GAUSS_LOSS: Final = 6.4e-5  # −log(1 − 2Φ̄(4)), rounded up


class BinIntervals(NamedTuple):
    """Certified limits per bin, float64[B] each, that hold for all bins together.

    ``lower`` and ``upper`` enclose the mean of h* over the scores in the bin; ``mean_lower`` and
    ``mean_upper`` its population mean P[Y=1 | Z in bin]; ``floor`` and ``ceiling`` enclose h* everywhere
    in the bin. ``mass`` bounds P[Z in bin] from above.
    """

    lower: Reals
    upper: Reals
    mean_lower: Reals
    mean_upper: Reals
    floor: Reals
    ceiling: Reals
    mass: Reals
    monotone: bool


class Version(NamedTuple):
    """What one version's candidates share; the events behind it are paid for once."""

    negatives: Counts
    positives: Counts
    totals: Counts
    n: int
    delta: float
    mass_exponent: float  # all intervals at once: n kl(w, p) ≤ this
    shape_exponent: float
    end_exponent: float
    noise: float  # an upper bound on Σ h_i(1 − h_i), at most n/4


class Binning(NamedTuple):
    """One candidate with its certified limits."""

    splits: Counts
    totals: Reals
    rates: Reals
    intervals: BinIntervals
    ratio: Reals  # mass over n N_b/n
    shape: Reals  # τ_b
    squares: float  # bounds Σ mass_b (μ̂_b − μ̃_b)²
    share: float  # what this candidate may spend, before its events' shares


def bin_intervals(
    negatives: Counts, positives: Counts, splits: Counts, *, delta: float, choices: int = 1
) -> BinIntervals:
    """Return the certified limits per bin; arguments as in `certify` (lemmas 1, 2, 4, 5)."""
    version = certain_version(negatives, positives, delta)
    return certain_binning(version, np.asarray(splits, np.int64), choices).intervals


def certain_version(negatives: Counts, positives: Counts, delta: float) -> Version:
    """Return what the candidates of a version share; arguments as in `source.certify`."""
    if len(negatives) != len(positives) or len(negatives) == 0:
        raise ValueError(f"cells must not be empty and match, got {len(negatives)} and {len(positives)}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta!r}")
    totals = negatives + positives
    n = int(totals.sum())
    windows = min(math.log(n) + math.log(n + 1), LOG_GRID + math.log(2))
    return Version(
        negatives=negatives,
        positives=positives,
        totals=totals,
        n=n,
        delta=delta,
        mass_exponent=mass_exponent(n, delta),
        shape_exponent=windows - math.log(_SHAPES * delta),
        end_exponent=math.log(2 * n / (_ENDS * delta)),
        noise=_noise(negatives, positives, n, _NOISE * delta),
    )


def mass_exponent(n: int, delta: float) -> float:
    """Lemma 4: return x with n kl(N/n, p) ≤ x for all intervals at once, for a version that spends δ."""
    pairs = math.log(n + 1) + math.log(n + 2) - math.log(2)
    return min(pairs, LOG_GRID) - math.log(_MASSES * delta)


def _noise(negatives: Counts, positives: Counts, n: int, delta: float) -> float:
    # lemma 6: the labels a threshold on the score gets wrong, at the best of the m + 1 thresholds
    below = np.concatenate(([0], np.cumsum(positives)))
    above = int(negatives.sum()) - np.concatenate(([0], np.cumsum(negatives)))
    wrong = int((below + above).min())
    limit = chernoff_upper(wrong / n, math.log(len(below) / delta) / n)
    return min(0.25, float(limit)) * n


def certain_binning(version: Version, splits: Counts, choices: int) -> Binning:
    """Return one of ``choices`` candidates with its certified limits (lemmas 1 to 3, 5 and 7)."""
    totals = bin_sums(version.totals, splits).astype(np.float64)
    hits = bin_sums(version.positives, splits).astype(np.float64)
    rates = hits / totals
    bins = len(totals)
    share = version.delta / choices
    lower, upper, monotone = _mean_limits(hits, totals, _INTERVALS * share)
    floor = np.concatenate(([0.0], lower[:-1]))
    ceiling = np.concatenate((upper[1:], [1.0]))
    shape = shape_error(totals, version.shape_exponent)
    widened = shape * np.maximum(ceiling - floor, 0.0)
    mass = chernoff_upper(totals / version.n, version.mass_exponent / version.n)
    ratio = mass * version.n / totals
    intervals = BinIntervals(
        lower,
        upper,
        np.clip(lower - widened, floor, 1.0),
        np.clip(upper + widened, 0.0, ceiling),
        floor,
        ceiling,
        mass,
        monotone,
    )
    exponent = math.log(2 * bins * _levels(bins) / (_INTERVALS * share))
    squares = _squares(lower, upper, totals, ratio, version.noise, exponent, _SQUARES * share)
    return Binning(
        splits,
        totals,
        rates,
        intervals,
        ratio,
        shape,
        squares / version.n,
        share,
    )


def _levels(bins: int) -> int:
    return 1 + int(math.log(bins, _POOL_GROWTH)) if bins > 1 else 1


def _mean_limits(hits: Reals, totals: Reals, delta: float) -> tuple[Reals, Reals, bool]:
    """Lemma 2: limits on the mean of h* over each bin's scores, from pools of 1, 4, 16, … bins.

    A pool that ends at bin b has a mean of at most bin b's; one that begins there, of at least it.
    """
    bins = len(totals)
    levels = _levels(bins)
    exponent = math.log(2 * bins * levels / delta)
    sums = np.concatenate(([0.0], np.cumsum(hits)))
    counts = np.concatenate(([0.0], np.cumsum(totals)))
    widths = [_POOL_GROWTH**i for i in range(levels)]
    sizes = [counts[width:] - counts[:-width] for width in widths]
    size = np.concatenate(sizes)
    rate = (
        np.concatenate([sums[_POOL_GROWTH**i :] - sums[: -(_POOL_GROWTH**i)] for i in range(levels)]) / size
    )
    limits = chernoff_upper(np.concatenate((rate, 1.0 - rate)), np.tile(exponent / size, 2))
    uppers, lowers = limits[: len(rate)], 1.0 - limits[len(rate) :]
    lower, upper = np.zeros(bins), np.ones(bins)
    monotone = True
    start = 0
    for width, pools in zip(widths, map(len, sizes), strict=True):
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


def shape_error(totals: Reals, exponent: float) -> Reals:
    """Lemma 5: τ, by how much the share of a bin's scores beyond any point misses that of its mass."""
    others = np.maximum(totals - 1.0, 1.0)
    return np.asarray(
        np.where(totals > 1, np.minimum(1.0, 1 / others + np.sqrt(exponent / (2 * others))), 1.0)
    )


def _squares(
    lower: Reals,
    upper: Reals,
    totals: Reals,
    ratio: Reals,
    noise: float,
    exponent: float,
    delta: float,
) -> float:
    """Lemmas 3 and 7: V with Σ ratio_b N_b (μ̂_b − μ̃_b)² ≤ V.

    Each bin's proxy is at most min(KS, v φ(θ)), v its variance; the v are capped one by one, and
    together by Σ N_b v_b ≤ noise.
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


def _knapsack(cost: Reals, caps: Reals, totals: Reals, noise: float) -> Reals:
    """Return per row max Σ (cost_b/caps_b) v_b over 0 ≤ v_b ≤ caps_b, Σ N_b v_b ≤ noise."""
    weight = caps * totals
    order = np.argsort(-cost / weight, axis=1)
    weight = np.take_along_axis(weight, order, axis=1)
    cost = np.take_along_axis(cost, order, axis=1)
    before = np.cumsum(weight, axis=1) - weight
    taken = np.clip((noise - before) / weight, 0.0, 1.0)
    return np.asarray((taken * cost).sum(axis=1))
