"""Options of a run given on the command line: they override those of ``--config``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from pydantic import ValidationError

from streamcal.cli.terminal import EXIT_USAGE, fail
from streamcal.run.config import RunConfig

__all__ = [
    "IdColumn",
    "KeepColumns",
    "KeyColumn",
    "LabelColumn",
    "LabelTtl",
    "Mode",
    "Positive",
    "ScoreColumn",
    "TimeColumn",
    "Window",
    "override",
    "refuse_file",
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
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="How long predictions and labels wait for each other; by default 30 days.",
        rich_help_panel=_ENGINE,
    ),
]


def override(options: RunConfig, **tables: Mapping[str, object]) -> RunConfig:
    """Return options in which those that are given take the place of the others.

    Parameters
    ----------
    options
        of the configuration file.
    **tables
        the options by name, by table; None: not given. ``keep`` and ``window`` may be text.
    """
    changed = {}
    for table, values in tables.items():
        given = {name: _parsed(name, value) for name, value in values.items() if value is not None}
        before = getattr(options, table)
        try:
            if given:
                changed[table] = type(before).model_validate(before.model_dump(exclude_unset=True) | given)
        except ValidationError as error:
            fail("; ".join(map(_told, error.errors(include_url=False))), EXIT_USAGE)
    return options.model_copy(update=changed)


def refuse_file(label: str | None) -> None:
    """Refuse a file as the name of the label's column: it was meant for --labels."""
    if label is not None and Path(label).is_file():
        fail(
            f"--label {label}: that is a file; --labels reads it, --label names the label's column",
            EXIT_USAGE,
        )


def _parsed(name: str, value: object) -> object:
    if name == "keep":
        return tuple(each.strip() for each in str(value).split(",") if each.strip())
    return int(value) if name == "window" and isinstance(value, str) and value.isdecimal() else value


def _told(problem: Mapping[str, Any]) -> str:
    where = f"--{problem['loc'][0]}: ".replace("_", "-") if problem["loc"] else ""
    got = "" if problem["type"] == "value_error" else f", got {problem['input']!r}"
    return f"{where}{problem['msg'].removeprefix('Value error, ')}{got}"
