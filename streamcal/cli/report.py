"""``streamcal report``: a report of a store, or of a run over files that writes nothing else."""

# ruff: noqa: RUF009  # `option` gives a field

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from streamcal.cli.opening import begin, ending, open_inputs, open_store, refuse_damaged, refuse_empty
from streamcal.cli.options import (
    InputOptions,
    LearningOptions,
    Named,
    option,
    takes_options,
)
from streamcal.cli.output_files import as_json, has_fields, refuse_unwritable, write_file
from streamcal.cli.progress import Meter, busy
from streamcal.cli.terminal import Exit, Stop, fail, failing, set_up_logging
from streamcal.errors import StoreError
from streamcal.monitor.build import build_status
from streamcal.monitor.report import MARK, Report, as_html, make_report
from streamcal.monitor.run_history import RunHistory, stored_history
from streamcal.run.config import RunConfig
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Store
from streamcal.run.runner import Inputs, Runner
from streamcal.run.stored import stored_pipeline

_HEAD_BYTES: Final = 4096  # in which a report says what it is


@dataclass(frozen=True, kw_only=True)
class _ReportOptions(LearningOptions, InputOptions):
    events: list[str] = option(
        "Without a store: predictions, as for `streamcal run`; may be repeated.", (), role="read"
    )


@takes_options
def report(
    store: Annotated[
        str | None, typer.Argument(help="The store of a run, which may still be running.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Where the report goes: report.html if not given; with --json, standard output.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a page.")] = False,
    *,
    given: _ReportOptions,
) -> None:
    """Write a report: how good the forecasts are, what is certified, what is doubtful, in one HTML file.

    Of a store, as of its last commit. Or of predictions and labels: they are run through as by `streamcal
    run`, and nothing but the report is written.
    """
    set_up_logging(as_json=False)
    if (store is None) == (not given.events):
        fail("give either a store, or --events with --labels", Exit.USAGE)
    if store is not None and any(astuple(given)):
        fail("a store has its inputs and options: give others with --events, and no store", Exit.USAGE)
    path = output if output is not None or json else Path("report.html")
    more = [Named("the store", store, "store"), Named("--output", path, "written")]
    options, stop, connectors = begin(given, more)
    if path is not None:
        refuse_unwritable("--output", path, "a report", is_report)
    with ExitStack() as stack:
        if store is not None:
            with busy("reading the store"):
                made = _of_store(open_store(connectors, store, stack, read_only=True), store)
        else:
            inputs = open_inputs(connectors, options.columns, stack, given)
            made = _of_inputs(inputs, given.urls, options, stop)
    if path is None:
        sys.stdout.buffer.write(as_json(made))
        sys.stdout.buffer.flush()
        return
    if json:
        write_file("--output", path, as_json(made))
    else:
        write_report("--output", path, made)
    Console().print(f"report: {path}", markup=False, highlight=False, soft_wrap=True)


def is_report(data: bytes) -> bool:
    """Whether a file has the content of a report, as HTML or as JSON."""
    html = f'<meta name="generator" content="{MARK}'.encode() in data[:_HEAD_BYTES]
    return html or has_fields(data, Report.__struct_fields__)


def write_report(option: str, path: Path, made: Report) -> None:
    """Write a report as HTML."""
    write_file(option, path, as_html(made).encode())


def _of_store(kept: Store, url: str) -> Report:
    with failing(Exit.UNUSABLE, StoreError, ValueError):
        pipeline = stored_pipeline(kept)
        if pipeline is None:
            fail(f"{url} holds nothing yet: no run has committed an event to it", Exit.NOTHING_READ)
        # The join's options are not in a store: they may change from run to run.
        options = {"recalibrator": pipeline.options.config.model_dump(mode="json")}
        status = build_status(pipeline, None, history=stored_history(kept), options=options)
        return make_report(status, [url])


def run_through(pipeline: Pipeline, inputs: Inputs, stop: Callable[[], bool] = bool) -> RunHistory:
    """Run a pipeline over inputs that write nothing, with a line that shows how far it is."""
    history, meter = RunHistory(), Meter(lambda: pipeline.processed, inputs.sources)

    def after(outcome: Outcome, seconds: float) -> None:  # noqa: ARG001  # the signature of an `after`
        meter.show()
        history.take(outcome)

    runner = Runner(pipeline, inputs, Outputs(NullSink()), None, clock=time.monotonic, stop=stop, after=after)
    with meter.line:
        runner.run()
    return history


def _of_inputs(inputs: Inputs, urls: Sequence[str], options: RunConfig, stop: Stop) -> Report:
    pipeline = Pipeline(options)
    with ending(stop):
        history = run_through(pipeline, inputs, stop)
    if stop():
        fail("interrupted: no report was written", stop.status or Exit.NOTHING_READ)
    refuse_damaged(inputs.sources)
    refuse_empty(pipeline.tally.events - pipeline.tally.rejected, urls)
    status = build_status(pipeline, inputs.sources, history=history, options=options.shown())
    return make_report(status, urls)
