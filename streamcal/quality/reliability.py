"""The reliability diagram of a run, before and after recalibration, drawn by matplotlib (extra ``plots``)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from streamcal.maps.platt import expit, logit
from streamcal.quality.figures import ECE_BINS, Quality
from streamcal.values import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "INTERVAL",
    "NEEDED",
    "can_draw",
    "draw_reliability",
    "rate_intervals",
    "reliability_figure",
    "saved",
]

NEEDED: Final = "a picture needs matplotlib: pip install '.[plots]' in a checkout of streamcal"

COLOURS: Final = {"before": "#c44e52", "after": "#2a6f97"}
"""Colours of the scores and of the recalibrated probabilities, in every picture."""

INTERVAL: Final = 0.95
"""Coverage of the interval of one bin at one moment; no certificate."""

_FINEST: Final = 512  # bins of the density: nearly the cells of the sketch
_BARS: Final = 41
_SERIES: Final = {"before": ("score as it came", "o"), "after": ("recalibrated", "s")}


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
    """Draw the reliability as one part of a figure: bins with the intervals of their rates, and densities.

    Both axes are log-odds where more than half of the forecasts are below 0.1 or above 0.9. There a bin
    without a label of one class lies at the edge, off the line.
    """
    both = {"before": quality.before, "after": quality.after}
    bins = {when: each.bins(ECE_BINS) for when, each in both.items()}
    masses, sums, _ = map(np.concatenate, zip(*bins.values(), strict=True))
    extreme = (sums < 0.1 * masses) | (sums > 0.9 * masses)
    log_odds = float(masses[extreme].sum()) > float(masses.sum()) / 2.0
    low, high = _reach(list(bins.values()), log_odds=log_odds)
    edges = np.linspace(low, high, _BARS)
    if log_odds:
        first, last = logit(edges[[0, -1]]).tolist()
        edges[1:-1] = expit(np.linspace(first, last, _BARS))[1:-1]
    density = axes.twinx()
    for when, (mass, forecasts, positives) in bins.items():
        name, marker = _SERIES[when]
        rates, at = np.clip(positives / mass, low, high), np.clip(forecasts / mass, low, high)
        ends = np.clip(rate_intervals(mass, positives), low, high)
        errors = np.abs(ends - rates)
        axes.errorbar(
            at,
            rates,
            errors,
            marker=marker,
            color=COLOURS[when],
            label=name,
            linestyle="none",
            elinewidth=0.8,
            markersize=4,
            clip_on=False,
        )
        seen = (positives > 0.0) & (positives < mass) if log_odds else mass > 0.0
        axes.plot(at[seen], rates[seen], color=COLOURS[when], linewidth=1.5)
        mass, forecasts, _ = both[when].bins(_FINEST)
        density.hist(
            np.clip(forecasts / mass, low, high),
            edges.tolist(),
            weights=mass,
            color=COLOURS[when],
            alpha=0.25,
        )
    axes.plot([low, high], [low, high], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    if log_odds:
        axes.set(xscale="logit", yscale="logit")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter("")
    density.set(ylim=(0, 5.0 * density.get_ylim()[1]), yticks=[])
    axes.set(
        title=f"Reliability, {ECE_BINS} bins of equal mass",
        xlabel="forecast probability, and its density",
        ylabel=f"observed rate, {INTERVAL:.0%} intervals",
        xlim=(low, high),
        ylim=(low, high),
        box_aspect=1,
    )
    axes.legend(frameon=False, loc="upper left")


def rate_intervals(labels: Floats, positives: Floats) -> Floats:
    """Return the ends of the `INTERVAL` of each rate (Clopper and Pearson), float64[2, n]."""
    from scipy.special import betaincinv  # takes a fifth of the time in which the command starts

    negatives, tail = labels - positives, (1.0 - INTERVAL) / 2.0
    low = betaincinv(np.maximum(positives, 1.0), negatives + 1.0, tail)
    high = betaincinv(positives + 1.0, np.maximum(negatives, 1.0), 1.0 - tail)
    return np.array([np.where(positives > 0.0, low, 0.0), np.where(negatives > 0.0, high, 1.0)])


def _reach(bins: Sequence[tuple[Floats, Floats, Floats]], *, log_odds: bool) -> tuple[float, float]:
    """Return the ends of both axes: so that all bins are seen, those at 0 and 1 in log-odds at an edge."""
    shown = np.concatenate([part / mass for mass, *parts in bins for part in parts])
    if not log_odds:
        return 0.0, min(1.05 * float(shown.max()), 1.0)
    inside = shown[(shown > 0.0) & (shown < 1.0)]
    ends = np.array([inside.min(), inside.max()]) if len(inside) else np.array([0.01, 0.99])
    low, high = expit(logit(ends) + np.array([-0.5, 0.5])).tolist()
    return low, high


def saved(figure: Figure, suffix: str) -> bytes:
    """Return a figure as the content of a file whose name ends so: ``.png``, ``.svg`` or ``.pdf``."""
    data = io.BytesIO()
    figure.savefig(data, format=suffix.removeprefix("."), dpi=120)
    return data.getvalue()
