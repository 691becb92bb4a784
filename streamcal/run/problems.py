"""What is wrong with options or a map, one line a problem: which value, what is allowed, what was given."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel, ValidationError

__all__ = ["problems"]

_MOST: Final = 10
_LONGEST: Final = 60  # characters of a value
_WANTED: Final = "Input should be "


def problems(error: ValidationError, model: type[BaseModel], *, tables: bool = False) -> str:
    """Return the problems that pydantic found with a model's fields, one line each.

    Parameters
    ----------
    tables
        whether the fields are the tables of a TOML file, written ``[table] option``.
    """
    found: dict[str, tuple[list[str], Any]] = {}
    for each in error.errors(include_url=False):
        place = _place(each["loc"], tables=tables)
        rules, _ = found.setdefault(place, ([], each["input"]))
        rules.append(_rule(each["type"], each["msg"], each["loc"], model))
    lines = [_line(place, rules, value) for place, (rules, value) in found.items()]
    if len(lines) > _MOST:
        lines[_MOST:] = [f"… and {len(lines) - _MOST} more"]
    return "\n".join(lines)


def _place(loc: tuple[int | str, ...], *, tables: bool) -> str:
    if tables and len(loc) > 1:  # behind table and option: the alternative that did not fit
        return f"[{loc[0]}] {loc[1]}"
    name, index = (*loc, "", "")[:2]
    return f"{name}[{index}]" if isinstance(index, int) else str(name)


def _rule(kind: str, message: str, loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"is not known{_meant(loc, model)}"
    message = message.removeprefix("Value error, ").replace("timedelta", "duration, such as 'P30D'")
    return f"must be {message.removeprefix(_WANTED)}" if message.startswith(_WANTED) else message


def _meant(loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    for table in loc[:-1]:
        inner = model.model_fields[str(table)].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ""
        model = inner
    near = get_close_matches(str(loc[-1]), model.model_fields, 1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(model.model_fields)}"


def _line(place: str, rules: list[str], value: object) -> str:
    first, *others = rules
    text = ", or ".join([first, *(rule.removeprefix("must be ") for rule in others)])
    if not text.startswith("is "):
        shown = repr(value)
        text += f"; got {shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '…'}"
    return f"{place}: {text}" if place else text
