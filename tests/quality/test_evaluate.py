"""Evaluation of forecasts by their labels, on arrays."""

from typing import Any

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss

import streamcal
from streamcal.quality import evaluate as module
from streamcal.quality.evaluate import evaluate
from streamcal.quality.figures import ForecastQuality


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


def test_every_interval_holds_its_estimate_and_the_table_says_what_it_covers() -> None:
    """Also those of useless forecasts, and of calibrated ones, whose debiased estimate is often below 0."""
    rng = np.random.default_rng(10)
    for labels, forecasts in (
        *(draw(400, rng) for _ in range(20)),
        *(draw(400, rng, rate=0.03) for _ in range(20)),
        *((draw(400, rng)[0], np.full(400, 0.2)) for _ in range(5)),
    ):
        found = evaluate(labels, forecasts)
        for name in module._ESTIMATES:
            value, low, high = (getattr(found, f"{name}{end}") for end in ("", "_low", "_high"))
            assert value is None or (low <= value < high), name
    first, *rows = str(found).splitlines()
    assert first.endswith("95 % interval")
    assert {row.split()[0] for row in rows if "[" not in row} == {"miscalibration", "ece", "smece", "ecce"}


def test_the_calibration_error_is_that_of_a_run() -> None:
    labels, forecasts = draw(3000, np.random.default_rng(11), 1.3)
    forecasts = np.round(forecasts, 2)  # cells of the sketch are finer
    run = ForecastQuality()
    run.add(forecasts, labels)
    assert evaluate(labels, forecasts).ece == pytest.approx(run.figures.ece)
