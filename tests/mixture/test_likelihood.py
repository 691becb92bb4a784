"""The likeliest prior given scores: against a general optimiser, in limits, on known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import xlogy

from streamcal.mixture.likelihood import SourceMap, likeliest_prior
from streamcal.sketch import grid
from streamcal.testing import NormalPair

probabilities = st.floats(0.0, 1.0)
Problem = tuple[np.ndarray, np.ndarray, float]


def log_likelihood(q: float, masses: np.ndarray, means: np.ndarray, prior: float) -> float:
    with np.errstate(divide="ignore"):
        density = q * means / prior + (1.0 - q) * (1.0 - means) / (1.0 - prior)
        scores = xlogy(masses, density).sum()
    return float(scores + xlogy(0.5, q) + xlogy(0.5, 1.0 - q))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    bins = draw(st.integers(1, 40))
    means = draw(
        st.lists(st.one_of(probabilities, st.sampled_from([0.0, 0.5, 1.0])), min_size=bins, max_size=bins)
    )
    masses = draw(st.lists(st.integers(0, 10_000), min_size=bins, max_size=bins))
    return np.array(masses), np.array(means), draw(st.floats(1e-6, 1.0 - 1e-6))


@given(problems())
def test_no_other_prior_is_likelier(problem: Problem) -> None:
    found = likeliest_prior(*problem)
    if found is None:
        assert not problem[0].any()
        return
    assert 0.0 < found < 1.0
    best = minimize_scalar(lambda q: -log_likelihood(q, *problem), bounds=(0.0, 1.0), method="bounded")
    here = log_likelihood(found, *problem)
    rivals = [best.x, 0.0, 1.0, *np.linspace(0.01, 0.99, 33)]
    slack = 1e-12 * (1.0 + problem[0].sum() + 0.5)
    assert here >= max(log_likelihood(float(q), *problem) for q in rivals) - slack * max(1.0, abs(here))


@given(problems())
def test_swapping_the_classes_swaps_the_prior(problem: Problem) -> None:
    masses, means, prior = problem
    found = likeliest_prior(*problem)
    swapped = likeliest_prior(masses, 1.0 - means, 1.0 - prior)
    if found is None or swapped is None:
        return
    # 1 − x rounds: so compare how likely the two are, not their values.
    here, there = log_likelihood(found, *problem), log_likelihood(1.0 - swapped, *problem)
    assert here == pytest.approx(there, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("masses", "means", "prior", "expected"),
    [
        ([], [], 0.5, None),
        ([5, 5], [0.5, 0.5], 0.5, 0.5),
        ([10, 30], [0.0, 1.0], 0.5, 30.5 / 41),
        ([10, 30], [0.2, 0.8], 0.0, None),
    ],
)
def test_limits(masses: list[int], means: list[float], prior: float, expected: float | None) -> None:
    found = likeliest_prior(np.array(masses), np.array(means), prior)
    assert found == (expected if expected is None else pytest.approx(expected, abs=1e-15))


@pytest.mark.parametrize("prior", [1e-300, 1.0 - 2.0**-53])
def test_extreme_priors_of_the_source(prior: float) -> None:
    """Half the scores where the odds of h are 9 times those of p, half where they are a ninth: q is ½."""
    odds = np.array([9.0, 1.0 / 9.0]) * prior / (1.0 - prior)
    means = odds / (1.0 + odds)
    found = likeliest_prior(np.array([50, 50]), means, prior)
    if prior > 1e-300 and prior < 0.5:  # beyond that, h itself is rounded
        assert found == pytest.approx(0.5, rel=1e-6)
    assert 0.0 <= found <= 1.0


def test_it_finds_the_prior_of_unlabelled_scores() -> None:
    """With h known: within 4 standard errors of the truth, by the Fisher information; fails once in 4,000."""
    edges = np.concatenate(([0.0], np.linspace(0.001, 0.999, 255), [1.0]))
    source, target = NormalPair(0.3), NormalPair(0.05)
    means = source.optimal(0.5 * (edges[1:] + edges[:-1]).clip(1e-3, 1.0 - 1e-3))
    # The mean of h in each bin, from 4 million scores of the source: its error is small beside the target's.
    scores, labels = source.sample(4_000_000, np.random.default_rng(1))
    totals = np.histogram(scores, edges)[0]
    means = np.histogram(scores[labels == 1], edges)[0] / np.maximum(totals, 1)
    n = 20_000
    masses = np.histogram(target.sample(n, np.random.default_rng(2))[0], edges)[0]
    found = likeliest_prior(masses, means, 0.3)
    density = 0.05 * means / 0.3 + 0.95 * (1.0 - means) / 0.7
    information = float(np.sum(masses * ((means / 0.3 - (1.0 - means) / 0.7) / density) ** 2))
    assert abs(found - 0.05) < 4.0 / math.sqrt(information)


@given(
    st.lists(st.floats(0.001, 0.999), min_size=1, max_size=10, unique=True),
    st.integers(grid.MAX_LEVEL - 6, grid.MAX_LEVEL),
    st.data(),
)
def test_means_of_cells_add_up(inner: list[float], level: int, data: st.DataObject) -> None:
    edges = np.array([0.0, *sorted(inner), 1.0])
    values = np.array(data.draw(st.lists(probabilities, min_size=len(edges) - 1, max_size=len(edges) - 1)))
    cells = np.arange((grid.LAST_KEY >> level) + 1, dtype=np.int32)
    cuts = np.append(grid.left_edges(cells, level), 1.0)
    means = SourceMap(edges, values, 0.5).means(cells, level)
    positions = np.interp(cuts, edges, np.arange(len(edges)))
    assert np.diff(positions) @ means == pytest.approx(values.sum(), abs=1e-6)  # every bin has mass 1
    inside = [
        (value, mean)
        for low, high, mean in zip(cuts[:-1], cuts[1:], means, strict=True)
        for a, b, value in zip(edges[:-1], edges[1:], values, strict=True)
        if a <= low and high <= b
    ]
    assert all(value == mean for value, mean in inside)
