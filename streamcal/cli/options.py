"""Options of the commands. Each is one field of a class, with its help and what it stands for."""

# ruff: noqa: RUF009  # `option` gives a field

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

import typer
from pydantic import ValidationError

from streamcal.cli.terminal import Exit, fail, failing
from streamcal.run.config import RunConfig, problems, read_config
from streamcal.run.connectors import connector_names
from streamcal.run.ports import Format, Role

_PANELS: Final = {
    "columns": "Columns of the input",
    "recalibrator": "Engine and join",
    "join": "Engine and join",
}


def option(
    text: str,
    default: object = None,
    *,
    flag: str | None = None,
    role: Role | None = None,
    table: str | None = None,
    metavar: str | None = None,
    least: int | None = None,
    most: int | None = None,
    env: str | None = None,
) -> Any:
    """Return a field of a class of options; its name gives that of the option.

    Parameters
    ----------
    text
        the help.
    default
        ``...`` if the option must be given.
    flag
        the option, such as ``--map``, where its name is not that of the field.
    role
        what is done with the path or URL that it names; None: it names none.
    table
        the table of the configuration in which it overrides the option of its name.
    metavar
        what the help calls the value.
    least, most
        limits of a number.
    env
        the variable of the environment that has the value where the option is not given.
    """
    panel = None if table is None else _PANELS[table]
    made = partial(
        typer.Option,
        default,
        metavar=metavar,
        help=text,
        rich_help_panel=panel,
        min=least,
        max=most,
        envvar=env,
    )
    return dataclasses.field(
        default=dataclasses.MISSING if default is ... else default,
        metadata={"made": made, "needed": default is ..., "flag": flag, "role": role, "table": table},
    )


def _column(text: str) -> Any:
    """Return a field for the name of a column."""
    return option(text, table="columns", metavar="NAME")


def _name(field: dataclasses.Field[Any]) -> str:
    return field.name.removesuffix("_column")


def _flag(field: dataclasses.Field[Any]) -> str:
    return field.metadata["flag"] or f"--{_name(field).replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """The file of options, the columns of predictions and of the output, and the form of the log."""

    config: Path | None = option("Options, as a TOML file.", role="read")
    id_column: str | None = _column("Column or field of the id; by default id.")
    score_column: str | None = _column("Column of the score.")
    time_column: str | None = _column("Column of the event time.")
    key_column: str | None = _column("Column of the key: each key has its own engine and map.")
    keep: str | None = option(
        "Columns that pass into the rows of the output.", table="columns", metavar="NAME,NAME"
    )
    log_json: bool = option("Log one JSON object per line.", False)
    quiet: bool = option("Show no progress and no figures: only what needs a look.", False)


@dataclass(frozen=True, kw_only=True)
class LearningOptions(CommonOptions):
    """Options of calibrating, joining and learning labels."""

    calibration: str | None = option("Labelled events to calibrate on first.", role="read")
    label_column: str | None = _column("Column of the label.")
    positive: str | None = option(
        "The label that counts as 1; the one other label counts as 0.", table="columns", metavar="VALUE"
    )
    classes: str | None = option(
        "Names of all classes, if labels name one of many; an event then has scores.",
        table="columns",
        metavar="NAME,NAME",
    )
    mode: str | None = option(
        "Which map is served: auto, source, label_shift, target or composite.", table="recalibrator"
    )
    window: str | None = option(
        "Form maps from this many latest labels, or from those of such a time, 30d.",
        table="recalibrator",
        metavar="LABELS|DURATION",
    )
    label_ttl: str | None = option(
        "How long predictions and labels wait for each other; by default 30d, 30 days.",
        table="join",
        metavar="SECONDS|DURATION",
    )
    missing_labels: str | None = option(
        "What no label means: nothing, or 0 after --label-delay-limit.",
        table="join",
        metavar="drop|negative",
    )
    label_delay_limit: str | None = option(
        "How long after its prediction a label counts, with --missing-labels negative.",
        table="join",
        metavar="SECONDS|DURATION",
    )


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options of reading inputs."""

    final: bool = option("The inputs are complete: take a last line without a line end.", False)
    form: Format | None = option(
        "How inputs are read whose names do not tell it, such as standard input; by default jsonl.",
        flag="--format",
    )


class Named(NamedTuple):
    """A path or URL, and the option of a command that names it."""

    option: str
    url: str | Path | None
    """A path is that of a file, whatever it looks like; None: the option was not given."""
    role: Role = "read"


def named(options: Any) -> Iterator[Named]:
    """Return every path and URL that options of a command name."""
    for field in dataclasses.fields(options):
        if (role := field.metadata["role"]) is not None:
            value = getattr(options, field.name)
            for url in value if isinstance(value, list) else [value]:
                yield Named(_flag(field), url, role)


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take the options of a class, the type of its parameter."""
    signature = inspect.signature(command, eval_str=True)
    kind = signature.parameters["given"].annotation
    types = get_type_hints(kind)
    fields = sorted(dataclasses.fields(kind), key=lambda each: not each.metadata["needed"])

    @wraps(command)
    def run(**values: Any) -> None:
        command(given=kind(**values))

    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.metadata["made"](_flag(field)),
            annotation=types[field.name],
        )
        for field in fields
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def read_options(given: CommonOptions) -> RunConfig:
    """Return the options of the configuration file, or the defaults, overridden by those of the command."""
    with failing(Exit.USAGE, OSError, ValueError, text="cannot read the configuration: "):
        options = RunConfig() if given.config is None else read_config(given.config, connector_names())
    overrides: dict[str, dict[str, object]] = {}
    for field in dataclasses.fields(given):
        value = getattr(given, field.name)
        if field.metadata["table"] and value is not None:
            overrides.setdefault(field.metadata["table"], {})[_name(field)] = _parsed(_name(field), value)
    changed = {}
    for table, values in overrides.items():
        before = getattr(options, table)
        try:
            changed[table] = type(before).model_validate(before.model_dump(exclude_unset=True) | values)
        except ValidationError as error:
            lines = problems(error, type(before)).splitlines()
            fail("\n".join(_by_option(table, line) for line in lines), Exit.USAGE)
    together = "the options do not go together: "
    same = {name: getattr(options, name) for name in RunConfig.model_fields}
    try:
        options = RunConfig(**same | changed)
    except ValidationError as error:
        fail(together + problems(error, RunConfig, tables=True), Exit.USAGE)
    with failing(Exit.USAGE, ValueError, text=together):
        _ = options.engines
    return options


def _by_option(table: str, line: str) -> str:
    """Return a problem under the name of its option; one of several options, under that of their table."""
    name, colon, rest = line.partition(":")
    return f"--{name.replace('_', '-')}:{rest}" if colon and " " not in name else f"[{table}] {line}"


def _parsed(name: str, value: str) -> object:
    if name in ("keep", "classes"):
        return tuple(each.strip() for each in value.split(",") if each.strip())
    if name == "label" and Path(value).is_file():
        fail(f"--label {value}: that is a file; --labels reads it, --label names a column", Exit.USAGE)
    return int(value) if name == "window" and value.isdecimal() else value
