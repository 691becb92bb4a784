"""The figures of forecasts: as by definition, the same however labels come, and kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from streamcal.base.values import Floats, Labels
from streamcal.quality.decomposition import Parts
from streamcal.quality.evaluate import evaluate
from streamcal.quality.figures import ECE_BINS, WINDOW, Figures, ForecastQuality
from streamcal.sketch import grid
from streamcal.sketch.decoding import decoded, encoded

Pairs = list[tuple[float, int]]
FORECASTS = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 1)), min_size=1, max_size=60)
GRAIN = 1e-7  # forecasts are summed in multiples of about half of that


def rated(pairs: Pairs) -> ForecastQuality:
    made = ForecastQuality()
    made.add([forecast for forecast, _ in pairs], [label for _, label in pairs])
    return made


def in_parts(pairs: Pairs, cuts: Sequence[int]) -> ForecastQuality:
    """Rate parts of the pairs, and store and restore what was made between them."""
    made = ForecastQuality()
    for start, end in zip([0, *cuts], [*cuts, len(pairs)], strict=True):
        made.add([forecast for forecast, _ in pairs[start:end]], [label for _, label in pairs[start:end]])
        made = decoded(encoded(made, json=True), ForecastQuality, "it", json=True)
    return made


def drawn(count: int) -> Pairs:
    rng = np.random.default_rng(3)
    forecasts = rng.beta(0.5, 2.0, count)
    labels = (rng.random(count) < forecasts**2).astype(int)
    return list(zip(forecasts.tolist(), labels.tolist(), strict=True))


def equal_mass(forecasts: np.ndarray, bins: int) -> list[np.ndarray]:
    """Return which forecasts are in each bin: an edge at each rank ⌊nb/B⌋, moved to the end of ties."""
    ordered = np.sort(forecasts)
    edges = {0, len(ordered)}
    for b in range(1, bins):
        rank = len(ordered) * b // bins
        ends = [i for i in range(len(ordered) + 1) if i in (0, len(ordered)) or ordered[i - 1] < ordered[i]]
        edges.add(min(ends, key=lambda end: (abs(end - rank), end)))
    ranks = np.argsort(np.argsort(forecasts, kind="stable"))
    cuts = sorted(edges)
    return [(ranks >= low) & (ranks < high) for low, high in pairwise(cuts)]


@given(FORECASTS)
def test_it_is_what_the_definitions_say(pairs: Pairs) -> None:
    forecasts, labels = np.array(pairs).T
    quality = in_parts(pairs, [len(pairs) // 2])
    figures = quality.figures
    assert figures.brier == pytest.approx(np.mean((forecasts - labels) ** 2))
    likelihood = np.maximum(np.where(labels == 1.0, forecasts, 1.0 - forecasts), 1e-15)
    assert figures.log_loss == pytest.approx(np.mean(-np.log(likelihood)))
    cells = grid.cells_of(forecasts, grid.MIN_LEVEL)  # forecasts of one cell are as one
    off = [abs(np.sum((forecasts - labels)[held])) for held in equal_mass(cells, ECE_BINS)]
    assert figures.ece == pytest.approx(sum(off) / len(labels), abs=GRAIN)
    assert figures.gap == pytest.approx(np.mean(forecasts) - np.mean(labels), abs=GRAIN)
    assert (figures.worst_gap, figures.latest_gap) == (None, None)
    assert (quality.labels, quality.positives) == (len(labels), labels.sum())


def test_in_bounded_memory_the_calibration_error_is_nearly_that_of_the_raw_forecasts() -> None:
    forecasts, labels = np.array(drawn(50_000)).T
    quality = rated(list(zip(forecasts.tolist(), labels.astype(int).tolist(), strict=True)))
    by_rank = np.argsort(forecasts)
    off = [abs(part.sum()) for part in np.array_split((forecasts - labels)[by_rank], ECE_BINS)]
    assert quality.figures.ece == pytest.approx(sum(off) / len(labels), abs=1e-3)
    assert len(encoded(quality, json=True)) < 16_384


# Windows


def constant(gap: float, count: int) -> Pairs:
    """Return pairs of the mean gap: every forecast is a half, so many labels are 1."""
    positives = round(count * (0.5 - gap))
    return [(0.5, 1)] * positives + [(0.5, 0)] * (count - positives)


def test_the_worst_window_keeps_its_sign_and_the_latest_is_the_last_full_one() -> None:
    gaps = [0.125, -0.375, 0.25, -0.125]
    pairs = [pair for gap in gaps for pair in constant(gap, WINDOW)] + [(1.0, 0)] * 300
    for cut in (100, WINDOW, 2 * WINDOW + 17, 4 * WINDOW + 200):
        figures = in_parts(pairs, [cut]).figures
        assert (figures.worst_gap, figures.latest_gap) == (-0.375, -0.125)
        assert figures.gap == pytest.approx((WINDOW * sum(gaps) + 300) / len(pairs))


# The rest


def test_the_diagram_has_bins_of_equal_mass_with_exact_means_and_rates() -> None:
    rng = np.random.default_rng(0)
    forecasts = rng.beta(0.5, 20.0, 30_000)  # most below 0.05, where bins of equal width would be one
    labels = (rng.random(30_000) < forecasts / 2).astype(int)
    made = ForecastQuality()
    made.add(forecasts.tolist(), labels.tolist())
    mass, sums, positives = made.bins(10)
    means, rates = sums / mass, positives / mass
    assert len(means) == len(rates) == 10
    by_rank = np.argsort(forecasts)
    assert means == pytest.approx(forecasts[by_rank].reshape(10, -1).mean(axis=1), rel=0.05)
    assert rates == pytest.approx(labels[by_rank].reshape(10, -1).mean(axis=1), abs=0.005)
    assert np.concatenate(made.bins(1)) == pytest.approx([30_000, forecasts.sum(), labels.sum()], rel=1e-6)


# Parts of the Brier score in bounded memory: exact in sum, and those of `evaluate` as nearly as is said


Triples = list[tuple[float, int, float]]
LABELLED = st.lists(
    st.tuples(st.floats(0.0, 1.0), st.integers(0, 1), st.sampled_from([1.0, 1.0, 0.25, 3.5])),
    min_size=1,
    max_size=60,
)


def figures_of(labels: Labels, forecasts: Floats, weights: Floats | None = None) -> Figures:
    quality = ForecastQuality()
    quality.add(forecasts, labels, weights)
    return quality.figures


def parts_of(figures: Figures) -> Parts:
    parts = figures.miscalibration, figures.discrimination, figures.uncertainty
    return Parts(*(np.nan if each is None else each for each in parts))


@given(LABELLED)
def test_the_parts_add_up_and_none_is_negative(triples: Triples) -> None:
    forecasts, labels, weights = np.array(triples).T
    figures = figures_of(labels.astype(np.int8), forecasts, weights)
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
    found, exact = parts_of(figures_of(labels, forecasts)), evaluate(labels, forecasts)
    off = exact.miscalibration - found.miscalibration
    assert abs(off) <= most
    assert exact.discrimination - found.discrimination == pytest.approx(off, abs=1e-9)
    assert found.uncertainty == pytest.approx(exact.uncertainty, abs=1e-12)
