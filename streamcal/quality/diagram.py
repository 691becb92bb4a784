"""Reliability diagrams: isotonic curves, consistency bands, and densities of the forecasts, by matplotlib.

Axes may have a diagram already; then all curves share diagonal, legend and density. Bands of several would
hide each other: their curves are thick instead where they leave their bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from streamcal.base.values import Counts, Flags, Floats
from streamcal.maps.platt import expit, logit
from streamcal.quality.decomposition import isotonic_rates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Final = ("#2a6f97", "#c44e52", "#3f8f5f", "#8c5fa8", "#c98a1b", "#5c5c5c")
"""Colours of the series of a picture, in their order."""

Scale = Literal["linear", "logit"]
"""Scale of both axes, by its name in matplotlib; logit axes are log-odds."""

_SIZE: Final = (5.6, 5.6)  # of a figure of one diagram, in inches
_PANELS: Final = 6  # of many segments or classes, at most
_PANEL: Final = 3.6  # inches
_EXTREME: Final = 0.02  # forecasts nearer to 0 or 1 cannot be told apart on a linear axis
_GROUPS: Final = 256  # of forecasts in a curve, at most
_SIMULATED: Final = 200  # streams of calibrated labels for the consistency band
_EXPECTED: Final = 8.0  # labels of each class in the first and last group of a logit axis, if calibrated
_BARS: Final = 40
_TICKS: Final = 7  # on an axis, at most
_FOOT: Final = 0.13  # height of the density, as a share of that of the diagram
_DRAWN: Final = "_streamcal_drawn"  # attribute of axes that have a diagram: its series and artists


class Series(NamedTuple):
    """Forecasts with their labels, drawn as one curve: arrays float64[g], by ascending forecast."""

    name: str
    """Name in the legend; empty: the title has the figures of the only series."""
    labels: int
    """Number of labels."""
    ece: float
    brier: float
    forecasts: Floats
    weights: Floats
    """Weight of the labels at each forecast."""
    ones: Floats
    """Weight of the labels 1."""
    squares: Floats
    """Sum of the squared weights of the labels."""

    @property
    def figures(self) -> str:
        """Figures as they stand in titles and legends."""
        return f"ECE {self.ece:#.2g}, Brier {self.brier:#.4g}"


class _Curve(NamedTuple):
    """Forecasts, isotonic fit, and ends of its band for calibrated forecasts: float64[m] each."""

    forecasts: Floats
    fit: Floats
    low: Floats
    high: Floats
    shown: Flags
    """Which of these points are drawn: not those without log-odds, where the axis needs them."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of pyplot for a notebook or a script; sizes in inches.

    Jupyter shows a last expression, and then all figures of pyplot that are open. This one is closed in
    pyplot as soon as it was asked for a representation, so that it is shown once.

    Raises
    ------
    ImportError
        if matplotlib is not installed.
    """
    try:
        from matplotlib import get_backend, pyplot
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "a picture needs matplotlib: pip install '.[plots]' in a checkout of streamcal"
        ) from None

    class ShownOnce(Figure):
        def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:  # of nothing: IPython goes on to the picture
            if "inline" in get_backend():
                pyplot.close(self)
            return {}

    return pyplot.figure(FigureClass=ShownOnce, figsize=(width, height), layout="constrained")


def draw_panels(panels: Sequence[Sequence[Series]], scale: Scale | None = None) -> Figure:
    """Draw the first panels side by side, each under the name of its first series; a single one alone."""
    some = panels[:_PANELS]
    columns = min(len(some), 3)
    rows = -(-len(some) // columns)
    figure = new_figure(*(_SIZE if len(some) == 1 else (_PANEL * columns, (_PANEL + 0.3) * rows)))
    for place, series in enumerate(some):
        ax = figure.add_subplot(rows, columns, place + 1)
        draw(ax, series, scale)
        if len(some) > 1:
            first = series[0]
            ax.set_title(f"{first.name}: {first.labels:,} labels\n{first.figures}", fontsize="medium")
        if place:  # the first panel says the rest for all
            ax.set(xlabel="", ylabel="")
            for each in (*ax.texts, ax.get_legend()):
                if each is not None:
                    each.remove()
    return figure


def draw(ax: Axes, series: Sequence[Series], scale: Any = None) -> None:
    """Draw series on axes, beside those that were drawn there before.

    Parameters
    ----------
    scale
        of both axes, a `Scale`; None: that of the diagram that is there, else logit if most forecasts are
        below 0.02 or above 0.98.
    """
    before, artists = vars(ax).get(_DRAWN, ((), ()))
    if artists and artists[0] in ax.lines:  # not cleared since
        series, wanted = [*before, *series], scale or ax.get_xscale()
        for artist in artists:
            artist.remove()
    else:
        wanted = scale
    scale = _scale(series, wanted)
    curves = [_curve(each, scale) for each in series]
    reaches = [_reach(each, curve, scale) for each, curve in zip(series, curves, strict=True)]
    low, high = min(first for first, _ in reaches), max(last for _, last in reaches)
    drawn = _draw_axes(ax, low, high, scale)
    alone = len(series) == 1
    for at, (each, (p, fit, least, most, shown)) in enumerate(zip(series, curves, strict=True)):
        colour, name = COLOURS[at % len(COLOURS)], f"{each.name or 'forecasts'}: {each.figures}"
        if alone:
            name = name if each.name else "observed rate, isotonic"
            label, where = "calibrated forecasts, 95 %", shown.tolist()
            band: dict[str, Any] = {"color": "0.88", "linewidth": 0, "zorder": 0.5, "label": label}
            drawn.append(ax.fill_between(p, least, most, where=where, **band))
        else:
            off = np.where((fit < least) | (fit > most), fit, np.nan)
            label = "_" if at else "thick: miscalibrated (95 %)"
            drawn += ax.plot(p[shown], off[shown], color=colour, linewidth=3.5, label=label)
        marker = "o" if shown.sum() == 1 else ""
        width = 2.0 if alone else 1.0
        drawn += ax.plot(p[shown], fit[shown], color=colour, linewidth=width, marker=marker, label=name)
    drawn.append(_draw_density(ax, series, low, high, scale))
    counted = " and ".join(dict.fromkeys(f"{each.labels:,} labels" for each in series))
    ax.set_title(counted if not alone or series[0].name else f"{counted}, {series[0].figures}")
    ax.set(xlabel="forecast probability", ylabel="observed rate of label 1")
    free = (0.0, _FOOT + 0.05, 1.0, 0.9 - _FOOT)  # between the density and the words at the top
    looks: dict[str, Any] = {"fontsize": "small", "handlelength": 1.2, "labelspacing": 0.3}
    ax.legend(loc="best", bbox_to_anchor=free, framealpha=0.6, edgecolor="none", **looks)
    vars(ax)[_DRAWN] = series, drawn


def _scale(series: Sequence[Series], wanted: Any) -> Scale:
    """Return the wanted scale, or the one that shows forecasts best, and is possible.

    Forecasts of nothing but 0 and 1 have no log-odds.
    """
    if wanted not in (None, "linear", "logit"):
        raise ValueError(f"scale must be 'linear', 'logit' or None, got {wanted!r}")
    forecasts, weights = (np.concatenate(each) for each in zip(*(each[4:6] for each in series), strict=True))
    extreme = (forecasts < _EXTREME) | (forecasts > 1.0 - _EXTREME)
    inside = (forecasts > 0.0) & (forecasts < 1.0)
    most = float(weights[extreme].sum()) > float(weights.sum()) / 2.0
    return "logit" if wanted != "linear" and (wanted or most) and bool(inside.any()) else "linear"


def _draw_axes(ax: Axes, low: float, high: float, scale: Scale) -> list[Any]:
    """Set scale and ends of both axes, draw the diagonal, and say on which side forecasts are too low."""
    ax.set(xscale=scale, yscale=scale, xlim=(low, high), ylim=(low, high), box_aspect=1)
    if scale == "logit":
        ticks = _logit_ticks(low, high)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks(ticks, [f"{tick:.10g}" for tick in ticks])
            axis.set_ticks([], minor=True)
    hint: dict[str, Any] = {"transform": ax.transAxes, "color": "0.45", "fontsize": "small"}
    return [
        *ax.plot([low, high], [low, high], color="0.45", linewidth=1, linestyle="--", zorder=1.5),
        ax.text(0.02, 0.98, "forecasts too low", va="top", **hint),
        ax.text(0.98, _FOOT + 0.02, "forecasts too high", ha="right", **hint),
    ]


def _logit_ticks(low: float, high: float) -> list[float]:
    """Return marks of a logit axis, seven at most: decades from both ends, thirds of them where few fit."""
    decades = [10.0**-power for power in range(1, 17)]
    fine = [*decades, *(3.0 * decade for decade in decades)]
    marks = [sorted([*some, 0.5, *(1.0 - each for each in some)]) for some in (fine, decades)]
    inside = [[mark for mark in some if low <= mark <= high] for some in marks]
    found = next((some for some in inside if len(some) <= _TICKS), inside[1])
    return found[:: -(-len(found) // _TICKS) or 1]


def _draw_density(ax: Axes, series: Sequence[Series], low: float, high: float, scale: Scale) -> Axes:
    """Draw where forecasts lie, at the foot of the axes; each series as high as the others.

    Forecasts beyond the ends of the axis count at the end.
    """
    foot = ax.inset_axes((0.0, 0.0, 1.0, _FOOT), sharex=ax, zorder=1, facecolor="none")
    edges = np.linspace(low, high, _BARS + 1)
    if scale == "logit":
        first, last = logit(edges[[0, -1]]).tolist()
        edges[1:-1] = expit(np.linspace(first, last, _BARS + 1))[1:-1]
    for at, each in enumerate(series):
        heights, _ = np.histogram(np.clip(each.forecasts, low, high), edges, weights=each.weights)
        heights, colour = heights / heights.max(), COLOURS[at % len(COLOURS)]
        foot.stairs(heights, edges, color=colour, fill=True, alpha=0.25 if len(series) == 1 else 0.1)
        foot.stairs(heights, edges, color=colour, linewidth=1, alpha=0.6)
    foot.set(ylim=(0.0, 1.1))
    foot.axis("off")
    return foot


def _curve(series: Series, scale: Scale) -> _Curve:
    """Return the curve of a series.

    The first and last groups of a logit axis are so large that calibrated forecasts have labels of both
    classes there; otherwise rates of 0 and 1, which have no log-odds, would be part of the band.
    """
    weights = series.weights
    at = np.minimum((_GROUPS * np.cumsum(weights) / weights.sum()).astype(np.int64), _GROUPS - 1)
    if scale == "logit":
        at = _pooled(at, series)
    _, at = np.unique(at, return_inverse=True)
    mass: Floats = np.bincount(at, weights).astype(np.float64)
    p = np.bincount(at, weights * series.forecasts) / mass
    effective = mass**2 / np.bincount(at, series.squares)
    sizes: Counts = np.maximum(np.rint(effective), 1.0).astype(np.int64)
    drawn = np.random.default_rng(0).binomial(sizes, p, (_SIMULATED, len(p))) / sizes
    low, high = np.quantile([isotonic_rates(rates, mass) for rates in drawn], (0.025, 0.975), axis=0)
    fit = np.bincount(at, weights * isotonic_rates(series.ones / weights, weights)) / mass
    shown = np.ones(len(p), np.bool_)
    if scale == "logit":
        shown = (fit > 0.0) & (fit < 1.0) & (low > 0.0) & (high < 1.0)
    return _Curve(p, fit, low, high, shown)


def _pooled(at: Counts, series: Series) -> Counts:
    """Return the places of groups in a picture, those at both ends pooled."""
    effective = series.labels / float(series.weights.sum()) * series.weights
    for expected, ends in ((effective * series.forecasts, 0), (effective * (1.0 - series.forecasts), -1)):
        sums = np.cumsum(expected) if not ends else np.cumsum(expected[::-1])[::-1]
        few = sums < min(_EXPECTED, float(expected.sum()) / 2.0)
        if few.any():
            edge = at[np.flatnonzero(few)[-1 if not ends else 0]]
            at = np.maximum(at, edge) if not ends else np.minimum(at, edge)
    return at


def _reach(series: Series, curve: _Curve, scale: Scale) -> tuple[float, float]:
    """Return the ends of both axes: all that is shown lies within, of a density all but 5 % on each side."""
    forecasts, shown = series.forecasts, np.concatenate(curve[:4])
    if scale == "linear":
        return 0.0, min(1.04 * float(max(shown.max(), forecasts[-1])), 1.0) or 1.0
    sums = np.cumsum(series.weights) / series.weights.sum()
    bulk = forecasts[[int(np.searchsorted(sums, 0.05)), int(np.searchsorted(sums, 0.95))]]
    shown = np.concatenate([shown, bulk])
    inside = shown[(shown > 0.0) & (shown < 1.0)]
    low, high = expit(logit(np.array([inside.min(), inside.max()])) + np.array([-0.4, 0.4])).tolist()
    return low, high
