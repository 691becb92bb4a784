"""What a run shows a person: the table at its end, and the picture of the demo."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from rich.table import Table
from rich.text import Text

from streamcal.engine.engine import Engine
from streamcal.maps import binning
from streamcal.run.pipeline import Pipeline
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWEST_LABELS: Final = 1000  # of a month whose rate is drawn
_BEFORE, _AFTER = "#c44e52", "#2a6f97"
_SHOWN_KEYS: Final = 20

__all__ = ["Month", "ReliabilityDiagram", "draw", "run_summary", "run_table"]


class ReliabilityDiagram:
    """A reliability diagram of a stream of forecasts in bounded memory: equal-mass bins, any number."""

    def __init__(self) -> None:
        self._sketch = ScoreSketch(1024)
        self._forecasts: list[float] = []
        self._labels: list[int] = []

    def add(self, forecast: float, label: int) -> None:
        """Take one forecast in [0, 1] with its label."""
        self._forecasts.append(forecast)
        self._labels.append(label)
        if len(self._labels) >= 1 << 16:
            self._flush()

    def bins(self, count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return mean forecast and rate of label 1 of at most ``count`` equal-mass bins.

        The rates are exact; a forecast counts as the middle of its cell.
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


def run_table(pipeline: Pipeline, unknown_fields: int) -> Table:
    """Return the table at the end of a run."""
    tally, counts = pipeline.tally, pipeline.counts
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rows: list[tuple[str, int | float | str | None]] = [
        ("events", tally.events),
        ("source labels", tally.source_labels),
        ("predictions", counts.predictions),
        ("labels", counts.labels),
        ("  joined", counts.joined),
        ("  early (before their prediction)", counts.early),
        ("  late (after their prediction expired)", counts.late),
        ("  unmatched (prediction never came)", counts.unmatched),
        ("duplicate", counts.duplicate),
        ("  corrected (label unlike the first)", counts.corrected),
        ("expired (label never came in time)", counts.expired),
        ("pending at the end", pipeline.pending),
        ("rejected", tally.rejected),
        ("unknown fields kept out", unknown_fields),
        ("Brier score before", tally.brier_before),
        ("Brier score after", tally.brier_after),
    ]
    engines = pipeline.first_engines(_SHOWN_KEYS)
    for key, engine in engines.items():
        name = "" if len(engines) == 1 else f" [{key}]"
        rows += [
            (f"map version{name}", engine.version),
            (f"bins{name}", engine.map.bins or "identity"),
            (f"prior, source{name}", engine.source.prior),
            (f"prior, target{name}", engine.target.prior),
            *_claims(engine, name),
        ]
    if len(pipeline.engines) > len(engines):
        rows.append(("keys", len(pipeline.engines)))
    for label, value in rows:
        table.add_row(Text(label), Text(_show(value)))  # a key is no markup
    return table


def _claims(engine: Engine, name: str) -> list[tuple[str, float | str | None]]:
    """Return what is certified of a map, and of what that withdraws."""
    certificate = engine.certificate
    if certificate is None:
        return [(f"certified risk{name}", None)]
    share = f"{1.0 - certificate.delta:.0%}"
    rows: list[tuple[str, float | str | None]] = [
        (f"certified risk of h, {certificate.domain} ({share} sure){name}", certificate.risk)
    ]
    if certificate.domain == "source" and certificate.target_risk is not None:
        rows.append((f"certified risk in the target ({share} sure){name}", certificate.target_risk))
    rows += [(f"refuted{name}", assumption) for assumption in certificate.refuted]
    return rows


def run_summary(pipeline: Pipeline, unknown_fields: int) -> dict[str, Any]:
    """Return the same for a machine."""
    tally = pipeline.tally
    return {
        "events": tally.events,
        "source_labels": tally.source_labels,
        "rejected": tally.rejected,
        "unknown_fields": unknown_fields,
        "join": msgspec.structs.asdict(pipeline.counts),
        "pending": pipeline.pending,
        "brier_before": tally.brier_before,
        "brier_after": tally.brier_after,
        "keys": len(pipeline.engines),
        "map_versions": {
            key or "": engine.version for key, engine in pipeline.first_engines(_SHOWN_KEYS).items()
        },
    }


def _show(value: float | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.5f}"


class Month(NamedTuple):
    """The labels that came in a month, with what had been forecast."""

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
    """Draw the demo's picture as PNG: reliability before and after; mean forecasts and prior by month.

    Parameters
    ----------
    priors
        (time in seconds since the epoch, running prior of the target).
    monthly
        by the month as ``YYYY-MM``.

    Raises
    ------
    ModuleNotFoundError
        without matplotlib; it names the extra to install.
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
