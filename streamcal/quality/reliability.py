"""The reliability diagram of a run, before and after recalibration: its points, and its picture.

Drawing needs matplotlib (extra ``plots``); the points do not.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from streamcal.quality.figures import ECE_BINS, Quality
from streamcal.values import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "NEEDED",
    "can_draw",
    "draw_reliability",
    "reliability",
    "reliability_figure",
    "saved",
]

NEEDED: Final = "a picture needs matplotlib: pip install '.[plots]' in a checkout of streamcal"

COLOURS: Final = {"before": "#c44e52", "after": "#2a6f97"}
"""Colours of the scores and of the recalibrated probabilities, in every picture."""

_SERIES: Final = {"before": ("score as it came", "o"), "after": ("recalibrated", "s")}


def reliability(quality: Quality) -> dict[str, tuple[Floats, Floats]]:
    """Return the mean forecast and the rate of label 1 in bins of equal mass, of ``before`` and ``after``.

    The arrays of each are float64, one value for each of at most `ECE_BINS` bins. There has to be a label.
    """
    return {
        "before": quality.before.diagram(ECE_BINS),
        "after": quality.after.diagram(ECE_BINS),
    }


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def reliability_figure(quality: Quality) -> Figure:
    """Draw the reliability of the forecasts before and after. There has to be a label."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 5.2), layout="constrained")
    draw_reliability(figure.subplots(), quality)
    return figure


def draw_reliability(axes: Axes, quality: Quality) -> None:
    """Draw the reliability as one part of a figure."""
    for when, (forecasts, rates) in reliability(quality).items():
        name, marker = _SERIES[when]
        axes.plot(
            forecasts, rates, marker=marker, color=COLOURS[when], label=name, linewidth=1.5, markersize=5
        )
    reach = min(max(axes.get_xlim()[1], axes.get_ylim()[1]), 1.05)
    axes.plot([0, reach], [0, reach], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    axes.set(
        title=f"Reliability, {ECE_BINS} bins of equal mass",
        xlabel="forecast probability",
        ylabel="observed rate",
        xlim=(0, reach),
        ylim=(0, reach),
        aspect="equal",
    )
    axes.legend(frameon=False)


def saved(figure: Figure, suffix: str) -> bytes:
    """Return a figure as the content of a file whose name ends so: ``.png``, ``.svg`` or ``.pdf``."""
    data = io.BytesIO()
    figure.savefig(data, format=suffix.removeprefix("."), dpi=120)
    return data.getvalue()
