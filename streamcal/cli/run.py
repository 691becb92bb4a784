"""``streamcal run``: recalibrate a stream while its labels arrive."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from streamcal.cli.map_files import is_map, write_maps
from streamcal.cli.opening import (
    ConfigFile,
    EventsUrls,
    Final,
    InputFormat,
    JsonLog,
    LabelsUrls,
    Named,
    RejectsUrl,
    SourceUrl,
    kept_types,
    on_standard_output,
    open_inputs,
    open_sink,
    open_store,
    refuse_damaged,
    refuse_same,
)
from streamcal.cli.options import Given, read_options, takes_options
from streamcal.cli.page import serve_page
from streamcal.cli.picture import FORMATS, is_picture
from streamcal.cli.progress import Meter
from streamcal.cli.report import is_report, write_report
from streamcal.cli.table import is_summary, run_table
from streamcal.cli.terminal import (
    EXIT_DOUBTFUL,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_READ,
    EXIT_UNUSABLE,
    EXIT_USAGE,
    RejectLog,
    Stop,
    fail,
    set_up_logging,
    stop_status,
    stopped,
    version_line,
)
from streamcal.cli.whole import refuse_unwritable, write_whole
from streamcal.errors import DamagedStateError, OutputError, StoreError
from streamcal.page.latest_status import LatestStatus
from streamcal.report.record import make_report
from streamcal.run.alarms import in_words
from streamcal.run.closing import closing_words
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors, public_url
from streamcal.run.endpoint import parse_address
from streamcal.run.metrics import RunMetrics
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import Source, StoppedError, Store
from streamcal.run.reliability import NEEDED, can_draw, reliability_figure, saved
from streamcal.run.run_history import RunHistory
from streamcal.run.runner import Outputs, Runner
from streamcal.run.stored import stored_history
from streamcal.run.summary import run_summary

__all__ = ["run"]

log = logging.getLogger("streamcal")


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was asked for, beside the options of its engines: the parameters of `run`."""

    events: list[str]
    labels: list[str]
    source: str | None
    config: Path | None
    output: str
    rejects: str | None
    maps: str | None
    alarms: str | None
    store: str | None
    map_file: Path | None
    plot: Path | None
    summary: Path | None
    report: Path | None
    log_json: bool

    @property
    def names(self) -> list[Named]:
        """Everything that it names."""
        return [
            *(Named("--events", url) for url in self.events),
            *(Named("--labels", url) for url in self.labels),
            Named("--source", self.source),
            Named("--config", self.config),
            Named("--output", self.output, "written"),
            Named("--rejects", self.rejects, "written"),
            Named("--maps", self.maps, "written"),
            Named("--alarms", self.alarms, "written"),
            Named("--map", self.map_file, "written"),
            Named("--plot", self.plot, "written"),
            Named("--summary", self.summary, "written"),
            Named("--report", self.report, "written"),
            Named("--store", self.store, "store"),
        ]

    @property
    def inputs(self) -> list[str]:
        """The URLs that are read, in the order in which they are."""
        return [*([self.source] if self.source else []), *self.events, *self.labels]


@takes_options()
def run(
    events: EventsUrls,
    output: Annotated[str, typer.Option(help="Where the recalibrated predictions go.")],
    labels: LabelsUrls = None,
    source: SourceUrl = None,
    config: ConfigFile = None,
    rejects: RejectsUrl = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", help="Where the last map goes, as JSON; of KEY, to the name with .KEY in it."),
    ] = None,
    maps: Annotated[str | None, typer.Option(help="Where every map version goes, one line each.")] = None,
    alarms: Annotated[
        str | None, typer.Option(help="Where alarms go, one line each; or a webhook: https://HOST/PATH.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="Where the state is kept: a SQLite file.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more data at the end of files.")] = False,
    final: Final = False,
    form: InputFormat = None,
    plot: Annotated[
        Path | None, typer.Option(help="Where a picture of the reliability goes: .png, .svg or .pdf.")
    ] = None,
    summary: Annotated[
        Path | None, typer.Option(help="Where the figures of the closing table go, as JSON.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Where a report of the run goes, as one HTML file.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 4 if there is a remark below the table.")
    ] = False,
    metrics: Annotated[
        str | None, typer.Option(help="[HOST:]PORT for Prometheus to scrape; on 127.0.0.1 by default.")
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(help="[HOST:]PORT of a live page, for a browser on this machine; it ends with the run."),
    ] = None,
    log_json: JsonLog = False,
    *,
    given: Given,
) -> None:
    """Recalibrate a stream of predictions while its labels arrive.

    A URL is a path, file:PATH, - for standard input or output, or the URL
    of an installed connector, or a pattern or directory of files. The name
    tells the format: .jsonl, .csv, .parquet, .arrow. Predictions and labels are merged by event time. With
    --store, a run that was stopped or killed resumes where it was, and
    answers every prediction once.
    """
    set_up_logging(as_json=log_json)
    asked = _Asked(
        events=events,
        labels=labels or [],
        source=source,
        config=config,
        output=output,
        rejects=rejects,
        maps=maps,
        alarms=alarms,
        store=store,
        map_file=map_file,
        plot=plot,
        summary=summary,
        report=report,
        log_json=log_json,
    )
    options = read_options(config, given)
    stop = Stop()
    connectors = Connectors(options.connectors, stop)
    refuse_same(connectors, asked.names)
    _check_reports(asked)
    with ExitStack() as stack:
        server = serve_page(page, stack) if page else None
        inputs = open_inputs(
            connectors,
            options.columns,
            stack,
            events=events,
            labels=asked.labels,
            source=source,
            follow=follow,
            final=final,
            form=form,
        )
        sources = [*inputs.calibration, *inputs.deployment]
        state = open_store(connectors, store, stack) if store else None
        kept = kept_types(options.columns.keep, inputs.deployment[: len(events)])
        outputs = _open_outputs(asked, connectors, stack, kept)
        measured = _serve_metrics(metrics, sources) if metrics else None
        pipeline = Pipeline(
            options.recalibrator,
            options.join,
            tables=state.tables if state else None,
            keys=options.keys,
            columns=options.columns,
            tells_maps=any((state, outputs.maps, outputs.alarms, measured, server, report)),
        )
        board = None
        if server is not None:
            board = LatestStatus(pipeline, options.shown(), lambda: closing_words(pipeline, sources))
            if state is not None:
                board.take_maps(state.maps())
            server.show(board)
        log.info("%s", version_line())
        with Meter(pipeline, sources, live=not log_json) as meter:
            course = RunHistory() if report is not None and state is None else None
            after = _Watch(pipeline, meter, measured, board, course, show_rejects=rejects is None)
            _run(Runner(pipeline, inputs, outputs, state, clock=time.monotonic, stop=stop, after=after), stop)
        # While the store is open: it holds the engines that this run did not touch.
        words = closing_words(pipeline, sources)
        if report is not None:
            _write_report(asked, pipeline, course, state, options, words, sources)
        doubtful = _report(asked, connectors, pipeline, sources, words)
        if board is not None:
            board.end()
        nothing = pipeline.tally.events in (0, pipeline.tally.rejected)
    if stop():
        log.warning("interrupted: everything processed so far is written")
        refuse_damaged(sources)
        if stop_status(stop):
            raise typer.Exit(stop_status(stop))
    elif nothing:
        urls = ", ".join(map(public_url, asked.inputs))
        fail(f"no event could be read from {urls}", EXIT_NOTHING_READ)
    refuse_damaged(sources)
    if doubtful and strict:
        raise typer.Exit(EXIT_DOUBTFUL)


class _Watch:
    """Shows what each micro-batch brings: progress, rejects, alarms, metrics, the live page."""

    def __init__(
        self,
        pipeline: Pipeline,
        meter: Meter,
        measured: RunMetrics | None,
        board: LatestStatus | None,
        course: RunHistory | None,
        *,
        show_rejects: bool,
    ) -> None:
        self._pipeline = pipeline
        self._course = course
        self._meter = meter
        self._measured = measured
        self._board = board
        self._refused = RejectLog() if show_rejects else None

    def __call__(self, outcome: Outcome, seconds: float) -> None:
        self._meter.show()
        if self._refused is not None:
            self._refused.take(outcome.rejects)
        for alarm in outcome.alarms:
            log.warning("%s", in_words(alarm))
        if self._measured is not None:
            self._measured.batch(seconds, outcome)
            self._measured.update(self._pipeline)
        if self._board is not None:
            self._board.take(outcome)
        if self._course is not None:
            self._course.take(outcome)


def _check_reports(asked: _Asked) -> None:
    """Refuse what could not be written at the end, before anything is read."""
    if asked.map_file is not None:
        refuse_unwritable("--map", asked.map_file, "a map", is_map)
    if asked.summary is not None:
        refuse_unwritable("--summary", asked.summary, "a summary", is_summary)
    if asked.report is not None:
        refuse_unwritable("--report", asked.report, "a report", is_report)
    if asked.plot is not None:
        refuse_unwritable("--plot", asked.plot, "a picture", is_picture)
        if asked.plot.suffix not in FORMATS:
            fail(f"--plot {asked.plot}: the name must end in one of {', '.join(FORMATS)}", EXIT_USAGE)
        if not can_draw():
            fail(f"--plot {asked.plot}: {NEEDED}", EXIT_USAGE)


def _open_outputs(
    asked: _Asked, connectors: Connectors, stack: ExitStack, kept: Mapping[str, Any]
) -> Outputs:
    return Outputs(
        open_sink(connectors, asked.output, stack, kept=kept),
        open_sink(connectors, asked.rejects, stack, "rejects") if asked.rejects else None,
        open_sink(connectors, asked.maps, stack, "maps") if asked.maps else None,
        open_sink(connectors, asked.alarms, stack, "alarms") if asked.alarms else None,
    )


def _write_report(
    asked: _Asked,
    pipeline: Pipeline,
    course: RunHistory | None,
    state: Store | None,
    options: RunConfig,
    words: list[str],
    sources: list[Source],
) -> None:
    """Write the report of a run: of what it went through, or with a store, of what that holds."""
    try:
        past = stored_history(state) if state is not None else course or RunHistory()
        names = [public_url(url) for url in asked.inputs]
        made = make_report(
            pipeline,
            past,
            made_from=names,
            warnings=words,
            options=options.shown(),
            unknown_fields=_unknown(sources),
        )
    except (StoreError, DamagedStateError) as error:
        fail(str(error), EXIT_UNUSABLE)
    write_report("--report", asked.report, made)


def _unknown(sources: list[Source]) -> int:
    return sum(sum(each.unknown_fields.values()) for each in sources)


def _report(
    asked: _Asked, connectors: Connectors, pipeline: Pipeline, sources: list[Source], words: list[str]
) -> bool:
    """Write what is written at the end, and print the table; return whether there was a remark."""
    unknown = _unknown(sources)
    try:
        if asked.plot is not None and not pipeline.quality.before.labels:
            words.append(f"{asked.plot} was not drawn: no label has met its prediction.")
        elif asked.plot is not None:
            picture = saved(reliability_figure(pipeline.quality), asked.plot.suffix)
            write_whole("--plot", asked.plot, picture)
        unwritten = [] if asked.map_file is None else write_maps(pipeline.engines, asked.map_file)
        if asked.summary is not None:
            figures = msgspec.json.encode(run_summary(pipeline, unknown, words))
            write_whole("--summary", asked.summary, msgspec.json.format(figures, indent=2) + b"\n")
        if asked.log_json:
            log.info("end of run", extra={"fields": run_summary(pipeline, unknown, words)})
        else:
            console = Console(stderr=on_standard_output(connectors, asked.names))
            console.print(run_table(pipeline, unknown))
            for word in words:
                console.print(f"! {word}", soft_wrap=True, markup=False, highlight=False)
    except (StoreError, DamagedStateError) as error:  # of an engine that is in the store
        fail(str(error), EXIT_UNUSABLE)
    if unwritten:
        fail("\n".join(f"cannot write {each}" for each in unwritten), EXIT_UNUSABLE)
    return bool(words)


def _run(runner: Runner, stop: Stop) -> None:
    try:
        runner.run()
    except StoppedError as error:
        stopped(stop, error)
    except (StoreError, OutputError) as error:
        fail(str(error), EXIT_UNUSABLE)
    except (OSError, ValueError) as error:
        fail(str(error), EXIT_NOTHING_READ)
    except KeyboardInterrupt:
        fail("interrupted at once: what was committed is kept", EXIT_INTERRUPTED)


def _serve_metrics(address: str, sources: list[Source]) -> RunMetrics:
    measured = RunMetrics(sources)
    try:
        host, port = parse_address(address)
        port = measured.serve(host, port).port
    except (OSError, ValueError) as error:
        fail(f"cannot serve metrics at {address!r}: {error}", EXIT_USAGE)
    log.info("metrics at http://%s:%s/metrics", f"[{host}]" if ":" in host else host, port)
    return measured
