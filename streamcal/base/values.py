"""Rules of single values: numbers, names of classes, ids, keys and domains; and how a message shows one.

They are the same for files, topics and `Recalibrator.step`. Scores and labels are checked in
`streamcal.sketch.checks`, times in `streamcal.base.times`.

Everything here is bounded: no value, however long, makes a long message or a slow one.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
"""Scores, probabilities, times and other numbers."""

Counts = npt.NDArray[np.int64]
"""Counts and indices."""

Labels = npt.NDArray[np.int8]
"""Labels, 0 or 1."""

Cells = npt.NDArray[np.int32]
"""Cells of the dyadic grid, all of one level."""

NO_FLOATS: Final = np.empty(0)
"""Array without numbers, as are the next three: whatever is new shares them."""

NO_COUNTS: Final = np.empty(0, np.int64)
NO_LABELS: Final = np.empty(0, np.int8)
NO_CELLS: Final = np.empty(0, np.int32)

Bytes = npt.NDArray[np.uint8]
"""Bytes of texts."""

Flags = npt.NDArray[np.bool_]
"""Yes or no of each."""

BANDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99)
"""Between the bands of forecasts; a forecast at an edge is in the band above it."""

MAX_NAME_BYTES: Final = 512
"""An id, a key or the name of a class has at most so many bytes of UTF-8."""

MAX_NAME_CHARACTERS: Final = MAX_NAME_BYTES // 4
"""Number of characters that never have more bytes."""

_SHOWN: Final = 100
_MANY_BITS: Final = MAX_NAME_BYTES * 4  # a whole number of more bits has too many digits
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LINE_BREAKS: Final = "\u2028\u2029"  # those that are no control characters
_CLASSES: Final = {"true": "1", "yes": "1", "false": "0", "no": "0"}
_MISSING: Final = frozenset({"", "nan", "na", "n/a", "<na>", "nat", "none", "null"})
_WHOLE: Final = 2.0**53  # every whole float up to here is exact


def parse_number(text: str) -> float | None:
    """Return a decimal number, such as ``-1``, ``.5`` or ``2e-3``; None if the text is not one.

    What only Python reads as a number is none: ``1_000``, ``٣``, ``nan``.
    """
    return float(text) if _NUMBER.fullmatch(text) else None


def class_name(label: object) -> str:
    """Return the one name of the class that a label stands for.

    ``1``, ``1.0``, ``"1"``, ``true`` and ``"Yes"`` are ``"1"``; ``0``, ``false`` and ``"no"`` are ``"0"``.
    Any other number or text names a class of its own, whatever its case.

    Raises
    ------
    ValueError
        if it stands for none: nothing at all, NaN, a text that means a missing value, or no single value.
    """
    if isinstance(label, str):
        text = label.strip().casefold()
        if text in _MISSING or len(text.encode()) > MAX_NAME_BYTES:
            raise ValueError(f"a label must name a class, got {shown(label)}")
        number = parse_number(text)
        return _CLASSES.get(text, text) if number is None else class_name(number)
    if isinstance(label, int) and abs(label) < _WHOLE:  # booleans among them
        return str(int(label))
    if isinstance(label, float) and math.isfinite(label):
        return str(int(label)) if label.is_integer() and abs(label) < _WHOLE else repr(label)
    raise ValueError(f"a label must name a class, got {shown(label)}")


def is_missing(value: object) -> bool:
    """Return whether a value stands for none: None, NaN, NA or NaT, or a text that says so."""
    return str(value).strip().casefold() in _MISSING


def check_name(what: str, value: object, least: int = 1) -> str:
    """Return an id or a key.

    Parameters
    ----------
    what
        "an id" or "a key", for the message.
    least
        how many bytes it must have.

    Raises
    ------
    ValueError
        if it is not a string of so many to 512 bytes of UTF-8, or holds a line break or another control
        character.
    """
    if not isinstance(value, str) or not least <= len(value.encode("utf-8", "replace")) <= MAX_NAME_BYTES:
        raise ValueError(f"{what} must be a string of {least} to {MAX_NAME_BYTES} bytes, got {shown(value)}")
    if not value.isprintable() and any(
        each in _LINE_BREAKS or unicodedata.category(each) in ("Cc", "Cs") for each in value
    ):
        raise ValueError(f"{what} must not hold line breaks or control characters, got {shown(value)}")
    return str(value)  # not of a class derived from it, which has no place in a state


def check_id(value: object) -> str | None:
    """Return an id as text; None stays None. A whole number counts as its digits.

    Raises
    ------
    ValueError
        if it is neither a whole number nor text of 1 to 512 bytes without control characters.
    """
    if value is None:
        return None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        value = int(value)
        value = str(value) if value.bit_length() <= _MANY_BITS else value
    return check_name("an id", value)


def check_key(value: object) -> str | None:
    """Return a key; None stays None.

    Raises
    ------
    ValueError
        if it is no text, of more than 512 bytes, or holds control characters.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"a key must be a string, got {shown(value)}")  # noqa: TRY004  # one error for all
    return check_name("a key", value, 0)


def check_domain(value: object) -> Literal["source", "target"]:
    """Return a domain.

    Raises
    ------
    ValueError
        if it is neither ``"source"`` nor ``"target"``.
    """
    if value == "source":
        return "source"
    if value == "target":
        return "target"
    raise ValueError(f"a domain must be 'source' or 'target', got {shown(value)}")


def check_order(**columns: Any) -> None:
    """Check that columns of pandas with the same index have it in the same order.

    Raises
    ------
    ValueError
        if they do not: rows go by their place here, and by their index in pandas.
    """
    indices = {name: column.index for name, column in columns.items() if hasattr(column, "index")}
    indices = {name: index for name, index in indices.items() if hasattr(index, "equals")}
    for name, index in indices.items():
        first, other = next(iter(indices.items()))
        if not index.equals(other) and len(index) == len(other) and index.isin(other).all():
            raise ValueError(
                f"{first} and {name} have the same index in another order: {name}.loc[{first}.index] puts"
                " them in one, and to_numpy() says that rows go by their place"
            )


def unmasked(what: str, given: Any) -> npt.NDArray[Any]:
    """Return an array-like as an array.

    Raises
    ------
    TypeError
        if it is a lazy frame.
    ValueError
        if a value is masked; the message names its index.
    """
    if hasattr(given, "collect"):
        kind = type(given)
        raise TypeError(
            f"{what} are a {kind.__module__.partition('.')[0]} {kind.__qualname__}, which is not computed yet"
            ": give a column of what its method collect() returns"
        )
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        index = int(np.argwhere(np.ma.getmaskarray(given))[0][0])
        raise ValueError(f"index {index}: {what} must not be masked: leave out the events without a value")
    return np.asarray(given)


def shown(value: object) -> str:
    """Return a value as Python writes it; of a long one, the beginning."""
    if isinstance(value, str | bytes) and len(value) > _SHOWN:
        unit = "characters" if isinstance(value, str) else "bytes"
        return f"{value[:_SHOWN]!r}… ({len(value)} {unit})"
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        return f"a whole number of about {round(value.bit_length() * math.log10(2.0))} digits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or holds a number of too many digits
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
