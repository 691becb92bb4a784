"""Concentration inequalities that certificates are built from, as pure functions.

They are lemmas 0, 1, 7 and 12 of docs/proofs/certificates.md. Every limit is rounded outward: it is never
tighter than the exact one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.base.values import Counts, Flags, Floats

_HEAD_START: Final = 24  # a of lemma 0
_NEWTON_STEPS: Final = 4
_OUTWARD: Final = 1e-12  # far above the rounding of the last operations


def version_delta(delta: float, version: int) -> float:
    """Return the share of δ that version j may spend: δ a/((j+a)(j+a+1)) with a = 24 (lemma 0).

    The sum over all versions telescopes to δ exactly.

    Raises
    ------
    ValueError
        if j is negative.

    Examples
    --------
    >>> round(sum(version_delta(0.1, j) for j in range(100_000)), 4)
    0.1
    """
    if version < 0:
        raise ValueError(f"version must not be negative, got {version!r}")
    j = version + _HEAD_START
    return delta * _HEAD_START / (j * (j + 1))


def chernoff_upper(rate: npt.ArrayLike, exponent: npt.ArrayLike) -> Floats:
    """Return the largest μ with kl(rate, μ) ≤ exponent, rounded outward (lemma 1).

    If N independent labels have the empirical rate ``rate`` and the mean expectation μ, then
    P(μ > chernoff_upper(rate, x/N)) ≤ exp(−x). The labels need not be identically distributed (Hoeffding
    1963, Theorem 1).

    Parameters
    ----------
    rate
        empirical rates in [0, 1], any shape.
    exponent
        x/N ≥ 0, broadcast against ``rate``.

    Returns
    -------
    float64 in [0, 1], of the shape that both broadcast to.

    Notes
    -----
    kl(p, ·) is convex and increasing above p. Newton steps that start right of the root therefore stay right
    of it, and every iterate is a valid limit.
    """
    p, x = np.asarray(rate, dtype=np.float64), np.asarray(exponent, dtype=np.float64)
    room = 1.0 - p
    hits = _xlogy(p, p)
    entropy = -(hits + _xlogy(room, room))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = -np.expm1(-np.where(room > 0, (x - hits) / room, 0.0) + np.log(room))
        # Three starts right of the root. kl(p, μ) is at least p log p + (1−p) log((1−p)/(1−μ)), at least
        # (μ−p)²/(2μ), and at least (μ−p)²/(2w), where w is the largest variance between p and μ.
        spread = np.where(p >= 0.5, p * room, 0.25)
        near = np.minimum(x + np.sqrt(x * (x + 2 * p)), np.sqrt(2 * x * spread))
        mu = np.minimum(p + near, far)
        for _ in range(_NEWTON_STEPS):
            # The step, its denominator multiplied out, is finite down to μ = p, where the excess is −x ≤ 0.
            # At p = μ = 0 it is no number, and μ stays.
            value = -entropy - p * np.log(mu) - room * np.log1p(-mu) - x
            step = value * mu * (1.0 - mu) / (mu - p)
            mu = np.where((value > 0) & (mu > p), mu - step, mu)
        # kl is computed to about 1e-15 and its slope is at least 2(μ − p): the root is off by their quotient.
        limit = mu + _OUTWARD + 1e-15 / np.sqrt(np.maximum(x, 1e-30))
    limit = np.where(np.isfinite(limit), limit, 1.0)
    return np.asarray(np.where(room > 0, np.clip(limit, p, 1.0), 1.0), dtype=np.float64)


def kearns_saul(rate: npt.ArrayLike) -> Floats:
    """Return s(μ) = (1 − 2μ) / (2 log((1 − μ)/μ)), the smallest sub-Gaussian proxy of a Bernoulli(μ).

    log E exp(θ(Y − μ)) ≤ s(μ) θ²/2 for every θ (Kearns and Saul 1998; Berend and Kontorovich 2013).
    s is concave and symmetric, with s(0) = s(1) = 0 and s(½) = ¼.
    """
    mu = np.asarray(rate, dtype=np.float64)
    half = np.abs(mu - 0.5)
    inside = np.clip(mu, 1e-300, 1.0 - 1e-16)
    with np.errstate(divide="ignore", invalid="ignore"):
        proxy = (1.0 - 2.0 * inside) / (2.0 * (np.log1p(-inside) - np.log(inside)))
    proxy = np.where(half < 1e-4, 0.25, proxy)  # exceeds the true value by less than 4e-9
    return np.asarray(np.where((mu <= 0) | (mu >= 1), 0.0, proxy), dtype=np.float64)


def largest_proxy(lower: npt.ArrayLike, upper: npt.ArrayLike) -> Floats:
    """Return the largest s(μ) over μ in [lower, upper]. It is at ½, or at the end nearest to ½."""
    return kearns_saul(_nearest_half(lower, upper))


def largest_variance(lower: npt.ArrayLike, upper: npt.ArrayLike) -> Floats:
    """Return the largest variance μ(1 − μ) over μ in [lower, upper]."""
    mu = _nearest_half(lower, upper)
    return np.asarray(mu * (1.0 - mu), dtype=np.float64)


def bennett_factor(theta: npt.ArrayLike) -> Floats:
    """Return φ(θ) = 2(e^θ − 1 − θ)/θ² for θ ≥ 0; it increases from φ(0) = 1 (lemma 7).

    A Bernoulli of variance v has log E exp(θ'(Y − μ)) ≤ v φ(θ) θ'²/2 wherever |θ'| ≤ θ (Bennett).
    """
    t = np.minimum(np.asarray(theta, dtype=np.float64), 600.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = 2.0 * (np.expm1(t) - t) / (t * t)
    return np.asarray(np.where(t < 1e-3, 1.0 + t / 2.9, direct), dtype=np.float64)


def prior_limits(positives: int, labels: int, alpha: float) -> tuple[float, float]:
    """Return limits on a prior that hold at every number of labels together (lemma 12).

    The limits enclose {p : KT(S, N) / (p^S (1−p)^(N−S)) < 1/α}, where KT is the Krichevsky–Trofimov mixture
    Beta(S+½, N−S+½)/Beta(½, ½). By Ville's inequality the prior never leaves that set, with probability
    1 − α.

    Parameters
    ----------
    positives, labels
        S and N, with 0 ≤ S ≤ N.
    alpha
        α in (0, 1).

    Returns
    -------
    (lower, upper), each in [0, 1]; (0, 1) without labels.

    Raises
    ------
    ValueError
        unless 0 ≤ S ≤ N.
    """
    if not 0 <= positives <= labels:
        raise ValueError(f"positives must be between 0 and labels={labels}, got {positives!r}")
    misses = labels - positives
    best = sum(count * math.log(count / labels) for count in (positives, misses) if count)
    return _rate_limits(positives, labels, best - log_kt(positives, misses) - math.log(alpha))


def prior_limits_once(positives: int, labels: int, alpha: float) -> tuple[float, float]:
    """Return limits on a prior that hold with probability 1 − α at one number of labels (lemma 1).

    Labels of a sliding window are no prefix of a stream, so `prior_limits` does not hold for all windows
    together: each needs an α of its own. The arguments are those of `prior_limits`.
    """
    return _rate_limits(positives, labels, math.log(2.0 / alpha))


def log_kt(positives: int, negatives: int) -> float:
    """Return log Beta(S+½, F+½)/Beta(½, ½), the Krichevsky–Trofimov likelihood of S ones and F zeros."""
    return (
        math.lgamma(positives + 0.5)
        + math.lgamma(negatives + 0.5)
        - math.lgamma(positives + negatives + 1.0)
        - math.log(math.pi)
    )


@dataclass(frozen=True)
class Masses:
    """Limits of lemma 4 or 11 on the masses p_b of B neighbouring intervals."""

    caps: Floats
    """Upper limits on the masses p_b, float64[B]."""
    below: Counts
    """Largest number of scores below each interval, int64[B], ascending."""
    upto: Counts
    """Smallest number of scores in each interval or below it, int64[B], ascending."""
    n: int
    """Number of scores, at least 1."""
    exponent: float
    """Exponent x with n kl(N/n, p) ≤ x for all intervals of N scores together."""

    def fill(self, values: Floats, caps: Floats | None = None) -> float:
        """Return the largest Σ p_b a_b that is allowed, for values a_b ≥ 0, float64[B] (lemma 8g).

        ``caps``, float64[B], replace the caps of the masses.

        Each p_b is at most its cap. The sum over each 2, 4, 8, … of them, from every multiple of that number
        on, is at most what x allows to the scores there, from the first interval's ``below`` to the last
        one's ``upto``. Of two such sets of intervals one contains the other or they are disjoint. So the
        largest values may take their mass first in every pair, then in every four, and so on.
        """
        limits = self._unions
        blank = np.zeros((1 << len(limits)) - len(values))
        losses = -np.concatenate((values, blank))
        mass = np.concatenate((self.caps if caps is None else caps, blank))
        for each in limits:
            # Each row is a group, the largest values first.
            rows = len(each), -1
            order = np.argsort(losses.reshape(rows), axis=1, kind="stable")
            order += np.arange(0, len(losses), len(losses) // len(each))[:, np.newaxis]
            losses, mass = losses[order], np.cumsum(mass[order], axis=1)
            np.minimum(mass, each[:, np.newaxis], out=mass)
            mass[:, 1:] -= mass[:, :-1].copy()
            losses, mass = losses.ravel(), mass.ravel()
        return float(-(np.minimum(mass, 1.0) @ losses))

    @cached_property
    def _unions(self) -> list[Floats]:
        """Caps on unions of 2, 4, 8, … intervals; empty intervals make their number a power of 2."""
        size, counts = len(self.caps), []
        doublings = (size - 1).bit_length()
        for doubling in range(1, doublings + 1):
            starts = np.minimum(np.arange(0, 1 << doublings, 1 << doubling), size - 1)
            ends = np.minimum(starts + (1 << doubling), size) - 1
            counts.append(self.upto[ends] - self.below[starts])
        if not counts:
            return []
        shares = np.minimum(np.concatenate(counts) / self.n, 1.0)
        limits = chernoff_upper(shares, self.exponent / self.n)
        return np.split(limits, np.cumsum([len(each) for each in counts])[:-1])

    def fill_atoms(self, values: Floats, at: Floats, single: Flags) -> float:
        """Return the same for intervals of which some hold one score only, if that is less (lemma 9).

        Parameters
        ----------
        values
            a_b ≥ 0, float64[B], which hold anywhere in an interval.
        at
            float64[B]: for single intervals, values that hold at the score.
        single
            bool[B], whether all scores in an interval are one.
        """
        whole = self.fill(values)
        if not single.any():
            return whole
        # At each edge lies one interval without scores, if there is a single score on both of its sides.
        padded = np.concatenate(([0.0], np.where(single, values, 0.0), [0.0]))
        gap = float(chernoff_upper(0.0, self.exponent / self.n))
        gaps = gap * float(np.maximum(padded[:-1], padded[1:]).sum())
        return min(whole, self.fill(np.where(single, at, values)) + gaps)


def _rate_limits(positives: int, labels: int, exponent: float) -> tuple[float, float]:
    """Return the ends of all p with labels · kl(positives/labels, p) ≤ exponent; (0, 1) without labels."""
    if labels == 0:
        return 0.0, 1.0
    rate = positives / labels
    misses_limit, limit = chernoff_upper([1.0 - rate, rate], exponent / labels).tolist()
    return 1.0 - misses_limit, limit


def _xlogy(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.where(x > 0, x * np.log(np.where(x > 0, y, 1.0)), 0.0))


def _nearest_half(lower: npt.ArrayLike, upper: npt.ArrayLike) -> Floats:
    return np.asarray(np.clip(0.5, lower, upper), dtype=np.float64)
