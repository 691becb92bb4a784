"""The shipped example: a year of late flights (examples/flights), run like a user's own stream."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from streamcal.cli.picture import Month, ReliabilityDiagram, draw
from streamcal.cli.report import run_table
from streamcal.join.join import Joined
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Connectors
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner

__all__ = ["data_folder", "run"]


def data_folder() -> Path:
    """Return the folder of the flights: in the installed package, or examples/ in a checkout."""
    installed = Path(str(files("streamcal"))) / "flights"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "examples" / "flights"


def run(picture: Path, console: Console) -> None:
    """Calibrate on March and April, recalibrate May to December; print a table and draw a picture."""
    before, after = ReliabilityDiagram(), ReliabilityDiagram()
    monthly: dict[str, Month] = {}
    priors: list[tuple[float, float]] = []

    def observe(joined: Joined) -> None:
        before.add(joined.score, joined.label)
        after.add(joined.probability, joined.label)
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
    calibration = connectors.source(str(folder / "source.jsonl.gz"), "source")
    predictions = connectors.source(str(folder / "predictions.jsonl.gz"))
    labels = connectors.source(str(folder / "labels.jsonl.gz"))
    console.print("Late flights from New York, 2013: calibrating on March and April …")
    console.print("… recalibrating May to December, each label at the actual arrival …")
    inputs = Inputs([calibration], [predictions, labels])
    Runner(pipeline, inputs, Outputs(NullSink()), None, clock=time.monotonic).run()
    console.print(run_table(pipeline, 0))
    draw(picture, before, after, priors, monthly)
    console.print(f"picture: {picture}")
