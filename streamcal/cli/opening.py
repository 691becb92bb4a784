"""Opens what a command names by URL or path: sources, sinks, stores, options; a usage error ends it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from streamcal.cli.terminal import EXIT_NOTHING_READ, EXIT_UNUSABLE, EXIT_USAGE, fail
from streamcal.errors import StoreError
from streamcal.events import Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.run.config import RunConfig, read_config
from streamcal.run.ports import Connectors, FileSource, Sink, Source, Store, connector_names
from streamcal.run.problems import problems

__all__ = [
    "ConfigFile",
    "EventsUrls",
    "Final",
    "JsonLog",
    "LabelsUrls",
    "RejectsUrl",
    "SourceUrl",
    "open_sink",
    "open_source",
    "open_store",
    "read_map",
    "read_options",
    "refuse_damaged",
    "refuse_twice",
]

EventsUrls = Annotated[
    list[str],
    typer.Option("--events", help="Predictions of the deployment; may contain labels too; may be repeated."),
]
LabelsUrls = Annotated[
    list[str] | None,
    typer.Option("--labels", help="Labels, if they come separately; may be repeated."),
]
SourceUrl = Annotated[str | None, typer.Option(help="Labelled events to calibrate on first.")]
RejectsUrl = Annotated[str | None, typer.Option(help="Where rejected input goes, one line each.")]
ConfigFile = Annotated[Path | None, typer.Option(help="Options, as a TOML file.")]
Final = Annotated[
    bool, typer.Option("--final", help="The inputs are complete: take a last line without a line end.")
]
JsonLog = Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")]


def read_options(path: Path | None) -> RunConfig:
    """Return the options of a configuration file; the defaults without one."""
    if path is None:
        return RunConfig()
    try:
        return read_config(path, connector_names())
    except (OSError, ValueError) as error:
        fail(f"cannot read the configuration: {error}", EXIT_USAGE)


def read_map(path: Path) -> RecalibrationMap:
    """Return the map in a file."""
    try:
        return RecalibrationMap.model_validate_json(path.read_bytes())
    except OSError as error:
        fail(f"cannot read the map: {error}", EXIT_USAGE)
    except ValidationError as error:
        fail(f"{path} is not a map: {problems(error, RecalibrationMap)}", EXIT_USAGE)


def open_source(
    connectors: Connectors,
    url: str,
    domain: Domain,
    stack: ExitStack,
    *,
    follow: bool = False,
    final: bool = False,
) -> Source:
    """Open a source, closed with the stack."""
    try:
        source = connectors.source(url, domain, follow=follow, final=final)
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except OSError as error:
        fail(f"cannot read: {error}", EXIT_NOTHING_READ)
    stack.callback(source.close)
    return source


def open_sink(connectors: Connectors, url: str, stack: ExitStack) -> Sink:
    """Open a sink, closed with the stack."""
    try:
        sink = connectors.sink(url)
    except (OSError, ValueError) as error:
        fail(f"cannot write: {error}", EXIT_USAGE)
    stack.callback(sink.close)
    return sink


def open_store(connectors: Connectors, url: str, stack: ExitStack, *, read_only: bool = False) -> Store:
    """Open a store, closed with the stack."""
    try:
        store = connectors.store(url, read_only=read_only)
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except StoreError as error:
        fail(str(error), EXIT_UNUSABLE)
    stack.callback(store.close)
    return store


def refuse_twice(names: list[str]) -> None:
    """Refuse a name that is given twice."""
    for name in names:
        if names.count(name) > 1:
            fail(f"{name} is given twice", EXIT_USAGE)


def refuse_damaged(sources: Iterable[Source]) -> None:
    """End with an error if an input could not be read to its end; everything before that is written."""
    damaged = [each.damage for each in sources if isinstance(each, FileSource) and each.damage]
    if damaged:
        fail("; ".join(damaged), EXIT_NOTHING_READ)
