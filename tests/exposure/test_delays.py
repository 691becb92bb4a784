"""The distribution of the delay, under truncation."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.exposure.delays import BINS, EDGES, LEAST, PANES, bins_of, fit_delays, within_pane

AGES = np.arange(PANES + 1)
KNOTS = np.concatenate(([0.0], EDGES))


def counted(delays: np.ndarray, ages: np.ndarray, bands: np.ndarray | None = None) -> np.ndarray:
    """Count the delays that are told at these ages, int64[65, g, BINS]; an age of k is one of pane k."""
    bands = np.zeros(len(delays), int) if bands is None else bands
    told = delays <= ages
    counts = np.zeros((PANES + 1, int(bands.max()) + 1, BINS), np.int64)
    np.add.at(counts, (np.minimum(ages[told].astype(int), PANES), bands[told], bins_of(delays[told])), 1)
    return counts


def drawn(rng: np.random.Generator, n: int, mean: float) -> np.ndarray:
    """Draw exponential delays that are at most `PANES`."""
    delays = rng.exponential(mean, 3 * n)
    return delays[delays <= PANES][:n]


def truth(mean: float) -> np.ndarray:
    """Return their distribution at the knots."""
    return np.expm1(-KNOTS / mean) / np.expm1(-PANES / mean)


def test_is_the_product_limit_of_its_definition() -> None:
    """Each step compares the positives at one delay with those at risk: not longer, and old enough to
    tell."""
    rng = np.random.default_rng(1)
    delays, ages = drawn(rng, 4000, 20.0), rng.uniform(0.0, 120.0, 4000)
    fitted = fit_delays(counted(delays, ages), AGES)
    whole, told = np.minimum(np.floor(ages), PANES), delays <= ages
    within, expected = 1.0, [1.0]
    for b in range(BINS - 1, 0, -1):
        complete = told & (whole >= EDGES[b])
        risk = (complete & (delays <= EDGES[b])).sum()
        within *= 1.0 - (complete & (delays <= EDGES[b]) & (delays > EDGES[b - 1])).sum() / max(risk, 1)
        expected.append(within)
    np.testing.assert_allclose(fitted.within[0, 1:], expected[::-1], atol=1e-12)
    assert fitted.known == 1.0
    assert fitted.within[0, 0] == 0.0


@pytest.mark.statistical
def test_truncation_leaves_no_bias() -> None:
    """The largest error of 20,000 delays is within what chance gives to all but 1 of 10⁶.

    Young predictions tell short delays only, and most are young here. Dvoretzky, Kiefer and Wolfowitz bound
    the error of m untruncated delays by √(ln(2·10⁶) / 2m); 4,000 are told of the oldest pane, and fewer
    mislead less there. Counted without regard to truncation, the error is above 0.1.
    """
    rng = np.random.default_rng(2)
    delays = drawn(rng, 20_000, 25.0)
    ages = np.where(rng.random(20_000) < 0.2, 70.0, rng.uniform(0.0, 60.0, 20_000))
    counts = counted(delays, ages)
    within = fit_delays(counts, AGES).within[0]
    bound = (np.log(2e6) / (2.0 * 4000)) ** 0.5
    assert np.abs(within - truth(25.0)).max() < bound
    naive = counts.sum(axis=(0, 1)).cumsum() / counts.sum()
    assert np.abs(naive - truth(25.0)[1:]).max() > 0.1 > bound


def test_says_what_it_does_not_know() -> None:
    """Delays longer than any age are extrapolated; with few positives all are."""
    rng = np.random.default_rng(3)
    nothing = fit_delays(np.zeros((PANES + 1, 1, BINS), np.int64), AGES)
    assert nothing.known == 0.0
    np.testing.assert_allclose(nothing.within[0], KNOTS / PANES)
    few = counted(drawn(rng, LEAST - 1, 5.0), np.full(LEAST - 1, 70.0))
    assert fit_delays(few, AGES).known == 0.0
    shares = []
    for oldest in (4, 16, 63):
        young = counted(drawn(rng, 50_000, 10.0), rng.uniform(0.0, oldest + 1, 50_000))
        fitted = fit_delays(young, AGES)
        assert (np.diff(fitted.within[0]) >= 0.0).all()
        assert fitted.within[0, -1] == pytest.approx(1.0)
        # Where the density falls, too much is put beyond.
        assert fitted.known <= np.interp(oldest, KNOTS, truth(10.0)) + 0.01
        shares.append(fitted.known)
    assert shares == sorted(shares)


def test_a_band_differs_only_where_the_data_say_so() -> None:
    """Bands alike share one distribution; a band with longer delays gets its own."""
    rng = np.random.default_rng(4)
    bands = rng.integers(0, 3, 30_000)
    ages = rng.uniform(0.0, 130.0, 30_000)
    alike = fit_delays(counted(drawn(rng, 30_000, 15.0), ages, bands), AGES).within
    np.testing.assert_array_equal(alike[0], alike[1])
    delays = np.where(bands == 2, drawn(rng, 30_000, 30.0), drawn(rng, 30_000, 10.0))
    apart = fit_delays(counted(delays, ages, bands), AGES).within
    assert np.abs(apart[2] - truth(30.0)).max() < 0.03
    assert np.abs(apart[0] - truth(10.0)).max() < 0.03


def test_the_mean_over_a_pane_is_that_of_straight_lines() -> None:
    """F is taken to be straight between the edges of bins."""
    within = truth(20.0)[np.newaxis]
    fine = np.interp(np.arange(0.0, PANES + 1e-9, 1.0 / 4096.0), KNOTS, within[0])
    expected = [(fine[k * 4096 : (k + 1) * 4096 + 1]).mean() for k in range(PANES)]
    np.testing.assert_allclose(within_pane(within)[0], expected, atol=1e-5)
