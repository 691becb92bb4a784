"""The command line: ``streamcal run``, ``apply``, ``show``, ``replay``, ``demo``.

Exit status: 0 if a run reached its end, with or without rejects, or was ended by SIGTERM; 1 if nothing could
be read, or a replay differs; 2 on a usage error; 3 if the store or an output cannot be used; 130 if
interrupted. In every case, the micro-batches processed so far are written. If an output is away when SIGTERM
or an interruption arrives, the micro-batch that waits for it is not written; the next run reads it again.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final, NoReturn
from urllib.parse import quote

import msgspec
import typer
from pydantic import ValidationError
from rich.console import Console

from streamcal.cli import demo as flights
from streamcal.cli.report import run_summary, run_table
from streamcal.cli.show import replay_table, served, show_table
from streamcal.cli.terminal import (
    EXIT_INTERRUPTED,
    EXIT_NOTHING_READ,
    EXIT_UNUSABLE,
    EXIT_USAGE,
    Meter,
    Stop,
    fail,
    set_up_logging,
)
from streamcal.errors import OutputError, StoreError
from streamcal.events import Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.run.apply import FixedMap, FollowedMaps, apply_maps
from streamcal.run.config import RunConfig, read_config
from streamcal.run.metrics import RunMetrics
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import Connectors, Sink, Source, StoppedError, Store, connector_names, public_url
from streamcal.run.rows import RejectRow
from streamcal.run.runner import Inputs, Outputs, Runner

__all__ = ["main"]

_SHOWN_REJECTS: Final = 3

log = logging.getLogger("streamcal")
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

EventsUrl = Annotated[str, typer.Option(help="Predictions of the deployment; may contain labels too.")]
LabelsUrl = Annotated[str | None, typer.Option(help="Labels, if they come separately.")]
SourceUrl = Annotated[str | None, typer.Option(help="Labelled events to calibrate on first.")]
RejectsUrl = Annotated[str | None, typer.Option(help="Where rejected input goes, one line each.")]
ConfigFile = Annotated[Path | None, typer.Option(help="Options, as a TOML file.")]
JsonLog = Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")]


class _RejectLog:
    """Logs the first few rejects of a run without ``--rejects``."""

    def __init__(self) -> None:
        self._seen = 0

    def take(self, rows: list[RejectRow]) -> None:
        for row in rows[: max(_SHOWN_REJECTS + 1 - self._seen, 0)]:
            self._seen += 1
            if self._seen <= _SHOWN_REJECTS:
                log.warning("rejected: %s, line %s: %s", row.source, row.line, row.reason)
            else:
                log.warning("further rejects are counted but not shown; --rejects FILE keeps them all")


@app.command()
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
    log_json: JsonLog = False,
) -> None:
    """Recalibrate a stream of predictions while its labels arrive.

    A URL is a path, file:PATH, - for standard input or output, or the URL of an installed connector. A name
    with .csv is CSV, any other JSON lines; .gz is gzip. Predictions and labels are merged by event time. With
    --store, a run that was stopped or killed resumes where it was, and answers every prediction once.
    """
    set_up_logging(as_json=log_json)
    options = _read_config(config)
    stop = Stop()
    connectors = Connectors(options.connectors, stop)
    with ExitStack() as stack:
        deployment = [
            _source(connectors, url, "target", stack, follow=follow) for url in (events, labels) if url
        ]
        calibration = [_source(connectors, source, "source", stack)] if source else []
        sources = [*calibration, *deployment]
        _refuse_twice([each.name for each in sources])
        kept = _store(connectors, store, stack) if store else None
        outputs = Outputs(
            _sink(connectors, output, stack),
            _sink(connectors, rejects, stack) if rejects else None,
            _sink(connectors, maps, stack) if maps else None,
        )
        _refuse_twice([sink.name for sink in outputs.sinks if sink.name != "-"])
        meter, refused = Meter(stack, live=not log_json), _RejectLog()
        measured = _serve_metrics(metrics, sources) if metrics else None
        pipeline = Pipeline(
            options.recalibrator,
            options.join,
            observer=measured.joined if measured else None,
            tables=kept.tables if kept else None,
            keys=options.keys,
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
    unknown = sum(each.unknown_fields for each in sources)
    if log_json:
        log.info("end of run", extra={"fields": run_summary(pipeline, unknown)})
    else:
        Console(stderr=output == "-").print(run_table(pipeline, unknown))
    if stop():
        log.warning("interrupted: everything processed so far is written")
        raise typer.Exit(_stop_status(stop))
    if pipeline.tally.events == 0 or pipeline.tally.events == pipeline.tally.rejected:
        urls = ", ".join(public_url(url) for url in (source, events, labels) if url)
        fail(f"no event could be read from {urls}", EXIT_NOTHING_READ)


def _run(runner: Runner, stop: Stop) -> None:
    try:
        runner.run()
    except StoppedError as error:
        _stopped(stop, error)
    except (StoreError, OutputError) as error:
        fail(str(error), EXIT_UNUSABLE)
    except (OSError, ValueError) as error:
        fail(str(error), EXIT_NOTHING_READ)
    except KeyboardInterrupt:
        fail("interrupted at once: what was committed is kept", EXIT_INTERRUPTED)


@app.command()
def apply(
    map_file: Annotated[Path | None, typer.Option("--map", help="A map, as JSON.")] = None,
    follow: Annotated[
        str | None, typer.Option(help="The --maps of a run: always apply the newest map of each key.")
    ] = None,
    events: Annotated[str, typer.Option(help="Predictions to recalibrate.")] = "-",
    output: Annotated[str, typer.Option(help="Where the recalibrated predictions go.")] = "-",
    rejects: RejectsUrl = None,
    config: Annotated[Path | None, typer.Option(help="Options of connectors, as a TOML file.")] = None,
    log_json: JsonLog = False,
) -> None:
    """Apply maps from elsewhere to a stream of predictions, without learning."""
    set_up_logging(as_json=log_json)
    if (map_file is None) == (follow is None):
        fail("give either --map or --follow", EXIT_USAGE)
    stop = Stop()
    connectors = Connectors(_read_config(config).connectors, stop)
    with ExitStack() as stack:
        maps: FixedMap | FollowedMaps
        if map_file is not None:
            maps = FixedMap(_read_map(map_file))
        else:
            try:
                feed = connectors.feed(str(follow))
            except (OSError, ValueError) as error:
                fail(f"cannot read the maps: {error}", EXIT_USAGE)
            stack.callback(feed.close)
            maps = FollowedMaps(feed)
        opened = _source(connectors, events, "target", stack)
        outputs = Outputs(
            _sink(connectors, output, stack), _sink(connectors, rejects, stack) if rejects else None
        )
        refused = _RejectLog()

        def after(rows: list[RejectRow]) -> None:
            if rejects is None:
                refused.take(rows)

        try:
            count, refusals = apply_maps(maps, opened, outputs, stop, after)
        except StoppedError as error:
            _stopped(stop, error)
        except OutputError as error:
            fail(str(error), EXIT_UNUSABLE)
        except (OSError, ValueError) as error:
            fail(str(error), EXIT_NOTHING_READ)
    log.info("%s", f"{count:,} predictions recalibrated with {maps.description}, {refusals:,} rejected")
    if stop():
        raise typer.Exit(_stop_status(stop))
    if not count:
        fail(f"no event could be read from {public_url(events)}", EXIT_NOTHING_READ)


@app.command()
def show(
    store: Annotated[str, typer.Argument(help="The store of a run, which may still be running.")],
    key: Annotated[
        list[str] | None, typer.Option(help="A key to show, instead of the first ones; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print what a store serves now, and the history of its maps and certificates."""
    set_up_logging(as_json=False)
    with ExitStack() as stack:
        kept = _store(Connectors(), store, stack, read_only=True)
        try:
            found = served(kept, key or ())
        except (StoreError, ValueError) as error:
            fail(str(error), EXIT_UNUSABLE)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        sys.stdout.buffer.flush()
    else:
        Console().print(show_table(found))


@app.command()
def replay(
    store: Annotated[str, typer.Option(help="The store to check; it is not changed.")],
    events: EventsUrl,
    labels: LabelsUrl = None,
    source: SourceUrl = None,
    config: ConfigFile = None,
) -> None:
    """Rebuild a store's state from its sources, and compare: exit status 0 if equal, 1 if not.

    Reads the sources from the beginning up to the positions in the store, and rebuilds the state in memory.
    """
    set_up_logging(as_json=False)
    options = _read_config(config)
    stop = Stop()
    connectors = Connectors(options.connectors, stop)
    with ExitStack() as stack:
        kept = _store(connectors, store, stack, read_only=True)
        deployment = [_source(connectors, url, "target", stack) for url in (events, labels) if url]
        calibration = [_source(connectors, source, "source", stack)] if source else []
        try:
            table, equal = replay_table(kept, options, Inputs(calibration, deployment), stop)
        except StoppedError as error:
            _stopped(stop, error)
        except StoreError as error:
            fail(str(error), EXIT_UNUSABLE)
        except (OSError, ValueError) as error:
            fail(str(error), EXIT_NOTHING_READ)
    Console().print(table)
    if not equal:
        fail("the state in the store differs from the state that the sources give", EXIT_NOTHING_READ)


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where the picture goes, as PNG.")] = Path("flights.png"),
) -> None:
    """Run the shipped example: late flights from New York in 2013, labels at the actual arrival."""
    flights.run(picture, Console())


def _stop_status(stop: Stop) -> int:
    return 0 if stop.by is not None and stop.by.name == "SIGTERM" else EXIT_INTERRUPTED


def _stopped(stop: Stop, error: StoppedError) -> NoReturn:
    log.warning(
        "interrupted while waiting: what was committed is kept, the rest will be read again (%s)", error
    )
    raise typer.Exit(_stop_status(stop))


def main() -> None:
    """Run the command line."""
    app()


def _read_config(path: Path | None) -> RunConfig:
    if path is None:
        return RunConfig()
    try:
        return read_config(path, connector_names())
    except (OSError, ValueError) as error:
        fail(f"cannot read the configuration: {error}", EXIT_USAGE)


def _read_map(path: Path) -> RecalibrationMap:
    try:
        return RecalibrationMap.model_validate_json(path.read_bytes())
    except OSError as error:
        fail(f"cannot read the map: {error}", EXIT_USAGE)
    except ValidationError as error:
        fail(f"{path} is not a map: {error}", EXIT_USAGE)


def _source(
    connectors: Connectors, url: str, domain: Domain, stack: ExitStack, *, follow: bool = False
) -> Source:
    try:
        source = connectors.source(url, domain, follow=follow)
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except OSError as error:
        fail(f"cannot read: {error}", EXIT_NOTHING_READ)
    stack.callback(source.close)
    return source


def _sink(connectors: Connectors, url: str, stack: ExitStack) -> Sink:
    try:
        sink = connectors.sink(url)
    except (OSError, ValueError) as error:
        fail(f"cannot write: {error}", EXIT_USAGE)
    stack.callback(sink.close)
    return sink


def _store(connectors: Connectors, url: str, stack: ExitStack, *, read_only: bool = False) -> Store:
    try:
        store = connectors.store(url, read_only=read_only)
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except StoreError as error:
        fail(str(error), EXIT_UNUSABLE)
    stack.callback(store.close)
    return store


def _refuse_twice(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            fail(f"{name} is given twice", EXIT_USAGE)


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
