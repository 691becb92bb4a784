"""Parts of the Brier score in bounded memory: exact in sum, and those of `evaluate` as nearly as is said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from streamcal.quality.decomposition import Parts
from streamcal.quality.evaluate import evaluate
from streamcal.quality.figures import Figures, ForecastQuality
from streamcal.values import Floats, Labels

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


STREAMS = ["too extreme", "rare", "far tails"]


@pytest.mark.parametrize("which", STREAMS)
@pytest.mark.parametrize(("n", "most"), [(1_000, 0.0014), (20_000, 0.0005)])
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
