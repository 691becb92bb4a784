"""The reliability diagram of a run, before and after recalibration, drawn by matplotlib (extra ``plots``)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from streamcal.maps.platt import expit, logit
from streamcal.quality.diagram import (
    COLOURS,
    SIZE,
    Scale,
    draw_density,
    place_legend,
    rated,
    scale_for,
    set_axes,
)
from streamcal.quality.figures import ECE_BINS, Quality
from streamcal.values import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "INTERVAL",
    "draw_reliability",
    "rate_intervals",
    "reliability_figure",
    "saved",
]

INTERVAL: Final = 0.95
"""Coverage of the interval of one bin at one moment; no certificate."""

_FINEST: Final = 512  # bins of the density: nearly the cells of the sketch
_SERIES: Final = {"before": ("score as it came", "o"), "after": ("recalibrated", "s")}


def reliability_figure(quality: Quality) -> Figure:
    """Draw the reliability of the forecasts before and after, without pyplot. There has to be a label."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    draw_reliability(figure.subplots(), quality)
    return figure


def draw_reliability(axes: Axes, quality: Quality, scale: Scale | None = None) -> None:
    """Draw the reliability as one part of a figure: bins with the intervals of their rates, and densities.

    Both axes are log-odds (``"logit"``) if most forecasts are below 0.02 or above 0.98 and nothing is asked
    for. There a bin without a label of one class lies at the edge, off the line.
    """
    both = {"before": quality.before, "after": quality.after}
    bins = {when: each.bins(ECE_BINS) for when, each in both.items()}
    finest = {when: each.bins(_FINEST) for when, each in both.items()}
    masses, sums, _ = map(np.concatenate, zip(*finest.values(), strict=True))
    scale = scale_for(sums / masses, masses, scale)
    low, high = _reach(list(bins.values()), scale)
    set_axes(axes, low, high, scale)
    for when, (mass, forecasts, positives) in bins.items():
        name, marker = _SERIES[when]
        rates, at = np.clip(positives / mass, low, high), np.clip(forecasts / mass, low, high)
        ends = np.clip(rate_intervals(mass, positives), low, high)
        figures = both[when].figures
        axes.errorbar(
            at,
            rates,
            np.abs(ends - rates),
            marker=marker,
            color=COLOURS[when],
            label=f"{name}: {rated(figures.ece or 0.0, figures.brier or 0.0)}",
            linestyle="none",
            elinewidth=0.8,
            markersize=4,
            clip_on=False,
        )
        seen = (positives > 0.0) & (positives < mass) if scale == "logit" else mass > 0.0
        axes.plot(at[seen], rates[seen], color=COLOURS[when], linewidth=1.5)
    draw_density(axes, [(sums / mass, mass, COLOURS[when]) for when, (mass, sums, _) in finest.items()])
    axes.set(
        title=f"{quality.before.labels:,} labels, {ECE_BINS} bins of equal mass",
        xlabel="forecast probability",
        ylabel=f"observed rate, {INTERVAL:.0%} intervals",
    )
    place_legend(axes)


def rate_intervals(labels: Floats, positives: Floats) -> Floats:
    """Return the ends of the `INTERVAL` of each rate (Clopper and Pearson), float64[2, n]."""
    from scipy.special import betaincinv  # takes a fifth of the time in which the command starts

    negatives, tail = labels - positives, (1.0 - INTERVAL) / 2.0
    low = betaincinv(np.maximum(positives, 1.0), negatives + 1.0, tail)
    high = betaincinv(positives + 1.0, np.maximum(negatives, 1.0), 1.0 - tail)
    return np.array([np.where(positives > 0.0, low, 0.0), np.where(negatives > 0.0, high, 1.0)])


def _reach(bins: Sequence[tuple[Floats, Floats, Floats]], scale: Scale) -> tuple[float, float]:
    """Return the ends of both axes: so that all bins are seen, those at 0 and 1 in log-odds at an edge."""
    shown = np.concatenate([part / mass for mass, *parts in bins for part in parts])
    if scale == "linear":
        return 0.0, min(1.05 * float(shown.max()), 1.0) or 1.0
    inside = shown[(shown > 0.0) & (shown < 1.0)]
    ends = np.array([inside.min(), inside.max()]) if len(inside) else np.array([0.01, 0.99])
    low, high = expit(logit(ends) + np.array([-0.5, 0.5])).tolist()
    return low, high


def saved(figure: Figure, suffix: str) -> bytes:
    """Return a figure as the content of a file whose name ends so: ``.png``, ``.svg`` or ``.pdf``."""
    data = io.BytesIO()
    figure.savefig(data, format=suffix.removeprefix("."), dpi=120)
    return data.getvalue()
