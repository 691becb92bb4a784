"""The picture of a run's reliability: its scale, its points and their intervals, its density."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from streamcal.quality.figures import ECE_BINS, ForecastQuality, Quality
from streamcal.quality.reliability import reliability_figure
from streamcal.values import Floats

pytest.importorskip("matplotlib")


def quality(scores: Floats, rates: Floats, seed: int = 0) -> Quality:
    """Scores whose labels have other rates, and forecasts that are these rates."""
    labels = np.random.default_rng(seed).random(len(scores)) < rates
    found = Quality(before=ForecastQuality(), after=ForecastQuality())
    found.before.add(scores, labels.astype(np.int8))
    found.after.add(rates, labels.astype(np.int8))
    return found


def points(made: Quality) -> tuple[str, tuple[float, float], list[Floats], list[Floats], Floats]:
    """Return the scale, the limits, the points and intervals of both sides, the heights of the density."""
    drawn_axes: list[Any] = reliability_figure(made).axes
    (axes,) = drawn_axes
    (density,) = axes.child_axes
    assert axes.get_xscale() == axes.get_yscale()
    assert axes.get_xlim() == axes.get_ylim() == density.get_xlim()
    drawn = [np.array(each.lines[0].get_xydata()) for each in axes.containers]
    ends = [
        np.array([part.vertices[:, 1] for part in each.lines[2][0].get_paths()]) for each in axes.containers
    ]
    heights = np.array([part.get_data().values.max() for part in density.patches])
    return axes.get_xscale(), axes.get_xlim(), drawn, ends, heights


def test_a_rare_class_is_drawn_in_log_odds_with_every_bin_inside() -> None:
    scores = np.random.default_rng(1).beta(0.5, 20.0, 20_000)
    scale, (low, high), drawn, ends, heights = points(quality(scores, 0.8 * scores))
    assert scale == "logit"
    assert 0.0 < low < 0.001
    assert 0.05 < high < 0.3
    widest = np.ptp(np.log(drawn[0][:, 0])) / np.log(high / low)
    assert widest > 0.8  # not in one corner
    for each in drawn:
        assert len(each) == ECE_BINS
        assert ((each >= low) & (each <= high)).all()
    assert all((part[:, 0] <= each[:, 1]).all() for part, each in zip(ends, drawn, strict=True))
    assert heights.tolist() == [1.0] * 4  # area and outline of both


def test_forecasts_of_all_sizes_are_drawn_as_they_are_with_their_intervals() -> None:
    scores = np.random.default_rng(1).random(1_500)
    made = quality(scores, scores**2)
    scale, (low, high), drawn, ends, _ = points(made)
    assert (scale, low) == ("linear", 0.0)
    assert 0.9 < high <= 1.0
    mass, forecasts, positives = made.before.bins(ECE_BINS)
    assert drawn[0][:, 0] == pytest.approx(forecasts / mass)
    assert drawn[0][:, 1] == pytest.approx(positives / mass)
    for index in (3, 8):
        exact = binomtest(int(positives[index]), int(mass[index])).proportion_ci(0.95, "exact")
        assert ends[0][index] == pytest.approx([exact.low, exact.high])


@pytest.mark.parametrize("score", [0.0, 0.01, 0.5, 1.0])
def test_a_single_forecast_can_be_drawn(score: float) -> None:
    _, (low, high), drawn, _, _ = points(quality(np.full(50, score), np.full(50, 0.01)))
    assert low < high
    assert all(((each >= low) & (each <= high)).all() for each in drawn)


def test_a_bin_without_a_positive_lies_at_the_edge_and_off_the_line() -> None:
    scores = np.repeat([0.001, 0.02], 1_000)
    made = quality(scores, np.repeat([0.0, 0.05], 1_000))
    axes: Any = reliability_figure(made).axes[0]
    low = axes.get_ylim()[0]
    first = np.array(axes.containers[0].lines[0].get_xydata())
    assert first[0] == pytest.approx([0.001, low], rel=1e-3)
    lines = [np.array(line.get_ydata()) for line in axes.lines if line.get_linestyle() == "-"]
    assert len(lines) == 2
    assert all((line > low).all() for line in lines)
