"""Evaluation of forecasts by their labels, on arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, ncx2
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss

import streamcal
from streamcal.base.values import Floats, Labels
from streamcal.quality import evaluate as module
from streamcal.quality import intervals
from streamcal.quality.evaluate import evaluate
from streamcal.quality.smooth import smooth_calibration_error
from tests.nightly import one_in


def draw(n: int, rng: np.random.Generator, slope: float = 1.0, rate: float = 0.2) -> tuple[Any, Any]:
    """Return labels and forecasts; the rate at a forecast p is min(slope p, 1)."""
    forecasts = rng.beta(1.0, 1.0 / rate - 1.0, n)
    return (rng.random(n) < slope * forecasts).astype(np.int8), forecasts


def test_losses_and_decomposition_are_those_of_scikit_learn() -> None:
    labels, forecasts = draw(2000, np.random.default_rng(1), 1.5)
    found = streamcal.evaluate(labels, forecasts)
    fitted = IsotonicRegression().fit(forecasts, labels).predict(forecasts)
    assert found.brier == pytest.approx(brier_score_loss(labels, forecasts), abs=1e-12)
    assert found.log_loss == pytest.approx(log_loss(labels, forecasts), abs=1e-12)
    recalibrated = brier_score_loss(labels, fitted)
    assert found.miscalibration == pytest.approx(found.brier - recalibrated, abs=1e-9)
    assert found.discrimination == pytest.approx(found.uncertainty - recalibrated, abs=1e-9)
    assert found.uncertainty == pytest.approx(labels.mean() * (1.0 - labels.mean()))
    assert found.gap == pytest.approx(forecasts.mean() - labels.mean())
    assert (found.labels, found.positives) == (2000, labels.sum())


def test_values_are_those_of_peers() -> None:
    """They printed: R 4.2's ``isoreg`` (labels 1 first among equal forecasts) and model-diagnostics 1.5.

    They give the decomposition of 1,000 forecasts with ties. MAPIE 1.6 gives Kuiper's statistic times its
    scale, and its p-value, of 1,000 forecasts without ties.
    """
    rng = np.random.default_rng(0)
    forecasts = np.round(rng.beta(1, 4, 1_000), 3)
    found = evaluate((rng.random(1_000) < forecasts**1.3).astype(int), forecasts)
    parts = found.brier, found.miscalibration, found.discrimination, found.uncertainty
    wanted = 0.107439381, 0.006966955122800739, 0.021363574122800724, 0.121836
    assert parts == pytest.approx(wanted, abs=1e-12)
    rng = np.random.default_rng(1)
    forecasts = rng.beta(1, 4, 1_000)
    found = evaluate((rng.random(1_000) < forecasts**1.1).astype(int), forecasts)
    assert found.ecce == pytest.approx(2.1054680840509965 * 0.011541624446424722, rel=1e-6)  # it adds noise
    assert found.ecce_p == pytest.approx(0.14079888227728354, rel=1e-6)


def test_propensities_evaluate_all_predictions_by_the_labels_of_some() -> None:
    """Of 100 intervals of a gap and of a Brier score 90 of each cover at least: 95 do on average.

    Fewer do in 1 of 200 seeds; with a weight for each of 1 instead, none of the gaps is covered.
    """
    covered = {"gap": 0, "brier": 0}
    for seed in range(100):
        rng = np.random.default_rng(seed)
        truth = rng.beta(1.0, 4.0, 3000)
        p, labels = 1.3 * truth, (rng.random(3000) < truth).astype(float)
        chance = np.where(p > 0.4, 0.5, 0.1)
        labels[rng.random(3000) >= chance] = np.nan
        found = evaluate(labels, np.minimum(p, 1.0), propensities=chance)
        for name, value in (("gap", 0.06), ("brier", float((p**2 - 2 * p * truth + truth).mean()))):
            covered[name] += getattr(found, f"{name}_low") <= value <= getattr(found, f"{name}_high")
    assert min(covered.values()) >= 90


def test_propensities_that_are_not_kept_are_told() -> None:
    labels = [None if n % 2 else 1 for n in range(400)]
    with pytest.warns(UserWarning, match="40 of 400 labels should be there, and 200 are"):
        found = evaluate(labels, [0.9] * 400, propensities=[0.1] * 400)
    assert found.labels == 200
    with pytest.raises(ValueError, match=r"index 1: a propensity must be in \(0, 1\], got 0.0"):
        evaluate([1, 0], [0.5, 0.5], propensities=[1.0, 0.0])
    with pytest.raises(ValueError, match="index 1: a segment is missing"):
        evaluate([0, 1], [0.5, 0.5], segments=["NL", None])
    with pytest.raises(ValueError, match="exclude each other"):
        evaluate([1, 0], [0.5, 0.5], propensities=[1.0, 1.0], weights=[1, 1])


def test_weights_undo_a_choice_of_labels() -> None:
    rng = np.random.default_rng(4)
    labels, forecasts = draw(40_000, rng, 1.5)
    chance = np.where(forecasts > 0.2, 0.9, 0.2)
    kept = rng.random(len(labels)) < chance
    whole = evaluate(labels, forecasts)
    some = evaluate(labels[kept], forecasts[kept], weights=1 / chance[kept])
    for name in ("brier", "log_loss", "gap", "squared_calibration_error"):
        assert getattr(some, f"{name}_low") <= getattr(whole, name) <= getattr(some, f"{name}_high")


def test_a_baseline_is_compared_label_by_label() -> None:
    rng = np.random.default_rng(5)
    labels, forecasts = draw(5000, rng)
    found = evaluate(labels, forecasts, baseline=np.minimum(forecasts * 2, 1))
    assert found.baseline is not None
    assert found.brier_gain == pytest.approx(found.baseline.brier - found.brier)
    assert found.brier_gain_low is not None
    assert found.brier_gain_low > 0.0
    assert "brier_gain" in str(found)
    assert "gain" not in str(evaluate(labels, forecasts))


def misses(rate: float, slope: float, n: int, seed: int, times: int = 200) -> dict[str, int]:
    """Return how often an interval misses the truth."""
    rng = np.random.default_rng(seed)
    _, p = draw(400_000, rng, slope, rate)
    t = np.minimum(slope * p, 1.0)
    truths = {
        "brier": np.mean(t * (1 - p) ** 2 + (1 - t) * p**2),
        "log_loss": -np.mean(t * np.log(p) + (1 - t) * np.log1p(-p)),
        "gap": np.mean(p - t),
        "uncertainty": t.mean() * (1 - t.mean()),
        "squared_calibration_error": np.mean((p - t) ** 2),
        "discrimination": t.var(),
    }
    found = dict.fromkeys(truths, 0)
    for _ in range(times):
        each = evaluate(*draw(n, rng, slope, rate))
        for name, truth in truths.items():
            found[name] += not getattr(each, f"{name}_low") <= truth <= getattr(each, f"{name}_high")
    return found


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("rate", "slope", "n"), [(0.2, 1.5, 1000), (0.01, 1.5, 3000)])
def test_intervals_cover(rate: float, slope: float, n: int) -> None:
    """Of 200, 10 should miss; 32 or more do with probability below 1e-8 at 95 %, 2e-3 at 90 %."""
    found = misses(rate, slope, n, 7)
    print(found)
    assert max(found.values()) < 32


@pytest.mark.slow
@pytest.mark.statistical
def test_p_values_of_kuiper_are_uniform_where_forecasts_are_calibrated() -> None:
    """Kolmogorov's distance of 400 is above 0.1 with probability 7e-4; the law of the range is asymptotic."""
    rng = np.random.default_rng(8)
    values = np.sort([evaluate(*draw(3000, rng)).ecce_p for _ in range(400)])
    assert np.abs(values - np.arange(0.5, 400) / 400).max() < 0.1
    assert max(evaluate(*draw(3000, rng, 1.5)).ecce_p for _ in range(20)) < 1e-3


# Coverage of the intervals of means of squares


TIMES = 400
MOST = 40
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


def misses_of_intervals(setting: str) -> tuple[int, int]:
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
    """Of 400 intervals, more than 40 miss with probability 1e-5 each, where they cover 95 %."""
    found = misses_of_intervals(setting)
    print(found)
    assert max(found) <= MOST


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


# Smooth calibration error, against the integral by its definition


POINTS = 1000


def by_definition(forecasts: Floats, residuals: Floats) -> float:
    """Return smECE with the reflected kernel summed at each point, to 1e-4."""
    at = (np.arange(POINTS) + 0.5) / POINTS

    def smoothed(bandwidth: float) -> float:
        found = np.zeros(POINTS)
        for period in range(-3, 4):
            for centres in (2 * period + forecasts, 2 * period - forecasts):
                apart = (at[:, None] - centres) / bandwidth
                found += np.exp(-0.5 * apart**2) @ residuals / (bandwidth * np.sqrt(2.0 * np.pi))
        return float(np.abs(found).mean())

    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2.0
        low, high = (middle, high) if smoothed(middle) > middle else (low, middle)
    return (low + high) / 2.0


def test_it_is_the_integral_of_its_definition() -> None:
    rng = np.random.default_rng(1)
    forecasts = rng.beta(0.3, 0.3, 150)
    residuals = ((rng.random(150) < forecasts**1.3) - forecasts) / 150
    found = smooth_calibration_error(forecasts, residuals)
    assert found == pytest.approx(by_definition(forecasts, residuals), abs=2e-4)


def test_values_are_those_of_relplot() -> None:
    """Its version 1.0.3 printed them, of residuals on a grid of its own."""
    rng = np.random.default_rng(2)
    forecasts = rng.choice([0.1, 0.3, 0.5, 0.8], 3000)
    labels = rng.random(3000) < forecasts**1.2
    assert smooth_calibration_error(forecasts, (labels - forecasts) / 3000) == pytest.approx(
        0.04536042816336418, rel=0.01
    )


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
    assert misses_of_intervals("tied, rare")[0] > MOST
    assert misses_of_intervals("300 rare labels")[1] > MOST
