"""The distribution of the delay, under truncation."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.delayed.delays import BINS, LEAST, PANES, fit_delays, paces_of


def counted(delays: np.ndarray, ages: np.ndarray, bands: np.ndarray | None = None) -> np.ndarray:
    """Count the delays that are told at these ages, in panes, int64[128, g, BINS]."""
    bands = np.zeros(len(delays), int) if bands is None else bands
    told, panes = delays <= ages, ages.astype(int)
    counts = np.zeros((2 * PANES, int(bands.max()) + 1, BINS), np.int64)
    after = panes - np.floor(ages - delays).astype(int)
    np.add.at(counts, (panes[told], bands[told], np.minimum(after, PANES)[told]), 1)
    return counts


def drawn(rng: np.random.Generator, n: int, mean: float) -> np.ndarray:
    """Draw exponential delays that are at most `PANES`."""
    delays = rng.exponential(mean, 3 * n)
    return delays[delays <= PANES][:n]


def truth(mean: float) -> np.ndarray:
    """Return the share told after at most 0 to `PANES` panes, over all places of a prediction in its pane."""
    fine = np.minimum(np.arange(BINS)[:, np.newaxis] + (np.arange(1000) + 0.5) / 1000.0, PANES)
    return (np.expm1(-fine / mean) / np.expm1(-PANES / mean)).mean(axis=1)


def test_is_the_product_limit_of_its_definition() -> None:
    """Each step compares the positives at one delay with those at risk: not longer, and old enough to
    tell."""
    rng = np.random.default_rng(1)
    delays, ages = drawn(rng, 4000, 20.0), rng.uniform(0.0, 120.0, 4000)
    fitted = fit_delays(counted(delays, ages))
    panes, told = np.floor(ages), delays <= ages
    after = np.minimum(panes - np.floor(ages - delays), PANES)
    within, expected = 1.0, [1.0]
    for b in range(PANES, 0, -1):
        complete = told & (panes >= b)
        within *= 1.0 - (complete & (after == b)).sum() / max((complete & (after <= b)).sum(), 1)
        expected.append(within)
    for row in fitted.within:
        np.testing.assert_allclose(row, expected[::-1], atol=1e-12)
    assert fitted.known == 1.0


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
    within = fit_delays(counts).within[0]
    bound = (np.log(2e6) / (2.0 * 4000)) ** 0.5
    assert np.abs(within - truth(25.0)).max() < bound
    naive = counts.sum(axis=(0, 1)).cumsum() / counts.sum()
    assert np.abs(naive - truth(25.0)).max() > 0.1 > bound


def test_says_what_it_does_not_know() -> None:
    """Delays longer than any age are extrapolated; with few positives all are."""
    rng = np.random.default_rng(3)
    nothing = fit_delays(np.zeros((2 * PANES, 1, BINS), np.int64))
    assert nothing.known == 0.0
    np.testing.assert_allclose(nothing.within[0], np.arange(1.0, BINS + 1.0) / BINS)
    few = counted(drawn(rng, LEAST - 1, 5.0), np.full(LEAST - 1, 70.0))
    assert fit_delays(few).known == 0.0
    shares = []
    for oldest in (4, 16, 63):
        young = counted(drawn(rng, 50_000, 10.0), rng.uniform(0.0, oldest + 1, 50_000))
        fitted = fit_delays(young)
        assert (np.diff(fitted.within[0]) >= 0.0).all()
        assert fitted.within[0, -1] == pytest.approx(1.0)
        # Where the density falls, too much is put beyond.
        assert fitted.known <= truth(10.0)[oldest] + 0.01
        shares.append(fitted.known)
    assert shares == sorted(shares)


def test_a_band_differs_only_where_the_data_say_so() -> None:
    """Bands alike share one distribution; a band with longer delays gets its own."""
    rng = np.random.default_rng(4)
    bands = rng.integers(0, 3, 30_000)
    ages = rng.uniform(0.0, 128.0, 30_000)
    alike = fit_delays(counted(drawn(rng, 30_000, 15.0), ages, bands)).within
    np.testing.assert_array_equal(alike[1], alike[2])
    delays = np.where(bands == 2, drawn(rng, 30_000, 30.0), drawn(rng, 30_000, 10.0))
    apart = fit_delays(counted(delays, ages, bands)).within
    assert np.abs(apart[3] - truth(30.0)).max() < 0.03
    assert np.abs(apart[1] - truth(10.0)).max() < 0.03


def test_a_pace_shortens_delays() -> None:
    """At 2^1.5 times the pace, the mean of exponential delays is so many times less."""
    ratios = paces_of(truth(12.0))
    own = np.diff(truth(12.0)[:PANES], prepend=0.0)
    faster = np.diff(truth(12.0 / 2.0**1.5)[:PANES], prepend=0.0)
    np.testing.assert_allclose(ratios[12], 1.0)
    np.testing.assert_allclose((ratios[18] * own).cumsum(), faster.cumsum(), atol=0.02)
