"""Options of a run given on the command line: they override those of ``--config``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from pydantic import ValidationError

from streamcal.cli.terminal import EXIT_USAGE, fail
from streamcal.engine.config import with_join
from streamcal.run.config import RunConfig, read_config
from streamcal.run.connectors import connector_names
from streamcal.run.problems import problems

__all__ = ["Given", "read_options", "takes_options"]

_COLUMNS: Final = "Columns of the input"
_ENGINE: Final = "Engine and join"


def _column(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar="NAME", help=what, rich_help_panel=_COLUMNS)


_IdColumn: TypeAlias = Annotated[str | None, _column("id", "The column or field of the id; by default id.")]
_ScoreColumn: TypeAlias = Annotated[str | None, _column("score", "That of the score.")]
_TimeColumn: TypeAlias = Annotated[str | None, _column("time", "That of the event time.")]
_LabelColumn: TypeAlias = Annotated[str | None, _column("label", "That of the label.")]
_KeyColumn: TypeAlias = Annotated[
    str | None, _column("key", "That of the key: each key has its own engine and map.")
]
_Positive: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE",
        help="The label that counts as 1; the one other label counts as 0.",
        rich_help_panel=_COLUMNS,
    ),
]
_KeepColumns: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="NAME,NAME",
        help="Columns that pass into the rows of the output.",
        rich_help_panel=_COLUMNS,
    ),
]
_Mode: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Which map is served: auto, source, label_shift, target or composite.", rich_help_panel=_ENGINE
    ),
]
_Window: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LABELS|DURATION",
        help="Form maps from this many latest labels, or from those of such a time, P30D.",
        rich_help_panel=_ENGINE,
    ),
]
_LabelTtl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS|DURATION",
        help="How long predictions and labels wait for each other; by default P30D, 30 days.",
        rich_help_panel=_ENGINE,
    ),
]
_Unlabelled: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="drop|negative",
        help="What a prediction without a label teaches: nothing, or 0 after --matured-after.",
        rich_help_panel=_ENGINE,
    ),
]
_MaturedAfter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS|DURATION",
        help="How long after its prediction a label counts, with --unlabelled negative.",
        rich_help_panel=_ENGINE,
    ),
]


_OPTIONS: Final[Mapping[str, tuple[str, str, Any]]] = {
    "id_column": ("columns", "id", _IdColumn),
    "score_column": ("columns", "score", _ScoreColumn),
    "time_column": ("columns", "time", _TimeColumn),
    "label_column": ("columns", "label", _LabelColumn),
    "key_column": ("columns", "key", _KeyColumn),
    "positive": ("columns", "positive", _Positive),
    "keep": ("columns", "keep", _KeepColumns),
    "mode": ("recalibrator", "mode", _Mode),
    "window": ("recalibrator", "window", _Window),
    "label_ttl": ("join", "label_ttl", _LabelTtl),
    "unlabelled": ("join", "unlabelled", _Unlabelled),
    "matured_after": ("join", "matured_after", _MaturedAfter),
}
"""By the parameter of a command: the table of the configuration, the option in it, and its help."""

Given: TypeAlias = Mapping[str, Mapping[str, object]]
"""What was given on the command line: a value by table and option; None: not given."""


def takes_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options of columns, engine and join, without some; it gets them as ``given``."""
    taken = {name: option for name, option in _OPTIONS.items() if name not in without}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, (_, _, annotation) in taken.items()
    ]

    def taking(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            given: dict[str, dict[str, object]] = {"columns": {}, "recalibrator": {}, "join": {}}
            for name, (table, option, _) in taken.items():
                given[table][option] = values.pop(name)
            command(**values, given=given)

        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.name != "given"]
        run.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return run

    return taking


def read_options(config: Path | None, given: Given) -> RunConfig:
    """Return the options of a configuration file, or the defaults, with those that are given in their place.

    Parameters
    ----------
    config
        the file.
    given
        as a command gets them; ``keep`` and ``window`` may be text.
    """
    try:
        options = RunConfig() if config is None else read_config(config, connector_names())
    except (OSError, ValueError) as error:
        fail(f"cannot read the configuration: {error}", EXIT_USAGE)
    changed = {}
    for table, values in given.items():
        parsed = {name: _parsed(name, value) for name, value in values.items() if value is not None}
        before = getattr(options, table)
        try:
            if parsed:
                changed[table] = type(before).model_validate(before.model_dump(exclude_unset=True) | parsed)
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
