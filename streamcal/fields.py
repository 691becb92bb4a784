"""What the id, the key and the domain of an event may be: one rule for files, topics and `Recalibrator.step`.

Scores and labels are checked in `streamcal.sketch.checks`, times in `streamcal.times`.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

__all__ = ["MAX_ID_BYTES", "MAX_KEY_BYTES", "check_domain", "check_id", "check_key", "shorten"]

MAX_ID_BYTES: Final = 512
MAX_KEY_BYTES: Final = 512

_SHOWN: Final = 100  # characters of a value that a message repeats
_MANY_BITS: Final = MAX_ID_BYTES * 4  # a whole number of more bits has too many digits


def check_id(value: object) -> str | None:
    """Return an id as text; None stays None. A whole number counts as its digits.

    Raises
    ------
    ValueError
        if it is neither text of 1 to `MAX_ID_BYTES` bytes nor a whole number.
    """
    if value is None:
        return None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        value = int(value)
        value = str(value) if value.bit_length() <= _MANY_BITS else value
    if isinstance(value, str) and 0 < _bytes(value) <= MAX_ID_BYTES:
        return str(value)  # not of a class derived from it, which has no place in a state
    raise _refusal(f"an id must be a string of 1 to {MAX_ID_BYTES} bytes", value)


def check_key(value: object) -> str | None:
    """Return a key; None stays None.

    Raises
    ------
    ValueError
        if it is no text, or of more than `MAX_KEY_BYTES` bytes.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise _refusal("a key must be a string", value)
    if not 0 <= _bytes(value) <= MAX_KEY_BYTES:
        raise _refusal(f"a key must be at most {MAX_KEY_BYTES} bytes of UTF-8", value)
    return str(value)


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
    raise _refusal("a domain must be 'source' or 'target'", value)


def shorten(value: object) -> str:
    """Return a value as a message repeats it: the beginning, if it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list a thousand lists deep
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def _bytes(text: str) -> int:
    """Return how long a text is in UTF-8, or -1 if it has no form there: half of a surrogate pair."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


def _refusal(rule: str, value: object) -> ValueError:
    return ValueError(f"{rule}, got {shorten(value)}")
