"""Options of a run given on the command line: they override those of ``--config``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from pydantic import ValidationError

from streamcal.cli.terminal import EXIT_USAGE, fail
from streamcal.engine.config import with_join
from streamcal.run.config import RunConfig, read_config
from streamcal.run.connectors import connector_names
from streamcal.run.problems import problems

__all__ = [
    "IdColumn",
    "KeepColumns",
    "KeyColumn",
    "LabelColumn",
    "LabelTtl",
    "MaturedAfter",
    "Mode",
    "Positive",
    "ScoreColumn",
    "TimeColumn",
    "Unlabelled",
    "Window",
    "read_options",
]

_COLUMNS: Final = "Columns of the input"
_ENGINE: Final = "Engine and join"


def _column(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="NAME", help=what, rich_help_panel=_COLUMNS)


IdColumn: TypeAlias = Annotated[str | None, _column("id", "The column or field of the id; by default id.")]
ScoreColumn: TypeAlias = Annotated[str | None, _column("score", "That of the score.")]
TimeColumn: TypeAlias = Annotated[str | None, _column("time", "That of the event time.")]
LabelColumn: TypeAlias = Annotated[str | None, _column("label", "That of the label.")]
KeyColumn: TypeAlias = Annotated[
    str | None, _column("key", "That of the key: each key has its own engine and map.")
]
Positive: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE",
        help="The label that counts as 1; the one other label counts as 0.",
        rich_help_panel=_COLUMNS,
    ),
]
KeepColumns: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="NAME,NAME",
        help="Columns that pass into the rows of the output.",
        rich_help_panel=_COLUMNS,
    ),
]
Mode: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Which map is served: auto, source, label_shift, target or composite.", rich_help_panel=_ENGINE
    ),
]
Window: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LABELS|DURATION",
        help="Form maps from this many latest labels, or from those of such a time, P30D.",
        rich_help_panel=_ENGINE,
    ),
]
LabelTtl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS|DURATION",
        help="How long predictions and labels wait for each other; by default P30D, 30 days.",
        rich_help_panel=_ENGINE,
    ),
]
Unlabelled: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="drop|negative",
        help="What a prediction without a label teaches: nothing, or 0 after --matured-after.",
        rich_help_panel=_ENGINE,
    ),
]
MaturedAfter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS|DURATION",
        help="How long after its prediction a label counts, with --unlabelled negative.",
        rich_help_panel=_ENGINE,
    ),
]


def read_options(config: Path | None, **tables: Mapping[str, object]) -> RunConfig:
    """Return the options of a configuration file, or the defaults, with those that are given in their place.

    Parameters
    ----------
    config
        the file.
    **tables
        the options by name, by table; None: not given. ``keep`` and ``window`` may be text.
    """
    try:
        options = RunConfig() if config is None else read_config(config, connector_names())
    except (OSError, ValueError) as error:
        fail(f"cannot read the configuration: {error}", EXIT_USAGE)
    changed = {}
    for table, values in tables.items():
        given = {name: _parsed(name, value) for name, value in values.items() if value is not None}
        before = getattr(options, table)
        try:
            if given:
                changed[table] = type(before).model_validate(before.model_dump(exclude_unset=True) | given)
        except ValidationError as error:
            lines = problems(error, type(before)).splitlines()
            fail("\n".join(_by_option(table, line) for line in lines), EXIT_USAGE)
    options = options.model_copy(update=changed)
    try:
        with_join(options.recalibrator, options.join)
    except ValueError as error:
        fail(f"the options do not go together: {error}", EXIT_USAGE)
    return options


def _by_option(table: str, line: str) -> str:
    """Return a problem with an option under its name here; one of several, under that of their table."""
    name, colon, rest = line.partition(":")
    return f"--{name.replace('_', '-')}:{rest}" if colon and " " not in name else f"[{table}] {line}"


def _parsed(name: str, value: object) -> object:
    if name == "keep":
        return tuple(each.strip() for each in str(value).split(",") if each.strip())
    if name == "label" and Path(str(value)).is_file():
        fail(f"--label {value}: that is a file; --labels reads it, --label names a column", EXIT_USAGE)
    return int(value) if name == "window" and isinstance(value, str) and value.isdecimal() else value
