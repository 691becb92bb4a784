"""Coverage of the intervals of means of squares."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, ncx2

from streamcal.quality import evaluate as module
from streamcal.quality import intervals
from streamcal.quality.evaluate import evaluate
from streamcal.values import Floats, Labels
from tests.nightly import one_in

TIMES = 1000
MOST = 80
"""Misses of an interval that covers 95 %: more come with probability 1e-5."""

Draw = Callable[[np.random.Generator], tuple[Labels, Floats]]


def tied(forecasts: list[float], rates: list[float], n: int) -> tuple[Draw, float, float]:
    """Return what draws labels and forecasts of four values, their squared error and discrimination."""
    p, t = np.array(forecasts), np.array(rates)

    def draw(rng: np.random.Generator) -> tuple[Labels, Floats]:
        at = rng.integers(0, len(p), n)
        return (rng.random(n) < t[at]).astype(np.int8), p[at]

    return draw, float(np.mean((p - t) ** 2)), float(t.var())


def rare(n: int) -> tuple[Draw, float, float]:
    """Return what draws calibrated forecasts of a label that is 1 once in 40."""

    def draw(rng: np.random.Generator) -> tuple[Labels, Floats]:
        p = rng.beta(1.0, 39.0, n)
        return (rng.random(n) < p).astype(np.int8), p

    return draw, 0.0, 39.0 / (40.0**2 * 41.0)


SETTINGS = {
    "tied": tied([0.1, 0.3, 0.5, 0.8], [0.15, 0.25, 0.6, 0.7], 1000),
    "tied, rare": tied([0.005, 0.01, 0.03, 0.1], [0.005, 0.02, 0.03, 0.06], 1000),
    "300 rare labels": rare(300),
}


def misses(setting: str) -> tuple[int, int]:
    """Return how often the intervals of squared calibration error and of discrimination miss the truth."""
    draw, squared, discrimination = SETTINGS[setting]
    rng, counts = np.random.default_rng(12), [0, 0]
    for _ in range(TIMES):
        found = evaluate(*draw(rng))
        low, high = found.squared_calibration_error_low, found.squared_calibration_error_high
        counts[0] += not low <= squared <= high
        counts[1] += not found.discrimination_low <= discrimination <= found.discrimination_high
    return counts[0], counts[1]


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("setting", one_in(2, SETTINGS))
def test_intervals_cover_where_forecasts_are_tied_and_labels_rare(setting: str) -> None:
    """Of 1,000 intervals, more than 80 miss with probability 1e-5 each, where they cover 95 %."""
    found = misses(setting)
    print(found)
    assert max(found) <= MOST


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.statistical
def test_standard_errors_do_not_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """As these intervals were before: ± 1.96 errors, of discrimination by its linear part."""

    def symmetric(law: Any, estimate: float, most: float) -> tuple[float, float]:
        law = law._replace(noise=(0.0, 0.0)) if isinstance(law, intervals.Discrimination) else law
        half = module.Z95 * math.sqrt(law.cumulants(max(estimate, 0.0))[0])
        return max(estimate - half, 0.0), min(max(estimate + half, 0.0), most)

    monkeypatch.setattr(module, "interval", symmetric)
    assert misses("tied, rare")[0] > MOST
    assert misses("300 rare labels")[1] > MOST


class Even:
    """Law of the mean of k squared standard normal values, less 1, shifted so that θ is their mean square."""

    def __init__(self, k: int) -> None:
        self.k = k

    def cumulants(self, theta: float) -> tuple[float, float]:
        k, lam = self.k, self.k * theta
        return 2.0 * (k + 2.0 * lam) / k**2, 8.0 * (k + 3.0 * lam) / k**3


@pytest.mark.parametrize("estimate", [0.1, 5.0])
def test_where_all_bins_are_alike_it_is_the_interval_of_a_noncentral_chi_square(estimate: float) -> None:
    low, high = intervals.interval(Even(4), estimate, 100.0)
    value = 4 * (estimate + 1.0)
    assert ncx2.cdf(value, 4, 4 * high) == pytest.approx(0.025, abs=0.004)
    if low:
        assert ncx2.sf(value, 4, 4 * low) == pytest.approx(0.025, abs=0.004)
    else:
        assert chi2.sf(value, 4) > 0.02
