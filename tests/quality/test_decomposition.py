"""Parts of the Brier score in bounded memory: exact in sum, and those of `evaluate` as nearly as is said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from streamcal.quality.decomposition import Parts, decompose
from streamcal.quality.evaluate import evaluate
from streamcal.quality.figures import Figures, ForecastQuality
from streamcal.values import Floats, Labels

GRAIN = 1e-7  # forecasts are summed in multiples of about half of that

Triples = list[tuple[float, int, float]]
LABELLED = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.integers(0, 1), st.sampled_from([1.0, 1.0, 0.25, 3.5])),
    min_size=1,
    max_size=60,
)


def rated(labels: Labels, forecasts: Floats, weights: Floats | None = None) -> Figures:
    quality = ForecastQuality()
    quality.add(forecasts, labels, weights)
    return quality.figures


def parts_of(figures: Figures) -> Parts:
    parts = figures.miscalibration, figures.discrimination, figures.uncertainty
    return Parts(*(np.nan if each is None else each for each in parts))


@given(LABELLED)
def test_the_parts_add_up_and_none_is_negative(triples: Triples) -> None:
    forecasts, labels, weights = np.array(triples).T
    figures = rated(labels.astype(np.int8), forecasts, weights)
    parts = parts_of(figures)
    assert min(parts) >= 0.0
    whole = parts.miscalibration - parts.discrimination + parts.uncertainty
    assert figures.brier == pytest.approx(whole, abs=1e-14)


def test_parts_by_hand() -> None:
    """The first two groups are pooled to a rate of 1/4: they lose 4·3/16 + (1/8)²·4, of which 3/4 stays."""
    labels, forecasts, positives = np.array([2.0, 2.0, 4.0]), np.array([0.5, 0.5, 3.0]), np.array([1.0, 0, 4])
    parts = decompose(0.125, labels, forecasts, positives)
    assert parts == pytest.approx((0.125 - 0.75 / 8, 0.125 - 0.75 / 8 - 0.125 + 15 / 64, 15 / 64), abs=1e-15)


def test_few_forecasts_give_the_parts_of_evaluate() -> None:
    """Each is the only one of its cell. Weights are whole units of 1/256."""
    rng = np.random.default_rng(1)
    forecasts = rng.integers(0, 101, 3000) / 100.0
    labels = (rng.random(3000) < forecasts**2).astype(np.int8)
    weights = rng.integers(1, 2000, 3000) / 256.0
    for each in (None, weights):
        found, exact = rated(labels, forecasts, each), evaluate(labels, forecasts, weights=each)
        wanted = exact.miscalibration, exact.discrimination, exact.uncertainty
        assert parts_of(found) == pytest.approx(wanted, abs=GRAIN)
        assert found.brier == pytest.approx(exact.brier, abs=1e-12)


def draw(which: str, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the probability of label 1, and the forecast."""
    z = rng.normal(-2.0, 1.4, n)
    if which == "calibrated":
        return expit(z), expit(z)
    if which == "too extreme":
        return expit(2.0 * z / 3.0), expit(z)
    if which == "far too extreme":
        return expit(z / 3.0), expit(3.0 * z)
    if which == "rare":
        return expit(z - 5.0), expit(z - 4.0)
    uniform = rng.random(n)
    if which == "squared":
        return uniform**2, uniform
    tails = 10.0 ** rng.uniform(-12.0, 0.0, n)  # one forecast in a hundred makes all cells wide
    forecasts = np.where(rng.random(n) < 0.01, np.where(rng.random(n) < 0.5, tails, 1.0 - tails), uniform)
    return forecasts, forecasts


STREAMS = ["calibrated", "too extreme", "far too extreme", "rare", "squared", "far tails"]


@pytest.mark.parametrize("which", STREAMS)
@pytest.mark.parametrize(("n", "most"), [(1_000, 0.0014), (20_000, 0.0005), (500_000, 0.0001)])
def test_in_bounded_memory_they_are_nearly_those_of_evaluate(which: str, n: int, most: float) -> None:
    """As near as the docstring of `ForecastQuality.figures` says, the largest distances that were measured.

    Without pooling, the rates of 300 cells would take away some 300·0.16/20,000 = 0.0024 at 20,000 labels.
    """
    truth, forecasts = draw(which, n, np.random.default_rng(n))
    labels = (np.random.default_rng(n + 1).random(n) < truth).astype(np.int8)
    found, exact = parts_of(rated(labels, forecasts)), evaluate(labels, forecasts)
    off = exact.miscalibration - found.miscalibration
    assert abs(off) <= most
    assert exact.discrimination - found.discrimination == pytest.approx(off, abs=1e-9)
    assert found.uncertainty == pytest.approx(exact.uncertainty, abs=1e-12)


def test_wide_cells_do_not_hide_miscalibration() -> None:
    """Labels follow the forecasts within a cell; fitted to cells alone, 0.0002 of 0.0003 would be hidden."""
    truth, _ = draw("far tails", 500_000, np.random.default_rng(2))
    forecasts = expit(1.1 * logit(truth))
    labels = (np.random.default_rng(3).random(500_000) < truth).astype(np.int8)
    found, exact = parts_of(rated(labels, forecasts)), evaluate(labels, forecasts)
    assert found.miscalibration == pytest.approx(exact.miscalibration, abs=1e-4)


def test_a_reversed_ranking_discriminates_nothing() -> None:
    forecasts = np.random.default_rng(4).random(50_000)
    labels = (np.random.default_rng(5).random(50_000) < 1.0 - forecasts).astype(np.int8)
    found, exact = parts_of(rated(labels, forecasts)), evaluate(labels, forecasts)
    assert found == pytest.approx((exact.miscalibration, 0.0, exact.uncertainty), abs=1e-12)
