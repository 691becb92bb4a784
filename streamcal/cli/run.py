"""``streamcal run``: recalibrate a stream while its labels arrive."""

# ruff: noqa: RUF009  # `option` gives a field

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from prometheus_client import CollectorRegistry, make_asgi_app
from rich.console import Console

from streamcal.base.errors import DamagedStateError, StoreError
from streamcal.cli.opening import (
    added_types,
    begin,
    ending,
    on_standard_output,
    open_sink,
    open_source,
    open_store,
    refuse_damaged,
    refuse_empty,
)
from streamcal.cli.options import LearningOptions, ReadingOptions, named, option, takes_options
from streamcal.cli.output_files import as_json, has_fields, is_map, refuse_unwritable, write_file, write_maps
from streamcal.cli.progress import Meter
from streamcal.cli.report import is_report, write_report
from streamcal.cli.terminal import (
    Exit,
    RejectLog,
    fail,
    failing,
    run_table,
    set_up_logging,
    version_line,
    warn_if_slow,
)
from streamcal.events.columns import Columns
from streamcal.monitor.addresses import parse_address
from streamcal.monitor.build import build_status
from streamcal.monitor.health import Health
from streamcal.monitor.latest_status import LatestStatus
from streamcal.monitor.metrics import RunMetrics
from streamcal.monitor.report import make_report
from streamcal.monitor.rows import run_summary
from streamcal.monitor.run_history import RunHistory, stored_history
from streamcal.monitor.run_server import RunServer
from streamcal.monitor.status import Status
from streamcal.run.connectors import Connectors, public_url
from streamcal.run.journal import AGAIN
from streamcal.run.kinds import kind_of
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import RowKind, Shard, ShardedSource, Sink, SinkOptions, Source
from streamcal.run.runner import Inputs, Runner

if TYPE_CHECKING:
    from streamcal.monitor.server import PageServer

log = logging.getLogger("streamcal")


_SHARD: Final = "STREAMCAL_SHARD"
_SHARDS: Final = 1000


@dataclass(frozen=True, kw_only=True)
class _RunOptions(ReadingOptions, LearningOptions):
    events: list[str] = option(
        "Predictions of the deployment; may contain labels too; may be repeated.", ..., role="read"
    )
    labels: list[str] = option("Labels, if they come separately; may be repeated.", (), role="read")
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
    append: bool = option("Write behind what outputs hold that this store knows nothing of.", False)
    skip_lost: bool = option("Go on where a topic has lost records: they are counted, with an alarm.", False)
    shard: str | None = option(
        "Read of each topic the partitions p with p % N = I, as one of N runs.", metavar="I/N", env=_SHARD
    )
    follow: bool = option("Wait for more data at the end of files.", False)
    summary: Path | None = option("Where the figures of the closing table go, as JSON.", role="written")
    report: Path | None = option("Where a report of the run goes, as one HTML file.", role="written")
    strict: bool = option("Exit with status 4 if there is a remark, or if forecasts deviate.", False)
    metrics: str | None = option("[HOST:]PORT for Prometheus to scrape; on 127.0.0.1 by default.")
    page: str | None = option(
        "[HOST:]PORT of a live page, for a browser on this machine; it ends with the run."
    )

    @property
    def urls(self) -> list[str]:
        """URLs of the inputs, in the order in which they are read."""
        return [*([self.calibration] if self.calibration else []), *self.events, *self.labels]


@takes_options
def run(given: _RunOptions) -> None:
    """Recalibrate a stream of predictions while its labels arrive.

    A URL is a path, file:PATH, - for standard input or output, or the URL
    of an installed connector, or a pattern or directory of files. The name
    tells the format: .jsonl, .csv, .parquet, .arrow. Predictions and labels are merged by event time. With
    --store, a run that was stopped or killed resumes where it was, and
    answers every prediction once.
    """
    set_up_logging(as_json=given.log_json, quiet=given.quiet)
    shard = _shard(given.shard) if given.shard else None
    options, stop, connectors = begin(given, shard=shard)
    shown = options.shown() | ({} if shard is None else {"shard": str(shard)})
    _check_files(given)
    if given.maps is not None and not kind_of(options.columns.classes).has_maps:
        fail(f"--maps {given.maps}: many classes have a map at the end alone: give --map", Exit.USAGE)
    with ExitStack() as stack:
        server = _listen_for_viewers(given.page, stack) if given.page else None
        inputs = _open_inputs(connectors, options.columns, stack, given)
        sources = inputs.sources
        state = open_store(connectors, given.store, stack) if given.store else None
        kept = added_types(options.added(), inputs.deployment[: len(given.events)])

        def opened(url: str, rows: RowKind) -> Sink:
            classes = options.columns.classes
            of_rows = SinkOptions(rows=rows, kept=kept, append=given.append, classes=classes)
            return open_sink(connectors, url, stack, of_rows)

        outputs = Outputs(
            opened(given.output, "answers"),
            opened(given.rejects, "rejects") if given.rejects else None,
            opened(given.maps, "maps") if given.maps else None,
            opened(given.alarms, "alarms") if given.alarms else None,
        )
        health = Health(sources, time.monotonic)
        metrics = _serve_metrics(given.metrics, sources, health, stack) if given.metrics else None
        pipeline = Pipeline(
            options,
            publishes_maps=any((state, outputs.maps, outputs.alarms, metrics, server, given.report)),
        )
        latest = None
        if server is not None:
            latest = LatestStatus(pipeline, shown, sources)
            server.show(latest, health)
        log.info("%s", version_line())
        warn_if_slow()
        history, refused = RunHistory(), RejectLog()
        meter = Meter(lambda: pipeline.processed, sources, live=not (given.log_json or given.quiet))

        def after(outcome: Outcome, seconds: float) -> None:
            meter.show()
            if given.metrics or given.page:
                health.take()
            if given.rejects is None:
                refused.take(outcome.rejects)
            for alarm in outcome.alarms:
                log.warning("%s", alarm.words)
            if metrics is not None:
                metrics.batch(seconds, outcome)
                metrics.update(build_status(pipeline, claims=False))
            if latest is not None:
                latest.take(outcome)
            if given.report is not None and state is None:
                history.take(outcome)

        with meter.line, ending(stop):
            runner = Runner(pipeline, inputs, outputs, state, clock=time.monotonic, stop=stop, after=after)
            if again := runner.resume():
                log.info(AGAIN, again)
            if latest is not None and state is not None:
                latest.take_versions(state.versions())
            runner.run()
        # While the store is open: it holds the engines that this run did not touch.
        with failing(Exit.UNUSABLE, StoreError, DamagedStateError):
            past = None
            if given.report is not None:
                past = history if state is None else stored_history(state)
            status = build_status(pipeline, sources, history=past, options=shown)
            if given.report is not None:
                write_report("--report", given.report, make_report(status, given.urls))
            doubtful = _close(given, pipeline, status)
        if latest is not None:
            latest.end()
    if stop():
        log.warning("interrupted: everything processed so far is written")
    else:
        refuse_empty(pipeline.tally.events - pipeline.tally.rejected, given.urls)
    refuse_damaged(sources)
    if stop.status:
        raise typer.Exit(stop.status)
    if doubtful and given.strict:
        raise typer.Exit(Exit.DOUBTFUL)


def _shard(text: str) -> Shard:
    match = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    shard = Shard(int(match[1]), int(match[2])) if match else Shard(0, 0)
    if not shard.number < shard.of <= _SHARDS:
        fail(
            f"--shard {text}: must be I/N, I from 0 to N - 1, N up to {_SHARDS:,}, such as 0/12 for the first"
            f" of twelve runs; without --shard, it is the value of {_SHARD}",
            Exit.USAGE,
        )
    return shard


def _open_inputs(connectors: Connectors, columns: Columns, stack: ExitStack, given: _RunOptions) -> Inputs:
    """Open the inputs, closed with the stack; the calibration is not followed, and must be whole.

    A shard takes its part of topics, and all of a calibration that is none; it refuses other inputs.
    """
    opened = partial(open_source, connectors, columns=columns, stack=stack, given=given)
    deployed = partial(opened, follow=given.follow, skip_lost=given.skip_lost)
    deployment = [deployed(url, kind="events", labels_apart=bool(given.labels)) for url in given.events]
    deployment += [deployed(url, kind="labels") for url in given.labels]
    calibration = [opened(given.calibration, kind="calibration")] if given.calibration else []
    for url, source in zip([*given.events, *given.labels], deployment, strict=True):
        if connectors.shard is not None and not isinstance(source, ShardedSource):
            fail(
                f"--shard {connectors.shard}: {public_url(url)} has no partitions, as topics of Kafka have:"
                " leave out --shard, and give each run its own part of such inputs",
                Exit.USAGE,
            )
    return Inputs(calibration, deployment, connectors.shard)


def _check_files(given: _RunOptions) -> None:
    """Refuse what could not be written at the end, before anything is read."""
    for option_, path, what, is_one in (
        ("--map", given.map_file, "a map", is_map),
        ("--summary", given.summary, "a summary", lambda data: has_fields(data, ("events", "remarks"))),
        ("--report", given.report, "a report", is_report),
    ):
        if path is not None:
            refuse_unwritable(option_, path, what, is_one)


def _close(given: _RunOptions, pipeline: Pipeline, status: Status) -> bool:
    """Write what is written at the end, and print the table; return whether anything is doubtful."""
    unwritten: list[str] = []
    if given.map_file is not None:
        unwritten = write_maps(pipeline.engines, given.map_file, pipeline.options.fields)
    figures = run_summary(status)
    if given.summary is not None:
        write_file("--summary", given.summary, as_json(figures))
    if given.log_json:
        log.info("end of run", extra={"fields": figures})
    else:
        console = Console(stderr=on_standard_output(named(given)))
        if not given.quiet:
            console.print(run_table(status))
        for each in status.remarks:
            console.print(f"! {each.words}", soft_wrap=True, markup=False, highlight=False)
    if unwritten:
        fail("\n".join(f"cannot write {each}" for each in unwritten), Exit.UNUSABLE)
    return bool(status.remarks) or status.verdict.deviates


def _serve_metrics(address: str, sources: Sequence[Source], health: Health, stack: ExitStack) -> RunMetrics:
    """Answer scrapes and probes at ``[HOST:]PORT``, until the stack is unwound; return the metrics."""
    metrics, registry = RunMetrics(sources), CollectorRegistry()
    registry.register(metrics)
    with failing(Exit.USAGE, OSError, ValueError, text=f"cannot serve metrics at {address!r}: "):
        server = RunServer(*parse_address(address))
    stack.callback(server.close)
    server.start(make_asgi_app(registry), health)
    log.info("metrics at %s/metrics", server.url)
    return metrics


def _listen_for_viewers(address: str, stack: ExitStack) -> PageServer:
    """Listen at ``[HOST:]PORT`` for viewers of a page, until the stack is unwound."""
    try:
        from streamcal.monitor.server import PageServer
    except ImportError:
        fail("--page needs starlette: pip install '.[serve]' in a checkout", Exit.USAGE)
    with failing(Exit.USAGE, OSError, ValueError, text=f"cannot show a page at {address!r}: "):
        server = PageServer(*parse_address(address))
    stack.callback(server.close)
    log.info("page at %s/", server.url)
    return server
