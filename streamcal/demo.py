"""The shipped example: a year of late flights (examples/flights), run as a user's own stream would be."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from streamcal.config import read_config
from streamcal.join import Joined
from streamcal.pipeline import Pipeline, merge_by_time
from streamcal.ports import Source, connector
from streamcal.report import ReliabilityDiagram, draw, run_table
from streamcal.types import Domain, LabelEvent

__all__ = ["data_folder", "run"]


def data_folder() -> Path:
    """Return where the flights are: beside the package when installed, in examples/ in a checkout."""
    installed = Path(str(files("streamcal"))) / "flights"
    return installed if installed.is_dir() else Path(__file__).parents[1] / "examples" / "flights"


def run(picture: Path, console: Console) -> None:
    """Calibrate on March and April, recalibrate May to December as labels arrive; print, and draw."""
    before, after = ReliabilityDiagram(), ReliabilityDiagram()
    monthly: dict[str, tuple[int, int]] = {}
    priors: list[tuple[float, float]] = []

    def observe(joined: Joined) -> None:
        before.add(joined.score, joined.label)
        after.add(joined.probability, joined.label)

    folder = data_folder()
    options = read_config(folder / "config.toml")
    pipeline = Pipeline(options.recalibrator, options.join, observer=observe)
    calibration = _open(folder / "source.jsonl.gz", "source")
    predictions = _open(folder / "predictions.jsonl.gz", "target")
    labels = _open(folder / "labels.jsonl.gz", "target")
    console.print("Late flights from New York, 2013: calibrating on March and April …")
    for item in itertools.chain.from_iterable(calibration.batches()):
        pipeline.calibrate(item)
    console.print("… recalibrating May to December, each label at the actual arrival …")
    stream = merge_by_time(
        itertools.chain.from_iterable(predictions.batches()),
        itertools.chain.from_iterable(labels.batches()),
    )
    for item in stream:
        pipeline.step(item)
        if isinstance(item, LabelEvent) and item.time is not None:
            month = f"{datetime.fromtimestamp(item.time, UTC):%Y-%m}"
            positives, count = monthly.get(month, (0, 0))
            monthly[month] = (positives + item.label, count + 1)
            if pipeline.counts.joined % 500 == 1:
                prior = pipeline.engines[None].target.prior
                if prior is not None:
                    priors.append((item.time, prior))
    pipeline.close()
    console.print(run_table(pipeline, predictions.unknown_fields + labels.unknown_fields))
    draw(picture, before, after, priors, monthly)
    console.print(f"picture: {picture}")


def _open(path: Path, domain: Domain) -> Source:
    return connector(str(path)).source(str(path), domain)
