"""The picture of the demo: reliability before and after, and the months of the deployment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.maps import binning
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Month", "ReliabilityDiagram", "draw"]

_FEWEST_LABELS: Final = 1000  # a month with fewer is not drawn
_BEFORE, _AFTER = "#c44e52", "#2a6f97"


class ReliabilityDiagram:
    """A reliability diagram of a stream, in bounded memory, with any number of equal-mass bins."""

    def __init__(self) -> None:
        self._sketch = ScoreSketch(1024)
        self._forecasts: list[float] = []
        self._labels: list[int] = []

    def add(self, forecast: float, label: int) -> None:
        """Add a forecast in [0, 1] with its label, 0 or 1."""
        self._forecasts.append(forecast)
        self._labels.append(label)
        if len(self._labels) >= 1 << 16:
            self._flush()

    def bins(self, count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the mean forecast and the rate of label 1 of at most ``count`` equal-mass bins.

        Both arrays are float64[bins]. The rates are exact; a forecast counts as the middle of its cell.
        """
        self._flush()
        cells, (negatives, positives) = self._sketch.cells, self._sketch.counts
        totals = negatives + positives
        splits = binning.uniform_mass(totals, count)
        level = self._sketch.level
        middle = (grid.left_edges(cells, level) + grid.left_edges(cells + np.int32(1), level)) / 2.0
        mass = binning.bin_sums(totals, splits)
        forecasts = np.add.reduceat(totals * middle, splits[:-1]) / mass
        return forecasts, binning.bin_sums(positives, splits) / mass

    def _flush(self) -> None:
        if self._labels:
            self._sketch.add(self._forecasts, self._labels)
            self._forecasts.clear()
            self._labels.clear()


class Month(NamedTuple):
    """The labels that arrived in a month, with their forecasts."""

    labels: int
    positives: int
    scores: float
    """The sum of the scores."""
    probabilities: float
    """The sum of the recalibrated probabilities."""


def draw(
    path: Path,
    before: ReliabilityDiagram,
    after: ReliabilityDiagram,
    priors: list[tuple[float, float]],
    monthly: dict[str, Month],
) -> None:
    """Draw the demo's picture as PNG: reliability before and after, mean forecasts and prior by month.

    Parameters
    ----------
    priors
        (time in seconds since the epoch, running prior of the target).
    monthly
        by the month as ``YYYY-MM``.

    Raises
    ------
    ModuleNotFoundError
        if matplotlib is missing; the message names the extra to install.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a picture needs matplotlib: pip install 'streamcal-engine[plots]'"
        ) from error
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_reliability(left, before, after)
    _draw_months(right, priors, monthly)
    figure.savefig(path, dpi=120)


def _draw_reliability(axes: Axes, before: ReliabilityDiagram, after: ReliabilityDiagram) -> None:
    series = [("score as it came", before, _BEFORE, "o"), ("recalibrated", after, _AFTER, "s")]
    for name, diagram, colour, marker in series:
        forecasts, rates = diagram.bins(15)
        axes.plot(forecasts, rates, marker=marker, color=colour, label=name, linewidth=1.5, markersize=5)
    reach = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([0, reach], [0, reach], color="0.6", linewidth=1, linestyle="--", label="calibrated")
    axes.set(
        title="Reliability, 15 bins of equal mass",
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
