"""The command line: ``streamcal run``, ``streamcal apply``, ``streamcal demo``.

Exit status: 0 when the run came to its end, rejects or not; 1 when nothing could be read; 2 on a usage error;
130 when interrupted, with all that was done so far written.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar
from urllib.parse import quote

import msgspec
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from streamcal import demo as flights
from streamcal.codec import Malformed
from streamcal.config import RunConfig, read_config
from streamcal.maps import RecalibrationMap
from streamcal.pipeline import Pipeline, RejectRow, merge_by_time
from streamcal.ports import Sink, Source, connector
from streamcal.report import run_table
from streamcal.types import Domain, Event, LabelEvent, Recalibrated

__all__ = ["main"]

_BATCH: Final = 4096
_SHOWN_REJECTS: Final = 3
_EVERY_SECONDS: Final = 5.0

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

T = TypeVar("T")


class _Meter:
    """Shows progress on standard error: a live line on a terminal, plain lines otherwise."""

    def __init__(self, stack: ExitStack) -> None:
        self._console = Console(stderr=True)
        self._start = self._shown = time.monotonic()
        self._progress: Progress | None = None
        if self._console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"))
            self._progress = stack.enter_context(Progress(*columns, console=self._console, transient=True))
            self._task = self._progress.add_task("reading")

    def show(self, events: int) -> None:
        now = time.monotonic()
        text = f"{events:,} events, {events / max(now - self._start, 1e-9):,.0f} events/s"
        if self._progress is not None:
            self._progress.update(self._task, description=text)
        elif now - self._shown >= _EVERY_SECONDS:
            self._shown = now
            self._console.print(text, highlight=False)


class _Rejects:
    """Writes rejects to their sink, and shows the first few of them when there is none."""

    def __init__(self, sink: Sink | None) -> None:
        self._sink = sink
        self._seen = 0

    def take(self, rows: Sequence[RejectRow]) -> None:
        if self._sink is not None:
            self._sink.write(rows)
            return
        for row in rows:
            self._seen += 1
            if self._seen <= _SHOWN_REJECTS:
                _say(f"rejected: {row.source}, line {row.line}: {row.reason}")
            elif self._seen == _SHOWN_REJECTS + 1:
                _say("further rejects are only counted; --rejects FILE keeps them all")


@app.command()
def run(
    events: Annotated[str, typer.Option(help="Predictions of the deployment; may hold labels too.")],
    output: Annotated[str, typer.Option(help="Where the recalibrated predictions go.")],
    labels: Annotated[str | None, typer.Option(help="Labels, if they come apart.")] = None,
    source: Annotated[str | None, typer.Option(help="Labelled events to calibrate on first.")] = None,
    config: Annotated[Path | None, typer.Option(help="Options, as TOML.")] = None,
    rejects: Annotated[str | None, typer.Option(help="Where bad input goes, one line each.")] = None,
    map_file: Annotated[Path | None, typer.Option("--map", help="Where the last map goes, as JSON.")] = None,
) -> None:
    """Recalibrate a stream of predictions while its labels arrive.

    A URL is a path, file:PATH, or - for standard input and output; .csv is CSV, all else JSON lines; .gz is
    gzip. Predictions and labels are merged by event time.
    """
    options = _read_config(config)
    pipeline = Pipeline(options.recalibrator, options.join)
    with ExitStack() as stack:
        sources: list[Source] = []
        try:
            deployment = [_source(url, "target") for url in (events, labels) if url is not None]
            calibration = [_source(source, "source")] if source is not None else []
            sources = [*calibration, *deployment]
        except OSError as error:
            _fail(f"cannot read: {error}", 1)
        answers = _sink(output, stack)
        refused = _Rejects(_sink(rejects, stack) if rejects is not None else None)
        interrupted = _run(pipeline, calibration, deployment, answers, refused, _Meter(stack))
    if map_file is not None:
        _write_maps(pipeline, map_file)
    console = Console(stderr=output == "-")
    console.print(run_table(pipeline, sum(each.unknown_fields for each in sources)))
    if interrupted:
        _say("interrupted: what was done so far is written")
        raise typer.Exit(130)
    if pipeline.tally.events == 0 or pipeline.tally.events == pipeline.tally.rejected:
        _fail(f"no event could be read from {', '.join(filter(None, (source, events, labels)))}", 1)


def _run(
    pipeline: Pipeline,
    calibration: list[Source],
    deployment: list[Source],
    answers: Sink,
    refused: _Rejects,
    meter: _Meter,
) -> bool:
    """Drive the pipeline to the end of its sources; return whether it was interrupted."""
    try:
        for item in _items(calibration[0]) if calibration else ():
            reject = pipeline.calibrate(item)
            if reject is not None:
                refused.take([reject])
            if pipeline.tally.events % _BATCH == 0:
                meter.show(pipeline.tally.events)
        for batch in _batches(deployment):
            rows: list[Recalibrated] = []
            bad: list[RejectRow] = []
            try:
                for item in batch:
                    answered, rejected = pipeline.step(item)
                    rows += answered
                    bad += rejected
            finally:
                answers.write(rows)
                refused.take(bad)
            meter.show(pipeline.tally.events)
    except KeyboardInterrupt:
        return True
    except (OSError, ValueError) as error:
        _fail(str(error), 1)
    refused.take(pipeline.close())
    return False


@app.command()
def apply(
    map_file: Annotated[Path, typer.Option("--map", help="A map, as JSON.")],
    events: Annotated[str, typer.Option(help="Predictions to recalibrate.")] = "-",
    output: Annotated[str, typer.Option(help="Where the recalibrated predictions go.")] = "-",
    rejects: Annotated[str | None, typer.Option(help="Where bad input goes, one line each.")] = None,
) -> None:
    """Apply a map that was formed before to a stream of predictions; nothing is learned."""
    try:
        recalibration = RecalibrationMap.model_validate_json(map_file.read_bytes())
    except OSError as error:
        _fail(f"cannot read: {error}", 2)
    except ValidationError as error:
        _fail(f"{map_file} is no map: {error}", 2)
    count = refusals = 0
    with ExitStack() as stack:
        try:
            opened = _source(events, "target")
        except OSError as error:
            _fail(f"cannot read: {error}", 1)
        answers = _sink(output, stack)
        refused = _Rejects(_sink(rejects, stack) if rejects is not None else None)
        try:
            for batch in opened.batches():
                count += len(batch)
                rows, bad = _apply(recalibration, batch)
                answers.write(rows)
                refused.take(bad)
                refusals += len(bad)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    _say(
        f"{count - refusals:,} predictions recalibrated with map version {recalibration.version}, "
        f"{refusals:,} rejected"
    )
    if count == refusals:
        _fail(f"no event could be read from {events}", 1)


def _apply(
    recalibration: RecalibrationMap, batch: Sequence[Event | Malformed]
) -> tuple[list[Recalibrated], list[RejectRow]]:
    rows: list[Recalibrated] = []
    bad: list[RejectRow] = []
    for item in batch:
        if isinstance(item, Malformed | LabelEvent):
            reason = item.reason if isinstance(item, Malformed) else "a prediction needs a score"
            origin = item.origin
            if origin is not None:
                raw = origin.raw.decode("utf-8", "backslashreplace")
                bad.append(RejectRow(origin.source, origin.line, reason, raw))
            continue
        probability = recalibration.predict_one(item.score)
        rows.append(
            Recalibrated(item.id, item.score, probability, recalibration.version, recalibration.weights)
        )
    return rows, bad


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where the picture goes, as PNG.")] = Path("flights.png"),
) -> None:
    """Run the shipped example: late flights from New York in 2013, labels at the actual arrival."""
    flights.run(picture, Console())


def main() -> None:
    """Enter the command line."""
    app()


def _read_config(path: Path | None) -> RunConfig:
    if path is None:
        return RunConfig()
    try:
        return read_config(path)
    except (OSError, ValueError) as error:
        _fail(f"cannot read the configuration: {error}", 2)


def _source(url: str, domain: Domain) -> Source:
    try:
        return connector(url).source(url, domain)
    except ValueError as error:
        _fail(str(error), 2)


def _sink(url: str, stack: ExitStack) -> Sink:
    try:
        sink = connector(url).sink(url)
    except (OSError, ValueError) as error:
        _fail(f"cannot write: {error}", 2)
    stack.callback(sink.close)
    return sink


def _items(source: Source) -> Iterator[Event | Malformed]:
    return itertools.chain.from_iterable(source.batches())


def _batches(sources: list[Source]) -> Iterator[Sequence[Event | Malformed]]:
    """Yield the events of one source as they come, of two merged by time."""
    if len(sources) == 1:
        return sources[0].batches()
    return _chunks(merge_by_time(*map(_items, sources)))


def _chunks(items: Iterator[T]) -> Iterator[list[T]]:
    while chunk := list(itertools.islice(items, _BATCH)):
        yield chunk


def _write_maps(pipeline: Pipeline, path: Path) -> None:
    """Write the map of the run, or of every key, whose name then goes before the suffix."""
    for key, engine in pipeline.engines.items():
        name = path if key is None else path.with_suffix(f".{quote(key, safe='')}{path.suffix}")
        name.write_bytes(msgspec.json.format(engine.map.model_dump_json().encode(), indent=2) + b"\n")


def _say(message: str) -> None:
    print(message, file=sys.stderr)  # noqa: T201  # the command line's own voice


def _fail(message: str, status: int) -> NoReturn:
    _say(f"streamcal: {message}")
    raise typer.Exit(status)
