"""Opens what a command names by URL or path: sources, sinks, stores; a usage error ends it.

Before it opens anything, a command passes all of it to `refuse_same`: one thing named twice could be lost.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import ValidationError

from streamcal.base.errors import ColumnsError, OutputError, StoreError
from streamcal.cli.options import CommonOptions, Named, ReadingOptions, named, read_options
from streamcal.cli.output_files import is_class_map
from streamcal.cli.terminal import Exit, Stop, fail, failing
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.events import KeptValue
from streamcal.events.columns import Columns, InputKind
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.run.added import Added
from streamcal.run.config import RunConfig, problems
from streamcal.run.connectors import Connectors, identity, public_url
from streamcal.run.outputs import writing
from streamcal.run.ports import (
    FileSource,
    Shard,
    Sink,
    SinkOptions,
    Source,
    SourceOptions,
    StoppedError,
    Store,
    TableSource,
)

_TYPES: Final[dict[Any, str]] = {bool: "bool", float: "float64"}
"""Types of fields in a table, but for texts."""

log = logging.getLogger("streamcal")

_COLLECTED: Final = 50_000
"""Number of new objects at which garbage is looked for: at the usual 700, it takes a fifth of a run with
segments, and finds none."""


def begin(given: CommonOptions, shard: Shard | None = None) -> tuple[RunConfig, Stop, Connectors]:
    """Begin a command: read its options, listen to signals, and refuse one thing that is named twice."""
    gc.set_threshold(_COLLECTED)
    options, stop = read_options(given), Stop()
    try:
        options = options if shard is None else options.of_shard(shard.of)
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    connectors = Connectors(options.connectors, stop, shard)
    refuse_same(named(given))
    return options, stop, connectors


def read_map(path: Path) -> RecalibrationMap | MulticlassMap:
    """Return the map in a file."""
    kind: type[RecalibrationMap | MulticlassMap] = RecalibrationMap
    try:
        data = path.read_bytes()
        kind = MulticlassMap if is_class_map(data) else RecalibrationMap
        return kind.model_validate_json(data)
    except OSError as error:
        fail(f"cannot read the map: {error}", Exit.USAGE)
    except ValidationError as error:
        fail(f"{path} is not a map: {problems(error, kind)}", Exit.USAGE)


def open_source(
    connectors: Connectors,
    url: str,
    kind: InputKind,
    columns: Columns,
    stack: ExitStack,
    given: ReadingOptions | None = None,
    *,
    labels_apart: bool = False,
    follow: bool = False,
    carry: bool = False,
    skip_lost: bool = False,
) -> Source:
    """Open a source, closed with the stack; see `SourceOptions`.

    ``labels_apart``: labels come from another one.
    """
    try:
        options = SourceOptions(
            domain="source" if kind == "calibration" else "target",
            follow=follow,
            final=given is not None and given.final,
            columns=columns.of(kind),
            required=columns.required(kind, labels_apart=labels_apart),
            format=None if given is None else given.form,
            carry=carry,
            skip_lost=skip_lost,
            shard=connectors.shard,
        )
        source = connectors.source(url, options)
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    except OSError as error:
        fail(f"cannot read {public_url(url)}: {error.strerror or error}", Exit.NOTHING_READ)
    stack.callback(source.close)
    return source


def added_types(added: Sequence[Added], sources: Iterable[Source]) -> dict[str, Any]:
    """Return the type of each field that rows have beyond the answer; None: a text.

    That of a column that passes through is a text where the sources know no type, or several.
    """
    kept = [source.kept if isinstance(source, TableSource) else {} for source in sources]
    types = dict[str, Any]()
    for field in (field for each in added for field in each.fields):
        first, *others = [each.get(field.name) for each in kept] or [None]
        of_sources = first if all(kind == first for kind in others) else None
        types[field.name] = of_sources if field.type is KeptValue else _TYPES.get(field.type)
    return types


def open_sink(connectors: Connectors, url: str, stack: ExitStack, options: SinkOptions) -> Sink:
    """Open a sink, closed with the stack; see `SinkOptions`."""
    with (
        failing(Exit.UNUSABLE, OutputError),
        failing(Exit.USAGE, OSError, ValueError, text="cannot write: "),
    ):
        sink = connectors.sink(url, options)
    stack.callback(_close, sink)
    return sink


def _close(sink: Sink) -> None:
    """Close a sink: one that is written as a whole is written only now."""
    with failing(Exit.UNUSABLE, OutputError), writing(sink):
        sink.close()


def open_store(connectors: Connectors, url: str, stack: ExitStack, *, read_only: bool = False) -> Store:
    """Open a store, closed with the stack."""
    with failing(Exit.USAGE, ValueError), failing(Exit.UNUSABLE, StoreError):
        store = connectors.store(url, read_only=read_only)
    stack.callback(store.close)
    return store


def refuse_same(names: Iterable[Named]) -> None:
    """Refuse a command two of whose options name the same thing, by whatever path or URL.

    Two outputs may both be ``-``: their rows are told apart by their fields.
    """
    found = [
        (option, str(url), role, this)
        for option, url, role in names
        if url is not None and (this := identity(url, role)) is not None
    ]
    for (one, url, role, this), (other, second, its_role, that) in combinations(found, 2):
        if this == that and not (url == second == "-" and role == its_role == "written"):
            fail(
                f"{one} {public_url(url)} and {other} {public_url(second)} are one and the same: nothing was"
                " read or written; give each its own",
                Exit.USAGE,
            )


def on_standard_output(names: Iterable[Named]) -> bool:
    """Whether something that a command names is its standard output, where no table must get in between."""
    stdout = identity("-", "written")
    return any(
        (url == "-" and role == "written") or stdout == identity(url, role) is not None
        for _, url, role in names
        if url is not None
    )


def refuse_empty(events: int, urls: Iterable[str]) -> None:
    """End with an error if no event could be read."""
    if not events:
        fail(f"no event could be read from {', '.join(map(public_url, urls))}", Exit.NOTHING_READ)


def refuse_damaged(sources: Iterable[Source]) -> None:
    """End with an error if an input could not be read to its end; everything before that is written."""
    damaged = [each.name for each in sources if isinstance(each, FileSource) and each.damage]
    if damaged:
        fail(f"not read to the end: {', '.join(damaged)}", Exit.NOTHING_READ)


@contextmanager
def ending(stop: Stop) -> Iterator[None]:
    """Exit with the status of what a run raises, if it raises."""
    try:
        yield
    except StoppedError as error:
        log.warning(
            "interrupted while waiting: what was committed is kept, the rest will be read again (%s)", error
        )
        raise typer.Exit(stop.status) from None
    except (StoreError, OutputError) as error:
        fail(str(error), Exit.UNUSABLE)
    except ColumnsError as error:
        fail(str(error), Exit.USAGE)
    except (OSError, ValueError) as error:
        fail(str(error), Exit.NOTHING_READ)
    except KeyboardInterrupt:
        fail("interrupted at once: what was committed is kept", Exit.INTERRUPTED)
