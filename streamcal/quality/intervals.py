"""Intervals of two means of squares: the squared calibration error, and discrimination.

An estimate of such a mean θ is skewed to the right, and its spread grows with θ, so that ±1.96 standard
errors end too low. Here the interval holds each θ under which an estimate as far out has a probability of
2.5 % or more on either side, as one inverts a noncentral χ². The law under θ is a shifted gamma law with the
first three cumulants of the estimate (Pearson's approximation; Imhof, Biometrika 1961).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np

from streamcal.base.values import Floats

Z95: Final = 1.959963984540054
"""Half width of a 95 % interval in standard errors: the 97.5 % point of the normal distribution."""

_TAIL: Final = 0.025  # probability to miss on each side
_FARTHEST: Final = 1e-12  # from 0 and 1: probabilities beyond are as good as these


class Law(Protocol):
    """Law of an estimate of θ, by θ."""

    @abstractmethod
    def cumulants(self, theta: float) -> tuple[float, float]:
        """Return variance and third cumulant of the estimate."""


def interval(law: Law, estimate: float, most: float) -> tuple[float, float]:
    """Return the ends of the interval of θ in [0, most]; an estimate below 0 counts as 0."""
    from scipy.special import ndtri  # takes a fifth of the time in which the command starts

    estimate = min(max(estimate, 0.0), most)
    wanted = float(ndtri(_TAIL))

    def deviation(root: float) -> float:
        """Return the standard normal value of the probability of a lower estimate under θ = root²."""
        below = _below(estimate - root**2, *law.cumulants(root**2))
        return float(ndtri(min(max(below, _FARTHEST), 1.0 - _FARTHEST)))

    ends = [0.0, math.sqrt(estimate), math.sqrt(most)]
    low = _falling_zero(lambda root: deviation(root) + wanted, *ends[:2])
    return low**2, min(_falling_zero(lambda root: deviation(root) - wanted, *ends[1:]) ** 2, most)


def _falling_zero(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling function is 0; the end nearest to it if nowhere."""
    from scipy.optimize import brentq  # takes a fifth of the time in which the command starts

    if function(low) <= 0.0:
        return low
    return high if function(high) >= 0.0 else float(brentq(function, low, high, xtol=1e-12))


def _below(value: float, variance: float, third: float) -> float:
    """Return the probability of a value below this one, of mean 0 and with these cumulants."""
    from scipy.special import gammainc, gammaincc  # takes a fifth of the time in which the command starts

    if variance <= 0.0:
        return float(value >= 0.0)
    x, skewness = value / math.sqrt(variance), third / variance**1.5
    if abs(skewness) < 1e-3:
        return 0.5 * math.erfc(-x / math.sqrt(2.0))
    shape = 4.0 / skewness**2
    at = max(shape + math.copysign(math.sqrt(shape), skewness) * x, 0.0)
    return float(gammainc(shape, at) if skewness > 0.0 else gammaincc(shape, at))


def rate_intervals(labels: Floats, positives: Floats) -> Floats:
    """Return the ends of the 95 % interval of each rate (Clopper and Pearson), float64[2, n]."""
    from scipy.special import betaincinv  # takes a fifth of the time in which the command starts

    negatives = labels - positives
    low = betaincinv(np.maximum(positives, 1.0), negatives + 1.0, _TAIL)
    high = betaincinv(positives + 1.0, np.maximum(negatives, 1.0), 1.0 - _TAIL)
    return np.array([np.where(positives > 0.0, low, 0.0), np.where(negatives > 0.0, high, 1.0)])


class CalibrationBins(NamedTuple):
    """Law of the squared calibration error over bins, all arrays float64[b].

    Under θ, the differences of the bins are as large, relative to each other, as they were seen, and the
    labels have the variance that goes with the rates: under θ = 0 that of the forecasts.
    """

    share: Floats
    """Part of the weight of the labels; the sum is 1."""
    n: Floats
    """Labels; with weights, as many as would tell as much."""
    forecast: Floats
    spread: Floats
    """Mean of p (1 − p) over the forecasts p."""
    pattern: Floats
    """Difference mean forecast − rate of label 1, scaled to a mean square of 1."""

    def cumulants(self, theta: float) -> tuple[float, float]:
        """Return variance and third cumulant of the estimate."""
        share, n, p, spread, pattern = self
        shift = math.sqrt(theta) * pattern
        rate = np.clip(p - shift, 0.0, 1.0)
        labels = np.maximum(spread - p * (1.0 - p), 0.0) + rate * (1.0 - rate)
        noise, signal = share * labels / n, share * shift**2
        variance = 2.0 * noise**2 * n / (n - 1.0) + 4.0 * noise * signal
        third = 8.0 * noise**3 + 24.0 * noise**2 * signal
        third -= 8.0 * share**3 * shift**3 * labels * (1.0 - 2.0 * rate) / n**2
        drawn = max(float((signal * shift**2).sum()) - theta**2, 0.0) / float(n.sum())
        return float(variance.sum()) + drawn, float(third.sum())


class Discrimination(NamedTuple):
    """Law of discrimination, the variance of the rate of label 1 given the forecast; arrays float64[b]."""

    share: Floats
    """Part of the weight of the labels; the sum is 1."""
    n: float
    """Labels; with weights, as many as would tell as much."""
    rate: float
    pattern: Floats
    """Difference of the rate given the forecast from the mean rate, scaled to a mean square of 1."""
    noise: tuple[float, float]
    """Variance and third cumulant of the squared calibration error, which is a part of the estimate."""

    def cumulants(self, theta: float) -> tuple[float, float]:
        """Return variance and third cumulant of the estimate."""
        shift = math.sqrt(theta) * self.pattern
        rate = np.clip(self.rate + shift, 0.0, 1.0)
        of_zero = self.rate**2 - rate**2 - theta
        of_one = (1.0 - self.rate) ** 2 - (1.0 - rate) ** 2 - theta
        zero, one = self.share * (1.0 - rate), self.share * rate
        mean = float((zero * of_zero + one * of_one).sum())
        of_zero, of_one = of_zero - mean, of_one - mean
        variance = float((zero * of_zero**2 + one * of_one**2).sum()) / self.n
        third = float((zero * of_zero**3 + one * of_one**3).sum()) / self.n**2
        return variance + self.noise[0], third + self.noise[1]


def as_pattern(differences: Floats, share: Floats) -> Floats:
    """Return differences scaled to a mean square of 1; all are 1 where they all are 0."""
    size = math.sqrt(float((share * differences**2).sum()))
    return differences / size if size else np.ones(len(share))
