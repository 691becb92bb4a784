"""Axes of a reliability diagram: their scale, their ends, and the density of the forecasts at their foot.

Both pictures share them, that of an evaluation and that of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from streamcal.maps.platt import expit, logit
from streamcal.values import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "NEEDED",
    "SERIES_COLOURS",
    "SIZE",
    "Scale",
    "can_draw",
    "draw_density",
    "place_legend",
    "pyplot_figure",
    "rated",
    "scale_for",
    "set_axes",
]

NEEDED: Final = "a picture needs matplotlib: pip install '.[plots]' in a checkout of streamcal"

COLOURS: Final = {"before": "#c44e52", "after": "#2a6f97"}
"""Colours of the scores and of the recalibrated probabilities, in every picture."""

SERIES_COLOURS: Final = (COLOURS["after"], COLOURS["before"], "#3f8f5f", "#8c5fa8", "#c98a1b", "#5c5c5c")
"""Colours of several forecasts in one picture, in their order."""

Scale = Literal["linear", "logit"]
"""Scale of both axes, by its name in matplotlib; logit axes are log-odds."""

SIZE: Final = (5.6, 5.6)
"""Width and height of a figure of one diagram, in inches."""

_EXTREME: Final = 0.02  # forecasts nearer to 0 or 1 cannot be told apart on a linear axis
_BARS: Final = 40
_POINTS: Final = 200  # of a curve, that a legend may cover
_TICKS: Final = 7  # on an axis, at most
_FOOT: Final = 0.13  # height of the density, as a share of that of the diagram


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def pyplot_figure(width: float, height: float) -> Figure:
    """Return an empty figure of pyplot, which a notebook shows once; sizes in inches.

    Raises
    ------
    ImportError
        if matplotlib is not installed.
    """
    if not can_draw():
        raise ImportError(NEEDED)
    from streamcal.quality.shown import new_figure

    return new_figure(width, height)


def scale_for(forecasts: Floats, weights: Floats, wanted: Scale | None) -> Scale:
    """Return the wanted scale, or the one that shows forecasts best, and is possible.

    This is logit if most forecasts are below 0.02 or above 0.98, else linear. Forecasts of nothing but 0 and
    1 have no log-odds.
    """
    if wanted not in (None, "linear", "logit"):
        raise ValueError(f"scale must be 'linear', 'logit' or None, got {wanted!r}")
    extreme = (forecasts < _EXTREME) | (forecasts > 1.0 - _EXTREME)
    inside = (forecasts > 0.0) & (forecasts < 1.0)
    most = float(weights[extreme].sum()) > float(weights.sum()) / 2.0
    return "logit" if wanted != "linear" and (wanted or most) and bool(inside.any()) else "linear"


def set_axes(ax: Axes, low: float, high: float, scale: Scale) -> None:
    """Set scale and ends of both axes, draw the diagonal, and say on which side forecasts are too low."""
    ax.set(xscale=scale, yscale=scale, xlim=(low, high), ylim=(low, high), box_aspect=1)
    if scale == "logit":
        ticks = _logit_ticks(low, high)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks(ticks, [f"{tick:.10g}" for tick in ticks])
            axis.set_ticks([], minor=True)
    hint: dict[str, Any] = {"transform": ax.transAxes, "color": "0.45", "fontsize": "small", "gid": "hint"}
    for old in [each for each in (*ax.lines, *ax.texts) if each.get_gid() in ("diagonal", "hint")]:
        old.remove()
    (line,) = ax.plot([low, high], [low, high], color="0.45", linewidth=1, linestyle="--", zorder=1.5)
    line.set_gid("diagonal")
    ax.text(0.02, 0.98, "forecasts too low", va="top", **hint)
    ax.text(0.98, _FOOT + 0.02, "forecasts too high", ha="right", **hint)


def _logit_ticks(low: float, high: float) -> list[float]:
    """Return marks of a logit axis, seven at most: decades from both ends, thirds of them where few fit."""
    decades = [10.0**-power for power in range(1, 17)]
    fine = [*decades, *(3.0 * decade for decade in decades)]
    marks = [sorted([*some, 0.5, *(1.0 - each for each in some)]) for some in (fine, decades)]
    inside = [[mark for mark in some if low <= mark <= high] for some in marks]
    found = next((some for some in inside if len(some) <= _TICKS), inside[1])
    return found[:: -(-len(found) // _TICKS) or 1]


def place_legend(ax: Axes) -> None:
    """Draw the legend on that side of the diagonal where it covers less of the curves."""
    low = _covered(ax, (0.35, 1.0), (_FOOT + 0.06, 0.48)) < _covered(ax, (0.0, 0.65), (0.65, 0.95))
    ax.legend(
        loc="lower right" if low else "upper left",
        bbox_to_anchor=(1.0, _FOOT + 0.06) if low else (0.0, 0.95),
        fontsize="small",
        handlelength=1.2,
        labelspacing=0.3,
        borderpad=0.2,
        framealpha=0.6,
        edgecolor="none",
        facecolor="white",
    )


def _covered(ax: Axes, across: tuple[float, float], up: tuple[float, float]) -> float:
    """Return the length of the curves in a box, in the coordinates of the axes."""
    found = 0.0
    for line in ax.lines:
        if line.get_gid() == "diagonal" or line.get_linestyle() == "None" or not line.get_visible():
            continue
        drawn = (ax.transScale + ax.transLimits).transform(line.get_xydata())
        drawn = drawn[np.isfinite(drawn).all(axis=1)]
        if len(drawn) < 2:
            continue
        steps = np.hypot(*np.diff(drawn, axis=0).T)
        sums = np.concatenate(([0.0], np.cumsum(steps)))
        x, y = (np.interp(np.linspace(0.0, sums[-1], _POINTS), sums, each) for each in drawn.T)
        inside = (across[0] < x) & (x < across[1]) & (up[0] < y) & (y < up[1])
        found += float(sums[-1] * inside.mean())
    return found


def rated(ece: float, brier: float) -> str:
    """Return figures as they stand in titles and legends."""
    return f"ECE {ece:#.2g}, Brier {brier:#.4g}"


def draw_density(ax: Axes, series: Sequence[tuple[Floats, Floats, str]]) -> None:
    """Draw where forecasts lie, at the foot of the axes; each part of the series as high as the others.

    ``series`` has forecasts, weights and a colour. Forecasts beyond the ends of the axis count at the end.
    """
    for old in [each for each in ax.child_axes if each.get_label() == "density"]:
        old.remove()
    foot = ax.inset_axes((0.0, 0.0, 1.0, _FOOT), label="density", sharex=ax, zorder=1, facecolor="none")
    low, high = ax.get_xlim()
    edges = np.linspace(low, high, _BARS + 1)
    if ax.get_xscale() == "logit":
        first, last = logit(edges[[0, -1]]).tolist()
        edges[1:-1] = expit(np.linspace(first, last, _BARS + 1))[1:-1]
    for forecasts, weights, colour in series:
        heights, _ = np.histogram(np.clip(forecasts, low, high), edges, weights=weights)
        heights = heights / heights.max()
        foot.stairs(heights, edges, color=colour, fill=True, alpha=0.25 if len(series) == 1 else 0.1)
        foot.stairs(heights, edges, color=colour, linewidth=1, alpha=0.6)
    foot.set(ylim=(0.0, 1.1))
    foot.axis("off")
