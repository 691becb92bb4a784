"""Pictures as files: which they can be, and the demo's, with the months of its deployment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamcal.quality.figures import Quality
from streamcal.quality.reliability import COLOURS, draw_reliability, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FORMATS", "Month", "demo_picture", "is_picture"]

FORMATS: Final = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
"""File formats of a picture: the file name's suffix, and the first bytes of the content."""

_FEWEST_LABELS: Final = 1000  # a month with fewer is not drawn


class Month(NamedTuple):
    """The labels that arrived in a month, with their forecasts."""

    labels: int
    positives: int
    scores: float
    """The sum of the scores."""
    probabilities: float
    """The sum of the recalibrated probabilities."""


def is_picture(data: bytes) -> bool:
    """Whether a file has the content of a picture."""
    return data.startswith(tuple(FORMATS.values()))


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
    draw_reliability(left, quality)
    _draw_months(right, priors, monthly)
    return saved(figure, ".png")


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
            ("mean score as it came", total.scores, COLOURS["before"], 2),
            ("mean recalibrated", total.probabilities, COLOURS["after"], 2),
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
