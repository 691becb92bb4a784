"""Bounds as pure functions: the paper's Theorems 1 and 2, and the inequalities a certificate is made of.

The paper is Sun, Song, Hero, "Minimum-Risk Recalibration of Classifiers"; its symbols are kept. A theorem
is evaluated verbatim, constants included, and returned together with its premises, met or not: a bound
whose premise fails is a number, not a promise. The inequalities (lemmas 1 to 4 of docs/certificates.md)
round outward: a returned limit is never tighter than the exact one.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "BALANCE_CONSTANT",
    "Premise",
    "TheoremBound",
    "bennett_factor",
    "chernoff_lower",
    "chernoff_upper",
    "greedy_fill",
    "kearns_saul",
    "largest_proxy",
    "largest_variance",
    "log_kt",
    "prior_limits",
    "sum_of_squares",
    "theorem1",
    "theorem2",
    "theorem2_ratio",
    "theoretical_bins",
]

Reals = npt.NDArray[np.float64]

BALANCE_CONSTANT: Final = 2420.0
"""c of Theorems 1 and 2: the paper's remark after Lemma 5 on the constant of Kumar et al., Lemma 4.3."""

_NEWTON_STEPS: Final = 4
_OUTWARD: Final = 1e-12  # far above the rounding of the last operations


class Premise(NamedTuple):
    """One premise of a theorem: ``available >= required``, in the units the name gives."""

    name: str
    required: float
    available: float

    @property
    def met(self) -> bool:
        """Whether the premise holds."""
        return self.available >= self.required


class TheoremBound(NamedTuple):
    """A theorem's value and its premises; infinite where the formula divides by zero.

    ``calibration`` and ``sharpness`` bound R^cal and R^sha, ``risk`` their sum R. For Theorem 2 the first
    two are their shares inside the bound on R_Q.
    """

    calibration: float
    sharpness: float
    risk: float
    premises: tuple[Premise, ...]

    @property
    def met(self) -> bool:
        """Whether every premise holds."""
        return all(premise.met for premise in self.premises)


def theorem1(n: int, bins: int, delta: float, smoothness: float | None = None) -> TheoremBound:
    """Return Theorem 1: bounds that hold together with probability 1 − δ at one fixed n and B.

    R^cal ≤ (√(log(4B/δ) / (2(⌊n/B⌋ − 1))) + 1/⌊n/B⌋)², and R^sha ≤ 8K²/B², or 2/B without K.

    Parameters
    ----------
    n
        labelled scores, at least 1.
    bins
        B, at least 1.
    delta
        δ in (0, 1).
    smoothness
        K of assumption A3 (h* grows by at most K times the mass), or None if it is not known.

    Examples
    --------
    >>> bound = theorem1(1000, 10, 0.1)
    >>> round(bound.calibration, 6), bound.sharpness, bound.met
    (0.033839, 0.2, False)
    """
    _check(n, bins, delta)
    calibration = _mean_error(n, bins, 4 * bins / delta) ** 2
    sharpness = 2.0 / bins if smoothness is None else 8.0 * smoothness**2 / bins**2
    required = BALANCE_CONSTANT * bins * math.log(2 * bins / delta)
    premise = Premise("n >= c B log(2B/delta), c = 2420", required, float(n))
    return TheoremBound(calibration, sharpness, calibration + sharpness, (premise,))


def theorem2(
    n_source: int,
    n_target: int,
    bins: int,
    delta: float,
    smoothness: float | None,
    source_prior: float,
    target_prior: float,
) -> TheoremBound:
    """Return Theorem 2, sample form (eq. 16): a bound on R_Q(ĝ∘ĥ_P) with probability 1 − δ.

    2 w_max³/w_min² {(√(log(8B/δ)/(2(⌊n_P/B⌋−1))) + 1/⌊n_P/B⌋)² + 8K²/B²}
    + 54 max{1/(p_min n_P), 1/(q_min n_Q)} log(16/δ).

    Without K the last lines of the paper's proof allow 2/B in the place of 8K²/B². The shift's share is
    counted under ``calibration``.

    Parameters
    ----------
    n_source, n_target
        labelled scores n_P and n_Q, at least 1.
    bins
        B of the source map.
    delta
        δ in (0, 1).
    smoothness
        K, or None.
    source_prior, target_prior
        P[Y=1] and Q[Y=1], each in (0, 1).
    """
    _check(n_source, bins, delta)
    _check(n_target, bins, delta)
    low, high = _weights(source_prior, target_prior)
    p_min = min(source_prior, 1.0 - source_prior)
    q_min = min(target_prior, 1.0 - target_prior)
    factor = 2.0 * high**3 / low**2
    sharpness = 2.0 / bins if smoothness is None else 8.0 * smoothness**2 / bins**2
    shift = 54.0 * max(1 / (p_min * n_source), 1 / (q_min * n_target)) * math.log(16 / delta)
    calibration = factor * _mean_error(n_source, bins, 8 * bins / delta) ** 2 + shift
    premises = (
        Premise(
            "n_P >= max(c, 27/p_min) B log(4B/delta), c = 2420",
            max(BALANCE_CONSTANT, 27 / p_min) * bins * math.log(4 * bins / delta),
            float(n_source),
        ),
        Premise("n_Q >= 27/q_min log(16/delta)", 27 / q_min * math.log(16 / delta), float(n_target)),
    )
    return TheoremBound(calibration, factor * sharpness, calibration + factor * sharpness, premises)


def theorem2_ratio(
    source_risk: float,
    source_prior: float,
    target_prior: float,
    estimated_weights: tuple[float, float],
) -> float:
    """Return Theorem 2, ratio form (eq. 15): 2{((ρ₀−ρ₁)/(ρ₀+ρ₁))² + w_max³/w_min² R_P}.

    Always true; it needs the true priors and the true source risk, so it serves experiments only.

    Parameters
    ----------
    source_risk
        R_P(ĥ_P) in [0, 1].
    source_prior, target_prior
        P[Y=1] and Q[Y=1], each in (0, 1).
    estimated_weights
        (ŵ₀, ŵ₁), positive.
    """
    low, high = _weights(source_prior, target_prior)
    rho0 = estimated_weights[0] * (1.0 - source_prior) / (1.0 - target_prior)
    rho1 = estimated_weights[1] * source_prior / target_prior
    return 2.0 * (((rho0 - rho1) / (rho0 + rho1)) ** 2 + high**3 / low**2 * source_risk)


def theoretical_bins(n: int, delta: float, smoothness: float | None = None) -> int:
    """Return the B from 1 to n/2 (at most 10⁶) that minimises Theorem 1's bound on R; of equals, the least.

    Found by looking at every B: floors make the bound ragged.
    """
    _check(n, 1, delta)
    bins = np.arange(1, min(max(n // 2, 1), 1_000_000) + 1, dtype=np.float64)
    per_bin = np.floor(n / bins)
    usable = np.maximum(per_bin - 1, 1e-300)
    calibration = (np.sqrt(np.log(4 * bins / delta) / (2 * usable)) + 1 / per_bin) ** 2
    sharpness = 2 / bins if smoothness is None else 8 * smoothness**2 / bins**2
    return int(bins[np.argmin(calibration + sharpness)])


def chernoff_upper(rate: npt.ArrayLike, exponent: npt.ArrayLike) -> Reals:
    """Return the largest μ with kl(rate, μ) ≤ exponent, rounded outward (lemma 1).

    For a mean of N independent labels, P(mean μ > chernoff_upper(rate, x/N)) ≤ exp(−x); the labels need
    not be identically distributed (Hoeffding 1963, Theorem 1).

    Parameters
    ----------
    rate
        empirical rates in [0, 1], any shape.
    exponent
        x/N ≥ 0, broadcast against ``rate``.

    Notes
    -----
    kl(p, ·) is convex and increasing above p, so Newton steps that start right of the root stay right of
    it: every iterate is a valid limit.
    """
    p, x = np.broadcast_arrays(np.asarray(rate, dtype=np.float64), np.asarray(exponent, dtype=np.float64))
    room = 1.0 - p
    entropy = -(_xlogy(p, p) + _xlogy(room, room))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = -np.expm1(-np.where(room > 0, (x - _xlogy(p, p)) / room, 0.0) + np.log(room))
        # right of the root: kl(p, μ) ≥ p log p + (1−p) log((1−p)/(1−μ)), ≥ (μ−p)²/(2μ), and, with the
        # largest variance w between p and μ, ≥ (μ−p)²/(2w)
        spread = np.where(p >= 0.5, p * room, 0.25)
        near = np.minimum(x + np.sqrt(x * (x + 2 * p)), np.sqrt(2 * x * spread))
        mu = np.minimum(p + near, far)
        for _ in range(_NEWTON_STEPS):
            # the step's denominator multiplied out: finite down to μ = p, where the excess is −x ≤ 0
            value = -entropy - _xlogy(p, mu) - room * np.log1p(-mu) - x
            step = value * mu * (1.0 - mu) / (mu - p)
            mu = np.where((value > 0) & (mu > p), mu - step, mu)
        # kl is known to about 1e-15, so its root to 1e-15 over its slope there, at least 2(μ − p)
        limit = mu + _OUTWARD + 1e-15 / np.sqrt(np.maximum(x, 1e-30))
    limit = np.where(np.isfinite(limit), limit, 1.0)
    return np.asarray(np.where(room > 0, np.clip(limit, p, 1.0), 1.0), dtype=np.float64)


def chernoff_lower(rate: npt.ArrayLike, exponent: npt.ArrayLike) -> Reals:
    """Return the least μ with kl(rate, μ) ≤ exponent, rounded outward: 1 − chernoff_upper(1 − rate)."""
    return np.asarray(
        1.0 - chernoff_upper(1.0 - np.asarray(rate, dtype=np.float64), exponent), dtype=np.float64
    )


def kearns_saul(rate: npt.ArrayLike) -> Reals:
    """Return s(μ) = (1 − 2μ) / (2 log((1 − μ)/μ)), the best sub-Gaussian proxy of a Bernoulli(μ).

    log E exp(θ(Y − μ)) ≤ s(μ) θ²/2 for every θ (Kearns and Saul 1998; Berend and Kontorovich 2013).
    s(0) = s(1) = 0, s(½) = ¼, concave and symmetric.
    """
    mu = np.asarray(rate, dtype=np.float64)
    half = np.abs(mu - 0.5)
    inside = np.clip(mu, 1e-300, 1.0 - 1e-16)
    with np.errstate(divide="ignore", invalid="ignore"):
        proxy = (1.0 - 2.0 * inside) / (2.0 * (np.log1p(-inside) - np.log(inside)))
    proxy = np.where(half < 1e-4, 0.25, proxy)  # above the true value there by less than 4e-9
    return np.asarray(np.where((mu <= 0) | (mu >= 1), 0.0, proxy), dtype=np.float64)


def largest_proxy(lower: npt.ArrayLike, upper: npt.ArrayLike) -> Reals:
    """Return the largest s(μ) for μ in [lower, upper]: at ½ if inside, else at the nearer end."""
    return kearns_saul(_nearest_half(lower, upper))


def largest_variance(lower: npt.ArrayLike, upper: npt.ArrayLike) -> Reals:
    """Return the largest μ(1 − μ) for μ in [lower, upper]."""
    mu = _nearest_half(lower, upper)
    return np.asarray(mu * (1.0 - mu), dtype=np.float64)


def bennett_factor(theta: npt.ArrayLike) -> Reals:
    """Return φ(θ) = 2(e^θ − 1 − θ)/θ² for θ ≥ 0, increasing from φ(0) = 1.

    For |θ'| ≤ θ a centred Bernoulli of variance v has log E exp(θ'(Y − μ)) ≤ v φ(θ) θ'²/2 (Bennett).
    """
    t = np.minimum(np.asarray(theta, dtype=np.float64), 600.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = 2.0 * (np.expm1(t) - t) / (t * t)
    return np.asarray(np.where(t < 1e-3, 1.0 + t / 2.9, direct), dtype=np.float64)


def sum_of_squares(proxies: Reals, delta: float, grid: Reals, offset: npt.ArrayLike = 0.0) -> float:
    """Return V with P(Σ X_b² > V) ≤ δ for independent centred X_b with sub-Gaussian proxies s_b (lemma 3).

    V = min over λ in ``grid`` of [log(|grid|/δ) − ½ Σ log(1 − 2λ s_b)] / λ.

    Parameters
    ----------
    proxies
        s_b ≥ 0, float64[B].
    delta
        in (0, 1).
    grid
        λ > 0, fixed before the labels are seen; those with 2λ max s_b ≥ 1 give no bound.
    offset
        added inside the bracket, per λ.
    """
    inner = 1.0 - 2.0 * np.multiply.outer(grid, proxies)
    usable = (inner > 0).all(axis=-1)
    if not usable.any():
        return math.inf
    logs = -0.5 * np.log(np.where(inner > 0, inner, 1.0)).sum(axis=-1) + offset
    values = (math.log(len(grid) / delta) + logs) / grid
    return float(values[usable].min())


def prior_limits(positives: int, labels: int, alpha: float) -> tuple[float, float]:
    """Return limits on a Bernoulli prior that hold at every number of labels at once (lemma 12).

    {p : KT(S, N) / (p^S (1−p)^(N−S)) < 1/α}, with KT the Krichevsky–Trofimov mixture
    Beta(S+½, N−S+½)/Beta(½, ½): by Ville's inequality p stays inside for ever with probability 1 − α.

    Parameters
    ----------
    positives, labels
        S and N, 0 ≤ S ≤ N.
    alpha
        in (0, 1).

    Returns
    -------
    (lower, upper), each in [0, 1]; (0, 1) without labels.
    """
    if not 0 <= positives <= labels:
        raise ValueError(f"positives must be between 0 and labels={labels}, got {positives!r}")
    if labels == 0:
        return 0.0, 1.0
    rate = positives / labels
    misses = labels - positives
    best = sum(count * math.log(count / labels) for count in (positives, misses) if count)
    exponent = (best - log_kt(positives, misses) - math.log(alpha)) / labels
    return float(chernoff_lower(rate, exponent)), float(chernoff_upper(rate, exponent))


def log_kt(positives: int, negatives: int) -> float:
    """Return log KT(S, N) = log Beta(S+½, N−S+½)/Beta(½, ½), the Krichevsky–Trofimov likelihood."""
    return (
        math.lgamma(positives + 0.5)
        + math.lgamma(negatives + 0.5)
        - math.lgamma(positives + negatives + 1.0)
        - math.log(math.pi)
    )


def greedy_fill(values: Reals, caps: Reals) -> float:
    """Return max Σ p_b a_b over 0 ≤ p_b ≤ caps_b, Σ p_b ≤ 1, for a_b ≥ 0: the largest a_b fill first."""
    order = np.argsort(-values)
    used = np.minimum(np.cumsum(caps[order]), 1.0)
    return float(np.diff(used, prepend=0.0) @ values[order])


def _xlogy(x: Reals, y: Reals) -> Reals:
    return np.asarray(np.where(x > 0, x * np.log(np.where(x > 0, y, 1.0)), 0.0))


def _nearest_half(lower: npt.ArrayLike, upper: npt.ArrayLike) -> Reals:
    return np.asarray(np.clip(0.5, lower, upper), dtype=np.float64)


def _mean_error(n: int, bins: int, ratio: float) -> float:
    per_bin = n // bins
    if per_bin < 2:
        return math.inf
    return math.sqrt(math.log(ratio) / (2 * (per_bin - 1))) + 1 / per_bin


def _weights(source_prior: float, target_prior: float) -> tuple[float, float]:
    for name, prior in (("source_prior", source_prior), ("target_prior", target_prior)):
        if not 0 < prior < 1:
            raise ValueError(f"{name} must be in (0, 1), got {prior!r}")
    ratios = (1 - target_prior) / (1 - source_prior), target_prior / source_prior
    return min(ratios), max(ratios)


def _check(n: int, bins: int, delta: float) -> None:
    if n < 1:
        raise ValueError(f"the number of labelled scores must be at least 1, got {n!r}")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins!r}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta!r}")
