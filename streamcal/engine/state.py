"""State of an engine, and its bytes: numbered parts with a checksum; no pickle."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from streamcal.base.errors import DamagedStateError
from streamcal.base.values import NO_FLOATS, Floats
from streamcal.delayed.release_state import ReleaseState
from streamcal.engine.domain_labels import DomainState
from streamcal.engine.map_versions import VersionsState
from streamcal.maps.rate_limits import RateLimits
from streamcal.mixture.score_tracker import ScoreTracker
from streamcal.sketch.decoding import Count, Finite, Part, decoded, encoded, sealed, unsealed
from streamcal.sketch.score_sketch import ScoreSketch

_KIND: Final = b"SCRC\x0b"
_MOST: Final = 1 << 28  # bytes: no engine has a state so large
_SMALL: Final = 512  # bytes, which take longer to compress than to write
_PLAIN: Final = b"\0"  # with which nothing begins that is compressed


class EngineState(Part):
    """State of an engine; what is as in a new one is absent or empty."""

    source: DomainState | None = None
    target: DomainState | None = None
    unlabelled: ScoreSketch | None = None
    unread: Floats = NO_FLOATS
    """Scores that the prior has not read."""
    priors: ScoreTracker | None = None
    matched: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    """κ under which the forecasts have the known prior as their mean."""
    time: Finite | None = None
    """Latest event time of a label, in seconds."""
    release: ReleaseState | None = None
    versions: VersionsState | None = None
    limits: tuple[Count, RateLimits] | None = None
    """Number of labels at which limits of the rate were formed, and these."""


def pack(parts: Sequence[bytes]) -> bytes:
    """Return the parts as one state."""
    return sealed(_KIND, encoded(parts))


def unpack(data: bytes, count: int, *, more: bool = False) -> list[bytes]:
    """Return the first ``count`` parts of a state, which has no others; with ``more``, all of them.

    Raises
    ------
    DamagedStateError
        if the bytes are not such a state, or are damaged; the message says what is wrong.
    """
    parts = decoded(unsealed(data, _KIND, "an engine"), list[bytes], "an engine")
    if len(parts) < count or (len(parts) > count and not more):
        raise DamagedStateError(f"engine state has {len(parts)} parts, {count} expected")
    return parts


def compressed(data: bytes) -> bytes:
    """Return a part compressed to about half of its bytes; a small one as it is, behind a mark."""
    if len(data) <= _SMALL:
        return _PLAIN + data
    return zlib.compress(data, 3)  # higher levels take longer, and gain nothing


def expanded(data: bytes) -> bytes:
    """Return the part from the bytes that `compressed` returned.

    Raises
    ------
    DamagedStateError
        if they are not such bytes.
    """
    if data[:1] == _PLAIN:
        return data[1:]
    stream = zlib.decompressobj()
    try:
        part = stream.decompress(data, _MOST)
    except zlib.error as error:
        raise DamagedStateError(f"an engine state cannot be expanded: {error}") from None
    if not stream.eof or stream.unused_data:
        raise DamagedStateError(f"an engine state cannot be expanded to at most {_MOST:,} bytes")
    return part
