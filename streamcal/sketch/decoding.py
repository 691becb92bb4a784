"""Decoding of states: untrusted bytes become a checked value, or raise `DamagedStateError`.

The types below are for the fields of states: msgspec checks them while it decodes. NaN lies in no range.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final, TypeVar

import msgspec

from streamcal.errors import DamagedStateError

__all__ = ["MOST", "Count", "Finite", "Number", "Probability", "decoded"]

T = TypeVar("T")

MOST: Final = 1 << 48
"""Upper limit on the labels or scores of a stream: a million a second for nine years."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
"""Number of labels, scores or events."""

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""Number of a version: with a growth near 1, far more versions begin than there are labels."""

Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


def decoded(data: bytes, kind: type[T], what: str, *, json: bool = False) -> T:
    """Return bytes of MessagePack, or of JSON, as a value of a type that msgspec knows.

    Raises
    ------
    DamagedStateError
        if they are not such a value; the message calls them the state of ``what``.
    """
    try:
        return msgspec.json.decode(data, type=kind) if json else msgspec.msgpack.decode(data, type=kind)
    except (ValueError, RecursionError) as error:  # of msgspec, of UTF-8, of nesting
        raise DamagedStateError(f"not the state of {what}: {error}") from None
