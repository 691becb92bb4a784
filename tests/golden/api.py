"""Everything public, a line each: names, parameters, members; options of commands; fields of rows; HTTP."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import typer

from streamcal.cli.app import app
from streamcal.run.config import RunConfig
from streamcal.run.kinds import ClassRow
from streamcal.run.rows import AlarmRow, MapRow, Recalibrated, RejectRow, VersionRow
from streamcal.serve.openapi import document

MODULES: Final = (
    *("streamcal", "streamcal.onnx", "streamcal.river", "streamcal.run.ports", "streamcal.sampling"),
    *("streamcal.sklearn", "streamcal.spark", "streamcal.sql", "streamcal.testing"),
)
"""The public modules of docs/architecture.md."""


def public_api() -> list[str]:
    """Return the lines, sorted; those of a later version are these and others."""
    return sorted({*_names(), *_options(), *_rows(), *_paths()})


def _names() -> Iterator[str]:
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            yield from _of(f"{module}.{name}", getattr(importlib.import_module(module), name))


def _of(name: str, thing: Any) -> Iterator[str]:
    """Yield a thing's name, its parameters, and of a class its members but for those that others gave it."""
    yield name
    if inspect.isclass(thing) or inspect.isroutine(thing):
        yield from _parameters(name, thing)
    if inspect.isclass(thing):
        own = [each for each in thing.__mro__ if each.__module__.startswith("streamcal")]
        for member in sorted({member for each in own for member in vars(each) if not member.startswith("_")}):
            yield f"{name}.{member}"
            value = getattr(thing, member, None)
            if inspect.isroutine(value):
                yield from _parameters(f"{name}.{member}", value)


def _parameters(name: str, thing: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(thing).parameters
    except (TypeError, ValueError):  # of a type of values, whose fields are members; of a cached property
        return
    named = [each for each in parameters.values() if each.name != "self"]
    for place, each in enumerate(named):
        where = "*" if each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) else str(place)
        needed = each.default is each.empty
        default = "" if needed else f" = {each.default!r}"
        # An object without a text of its own shows its address.
        yield f"{name}({where} {each.name}{default if ' at 0x' not in default else ' = …'})"


def _options() -> Iterator[str]:
    commands: Any = typer.main.get_command(app)
    for name, command in commands.commands.items():
        for each in command.params:
            for option in each.opts:
                yield f"$ streamcal {name} {option}"


def _rows() -> Iterator[str]:
    for row in (AlarmRow, ClassRow, MapRow, Recalibrated, RejectRow, VersionRow):
        for field in msgspec.structs.fields(row):
            yield f"{row.__name__} has {field.encode_name}"


def _paths() -> Iterator[str]:
    for path, methods in document(RunConfig())["paths"].items():
        for method in methods:
            yield f"HTTP {method.upper()} {path}"
