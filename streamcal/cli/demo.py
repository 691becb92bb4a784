"""The shipped example: a year of late flights (examples/flights), run like a user's own stream."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

from rich.console import Console

from streamcal.cli.picture import Month, demo_picture, is_picture
from streamcal.cli.report import is_report, write_report
from streamcal.cli.table import run_table
from streamcal.cli.terminal import EXIT_USAGE, fail
from streamcal.cli.whole import refuse_unwritable, write_whole
from streamcal.join.outcomes import Joined
from streamcal.monitor.build import build_status
from streamcal.monitor.run_history import RunHistory
from streamcal.quality.reliability import NEEDED, can_draw
from streamcal.report.record import make_report
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner

__all__ = ["copy_files", "data_folder", "run"]

FILES: Final = ("source.jsonl.gz", "predictions.jsonl.gz", "labels.jsonl.gz")
"""Labelled flights of March and April; predictions and labels of May to December."""


def data_folder() -> Path:
    """Return the folder of the flights: in the installed package, or examples/ in a checkout."""
    installed = Path(str(files("streamcal"))) / "flights"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "examples" / "flights"


def copy_files(folder: Path, console: Console) -> None:
    """Copy the files of the example to a folder, made if there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (folder / name).write_bytes((data_folder() / name).read_bytes())
    except OSError as error:
        fail(f"--files: cannot write to {folder}: {error.strerror or error}", EXIT_USAGE)
    _say(console, f"{', '.join(FILES)}: in {folder}")


def run(picture: Path, report: Path, console: Console) -> None:
    """Calibrate on March and April, recalibrate May to December; print a table, draw a picture and report.

    Without matplotlib, no picture.
    """
    refuse_unwritable("the report", report, "a report", is_report)
    drawing = can_draw()
    if drawing:
        refuse_unwritable("--picture", picture, "a picture", is_picture)
    else:
        _say(console, f"{NEEDED}; going on without it")
    monthly: dict[str, Month] = {}
    priors: list[tuple[float, float]] = []

    def observe(joined: Joined) -> None:
        if joined.labelled_at is None:
            return
        month = f"{datetime.fromtimestamp(joined.labelled_at, UTC):%Y-%m}"
        total = monthly.get(month, Month(0, 0, 0.0, 0.0))
        monthly[month] = Month(
            total.labels + 1,
            total.positives + joined.label,
            total.scores + joined.score,
            total.probabilities + joined.probability,
        )
        if pipeline.counts.joined % 500 == 1:
            prior = pipeline.engines[None].target.prior
            if prior is not None:
                priors.append((joined.labelled_at, prior))

    folder = data_folder()
    pipeline = Pipeline(observer=observe)
    connectors = Connectors()
    calibration = connectors.source(str(folder / FILES[0]), SourceOptions(domain="source"))
    predictions, labels = (connectors.source(str(folder / name)) for name in FILES[1:])
    console.print("Late flights from New York, 2013: calibrating on March and April …")
    console.print("… recalibrating May to December, each label at the actual arrival …")
    inputs, course = Inputs([calibration], [predictions, labels]), RunHistory()

    def after(outcome: Outcome, seconds: float) -> None:  # noqa: ARG001  # the signature of an `after`
        course.take(outcome)

    Runner(pipeline, inputs, Outputs(NullSink()), None, clock=time.monotonic, after=after).run()
    sources = [calibration, predictions, labels]
    status = build_status(pipeline, sources, history=course, options=RunConfig().shown())
    console.print(run_table(status))
    if drawing:
        write_whole("--picture", picture, demo_picture(pipeline.quality, priors, monthly))
        _say(console, f"picture: {picture}")
    write_report("the report", report, make_report(status, ["the flights from New York in 2013"]))
    _say(console, f"report: {report}")


def _say(console: Console, text: str) -> None:
    """Print a line as it stands: a path may have brackets, which are markup, and be longer than the line."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
