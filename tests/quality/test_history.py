"""Forecasts over time: as by definition, the same however labels come, and kept; delays of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from streamcal.quality.history import LIMITS, MOST_WINDOWS, WIDTH, History
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
    history = in_parts((forecasts, labels, times), ())
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


@pytest.mark.parametrize("cuts", [[1, 2, WIDTH - 1], range(700, COUNT, 700)])
def test_it_does_not_depend_on_how_labels_come_in_parts(cuts: Sequence[int]) -> None:
    """Nor on whether it was stored between them: equal to the last bit."""
    columns = drawn(COUNT)
    whole, parts = in_parts(columns, ()), in_parts(columns, cuts)
    assert encoded(parts, json=True) == encoded(whole, json=True)
