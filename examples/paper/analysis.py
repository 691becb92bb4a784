"""What the page claims, worked out from the rows of the experiments: exponents, optima, who should win."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from experiments import LARGEST_BINS, SOURCE, GridRow, RiskRow
from scipy.special import expit
from scipy.stats import norm

from streamcal import RecalibrationMap
from streamcal.certificates.theorems import theorem1
from streamcal.testing import NormalPair

DELTA: Final = 0.1
RIVALS: Final = ("source", "target", "label_shift")


# Assumption A3


def steepness(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return dh*/dF_Z of D(0.5) at z = sigmoid(x): 4 h*(1 − h*) over the density of X."""
    return np.asarray(4.0 * expit(4.0 * x) * expit(-4.0 * x) / (norm.pdf(x, -2.0) + norm.pdf(x, 2.0)) * 2.0)


class Smoothness(NamedTuple):
    """The smallest K of assumption A3 for D(0.5), and where it stops holding."""

    constant: float
    """K: the largest dh*/dF_Z over |x| ≤ ``reach``."""
    reach: float
    """|x| beyond which dh*/dF_Z exceeds K again; it has no limit there."""
    mass: float
    """P[|X| > reach]."""


@cache
def smoothness() -> Smoothness:
    """Return K of D(0.5), by a search over a fine grid of x.

    dh*/dF_Z peaks at x = 0 and falls, but for large |x| it is about 20 exp((|x| − 2)²/2 − 4|x|), which
    grows without bound: no finite K holds on all of [0, 1].
    """
    x = np.linspace(0.0, 16.0, 160_001)
    slope = steepness(x)
    constant = float(slope[x < 6.0].max())
    reach = float(x[(x > 6.0) & (slope > constant)][0])
    return Smoothness(constant, reach, float(norm.sf(reach - 2.0) + norm.sf(reach + 2.0)))


# Exponents


class Fit(NamedTuple):
    """Least squares of log risk on log n and log B: slopes and their standard errors."""

    slopes: tuple[float, ...]
    errors: tuple[float, ...]
    points: int


def power_law(response: Iterable[float], *factors: Iterable[float]) -> Fit:
    """Fit response = c Π factor^slope by ordinary least squares in logarithms."""
    y = np.log(np.fromiter(response, np.float64))
    x = np.column_stack([np.ones(len(y)), *(np.log(np.fromiter(f, np.float64)) for f in factors)])
    solution = np.linalg.lstsq(x, y, rcond=None)[0]
    residual = y - x @ solution
    spread = residual @ residual / max(len(y) - x.shape[1], 1)
    errors = np.sqrt(np.diag(np.linalg.pinv(x.T @ x)) * spread)
    return Fit(tuple(solution[1:].tolist()), tuple(errors[1:].tolist()), len(y))


class Exponents(NamedTuple):
    """R_cal ∝ n^a B^b and R_sha ∝ B^c."""

    calibration_n: float
    calibration_bins: float
    sharpness_bins: float
    points: int


def exponents(
    rows: Sequence[RiskRow], keep: Callable[[RiskRow], bool] = lambda _: True, merged: bool = False
) -> Exponents:
    """Fit the exponents of Figure 1 over the rows to keep, B ≤ 1000.

    R_cal is fitted on n and B together, R_sha on B alone, as the paper states them. ``merged`` takes the
    risks given the value ĥ(Z) instead of those given the bin.
    """
    rows = [row for row in rows if row.bins <= LARGEST_BINS and keep(row)]
    n, bins = [row.n for row in rows], [row.bins for row in rows]
    calibration = power_law((row.merged_calibration if merged else row.calibration for row in rows), n, bins)
    sharpness = power_law((row.merged_sharpness if merged else row.sharpness for row in rows), bins)
    return Exponents._make((*calibration.slopes, *sharpness.slopes, len(rows)))


def premise_met(row: RiskRow) -> bool:
    """Whether Theorem 1's premise, n ≥ 2420 B log(2B/δ), holds."""
    return theorem1(row.n, row.bins, DELTA).met


# Optimal B


class Optimum(NamedTuple):
    """The best B for one n."""

    n: int
    grid_bins: int
    """The B of the grid with the least mean risk."""
    bins: float
    """The vertex of a parabola through its neighbourhood in log B and log R."""
    total: float
    """The least mean risk."""
    theory_smooth: int
    """The minimiser of Theorem 1's bound with K."""
    theory_free: int
    """The minimiser of Theorem 1's bound without K (2/B)."""


def optima(rows: Sequence[RiskRow]) -> list[Optimum]:
    """Return the best B for every n, in the experiment and by Theorem 1."""
    found = []
    for n in sorted({row.n for row in rows}):
        mine = [row for row in rows if row.n == n]
        best = min(range(len(mine)), key=lambda k: mine[k].total)
        near = mine[max(0, best - 4) : best + 5]
        log_bins = np.log([row.bins for row in near])
        curve = np.polynomial.Polynomial.fit(log_bins, np.log([row.total for row in near]), 2)
        vertex = curve.deriv().roots()[0]
        found.append(
            Optimum(
                n,
                mine[best].bins,
                float(np.exp(np.clip(vertex, log_bins[0], log_bins[-1]))),
                mine[best].total,
                theoretical_bins(n, DELTA, smoothness().constant),
                theoretical_bins(n, DELTA),
            )
        )
    return found


def theoretical_bins(n: int, delta: float, smoothness: float | None = None) -> int:
    """Return the B that minimises Theorem 1's bound on R, the smallest if several do.

    B ranges from 1 to n/2, and to 10⁶ at most. Every B is tried, because floors make the bound ragged. The
    arguments are those of `theorem1`.
    """
    bins = np.arange(1, min(max(n // 2, 1), 1_000_000) + 1, dtype=np.float64)
    per_bin = np.floor(n / bins)
    usable = np.maximum(per_bin - 1, 1e-300)
    calibration = (np.sqrt(np.log(4 * bins / delta) / (2 * usable)) + 1 / per_bin) ** 2
    sharpness = 2 / bins if smoothness is None else 8 * smoothness**2 / bins**2
    return int(bins[np.argmin(calibration + sharpness)])


def optimum_exponent(found: Sequence[Optimum]) -> Fit:
    """Fit the exponent of the experimental B* in n."""
    return power_law((best.bins for best in found), [best.n for best in found])


# Who should win under label shift


@cache
def source_floor(target_prior: float) -> float:
    """Return R_Q(h*_P), the risk under D(π_Q) that no amount of source data takes away; to about 1e-8."""
    if target_prior == SOURCE.prior:
        return 0.0
    x = np.linspace(-10.0, 10.0, 20_001)
    middle = (x[1:] + x[:-1]) / 2.0
    edges = (0.0, *expit(x[1:-1]).tolist(), 1.0)
    optimal = RecalibrationMap(version=0, edges=edges, values=tuple(SOURCE.optimal(expit(middle)).tolist()))
    return NormalPair(target_prior).risk(optimal).total


@cache
def label_shift_floor(target_prior: float) -> float:
    """Return R_Q(g*), the risk of the right correction of an uncalibrated score."""
    weights = ((1.0 - target_prior) / (1.0 - SOURCE.prior), target_prior / SOURCE.prior)
    return NormalPair(target_prior).risk(RecalibrationMap(version=0, weights=weights)).total


class Rates(NamedTuple):
    """The terms that the paper's theory compares, to first order; the constants of the rates are set to 1."""

    source_map: float
    """n_P^(−2/3), of ĥ_P (Theorem 1 at the best B)."""
    target_map: float
    """n_Q^(−2/3), of a map fitted on the target."""
    shift: float
    """E ((ρ₀ − ρ₁)/(ρ₀ + ρ₁))², of ĝ (Theorem 2): ¼ (1/(n_Q q₀q₁) + 1/(n_P p₀p₁)), by the delta method."""
    source_floor: float
    label_shift_floor: float


def odds_noise(prior: float, n: int) -> float:
    """Return the variance of the log odds of a prior estimated from n labels, to first order."""
    return 1.0 / (n * prior * (1.0 - prior))


def rates(row: GridRow) -> Rates:
    """Return the terms for one setting."""
    return Rates(
        row.n_source ** (-2 / 3),
        row.n_target ** (-2 / 3),
        (odds_noise(row.target_prior, row.n_target) + odds_noise(SOURCE.prior, row.n_source)) / 4.0,
        source_floor(row.target_prior),
        label_shift_floor(row.target_prior),
    )


def should_beat(row: GridRow, rival: str) -> bool:
    """Whether the theory says that the composite has the smaller R: its own new terms are the smaller.

    The composite costs n_P^(−2/3) and the shift's term (Theorem 2). Against ``target`` their sum must be
    below n_Q^(−2/3). ``source`` shares the first: the second must be below its floor R_Q(h*_P).
    ``label_shift`` shares the second: the first must be below its floor R_Q(g*).
    """
    terms = rates(row)
    if rival == "target":
        return terms.source_map + terms.shift < terms.target_map
    if rival == "source":
        return terms.shift < terms.source_floor
    return terms.source_map < terms.label_shift_floor


def outcome(row: GridRow) -> str:
    """Return whether the composite wins, ties or loses against a rival: beyond 2 standard errors, or not."""
    if abs(row.excess) <= 2.0 * row.excess_error or math.isclose(row.excess, 0.0, abs_tol=1e-12):
        return "ties"
    return "wins" if row.excess > 0 else "loses"


def why_not(row: GridRow) -> str:
    """Return which term of the theory stands between the composite and a win."""
    terms = rates(row)
    if should_beat(row, row.method):
        return "not foreseen"
    if row.method == "target":
        if row.n_source <= row.n_target:
            return "the target has as many labels, or more"
        return "ĝ is noisy" if terms.shift > terms.source_map else "ĥ_P is noisy"
    if row.method == "source":
        return (
            "no shift to correct"
            if row.target_prior == SOURCE.prior
            else "ĝ is noisier than the shift is large"
        )
    return "ĥ_P is worse than no recalibration"
