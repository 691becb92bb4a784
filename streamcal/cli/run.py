"""``streamcal run``: recalibrate a stream while its labels arrive."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer
from rich.console import Console

from streamcal.cli.opening import (
    ConfigFile,
    EventsUrl,
    JsonLog,
    LabelsUrl,
    RejectsUrl,
    SourceUrl,
    open_sink,
    open_source,
    open_store,
    read_options,
    refuse_twice,
)
from streamcal.cli.options import (
    IdColumn,
    KeepColumns,
    KeyColumn,
    LabelColumn,
    LabelTtl,
    Mode,
    Positive,
    ScoreColumn,
    TimeColumn,
    Window,
    override,
)
from streamcal.cli.report import run_summary, run_table
from streamcal.cli.terminal import (
    EXIT_INTERRUPTED,
    EXIT_NOTHING_READ,
    EXIT_UNUSABLE,
    EXIT_USAGE,
    Meter,
    RejectLog,
    Stop,
    fail,
    set_up_logging,
    stop_status,
    stopped,
)
from streamcal.errors import OutputError, StoreError
from streamcal.run.metrics import RunMetrics
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import Connectors, Source, StoppedError, public_url
from streamcal.run.runner import Inputs, Outputs, Runner

__all__ = ["run"]

log = logging.getLogger("streamcal")


def run(
    events: EventsUrl,
    output: Annotated[str, typer.Option(help="Where the recalibrated predictions go.")],
    labels: LabelsUrl = None,
    source: SourceUrl = None,
    config: ConfigFile = None,
    rejects: RejectsUrl = None,
    map_file: Annotated[Path | None, typer.Option("--map", help="Where the last map goes, as JSON.")] = None,
    maps: Annotated[str | None, typer.Option(help="Where every map version goes, one line each.")] = None,
    store: Annotated[str | None, typer.Option(help="Where the state is kept: a SQLite file.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more data at the end of files.")] = False,
    metrics: Annotated[
        str | None, typer.Option(help="[HOST:]PORT for Prometheus to scrape; on 127.0.0.1 by default.")
    ] = None,
    id_column: IdColumn = None,
    score_column: ScoreColumn = None,
    time_column: TimeColumn = None,
    label_column: LabelColumn = None,
    key_column: KeyColumn = None,
    positive: Positive = None,
    keep: KeepColumns = None,
    mode: Mode = None,
    window: Window = None,
    label_ttl: LabelTtl = None,
    log_json: JsonLog = False,
) -> None:
    """Recalibrate a stream of predictions while its labels arrive.

    A URL is a path, file:PATH, - for standard input or output, or the URL of an installed connector. A name
    with .csv is CSV, any other JSON lines; .gz is gzip. Predictions and labels are merged by event time. With
    --store, a run that was stopped or killed resumes where it was, and answers every prediction once.
    """
    set_up_logging(as_json=log_json)
    options = override(
        read_options(config),
        columns={
            "id": id_column,
            "score": score_column,
            "time": time_column,
            "label": label_column,
            "key": key_column,
            "positive": positive,
            "keep": keep,
        },
        recalibrator={"mode": mode, "window": window},
        join={"label_ttl": label_ttl},
    )
    stop = Stop()
    connectors = Connectors(options.connectors, stop)
    with ExitStack() as stack:
        columns, apart = options.columns, labels is not None
        deployment = [
            open_source(connectors, events, "events", columns, stack, labels_apart=apart, follow=follow)
        ]
        if labels:
            deployment.append(open_source(connectors, labels, "labels", columns, stack, follow=follow))
        calibration = [open_source(connectors, source, "source", columns, stack)] if source else []
        sources = [*calibration, *deployment]
        refuse_twice([each.name for each in sources])
        kept = open_store(connectors, store, stack) if store else None
        outputs = Outputs(
            open_sink(connectors, output, stack),
            open_sink(connectors, rejects, stack) if rejects else None,
            open_sink(connectors, maps, stack) if maps else None,
        )
        refuse_twice([sink.name for sink in outputs.sinks if sink.name != "-"])
        meter, refused = Meter(stack, live=not log_json), RejectLog()
        measured = _serve_metrics(metrics, sources) if metrics else None
        pipeline = Pipeline(
            options.recalibrator,
            options.join,
            observer=measured.joined if measured else None,
            tables=kept.tables if kept else None,
            keys=options.keys,
            columns=columns,
        )

        def after(outcome: Outcome, seconds: float) -> None:
            meter.show(pipeline.tally.events)
            if rejects is None:
                refused.take(outcome.rejects)
            for alarm in outcome.alarms:
                which = "" if alarm.key is None else f" [{alarm.key}]"
                log.warning("drift%s: %s is refuted: %s", which, alarm.assumption, alarm.reason)
            if measured is not None:
                measured.batch(seconds, outcome)
                measured.update(pipeline)

        runner = Runner(
            pipeline,
            Inputs(calibration, deployment),
            outputs,
            kept,
            clock=time.monotonic,
            stop=stop,
            after=after,
        )
        _run(runner, stop)
        if map_file is not None:
            _write_maps(pipeline, map_file)
    unknown = sum(sum(each.unknown_fields.values()) for each in sources)
    if log_json:
        log.info("end of run", extra={"fields": run_summary(pipeline, unknown)})
    else:
        Console(stderr=output == "-").print(run_table(pipeline, unknown))
    if stop():
        log.warning("interrupted: everything processed so far is written")
        raise typer.Exit(stop_status(stop))
    if pipeline.tally.events == 0 or pipeline.tally.events == pipeline.tally.rejected:
        urls = ", ".join(public_url(url) for url in (source, events, labels) if url)
        fail(f"no event could be read from {urls}", EXIT_NOTHING_READ)


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
    host, _, port = address.rpartition(":")
    host = host or "127.0.0.1"
    measured = RunMetrics(sources)
    try:
        listening = measured.serve(host, int(port))
    except (OSError, ValueError, OverflowError) as error:
        fail(f"cannot serve metrics at {address!r}: {error}", EXIT_USAGE)
    log.info("metrics at http://%s:%s/metrics", host, listening)
    return measured


def _write_maps(pipeline: Pipeline, path: Path) -> None:
    """Write the map of every key; the key, if there is one, goes before the suffix of the file name."""
    for key, engine in pipeline.engines.items():
        name = path if key is None else path.with_suffix(f".{quote(key, safe='')}{path.suffix}")
        name.write_bytes(msgspec.json.format(engine.map.model_dump_json().encode(), indent=2) + b"\n")
