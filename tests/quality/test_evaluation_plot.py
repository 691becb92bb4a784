"""Pictures of evaluations: scale, band, several forecasts on the same axes, panels, and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from streamcal import evaluate
from streamcal.quality.evaluate import Evaluation

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Draw without a display, and close what was drawn."""
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def found(rate: float, n: int = 3000, **given: Any) -> Evaluation:
    """Return the evaluation of forecasts that are too low by a third."""
    rng = np.random.default_rng(1)
    forecasts = rng.beta(1.0, 1.0 / rate - 1.0, n)
    return evaluate(rng.random(n) < 1.5 * forecasts, forecasts, **given)


@pytest.mark.parametrize("scale", ["linear", "logit"])
def test_the_band_lies_inside_the_axes_and_does_not_jump_to_their_edge(scale: Any) -> None:
    (ax,) = found(0.01, 20_000).plot(scale=scale).axes
    (band,) = ax.collections
    low, high = ax.get_xlim()
    paths = band.get_paths()
    assert len(paths) == 1
    corners = np.array(paths[0].vertices)
    assert ((corners >= low) & (corners <= high)).all()
    if scale == "logit":
        assert ((corners > low) & (corners < high)).all()
        heights = np.log(corners[:, 1] / (1 - corners[:, 1]))
        span = np.diff(np.log(np.array([low, high]) / (1 - np.array([low, high]))))[0]
        across = np.diff(corners[:, 0]) != 0.0  # the sides of the band go up and down
        assert np.abs(np.diff(heights)[across]).max() < 0.2 * span


@pytest.mark.parametrize("forecasts", [[0.0, 0.0], [0.0, 1.0]])
def test_a_few_forecasts_can_be_drawn(forecasts: list[float]) -> None:
    for labels in ([0, 1], [0, 0]):
        figure = evaluate(labels, forecasts).plot(scale="logit")
        figure.draw_without_rendering()
        (ax,) = figure.axes
        assert ax.get_xlim()[0] < ax.get_xlim()[1]
