"""How long labels took: quantiles, the trend of positives against a reference, and no false alarms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

from streamcal.quality.class_delays import PANES, ClassDelays
from streamcal.quality.delays import Delays

Values = np.ndarray[Any, Any]


def counted(delays: Values, labels: Values, parts: int = 1, times: Values | None = None) -> Delays:
    """Count labels of predictions that were all made at once, or at given times, and one long after."""
    made, at = Delays(), np.zeros(len(delays)) if times is None else times
    for some, theirs, when in zip(
        *(np.array_split(each, parts) for each in (delays, labels, at)), strict=True
    ):
        made.add(some, theirs.astype(np.int8), np.full(len(some), 0.3), when)
        made = Delays(made.counts, made.by_class)
    if len(delays):
        made.by_class.latest = 1e15
    return made


def test_quantiles_are_exact_to_a_bin_however_labels_come_in_parts() -> None:
    rng = np.random.default_rng(4)
    given, labels = np.exp(rng.normal(8.0, 2.0, 20_000)), rng.random(20_000) < 0.2
    times = 7.0 * np.arange(20_001.0)
    whole = counted(np.append(given, np.nan), np.append(labels, 1), 1, times)
    parts = counted(np.append(given, np.nan), np.append(labels, 1), 7, times)
    assert whole.labels == 20_000
    for share in (0.1, 0.5, 0.9):
        assert whole.quantile(share) == pytest.approx(np.quantile(given, share), rel=0.15)
    assert (parts.counts, parts.by_class) == (whole.counts, whole.by_class)
    assert len(whole.by_class.panes) <= PANES
    assert sum(cell[1] for pane in whole.by_class.panes.values() for cell in pane.values()) == labels.sum()


def test_delays_of_nothing_and_of_ages_have_their_place() -> None:
    delays = counted(np.array([0.0, -5.0, 1e12]), np.array([0, 1, 0]))
    assert (delays.quantile(0.5), delays.quantile(1.0)) == (1e-3, 1e9)
    damaged = (
        ClassDelays(1, 2.0, {0: {0: (1, 2, 0, 0)}}),
        ClassDelays(3),
        ClassDelays(1, 2.0, {0: {}, 16: {}}),
    )
    for wrong in ([1, 2], None), *((None, each) for each in damaged):
        with pytest.raises(ValueError, match="delays"):
            Delays(*wrong)


def test_the_trend_is_that_of_the_ranks() -> None:
    """Of few delays, so that no bin holds two: z² = (N − 1) r², r the correlation of rank and label."""
    rng = np.random.default_rng(7)
    labels = rng.random(3_000) < 0.3
    delays = 60.0 * 2.0 ** rng.integers(1, 6, 3_000) * np.where(labels, 2.0, 1.0)
    trend = counted(delays, labels).trend
    assert trend is not None
    ranks = rankdata(delays)
    correlation = np.corrcoef(ranks, labels)[0, 1]
    assert trend.z == pytest.approx(np.sqrt(2_999) * correlation)
    assert trend.rate == labels.mean()
    split = max(
        (delay for delay in np.unique(delays)),
        key=lambda delay: -abs((delays <= delay).sum() - 1_500),
    )
    assert trend.sooner == pytest.approx(labels[delays <= split].mean())
    assert trend.later == pytest.approx(labels[delays > split].mean())
    opposite = counted(delays, ~labels).trend
    assert opposite is not None
    assert opposite.z == pytest.approx(-trend.z)


@pytest.mark.parametrize(
    ("delays", "labels"),
    [
        (np.ones(5_000), np.arange(5_000) % 2),  # all at once
        (np.arange(5_000.0), np.zeros(5_000)),
        (np.arange(5_000.0), np.arange(5_000) >= 4_950),  # 50 positives, all of them last
        (np.append(np.ones(9_900), np.full(100, 9.0)), np.append(np.arange(9_900) % 2, np.ones(100))),
        (np.empty(0), np.empty(0)),
    ],
)
def test_of_too_few_nothing_is_said(delays: Values, labels: Values) -> None:
    assert counted(delays, labels).trend is None


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [0.3, 0.02])
def test_independent_streams_raise_no_alarm(rate: float) -> None:
    """400 streams, looked at 60 times each: with a chance of 10⁻⁴ a stream at most, fails once in 25 times.

    That is for the skewest case; over these looks the normal one is 10⁻⁷ a stream. The spread of z at the
    last look is 1 within 4 standard errors (1/√800), which fails once in 16,000 times. A variance that
    forgets the share of the negatives gives 0.84 at a rate of 0.3, and fails here.
    """
    rng = np.random.default_rng(16)
    last = []
    for _ in range(400):
        n = 9_000
        delays, labels = rng.exponential(86_400.0, n), rng.random(n) < rate
        if len(last) % 2:
            delays = np.where(rng.random(n) < 0.9, 30.0, delays)  # most are told at once
        made = Delays()
        for part in range(60):
            some = slice(part * n // 60, (part + 1) * n // 60)
            made.add(delays[some], labels[some].astype(np.int8), np.full(n // 60, rate), np.zeros(n // 60))
            made.by_class.latest = 1e15
            trend = made.trend
            assert trend is None or not trend.is_certain
        if trend is not None:
            last.append(trend.z)
        else:
            last.append(rng.normal())
    assert abs(np.std(last) - 1.0) < 4.0 / np.sqrt(800)
