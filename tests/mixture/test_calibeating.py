"""Calibeating: the mean excess of labels at ten knots, shrunk, interpolated and added."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.mixture.calibeating import Calibeating


def test_by_hand() -> None:
    calibeating = Calibeating()
    asked = np.array([0.0, 0.05, 0.25, 0.28, 0.3, 0.35, 0.5, 1.0])
    assert np.array_equal(calibeating.correct(asked), asked)
    # 1,000 labels 1 at a knot, in excess by 750, and as many that would confirm: half of .75 is added.
    calibeating.learn(np.full(1000, 0.25), np.ones(1000, np.int8))
    assert calibeating.correct(np.array([0.25]))[0] == pytest.approx(0.625)
    # Between knots a correction is interpolated, and beyond the next one there is none.
    assert calibeating.correct(np.array([0.28]))[0] == pytest.approx(0.28 + 0.7 * 0.375)
    assert calibeating.correct(np.array([0.35, 0.5, 1.0])) == pytest.approx([0.35, 0.5, 1.0])
    # A label between two knots counts for both in proportion; those beyond the last knot for it alone.
    calibeating = Calibeating()
    calibeating.learn(np.array([0.28, 0.99, 0.0]), np.array([1, 0, 1], np.int8))
    excess, labels = np.split(calibeating.to_state(), 2)
    assert excess == pytest.approx([1.0, 0, 0.7 * 0.72, 0.3 * 0.72, 0, 0, 0, 0, 0, -0.99])
    assert labels == pytest.approx([1.0, 0, 0.7, 0.3, 0, 0, 0, 0, 0, 1.0])


def test_it_mends_forecasts_that_are_off() -> None:
    """Too low by .05 in the middle; over 1,000 other seeds, 20,000 labels left .012 of it in the mean, with a
    standard deviation of .0025, and .0196 at most: a false alarm has a chance below 1e-3."""
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.2, 0.8, 20_000)
    calibeating = Calibeating()
    calibeating.learn(truth - 0.05, (rng.random(20_000) < truth).astype(np.int8))
    asked = np.linspace(0.2, 0.7, 20)
    assert np.abs(calibeating.correct(asked) - asked - 0.05).mean() < 0.0225


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("n", [0, 1, 30, 100_000])
def test_no_forecast_comes_too_near_to_the_ends_unless_it_was_there(n: int, label: int) -> None:
    rng = np.random.default_rng(n)
    calibeating, asked = Calibeating(), np.concatenate(([0.0, 1.0, 1e-9], rng.random(500)))
    calibeating.learn(rng.random(n), np.full(n, label, np.int8))
    corrected, nearest = calibeating.correct(asked), 0.5 / (n + 1)
    assert (corrected >= np.minimum(asked, nearest) - 1e-12).all()
    assert (corrected <= np.maximum(asked, 1.0 - nearest) + 1e-12).all()
    if n > 1000:  # and it is the limit that holds some of them back
        assert np.isclose(np.minimum(corrected, 1.0 - corrected), nearest, rtol=1e-6, atol=0.0).sum() > 10


def test_merging_adds_and_the_state_is_all_there_is() -> None:
    rng = np.random.default_rng(2)
    forecasts, labels = rng.random(900), rng.integers(0, 2, 900).astype(np.int8)
    whole, one, other = Calibeating(), Calibeating(), Calibeating()
    whole.learn(forecasts, labels)
    one.learn(forecasts[:300], labels[:300])
    other.learn(forecasts[300:], labels[300:])
    state = other.to_state()
    one.merge(other)
    assert np.array_equal(other.to_state(), state)
    assert one.to_state() == pytest.approx(whole.to_state(), rel=1e-9)
    again = Calibeating()
    assert again.restore(one.to_state())
    assert np.array_equal(again.correct(forecasts), one.correct(forecasts))
    for place, value in ((0, 1e3), (10, -1.0)):
        bad = state.copy()
        bad[place] = value
        assert not Calibeating().restore(bad)
