"""The state of one part of an engine, as bytes and back: in an engine it is a branch of one tree."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from streamcal.sketch.decoding import decoded, encoded, restoring

T = TypeVar("T")


def bytes_of(part: Any) -> bytes:
    """Return the state of a part."""
    return encoded(part if isinstance(part, msgspec.Struct) else part.to_state())


def restored(fresh: T, data: bytes) -> T:
    """Return a new part with the state of these bytes put into it, as an engine does."""
    if isinstance(fresh, msgspec.Struct):
        return decoded(data, type(fresh), "this part")
    part: Any = fresh
    with restoring("not the state of this part"):
        part.restore(decoded(data, type(part.to_state()), "this part"))
    return fresh
