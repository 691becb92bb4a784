"""Reliability diagrams of evaluations: isotonic curves, consistency bands, and densities of the forecasts.

A diagram is drawn on axes that may have one already; then both share diagonal, legend and density. Bands of
several would hide each other: their curves are thick instead where they leave their bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from streamcal.maps.platt import expit, logit
from streamcal.quality.decomposition import isotonic_rates
from streamcal.quality.diagram import (
    SERIES_COLOURS,
    SIZE,
    Scale,
    draw_density,
    place_legend,
    pyplot_figure,
    rated,
    scale_for,
    set_axes,
)
from streamcal.values import Counts, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import FillBetweenPolyCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from streamcal.quality.evaluate import Evaluation

__all__ = ["PANELS", "draw_evaluation", "draw_panels"]

PANELS: Final = 6
"""Panels of a picture of many segments or classes, at most."""

_DRAWN: Final = 256  # groups of forecasts in a picture
_SIMULATED: Final = 200  # streams of calibrated labels for the consistency band
_EXPECTED: Final = 8.0  # labels of each class in the first and last group of a logit axis, if calibrated
_PANEL: Final = 3.6  # inches
_CURVES: Final = "_streamcal_curves"  # attribute of axes that have a diagram
_BAND: Final = "calibrated forecasts, 95 %"
_OUTSIDE: Final = "thick: miscalibrated (95 %)"


class _Curve(NamedTuple):
    line: Line2D
    outside: Line2D
    """The line where it is outside its band."""
    band: FillBetweenPolyCollection
    name: str
    labels: int
    figures: str
    forecasts: Floats
    weights: Floats
    reach: tuple[float, float]

    @property
    def colour(self) -> Any:
        return self.line.get_color()


def _curves_on(ax: Axes) -> list[_Curve]:
    """Return the curves that axes have."""
    return [each for each in vars(ax).get(_CURVES, []) if each.line in ax.lines]


def draw_panels(panels: Mapping[str, Evaluation], label: str | None, scale: Scale | None) -> Figure:
    """Draw the first evaluations side by side, each under its name; a single one alone."""
    some = list(panels.items())[:PANELS]
    columns = min(len(some), 3)
    rows = -(-len(some) // columns)
    single = len(some) == 1
    size = SIZE if single else (_PANEL * columns, (_PANEL + 0.3) * rows)
    figure = pyplot_figure(*size)
    for place, (name, evaluation) in enumerate(some):
        ax = figure.add_subplot(rows, columns, place + 1)
        draw_evaluation(ax, evaluation, label if single else None, scale)
        if not single:
            curves = _curves_on(ax)
            ax.set_title(f"{name}: {_counted(curves)}\n{curves[0].figures}", fontsize="medium")
            if place:
                _strip(ax)
    return figure


def _strip(ax: Axes) -> None:
    """Take away what the first panel says for all."""
    ax.set(xlabel="", ylabel="")
    for each in (*ax.texts, ax.get_legend()):
        if each is not None:
            each.remove()


def draw_evaluation(ax: Axes, evaluation: Evaluation, label: str | None, scale: Scale | None) -> None:
    """Draw an evaluation, and its baseline if it has one, on axes that may have others already."""
    _draw_curve(ax, evaluation, label or "", scale)
    if evaluation.baseline is not None:
        _draw_curve(ax, evaluation.baseline, f"{label}, baseline" if label else "baseline", scale)


def _draw_curve(ax: Axes, evaluation: Evaluation, label: str, scale: Scale | None) -> None:
    groups = evaluation._groups
    curves = _curves_on(ax)
    drawn: Any = ax.get_xscale() if curves and scale is None else scale
    scale = scale_for(groups.p, groups.weights, drawn)
    p, curve, low, high = _curve(groups, logit_axis=scale == "logit")
    inside = (curve > 0.0) & (curve < 1.0) & (low > 0.0) & (high < 1.0)
    shown = inside if scale == "logit" else np.ones(len(p), np.bool_)
    colour = SERIES_COLOURS[len(curves) % len(SERIES_COLOURS)]
    band = ax.fill_between(p, low, high, where=shown.tolist(), color="0.88", linewidth=0, zorder=0.5)
    off = np.where((curve < low) | (curve > high), curve, np.nan)
    (outside,) = ax.plot(p[shown], off[shown], color=colour, linewidth=3.5)
    (line,) = ax.plot(p[shown], curve[shown], color=colour, marker="o" if shown.sum() == 1 else "")
    figures = rated(evaluation.ece, evaluation.brier)
    reach = _reach(groups.p, groups.weights, np.concatenate([p, curve, low, high]), scale)
    curves.append(
        _Curve(line, outside, band, label, evaluation.labels, figures, groups.p, groups.weights, reach)
    )
    vars(ax)[_CURVES] = curves
    set_axes(ax, min(each.reach[0] for each in curves), max(each.reach[1] for each in curves), scale)
    draw_density(ax, [(each.forecasts, each.weights, each.colour) for each in curves])
    _write(ax, curves)


def _write(ax: Axes, curves: list[_Curve]) -> None:
    """Write title, legend and names of the axes, and show how far the curves are to be believed."""
    alone = len(curves) == 1
    for each in curves:
        each.line.set_linewidth(2.0 if alone else 1.0)
        each.line.set_label(f"{each.name or 'forecasts'}: {each.figures}")
        each.outside.set(visible=not alone, label="_")
        each.band.set(visible=alone, label=_BAND if alone else "_")
    curves[0].outside.set_label("_" if alone else _OUTSIDE)
    if alone and not curves[0].name:
        curves[0].line.set_label("observed rate, isotonic")
        ax.set_title(f"{_counted(curves)}, {curves[0].figures}")
    else:
        ax.set_title(_counted(curves))
    ax.set(xlabel="forecast probability", ylabel="observed rate of label 1")
    place_legend(ax)


def _counted(curves: list[_Curve]) -> str:
    return " and ".join(dict.fromkeys(f"{each.labels:,} labels" for each in curves))


def _curve(groups: Any, *, logit_axis: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """Return forecasts, isotonic curve, and ends of its band for calibrated forecasts: float64[m] each.

    The first and last groups of a logit axis are so large that calibrated forecasts have labels of both
    classes there; otherwise rates of 0 and 1, which have no log-odds, would be part of the band.
    """
    total = float(groups.weights.sum())
    at = np.minimum((_DRAWN * np.cumsum(groups.weights) / total).astype(np.int64), _DRAWN - 1)
    if logit_axis:
        at = _pooled(at, groups)
    _, at = np.unique(at, return_inverse=True)
    mass: Floats = np.bincount(at, groups.weights).astype(np.float64)
    p = np.bincount(at, groups.weights * groups.p) / mass
    effective = mass**2 / np.bincount(at, groups.squares_of_zeros + groups.squares_of_ones)
    sizes: Counts = np.maximum(np.rint(effective), 1.0).astype(np.int64)
    drawn = np.random.default_rng(0).binomial(sizes, p, (_SIMULATED, len(p))) / sizes
    low, high = np.quantile([isotonic_rates(rates, mass) for rates in drawn], (0.025, 0.975), axis=0)
    fit = isotonic_rates(groups.ones / groups.weights, groups.weights)
    return p, np.bincount(at, groups.weights * fit) / mass, low, high


def _pooled(at: Counts, groups: Any) -> Counts:
    """Return the places of groups in a picture, those at both ends pooled."""
    effective = groups.number / float(groups.weights.sum()) * groups.weights
    for expected, ends in ((effective * groups.p, 0), (effective * (1.0 - groups.p), -1)):
        sums = np.cumsum(expected) if not ends else np.cumsum(expected[::-1])[::-1]
        few = sums < min(_EXPECTED, float(expected.sum()) / 2.0)
        if few.any():
            edge = at[np.flatnonzero(few)[-1 if not ends else 0]]
            at = np.maximum(at, edge) if not ends else np.minimum(at, edge)
    return at


def _reach(forecasts: Floats, weights: Floats, shown: Floats, scale: Scale) -> tuple[float, float]:
    """Return the ends of both axes: all that is shown lies within, of a density all but 5 % on each side."""
    if scale == "linear":
        return 0.0, min(1.04 * float(max(shown.max(), forecasts[-1])), 1.0) or 1.0
    sums = np.cumsum(weights) / weights.sum()
    bulk = forecasts[[int(np.searchsorted(sums, 0.05)), int(np.searchsorted(sums, 0.95))]]
    shown = np.concatenate([shown, bulk])
    inside = shown[(shown > 0.0) & (shown < 1.0)]
    low, high = expit(logit(np.array([inside.min(), inside.max()])) + np.array([-0.4, 0.4])).tolist()
    return low, high
