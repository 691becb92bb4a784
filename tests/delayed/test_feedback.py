"""The counts of predictions and told positives, and the rates that follow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.delayed.delays import BINS, LEAST, PANES, fit_delays, paces_of
from streamcal.delayed.estimate import dispersion, latest_change
from streamcal.delayed.feedback import DelayedFeedback
from tests.delayed.simulation import DAYS, draw, errors, followed
from tests.states import bytes_of, restored

M = 64_000.0

Events = list[tuple[float, float, float | None]]

events = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.9999, 1.0]),
        st.floats(-1e5, 5e5),
        st.one_of(st.none(), st.floats(0.0, 1.2 * M)),
    ),
    max_size=40,
)


def fed(events: Events, start: DelayedFeedback | None = None) -> DelayedFeedback:
    """Return counts that have seen these events: score, time, and the delay of a positive that is
    told."""
    feedback = start or DelayedFeedback(M)
    for score, time, delay in events:
        feedback.predict(score, time)
        if delay is not None:
            feedback.observe_early(score, time, time + delay)
    feedback.count()
    return feedback


@given(events, st.randoms(use_true_random=False), st.integers(0, 40))
def test_counts_are_a_function_of_the_multiset(drawn: Events, random: object, cut: int) -> None:
    """Whatever the order, and whether counted at once or in parts."""
    whole = bytes_of(fed(drawn))
    shuffled = list(drawn)
    random.shuffle(shuffled)
    assert bytes_of(fed(shuffled)) == whole
    resumed = restored(DelayedFeedback(M), bytes_of(fed(drawn[:cut])))
    assert bytes_of(fed(drawn[cut:], resumed)) == whole


def test_a_pane_closes_once_with_the_first_event_after_it() -> None:
    """A prediction and a told positive both move the clock; nothing closes before the first event."""
    feedback, pane = DelayedFeedback(M), M / PANES
    assert not feedback.predict(0.5, 10.5 * pane)
    assert not feedback.predict(0.5, 10.9 * pane)
    assert feedback.observe_early(0.5, 10.5 * pane, 11.0 * pane)
    assert not feedback.predict(0.5, 11.2 * pane)
    assert not feedback.predict(0.5, 3.0 * pane)
    assert feedback.predict(0.5, 5000.0 * pane)


def test_a_positive_after_its_label_is_final_is_none() -> None:
    """It was learned as 0, and counts so here."""
    late, none = fed([(0.5, 0.0, None)]), fed([(0.5, 0.0, None)])
    late.observe_early(0.5, 0.0, 1.01 * M)
    none.predict(0.5, 1.01 * M)
    late.predict(0.5, 1.01 * M)
    assert bytes_of(late) == bytes_of(none)


def test_no_estimate_before_positives_were_told() -> None:
    """Predictions alone tell nothing of the delay."""
    feedback = fed([(0.5, time, None) for time in np.linspace(0.0, 3.0 * M, 500).tolist()])
    assert feedback.estimate() is None
    assert DelayedFeedback(M).estimate() is None


PREDICTED, TOLD, DELAYS, OLDER = range(4)


def told_and_due(rng: np.random.Generator, ratios: np.ndarray, each: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw the told positives of panes with these ratios to the expected ones, of which each pane has so
    many in the end; delays have a mean of 20 panes. Both by pane and delay."""
    due = np.tril(np.tile(each * np.diff(LAW[:PANES], prepend=0.0), (PANES, 1)))
    return rng.poisson(ratios[:, np.newaxis] * due).astype(np.float64), due


LAW = np.expm1(-(np.arange(BINS) + 0.5) / 20.0) / np.expm1(-BINS / 20.0)


def since(rng: np.random.Generator, ratios: np.ndarray) -> int:
    """Return how many panes there are since the change that is found at these ratios."""
    told, due = told_and_due(rng, ratios, 60.0)
    varies = dispersion(told.sum(axis=1), due.sum(axis=1))
    return latest_change(told, due, paces_of(LAW), varies)[0]


@pytest.mark.statistical
def test_finds_a_change_and_none_without() -> None:
    """Of 300 streams without a change at most 3 have one: more has a chance of 2·10⁻⁵.

    At each of 63 splits it is P[χ²₁ > 20] = 8·10⁻⁶, so 0.15 are expected. Days that differ from nights are no
    change; a doubling 32 panes ago is found within three panes of it. Seen to fail without the dispersion.
    """
    rng, ones = np.random.default_rng(5), np.ones(PANES)
    even = np.arange(PANES) % 2 == 0
    assert sum(since(rng, ones) < PANES for _ in range(300)) <= 3
    nights = np.where(even, 1.4, 0.6)
    assert sum(since(rng, nights) < PANES for _ in range(300)) <= 3
    doubled = np.where(np.arange(PANES) < 32, 2.0, 1.0)
    assert all(29 <= since(rng, doubled) <= 35 for _ in range(50))


@pytest.mark.statistical
@pytest.mark.parametrize(
    "kind", ["weekly batches", "10 to 3 days", "3 to 10 days", "backlog told", "all told faster"]
)
def test_a_change_of_telling_is_not_one_of_the_rate(kind: str) -> None:
    """One stream of 48,000, seeded: no change of the rate is found, and nothing is trusted.

    Of twelve streams of 24,000 the likelihood gains 22 nats or more in the mean by a change of telling,
    with a standard deviation of at most a third of the gain; ten are asked for, and here are twice as many
    predictions. Seen to fail when the panes of predictions alone were looked at: trust was near 1.
    """
    estimate = followed(draw(kind, 48_000, 0)).estimate()
    assert estimate.trust == 0.0
    assert estimate.positives[1].sum() > 0.15 * estimate.positives[0].sum()  # of 30 days, not of 15 or fewer


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["constant", "doubled", "by score", "daily batches", "lognormal", "Pareto"])
def test_what_is_told_as_ever_is_trusted(kind: str) -> None:
    """One stream of 24,000, seeded: where the rate alone changes, and whatever the law of the delay.

    Without a change, telling gains 3.7 nats in the mean by chance at most, with a standard deviation of 1.3,
    where more than ten are asked for.
    """
    estimate = followed(draw(kind, 24_000, 0)).estimate()
    assert estimate.trust > 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["constant", "doubled", "by score"])
def test_rates_without_waiting(kind: str) -> None:
    """Two streams of 100,000, seeded; ``python -m benchmarks.delayed`` prints all of 30.

    A constant rate is known nearly as well as by an oracle that has every label at once. After a doubling,
    the error is a fifth of that of waiting and of negative until told, or less: as far as an oracle gets to a
    tenth. Seen to fail with F = 1 for all ages, which is negative until told, and with the delays counted as
    if they were not truncated (that after the doubling only).
    """
    rows = [errors(drawn, followed(drawn)) for drawn in (draw(kind, 100_000, seed) for seed in (0, 1))]
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    if kind == "constant":
        assert mean["exposure, all"] < 1.3 * mean["oracle"]
        assert mean["exposure, all"] < mean["negative until told"] / 1.5
        return
    naive = min(mean["wait"], mean["negative until told"])
    assert mean["Platt map, recent"] < naive / 5.0
    assert mean["exposure, recent"] < naive / 3.0
    assert mean["oracle since the change"] < naive / 5.0


def test_the_whole_stream_is_in_the_estimate() -> None:
    """What is told until the last pane closed, and every prediction, is in the sums of the memory of all."""
    drawn = draw("constant", 20_000, 3)
    estimate = followed(drawn).estimate()
    assert estimate.positives[0].sum() == (drawn.told_at <= DAYS).sum()
    assert 0.85 * 20_000 < estimate.exposures[0].sum() < 20_000
    assert (estimate.exposures[1] <= estimate.exposures[0]).all()


# The distribution of the delay, under truncation


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
