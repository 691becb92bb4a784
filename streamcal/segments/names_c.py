"""Names of segments: one of each value, in whatever format it comes.

Compiled where there is a C compiler; `names_c.pxd` has the types.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from streamcal.values import shown

__all__ = ["Name", "as_bytes", "as_name", "name_of", "order"]

Name = str | None
"""Name of the value of a field; None: the field is missing."""

# As C has them.
_LONGEST = 4096  # bytes of a name
_PLAIN = 1024  # characters that cannot have more bytes
_MISSING: Any = ("NAType", "NaTType")  # of pandas
_MISSING_TEXTS: Any = ("NaN", "NaT")
_WHOLE: Any = re.compile(r"-?(0|[1-9]\d*)\.0", re.ASCII)
_WORDS: Any = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_MOMENT: Any = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*(Z|[+-]\d\d:?\d\d)?", re.ASCII)


def name_of(value: object) -> Name:
    """Return the name of one value of a field; None: it is missing.

    A value has one name in whatever format it comes: a boolean is ``true`` or ``false``, 3.0 is ``3`` (CSV
    has it where a column has gaps), a decimal has its digits, and a moment is in UTC, to the microsecond; at
    midnight it is a date. All other texts are their own names: ``1.10`` and ``1.1`` may be two versions.

    Raises
    ------
    ValueError
        If the value is no text of at most 4096 bytes, number, boolean, date, time or None. A number that JSON
        can hold, however long, has a name.
    """
    if type(value) is str:  # nearly always
        text: str = value
        size = len(text)
        if 0 < size <= _PLAIN:
            if not text.isascii():
                _check_size(text)
            if size > 4 and text[4] == "-":
                return _name_of_moment(text)
            if size > 2 and text[size - 1] == "0" and text[size - 2] == ".":
                return text[: size - 2] if _WHOLE.fullmatch(text) else text
            return _WORDS.get(text, text) if text[0] in "TF" else text
    if isinstance(value, np.datetime64 | date | Decimal):
        value = str(value)
        return None if value in _MISSING_TEXTS else _name_of_moment(value)
    if isinstance(value, str) and type(value) is not str:  # of NumPy, or an enumeration
        return name_of(str.__str__(value))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        _check_size(value)
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value != value:
            return None
        return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
    if isinstance(value, int):
        try:
            return str(int(value))
        except ValueError:  # of more digits than Python writes; no format reads so many
            raise ValueError(f"a segment must have fewer digits, got {shown(value)}") from None
    if value is None or type(value).__name__ in _MISSING:
        return None
    raise ValueError(f"a segment must be a text, number, boolean, date, time or None, got {shown(value)}")


def as_bytes(name: Name) -> bytes:
    """Return a name as bytes; that of a missing value, as none."""
    return b"" if name is None else name.encode("utf-8", "surrogatepass")


def as_name(data: bytes) -> Name:
    """Return the name of what `as_bytes` gave."""
    return data.decode("utf-8", "surrogatepass") if data else None


def order(name: Name) -> tuple[bool, str]:
    """Return what names are sorted by: a missing value comes first."""
    return name is not None, name or ""


def _check_size(text: str) -> None:
    """Raise ValueError if a text has too many bytes, or is none that has bytes."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a segment must be Unicode text, got {shown(text)}") from None
    if size > _LONGEST:
        raise ValueError(f"a segment must be at most {_LONGEST} bytes, got {shown(text)}")


def _name_of_moment(text: str) -> str:
    """Return the name of a date and time; of another text itself."""
    if not _MOMENT.fullmatch(text):
        return text
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # such as 30 February
        return text
    named = str(moment).removesuffix(" 00:00:00")
    return named.rstrip("0") if moment.microsecond else named
