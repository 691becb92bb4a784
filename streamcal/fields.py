"""What the id, the key and the domain of an event may be: one rule for files, topics and `Recalibrator.step`.

Scores and labels are checked in `streamcal.sketch.checks`, times in `streamcal.times`.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from streamcal.values import MAX_NAME_BYTES, check_name, shown

__all__ = ["check_domain", "check_id", "check_key"]

_MANY_BITS: Final = MAX_NAME_BYTES * 4  # a whole number of more bits has too many digits


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
