"""Forecasts over time: as by definition, the same however labels come, and kept; delays of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from streamcal.base.values import Floats
from streamcal.quality.delays import Delays
from streamcal.quality.history import LIMITS, MOST_WINDOWS, WIDTH, History
from streamcal.quality.panes import PANES, Panes
from streamcal.quality.sequences import Sequences
from streamcal.sketch.decoding import decoded, encoded

GRAIN = 1e-6  # sums are of multiples of about a tenth of that, and windows are kept in single precision


def drawn(count: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(8)
    scores = rng.beta(0.5, 2.0, count)
    forecasts = np.stack([scores, scores**2])
    labels = (rng.random(count) < scores**2).astype(np.float64)
    times = 1e9 + rng.integers(0, 1000, count) + np.arange(count)
    return forecasts, labels, np.where(rng.random(count) < 0.1, np.nan, times)


def in_parts(columns: tuple[Any, Any, Any], cuts: Sequence[int]) -> History:
    """Add parts, and store and restore what was made between them."""
    made, ends = History(), [*cuts, len(columns[1])]
    for start, end in zip([0, *cuts], ends, strict=True):
        made.add(*(each[..., start:end] for each in columns))
        made = decoded(encoded(made, json=True), History, "it", json=True)
    return made


COUNT = WIDTH * MOST_WINDOWS + 5 * WIDTH + 17  # windows have become wider, and the last is not full


def test_it_is_that_of_the_definition() -> None:
    forecasts, labels, times = drawn(COUNT)
    history = in_parts((forecasts, labels, times), (1, 999, 5 * WIDTH + 3))
    width = 2 * WIDTH
    assert history.width == width
    assert history.ends.tolist() == list(range(width, COUNT + 1, width))
    for number in range(len(history.ends)):
        part = slice(number * width, (number + 1) * width)
        assert history.times[number] == np.nanmax(times[part])
        assert history.rates[number] == pytest.approx(labels[part].mean(), abs=GRAIN)
        for side, curve in enumerate(history.curves):
            given = forecasts[side, part]
            bins = np.searchsorted(LIMITS, given, side="right")
            off = [abs((given - labels[part])[bins == each].sum()) for each in range(len(LIMITS) + 1)]
            expected = (given.mean(), ((given - labels[part]) ** 2).mean(), sum(off) / width)
            assert [column[number] for column in curve] == pytest.approx(expected, abs=GRAIN)
    for side, total in enumerate(history.sides):
        excess = forecasts[side] - labels
        assert total.labels.sum() == COUNT
        assert total.positives.sum() == labels.sum()
        assert total.gap == pytest.approx(excess.mean(), abs=GRAIN)
        assert total.brier == pytest.approx((excess**2).mean(), abs=GRAIN)


# Panes of event time: sums of their labels, however these come in parts, and states


def drawn_of_panes(seed: int, n: int) -> tuple[Floats, Floats, Floats]:
    """Return forecasts, labels and event times of predictions, in the order in which their labels came."""
    rng = np.random.default_rng(seed)
    forecasts, times = rng.random((2, n)), np.cumsum(rng.exponential(20.0, n)) - 1e5
    order = np.argsort(times + rng.exponential(3000.0, n), kind="stable")
    return forecasts[:, order], (rng.random(n) < 0.3).astype(float), times[order]


def filled(seed: int = 0, n: int = 3_000) -> Panes:
    made = Panes()
    columns = drawn_of_panes(seed, n)
    for part in np.array_split(np.arange(n), 7):
        made.add(*(each[..., part] for each in columns))
    return made


def test_matured_panes_have_the_sums_of_their_predictions() -> None:
    (forecasts, labels, times), made = drawn_of_panes(0, 3_000), filled()
    assert len(made.numbers) <= PANES
    assert made.matured(-2e5).labels == 0
    until = float(np.median(times))
    found = made.matured(until)
    end = found.times[-1] + made.width
    assert until - made.width < end <= until
    for start, begin in enumerate(found.times):
        since = (times >= (-np.inf if start == 0 else begin)) & (times < end)
        assert found.labels - found.starts[start] == since.sum()
        alone = Sequences()
        alone.add(forecasts[:, since][:, :256], labels[since][:256], times[since][:256])
        gap = float((forecasts[1, since] - labels[since]).mean())
        assert found.gaps("after").mean[start, 0] == pytest.approx(gap)


# How long labels took


Values = np.ndarray[Any, Any]


def counted(delays: Values, parts: int = 1) -> Delays:
    made = Delays()
    for some in np.array_split(delays, parts):
        made.add(some)
        made = decoded(encoded(made), Delays, "delays")
    return made


def test_quantiles_are_exact_to_a_bin_however_labels_come_in_parts() -> None:
    given = np.exp(np.random.default_rng(4).normal(8.0, 2.0, 20_000))
    whole, parts = (counted(np.append(given, np.nan), count) for count in (1, 7))
    assert whole.labels == 20_000
    for share in (0.1, 0.5, 0.9):
        assert whole.quantile(share) == pytest.approx(np.quantile(given, share), rel=0.15)
    assert parts.counts == whole.counts
