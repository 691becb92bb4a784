"""The shipped example: a year of late flights from JFK (examples/flights), run like a user's own stream."""

from __future__ import annotations

import gzip
import io
import lzma
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from rich.console import Console

from streamcal.cli.output_files import is_picture, refuse_unwritable, write_file
from streamcal.cli.report import is_report, run_through, write_report
from streamcal.cli.terminal import run_table, warn_if_slow
from streamcal.join.outcomes import Joined
from streamcal.monitor.build import build_status
from streamcal.monitor.report import make_report
from streamcal.quality.diagram import COLOURS, NEEDED, can_draw, draw, saved
from streamcal.quality.figures import Quality
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs
from streamcal.values import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Row = dict[str, str | float]

FILES: Final = ("source.jsonl.gz", "predictions.jsonl.gz", "labels.jsonl.gz")
"""Labelled flights of March and April; predictions and labels of May to December."""

_LINES: Final = (
    ("observed rate of the month", "#dd8452", 5),
    ("mean score as it came", COLOURS[1], 2),
    ("mean recalibrated", COLOURS[0], 2),
)
_FEWEST_LABELS: Final = 1000  # a month with fewer is not drawn


def read_events() -> tuple[list[_Row], list[_Row], list[_Row]]:
    """Return the events of the example, those of each of `FILES`, in order of time and id."""
    packed = (files("streamcal.cli") / "flights.npz.xz").read_bytes()
    columns = np.load(io.BytesIO(lzma.decompress(packed)))  # made by examples/flights/prepare.py
    minutes = columns["time"].cumsum()
    source, predictions, labels = list[_Row](), list[_Row](), list[_Row]()
    for id_, score, time_, known, label in zip(
        columns["id"].astype(str).tolist(),
        (columns["score"] / 1e6).tolist(),
        (60 * minutes).tolist(),
        (60 * (minutes + columns["delay"])).tolist(),
        columns["label"].tolist(),
        strict=True,
    ):
        if id_ < "05":  # of March and April
            source.append({"id": id_, "score": score, "label": label, "time": time_})
            continue
        predictions.append({"id": id_, "score": score, "time": time_})
        if label < 2:
            labels.append({"id": id_, "label": label, "time": known})
    return source, predictions, sorted(labels, key=itemgetter("time", "id"))


def write_files(folder: Path) -> None:
    """Write the events of the example to a folder, made if there is none, as gzip files of JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(FILES, read_events(), strict=True):
        (folder / name).write_bytes(gzip.compress(msgspec.json.Encoder().encode_lines(rows), 6, mtime=0))


def run(picture: Path, report: Path, console: Console) -> None:
    """Calibrate on March and April, recalibrate May to December; print a table, draw a picture and report.

    Without matplotlib, no picture but that of the report.
    """
    refuse_unwritable("the report", report, "a report", is_report)
    drawing = can_draw()
    if drawing:
        refuse_unwritable("--picture", picture, "a picture", is_picture)
    else:
        _say(console, f"{NEEDED}; the report has the picture")
    monthly: defaultdict[str, Floats] = defaultdict(lambda: np.zeros(4))
    priors: list[tuple[float, float]] = []

    def observe(joined: Joined) -> None:
        if joined.labelled_at is None:
            return
        month = f"{datetime.fromtimestamp(joined.labelled_at, UTC):%Y-%m}"
        monthly[month] += (1, joined.label, joined.score, joined.probability)
        if pipeline.join.counts.joined % 500 == 1:
            prior = pipeline.engines[None].target.prior
            if prior is not None:
                priors.append((joined.labelled_at, prior))

    pipeline, connectors = Pipeline(observer=observe), Connectors()
    warn_if_slow()
    console.print("Late flights from JFK, New York, 2013: calibrating on March and April …")
    console.print("… recalibrating May to December, each label at the actual arrival …")
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        source, *stream = (str(Path(folder, name)) for name in FILES)
        calibration = connectors.source(source, SourceOptions(domain="source"))
        inputs = Inputs([calibration], [connectors.source(name) for name in stream])
        history = run_through(pipeline, inputs)
    status = build_status(pipeline, inputs.sources, history=history, options=RunConfig().shown())
    console.print(run_table(status))
    if drawing:
        write_file("--picture", picture, _draw(pipeline.quality, priors, monthly))
        _say(console, f"picture: {picture}")
    write_report("the report", report, make_report(status, ["the flights from JFK in 2013"]))
    _say(console, f"report: {report}")


def _draw(quality: Quality, priors: list[tuple[float, float]], monthly: Mapping[str, Floats]) -> bytes:
    """Draw a picture as PNG: reliability before and after, mean forecasts and running prior by month."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw(left, quality.series)
    _draw_months(right, priors, monthly)
    return saved(figure, ".png")


def _draw_months(axes: Axes, priors: list[tuple[float, float]], monthly: Mapping[str, Floats]) -> None:
    """Draw the running prior, and means of the labels, scores and probabilities of each month."""
    days: Any = [datetime.fromtimestamp(time, UTC) for time, _ in priors]
    estimates = [prior for _, prior in priors]
    axes.plot(days, estimates, color="0.6", linewidth=1, label="running prior, all labels")
    for index, (month, (labels, *sums)) in enumerate(sorted(monthly.items())):
        if labels < _FEWEST_LABELS:
            continue
        start = datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC)
        end = (start + timedelta(days=32)).replace(day=1)
        for sum_, (name, colour, width) in zip(sums, _LINES, strict=True):
            axes.hlines(
                sum_ / labels,
                start,  # type: ignore[arg-type]
                end,  # type: ignore[arg-type]
                color=colour,
                linewidth=width,
                label="" if index else name,
            )
    axes.set(title="Month by month", ylabel="P[label = 1]", ylim=(0, None))
    axes.tick_params(axis="x", rotation=30)
    axes.legend(frameon=False, loc="lower right")


def _say(console: Console, text: str) -> None:
    """Print a line as it stands: a path may have brackets, which are markup, and be longer than the line."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
