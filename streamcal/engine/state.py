"""State of an engine, and its bytes: numbered parts behind a header, with a checksum; no pickle."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np

from streamcal.delayed.release_state import ReleaseState
from streamcal.engine.domain_labels import DomainState
from streamcal.engine.map_versions import VersionsState
from streamcal.errors import DamagedStateError
from streamcal.priors.score_tracker import ScoreTracker
from streamcal.sketch.decoding import Finite, Part
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Floats

__all__ = ["EngineState", "compressed", "expanded", "pack", "unpack"]

_MAGIC: Final = b"SCRC"
_FORMAT: Final = 11
_LENGTH: Final = struct.Struct("<I")
_MOST: Final = 1 << 28  # bytes: no engine has a state so large
_NO_SCORES: Final = np.empty(0)


class EngineState(Part):
    """State of an engine; in a new one, all of it is absent or empty."""

    source: DomainState | None = None
    target: DomainState | None = None
    unlabelled: ScoreSketch | None = None
    unread: Floats = _NO_SCORES
    """Scores that the prior has not read."""
    priors: ScoreTracker | None = None
    time: Finite | None = None
    """Latest event time of a label, in seconds."""
    release: ReleaseState | None = None
    versions: VersionsState | None = None


def pack(parts: Sequence[bytes]) -> bytes:
    """Return the parts as one state."""
    body = _MAGIC + bytes([_FORMAT]) + b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return body + _LENGTH.pack(zlib.crc32(body))


def unpack(data: bytes, count: int, *, more: bool = False) -> list[bytes]:
    """Return the first ``count`` parts of a state, which has no others; with ``more``, all of them.

    Raises
    ------
    DamagedStateError
        if the bytes are not such a state, or are damaged; the message says what is wrong.
    """
    if data[:4] != _MAGIC:
        raise DamagedStateError(f"not an engine state: it begins with {data[:4]!r}, not {_MAGIC!r}")
    if len(data) > 4 and data[4] != _FORMAT:
        raise DamagedStateError(
            f"this engine state has format {data[4]}; this version of streamcal reads format {_FORMAT} only"
        )
    body = data[:-4]
    if len(data) < 9 or _LENGTH.pack(zlib.crc32(body)) != data[-4:]:
        raise DamagedStateError("engine state checksum does not match: the bytes were altered or cut")
    parts, place = [], 5
    while place + 4 <= len(body):
        (length,) = _LENGTH.unpack_from(body, place)
        parts.append(body[place + 4 : place + 4 + length])
        place += 4 + length
    if place != len(body) or len(parts) < count or (len(parts) > count and not more):
        raise DamagedStateError(f"engine state has {len(parts)} parts, {count} expected")
    return parts


def compressed(data: bytes) -> bytes:
    """Return a part compressed to about half of its bytes, behind its length."""
    return _LENGTH.pack(len(data)) + zlib.compress(data, 3)  # higher levels take longer, and gain nothing


def expanded(data: bytes) -> bytes:
    """Return the part from the bytes that `compressed` returned.

    Raises
    ------
    DamagedStateError
        if they are not such bytes.
    """
    length, stream = int.from_bytes(data[:4], "little"), zlib.decompressobj()
    if length > _MOST:
        raise DamagedStateError(f"an engine state of {length:,} bytes: none has more than {_MOST:,}")
    try:
        part = stream.decompress(data[4:], length + 1)  # never more than it says
    except zlib.error as error:
        raise DamagedStateError(f"an engine state cannot be expanded: {error}") from None
    if len(part) != length or not stream.eof or stream.unused_data:
        raise DamagedStateError(f"an engine state of {length:,} bytes expands to others")
    return part
