"""The theorems against numbers worked out by hand, the inequalities against exact laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog
from scipy.special import entr
from scipy.stats import binom

from streamcal.certificates.inequalities import (
    Masses,
    bennett_factor,
    chernoff_upper,
    kearns_saul,
    prior_limits,
)
from streamcal.certificates.target import LabelCounts
from streamcal.certificates.theorems import theorem1, theorem2

# by hand: ⌊n/B⌋, log(4B/δ), then (√(log/(2(⌊n/B⌋−1))) + 1/⌊n/B⌋)², and the premise 2420 B log(2B/δ)
WORKED = [
    (1_000, 10, 0.1, None, 0.0338390, 0.2, 128_219.0),
    (100_000, 46, 0.05, 2.0, 0.00193035, 0.0151229, 836_851.0),
    (10_000_000, 200, 0.01, 0.5, 0.000113325, 5e-5, 5_128_771.0),
]


@pytest.mark.parametrize(("n", "bins", "delta", "k", "calibration", "sharpness", "required"), WORKED)
def test_theorem1_by_hand(n, bins, delta, k, calibration, sharpness, required) -> None:
    bound = theorem1(n, bins, delta, k)
    assert bound.calibration == pytest.approx(calibration, rel=2e-5)
    assert bound.sharpness == pytest.approx(sharpness, rel=1e-5)
    assert bound.risk == bound.calibration + bound.sharpness
    assert bound.premises[0].required == pytest.approx(required, rel=1e-4)
    assert bound.met == (n >= required)


def test_theorem2_by_hand() -> None:
    # P = D(0.5), Q = D(0.1): w = (1.8, 0.2), 2 w_max³/w_min² = 2·5.832/0.04 = 291.6.
    # log(80·20) = log 1600 = 7.377759: (√(7.377759/998) + 0.002)² = (0.0859798 + 0.002)² = 0.00774045;
    # 8/400 = 0.02; 54 max(1/5000, 1/100) log 160 = 0.54·5.075174 = 2.740594.
    bound = theorem2(10_000, 1_000, 20, 0.1, 1.0, 0.5, 0.1)
    assert bound.risk == pytest.approx(291.6 * (0.00774045 + 0.02) + 2.740594, rel=1e-5)
    assert bound.premises[0].required == pytest.approx(2420 * 20 * math.log(800), rel=1e-9)
    assert bound.premises[1].required == pytest.approx(270 * math.log(160), rel=1e-9)
    assert [premise.met for premise in bound.premises] == [False, False]
    # without K: 2/B = 0.1
    assert theorem2(10_000, 1_000, 20, 0.1, None, 0.5, 0.1).sharpness == pytest.approx(29.16)


@given(st.floats(0, 1), st.floats(1e-6, 50))
def test_chernoff_limits_are_outside_the_exact_ones_and_close(rate: float, exponent: float) -> None:
    upper = float(chernoff_upper(rate, exponent))
    assert rate <= upper <= 1
    if 1e-9 < rate < 1 - 1e-9:

        def excess(mu: float) -> float:
            return rate * math.log(rate / mu) + (1 - rate) * math.log((1 - rate) / (1 - mu)) - exponent

        if excess(1 - 1e-15) < 0:
            return
        exact = brentq(excess, rate, 1 - 1e-15, xtol=1e-15, rtol=1e-14)
        assert exact - 1e-13 <= upper <= exact + 0.02 * (exact - rate) + 1e-8


@pytest.mark.parametrize("mu", [1e-6, 0.2, 0.999])
def test_proxies_bound_the_log_moments(mu: float) -> None:
    theta = np.linspace(-30, 30, 2001)
    exact = np.logaddexp(math.log1p(-mu) - mu * theta, math.log(mu) + (1 - mu) * theta)
    assert (exact <= float(kearns_saul(mu)) * theta**2 / 2 + 1e-12).all()
    local = mu * (1 - mu) * bennett_factor(np.abs(theta)) * theta**2 / 2
    assert (exact <= local + 1e-12).all()
    assert (exact > 0.97 * float(kearns_saul(mu)) * theta**2 / 2)[np.abs(theta) > 1e-3].any() or mu < 1e-4


@pytest.mark.parametrize("prior", [0.5, 0.01])
@pytest.mark.statistical
def test_prior_limits_hold_at_all_times_together(prior: float) -> None:
    """1,000 streams of 3,000 labels at α = 0.1: more than 10 % fail with probability below 1e-6."""
    rng = np.random.default_rng(6)
    times = np.unique(np.geomspace(1, 3000, 60).astype(int))
    hits = np.cumsum(rng.random((1000, 3000)) < prior, axis=1)[:, times - 1]
    failed = np.zeros(1000, bool)
    naive = np.zeros(1000, bool)
    for column, n in enumerate(times):
        table = np.array([prior_limits(s, int(n), 0.1) for s in range(int(hits[:, column].max()) + 1)])
        limits = table[hits[:, column]]
        failed |= (prior < limits[:, 0]) | (prior > limits[:, 1])
        tails = binom.cdf(hits[:, column], n, prior), binom.sf(hits[:, column] - 1, n, prior)
        naive |= np.minimum(*tails) < 0.05  # fixed-time limits, looked at again and again
    assert failed.mean() <= 0.1
    assert naive.mean() > 0.1


@pytest.mark.slow
def test_limits_on_the_prior_of_a_window_hold_in_every_window_of_a_life() -> None:
    """200 lives of 2·10⁶ labels, a window of 512 that slides by 32, and what an engine pays: 0.5 %.

    Were the limits to miss in 0.5 % of lives, more than 6 would with probability below 1e-4. Limits over all
    prefixes of a stream, which windows are not, miss in half of the lives.
    """
    rng, alpha, panes = np.random.default_rng(15), 0.005, 16
    missed = prefix = 0
    for prior in np.repeat([0.5, 0.1], 100):
        sums = np.cumsum(rng.binomial(32, prior, 62_500 + panes))
        hits = sums[panes:] - sums[:-panes]
        rate = hits / (32 * panes)
        versions = np.arange(len(hits)) + panes
        kl = entr(rate) + entr(1 - rate) + rate * np.log(prior) + (1 - rate) * np.log1p(-prior)
        far = np.argsort(32 * panes * kl + 2 * np.log(versions))[:20]  # those that miss first
        limits = [LabelCounts(int(hits[i]), 32 * panes, int(versions[i])).prior_limits(alpha) for i in far]
        missed += any(not low <= prior <= high for low, high in limits)
        worst = int(hits[np.argmin(kl)])
        low, high = prior_limits(worst, 32 * panes, alpha)
        prefix += not low <= prior <= high
    print(f"lives that miss: {missed / 200}, by limits over prefixes {prefix / 200}")
    assert missed <= 6
    assert prefix > 60


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0.0, 1.0)), min_size=1, max_size=21))
def test_fill_is_the_largest_sum_that_the_limits_on_bins_and_their_dyadic_unions_allow(bins) -> None:
    counts, values = np.array([each[0] for each in bins]), np.array([each[1] for each in bins])
    size, n, exponent = len(bins), max(1, int(counts.sum())), 2.0
    upto = np.cumsum(counts)
    caps = chernoff_upper(counts / n, exponent / n)
    rows, limits = [], []
    for width in (1, 2, 4, 8, 16, 32):
        for start in range(0, size, width):
            inside = (np.arange(size) >= start) & (np.arange(size) < start + width)
            rows.append(inside.astype(float))
            limits.append(float(chernoff_upper(counts[inside].sum() / n, exponent / n)))
    best = -linprog(-values, A_ub=np.array(rows), b_ub=limits).fun
    assert Masses(caps, upto - counts, upto, n, exponent).fill(values) == pytest.approx(best, abs=1e-6)
