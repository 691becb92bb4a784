"""``streamcal run``: recalibrate a stream while its labels arrive."""

# ruff: noqa: RUF009  # `option` gives a field

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import typer
from rich.console import Console

from streamcal.cli.opening import (
    begin,
    ending,
    kept_types,
    on_standard_output,
    open_inputs,
    open_sink,
    open_store,
    refuse_damaged,
)
from streamcal.cli.options import (
    InputOptions,
    KeepOption,
    LearningOptions,
    LogOption,
    named,
    option,
    takes_options,
)
from streamcal.cli.page import serve_page
from streamcal.cli.picture import FORMATS, is_picture
from streamcal.cli.progress import Meter
from streamcal.cli.report import is_report, write_report
from streamcal.cli.table import is_summary, run_table
from streamcal.cli.terminal import (
    EXIT_DOUBTFUL,
    EXIT_NOTHING_READ,
    EXIT_UNUSABLE,
    EXIT_USAGE,
    RejectLog,
    fail,
    set_up_logging,
    stop_status,
    version_line,
)
from streamcal.cli.whole import is_map, refuse_unwritable, write_maps, write_whole
from streamcal.errors import DamagedStateError, StoreError
from streamcal.monitor.alarms import in_words
from streamcal.monitor.build import build_status
from streamcal.monitor.endpoint import parse_address
from streamcal.monitor.metrics import RunMetrics
from streamcal.monitor.run_history import RunHistory, stored_history
from streamcal.monitor.status import Status
from streamcal.monitor.summary import run_summary
from streamcal.page.latest_status import LatestStatus
from streamcal.quality.reliability import NEEDED, can_draw, reliability_figure, saved
from streamcal.report.record import make_report
from streamcal.run.connectors import Connectors, public_url
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import Source
from streamcal.run.runner import Outputs, Runner

__all__ = ["run"]

log = logging.getLogger("streamcal")


@dataclass(frozen=True, kw_only=True)
class _RunOptions(LogOption, LearningOptions, KeepOption, InputOptions):
    output: str = option("Where the recalibrated predictions go.", ..., role="written")
    rejects: str | None = option("Where rejected input goes, one line each.", role="written")
    map_file: Path | None = option(
        "Where the last map goes, as JSON; of KEY, to the name with .KEY in it.", flag="--map", role="written"
    )
    maps: str | None = option("Where every map version goes, one line each.", role="written")
    alarms: str | None = option(
        "Where alarms go, one line each; or a webhook: https://HOST/PATH.", role="written"
    )
    store: str | None = option("Where the state is kept: a SQLite file.", role="store")
    follow: bool = option("Wait for more data at the end of files.", False)
    plot: Path | None = option("Where a picture of the reliability goes: .png, .svg or .pdf.", role="written")
    summary: Path | None = option("Where the figures of the closing table go, as JSON.", role="written")
    report: Path | None = option("Where a report of the run goes, as one HTML file.", role="written")
    strict: bool = option("Exit with status 4 if there is a remark below the table.", False)
    metrics: str | None = option("[HOST:]PORT for Prometheus to scrape; on 127.0.0.1 by default.")
    page: str | None = option(
        "[HOST:]PORT of a live page, for a browser on this machine; it ends with the run."
    )


@takes_options
def run(given: _RunOptions) -> None:
    """Recalibrate a stream of predictions while its labels arrive.

    A URL is a path, file:PATH, - for standard input or output, or the URL
    of an installed connector, or a pattern or directory of files. The name
    tells the format: .jsonl, .csv, .parquet, .arrow. Predictions and labels are merged by event time. With
    --store, a run that was stopped or killed resumes where it was, and
    answers every prediction once.
    """
    set_up_logging(as_json=given.log_json)
    options, stop, connectors = begin(given)
    _check_reports(given)
    with ExitStack() as stack:
        server = serve_page(given.page, stack) if given.page else None
        inputs = open_inputs(connectors, options.columns, stack, given, follow=given.follow)
        sources = [*inputs.calibration, *inputs.deployment]
        state = open_store(connectors, given.store, stack) if given.store else None
        kept = kept_types(options.columns.keep, inputs.deployment[: len(given.events)])
        outputs = Outputs(
            open_sink(connectors, given.output, stack, kept=kept),
            open_sink(connectors, given.rejects, stack, "rejects") if given.rejects else None,
            open_sink(connectors, given.maps, stack, "maps") if given.maps else None,
            open_sink(connectors, given.alarms, stack, "alarms") if given.alarms else None,
        )
        measured = _serve_metrics(given.metrics, sources) if given.metrics else None
        pipeline = Pipeline(
            options.recalibrator,
            options.join,
            tables=state.tables if state else None,
            keys=options.keys,
            columns=options.columns,
            tells_maps=any((state, outputs.maps, outputs.alarms, measured, server, given.report)),
        )
        board = None
        if server is not None:
            board = LatestStatus(pipeline, options.shown(), sources)
            if state is not None:
                board.take_maps(state.maps())
            server.show(board)
        log.info("%s", version_line())
        course = RunHistory() if given.report is not None and state is None else None
        refused = RejectLog() if given.rejects is None else None
        with Meter(pipeline, sources, live=not given.log_json) as meter, ending(stop):

            def after(outcome: Outcome, seconds: float) -> None:
                meter.show()
                if refused is not None:
                    refused.take(outcome.rejects)
                for alarm in outcome.alarms:
                    log.warning("%s", in_words(alarm))
                if measured is not None:
                    measured.batch(seconds, outcome)
                    measured.update(build_status(pipeline, claims=False))
                for watching in (board, course):
                    if watching is not None:
                        watching.take(outcome)

            Runner(pipeline, inputs, outputs, state, clock=time.monotonic, stop=stop, after=after).run()
        # While the store is open: it holds the engines that this run did not touch.
        try:
            past = None
            if given.report is not None:
                past = course if state is None else stored_history(state)
            status = build_status(pipeline, sources, history=past, options=options.shown())
            if given.report is not None:
                write_report("--report", given.report, make_report(status, [*map(public_url, given.urls)]))
            doubtful = _report(given, connectors, pipeline, status)
        except (StoreError, DamagedStateError) as error:  # of an engine that is in the store
            fail(str(error), EXIT_UNUSABLE)
        if board is not None:
            board.end()
        nothing = pipeline.tally.events in (0, pipeline.tally.rejected)
    if stop():
        log.warning("interrupted: everything processed so far is written")
        refuse_damaged(sources)
        if stop_status(stop):
            raise typer.Exit(stop_status(stop))
    elif nothing:
        fail(f"no event could be read from {', '.join(map(public_url, given.urls))}", EXIT_NOTHING_READ)
    refuse_damaged(sources)
    if doubtful and given.strict:
        raise typer.Exit(EXIT_DOUBTFUL)


def _check_reports(given: _RunOptions) -> None:
    """Refuse what could not be written at the end, before anything is read."""
    for option_, path, what, is_one in (
        ("--map", given.map_file, "a map", is_map),
        ("--summary", given.summary, "a summary", is_summary),
        ("--report", given.report, "a report", is_report),
        ("--plot", given.plot, "a picture", is_picture),
    ):
        if path is not None:
            refuse_unwritable(option_, path, what, is_one)
    if given.plot is not None and given.plot.suffix not in FORMATS:
        fail(f"--plot {given.plot}: the name must end in one of {', '.join(FORMATS)}", EXIT_USAGE)
    if given.plot is not None and not can_draw():
        fail(f"--plot {given.plot}: {NEEDED}", EXIT_USAGE)


def _report(given: _RunOptions, connectors: Connectors, pipeline: Pipeline, status: Status) -> bool:
    """Write what is written at the end, and print the table; return whether there was a remark."""
    words = status.warnings
    if given.plot is not None and not pipeline.quality.before.labels:
        words.append(f"{given.plot} was not drawn: no label has met its prediction.")
    elif given.plot is not None:
        write_whole("--plot", given.plot, saved(reliability_figure(pipeline.quality), given.plot.suffix))
    unwritten = [] if given.map_file is None else write_maps(pipeline.engines, given.map_file)
    if given.summary is not None:
        figures = msgspec.json.encode(run_summary(status))
        write_whole("--summary", given.summary, msgspec.json.format(figures, indent=2) + b"\n")
    if given.log_json:
        log.info("end of run", extra={"fields": run_summary(status)})
    else:
        console = Console(stderr=on_standard_output(connectors, named(given)))
        console.print(run_table(status))
        for word in words:
            console.print(f"! {word}", soft_wrap=True, markup=False, highlight=False)
    if unwritten:
        fail("\n".join(f"cannot write {each}" for each in unwritten), EXIT_UNUSABLE)
    return bool(words)


def _serve_metrics(address: str, sources: list[Source]) -> RunMetrics:
    measured = RunMetrics(sources)
    try:
        host, port = parse_address(address)
        port = measured.serve(host, port).port
    except (OSError, ValueError) as error:
        fail(f"cannot serve metrics at {address!r}: {error}", EXIT_USAGE)
    log.info("metrics at http://%s:%s/metrics", f"[{host}]" if ":" in host else host, port)
    return measured
