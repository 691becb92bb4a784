"""The paper's Theorems 1 and 2, evaluated exactly as printed, constants included.

The paper is Sun, Song, Hero, "Minimum-Risk Recalibration of Classifiers"; its symbols are kept. Each theorem
returns its value together with its premises, met or not. If a premise fails, the value is not a guarantee.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

BALANCE_CONSTANT: Final = 2420.0
"""Constant c of Theorems 1 and 2. The paper gives it after its Lemma 3, Lemma 4.3 of Kumar et al."""


Number = Annotated[float, Field(ge=-math.inf)]  # which NaN is not; infinity is "Infinity" in JSON


class Premise(BaseModel):
    """Premise of a theorem: ``available >= required``. The name says what is compared."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str
    required: Number
    available: Number
    met: bool

    @classmethod
    def of(cls, name: str, required: float, available: float) -> Self:
        """Return the premise, and whether it is met."""
        return cls(name=name, required=required, available=available, met=available >= required)


class TheoremBound(NamedTuple):
    """A theorem's value and its premises. The value is infinite where the formula divides by zero.

    ``calibration`` bounds R^cal, ``sharpness`` R^sha, and ``risk`` their sum R. For Theorem 2 the first two
    are the parts of the bound on R_Q that come from calibration and from sharpness.
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
    """Return Theorem 1: bounds that hold together with probability 1 − δ, at one fixed n and B.

    R^cal ≤ (√(log(4B/δ) / (2(⌊n/B⌋ − 1))) + 1/⌊n/B⌋)². R^sha ≤ 8K²/B², or 2/B if K is unknown.

    Parameters
    ----------
    n
        number of labelled scores, at least 1.
    bins
        B, at least 1.
    delta
        δ in (0, 1).
    smoothness
        K of assumption A3 (h* grows by at most K times the mass), or None if it is unknown.

    Raises
    ------
    ValueError
        if n, B or δ is out of range.

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
    premise = Premise.of("n >= c B log(2B/delta), c = 2420", required, float(n))
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
    """Return Theorem 2 in its sample form (eq. 19): a bound on R_Q(ĝ∘ĥ_P) with probability 1 − δ.

    2 w_max³/w_min² {(√(log(8B/δ)/(2(⌊n_P/B⌋−1))) + 1/⌊n_P/B⌋)² + 8K²/B²}
    + 54 max{1/(p_min n_P), 1/(q_min n_Q)} log(16/δ).

    If K is unknown, 2/B replaces 8K²/B²: the last lines of the paper's proof allow that. ``calibration``
    includes the term of the shift.

    Parameters
    ----------
    n_source, n_target
        numbers of labelled scores n_P and n_Q, at least 1 each.
    bins
        B of the source map.
    delta
        δ in (0, 1).
    smoothness
        K, or None if it is unknown.
    source_prior, target_prior
        P[Y=1] and Q[Y=1], each in (0, 1).

    Raises
    ------
    ValueError
        if an argument is out of range.
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
        Premise.of(
            "n_P >= max(c, 27/p_min) B log(4B/delta), c = 2420",
            max(BALANCE_CONSTANT, 27 / p_min) * bins * math.log(4 * bins / delta),
            float(n_source),
        ),
        Premise.of("n_Q >= 27/q_min log(16/delta)", 27 / q_min * math.log(16 / delta), float(n_target)),
    )
    return TheoremBound(calibration, factor * sharpness, calibration + factor * sharpness, premises)


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
