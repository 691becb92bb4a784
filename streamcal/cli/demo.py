"""The shipped example: a year of late flights from JFK (examples/flights), run like a user's own stream."""

from __future__ import annotations

import gzip
import io
import lzma
import tempfile
import time
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from rich.console import Console

from streamcal.cli.output_files import refuse_unwritable
from streamcal.cli.progress import Meter
from streamcal.cli.report import is_report, write_report
from streamcal.cli.terminal import run_table, warn_if_slow
from streamcal.monitor.build import build_status
from streamcal.monitor.report import make_report
from streamcal.monitor.run_history import RunHistory
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner

_Row = dict[str, str | float]

FILES: Final = ("source.jsonl.gz", "predictions.jsonl.gz", "labels.jsonl.gz")
"""Labelled flights of March and April; predictions and labels of May to December."""


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


def run(report: Path, console: Console) -> None:
    """Calibrate on March and April, recalibrate May to December; print a table, and write a report."""
    refuse_unwritable("--report", report, "a report", is_report)
    pipeline, connectors = Pipeline(), Connectors()
    warn_if_slow()
    console.print("Late flights from JFK, New York, 2013: calibrating on March and April …")
    console.print("… recalibrating May to December, each label at the actual arrival …")
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        source, *stream = (str(Path(folder, name)) for name in FILES)
        calibration = connectors.source(source, SourceOptions(domain="source"))
        inputs = Inputs([calibration], [connectors.source(name) for name in stream])
        history = _run_through(pipeline, inputs)
    status = build_status(pipeline, inputs.sources, history=history, options=RunConfig().shown())
    console.print(run_table(status))
    write_report("--report", report, make_report(status, ["the flights from JFK in 2013"]))
    console.print(f"report: {report}", markup=False, highlight=False, soft_wrap=True)


def _run_through(pipeline: Pipeline, inputs: Inputs) -> RunHistory:
    """Run a pipeline over inputs, with a line that shows how far it is."""
    history, meter = RunHistory(), Meter(lambda: pipeline.processed, inputs.sources)

    def after(outcome: Outcome, seconds: float) -> None:  # noqa: ARG001  # the signature of an `after`
        meter.show()
        history.take(outcome)

    runner = Runner(pipeline, inputs, Outputs(NullSink()), None, clock=time.monotonic, after=after)
    with meter.line:
        runner.run()
    return history
