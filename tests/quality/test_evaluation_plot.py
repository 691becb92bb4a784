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


def named(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


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


def test_another_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="scale must be 'linear', 'logit' or None, got 'log'"):
        found(0.2).plot(scale="log")  # type: ignore[call-overload]


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


def test_the_title_has_the_figures_of_one_and_the_legend_those_of_several() -> None:
    first, second = found(0.3), found(0.2)
    figure, ax = pyplot.subplots()
    assert first.plot(ax=ax) is ax
    assert ax.get_title() == f"3,000 labels, ECE {first.ece:#.2g}, Brier {first.brier:#.4g}"
    second.plot(ax=ax, label="model B")
    assert ax.get_title() == "3,000 labels"
    assert named(ax) == [
        "thick: miscalibrated (95 %)",
        f"forecasts: ECE {first.ece:#.2g}, Brier {first.brier:#.4g}",
        f"model B: ECE {second.ece:#.2g}, Brier {second.brier:#.4g}",
    ]
    assert [line.get_linestyle() for line in ax.lines].count("--") == 1
    assert len(ax.texts) == 2
    (density,) = ax.child_axes
    assert len(density.patches) == 4  # an area and its outline for each
    colours = [line.get_color() for line in ax.lines if line.get_linestyle() != "--"]
    assert len(set(colours)) == 2
    ax.clear()
    first.plot(ax=ax)
    assert len(named(ax)) == 2
    assert figure.axes == [ax]


def test_a_second_evaluation_takes_the_scale_of_the_first_and_stays_in_sight() -> None:
    _, ax = pyplot.subplots()
    found(0.01).plot(ax)
    reach = ax.get_xlim()
    found(0.3).plot(ax)
    assert ax.get_xscale() == "logit"
    assert ax.get_xlim()[0] <= reach[0]
    assert ax.get_xlim()[1] > reach[1]


def test_a_baseline_is_a_second_curve() -> None:
    rng = np.random.default_rng(2)
    (ax,) = found(0.2, baseline=rng.random(3000)).plot(label="ours").axes
    assert [name.partition(":")[0] for name in named(ax)[1:]] == ["ours", "ours, baseline"]


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
