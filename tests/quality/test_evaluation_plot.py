"""Pictures of evaluations: scale, band, several forecasts on the same axes, panels, and notebooks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from streamcal import evaluate, evaluate_classes
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


@pytest.mark.parametrize(
    ("rate", "asked", "scale"),
    [
        (0.01, None, "logit"),
        (0.05, None, "linear"),
        (0.5, None, "linear"),
        (0.01, "linear", "linear"),
        (0.3, "logit", "logit"),
    ],
)
def test_axes_are_linear_unless_most_forecasts_are_extreme(rate: float, asked: Any, scale: str) -> None:
    (ax,) = found(rate).plot(scale=asked).axes
    assert ax.get_xscale() == ax.get_yscale() == scale
    assert ax.get_xlim() == ax.get_ylim()


@pytest.mark.parametrize("rate", [0.002, 0.01, 0.2])
@pytest.mark.parametrize("scale", ["linear", "logit"])
def test_the_band_lies_inside_the_axes_and_does_not_jump_to_their_edge(rate: float, scale: Any) -> None:
    (ax,) = found(rate, 20_000).plot(scale=scale).axes
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


def test_segments_are_panels_the_surest_first() -> None:
    segments = np.random.default_rng(3).choice(list("abcdefgh"), 3000)
    evaluation = found(0.3, segments=segments)
    figure = evaluation.plot()
    names = [ax.get_title().partition(":")[0] for ax in figure.axes]
    assert names == ["all", *list(evaluation.segments)[:5]]
    assert len(evaluation.plot(ax=pyplot.subplots()[1]).figure.axes) == 1


def test_classes_are_panels() -> None:
    rng = np.random.default_rng(4)
    p = rng.dirichlet([1.0, 1.0, 1.0], 500)
    evaluation = evaluate_classes(rng.integers(0, 3, 500), p, classes=["a", "b", "c"])
    names = [ax.get_title().partition(":")[0] for ax in evaluation.plot().axes]
    assert names == ["highest forecast", *evaluation.classes]


@pytest.mark.parametrize("scale", [None, "logit"])
@pytest.mark.parametrize("forecasts", [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5], [1e-9, 0.2]])
def test_a_few_forecasts_can_be_drawn(forecasts: list[float], scale: Any) -> None:
    for labels in ([0, 1], [0, 0]):
        figure = evaluate(labels, forecasts).plot(scale=scale)
        figure.draw_without_rendering()
        (ax,) = figure.axes
        assert ax.get_xlim()[0] < ax.get_xlim()[1]


def test_a_picture_is_one_of_pyplot_and_that_of_a_server_is_not() -> None:
    assert found(0.2).plot().number in pyplot.get_fignums()
    code = """
import sys
from matplotlib.figure import Figure
from streamcal.quality.diagram import draw
from streamcal.quality.figures import Quality
quality = Quality()
quality.before.add([0.2, 0.4], [0, 1])
quality.after.add([0.3, 0.5], [0, 1])
draw(Figure().subplots(), quality.series)
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


SETUP = """
import numpy as np, pandas as pd, streamcal
from matplotlib import pyplot
rng = np.random.default_rng(0)
p = rng.random(500)
y = (rng.random(500) < p).astype(int)
found = streamcal.evaluate(y, p)
done = streamcal.backtest(pd.DataFrame({"id": range(500), "score": p, "label": y}))
"""

CELLS = {
    "found.plot()": 1,
    "done.plot()": 1,
    "found.plot();": 1,
    "kept = done.plot()": 1,
    "kept": 1,
    "found.plot()\ndone.plot()": 2,
    "found.plot(ax=pyplot.subplots()[1])": 1,
    "pyplot.get_fignums()": 0,
}


@pytest.mark.slow
def test_a_notebook_shows_each_picture_once() -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    v4 = nbformat.v4
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in (SETUP, *CELLS)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in notebook.cells]
    assert shown == [0, *CELLS.values()]
    assert notebook.cells[-1].outputs[0]["data"]["text/plain"] == "[]"
