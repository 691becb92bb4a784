"""The picture of a run's reliability: its scale, its curves, its density; and intervals of rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcal.base.values import Floats
from streamcal.quality.diagram import draw
from streamcal.quality.figures import Quality

figure = pytest.importorskip("matplotlib.figure")


def drawn(scores: Floats, rates: Floats) -> Any:
    """Draw scores whose labels have other rates, and forecasts that are these; return the axes."""
    labels = np.random.default_rng(0).random(len(scores)) < rates
    made = Quality()
    made.before.add(scores, labels.astype(np.int8))
    made.after.add(rates, labels.astype(np.int8))
    axes = figure.Figure().subplots()
    draw(axes, made.series)
    return axes


def curves(axes: Any) -> list[Floats]:
    """Return the curves of a diagram, without the diagonal."""
    return [np.array(line.get_xydata()) for line in axes.lines if line.get_linewidth() == 1.0][1:]


def test_the_curve_of_a_run_is_the_isotonic_fit_and_thick_where_forecasts_are_wrong() -> None:
    scores = np.random.default_rng(1).random(20_000)
    axes = drawn(scores, scores**2)
    assert axes.get_xscale() == "linear"
    served, raw = curves(axes)
    assert np.abs(served[:, 1] - served[:, 0]).max() < 0.06
    assert np.abs(raw[:, 1] - raw[:, 0] ** 2).max() < 0.06
    thick = [np.array(line.get_ydata()) for line in axes.lines if line.get_linewidth() == 3.5]
    assert [np.isfinite(each).mean() > 0.5 for each in thick] == [False, True]
