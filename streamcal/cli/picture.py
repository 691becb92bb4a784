"""Pictures: reliability before and after, of any run; with it, the months of the demo's deployment."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamcal.run.quality import Quality

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FORMATS",
    "NEEDED",
    "Month",
    "can_draw",
    "demo_picture",
    "is_picture",
    "reliability_figure",
    "reliability_picture",
]

NEEDED: Final = "a picture needs matplotlib: pip install '.[plots]' in a checkout of streamcal"

FORMATS: Final = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
"""What a picture can be: the end of its file's name, and how its content begins."""

_BINS: Final = 15
_FEWEST_LABELS: Final = 1000  # a month with fewer is not drawn
_BEFORE, _AFTER = "#c44e52", "#2a6f97"


class Month(NamedTuple):
    """The labels that arrived in a month, with their forecasts."""

    labels: int
    positives: int
    scores: float
    """The sum of the scores."""
    probabilities: float
    """The sum of the recalibrated probabilities."""


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def is_picture(data: bytes) -> bool:
    """Whether a file has the content of a picture."""
    return data.startswith(tuple(FORMATS.values()))


def reliability_figure(quality: Quality) -> Figure:
    """Draw the reliability of the forecasts before and after. There has to be a label."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 5.2), layout="constrained")
    _draw_reliability(figure.subplots(), quality)
    return figure


def reliability_picture(quality: Quality, suffix: str) -> bytes:
    """Draw `reliability_figure` as one of `FORMATS`."""
    return _saved(reliability_figure(quality), suffix)


def demo_picture(quality: Quality, priors: list[tuple[float, float]], monthly: dict[str, Month]) -> bytes:
    """Draw the demo's picture as PNG: reliability before and after, mean forecasts and prior by month.

    Parameters
    ----------
    priors
        (time in seconds since the epoch, running prior of the target).
    monthly
        by the month as ``YYYY-MM``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_reliability(left, quality)
    _draw_months(right, priors, monthly)
    return _saved(figure, ".png")


def _saved(figure: Figure, suffix: str) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format=suffix.removeprefix("."), dpi=120)
    return data.getvalue()


def _draw_reliability(axes: Axes, quality: Quality) -> None:
    series = [
        ("score as it came", quality.before, _BEFORE, "o"),
        ("recalibrated", quality.after, _AFTER, "s"),
    ]
    for name, forecasts_of, colour, marker in series:
        forecasts, rates = forecasts_of.diagram(_BINS)
        axes.plot(forecasts, rates, marker=marker, color=colour, label=name, linewidth=1.5, markersize=5)
    reach = min(max(axes.get_xlim()[1], axes.get_ylim()[1]), 1.05)
    axes.plot([0, reach], [0, reach], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    axes.set(
        title=f"Reliability, {_BINS} bins of equal mass",
        xlabel="forecast probability",
        ylabel="observed rate",
        xlim=(0, reach),
        ylim=(0, reach),
        aspect="equal",
    )
    axes.legend(frameon=False)


def _draw_months(axes: Axes, priors: list[tuple[float, float]], monthly: dict[str, Month]) -> None:
    days: Any = [datetime.fromtimestamp(time, UTC) for time, _ in priors]
    estimates = [prior for _, prior in priors]
    axes.plot(days, estimates, color="0.6", linewidth=1, label="running prior, all labels")
    for index, (month, total) in enumerate(sorted(monthly.items())):
        if total.labels < _FEWEST_LABELS:
            continue
        start = datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC)
        end = (start + timedelta(days=32)).replace(day=1)
        for name, sum_, colour, width in (
            ("observed rate of the month", total.positives, "#dd8452", 5),
            ("mean score as it came", total.scores, _BEFORE, 2),
            ("mean recalibrated", total.probabilities, _AFTER, 2),
        ):
            axes.hlines(
                sum_ / total.labels,
                start,  # type: ignore[arg-type]
                end,  # type: ignore[arg-type]
                color=colour,
                linewidth=width,
                label="" if index else name,
            )
    axes.set(title="Month by month", ylabel="P[label = 1]", ylim=(0, None))
    axes.tick_params(axis="x", rotation=30)
    axes.legend(frameon=False, loc="lower right")
