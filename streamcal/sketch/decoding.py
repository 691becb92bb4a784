"""The state codec: trees of structs become bytes, and bytes from anywhere become checked values.

A state is a tree of msgspec structs. Its leaves may be numpy arrays, little-endian, and anything that has
``to_bytes`` and ``from_bytes``, such as sketches. A checksum tells whether bytes were altered or cut, see
`sealed`. Types bound numbers while they are decoded; NaN lies in no range. ``__post_init__`` gives arrays
their shapes, and checks what compiled loops use as an index. So bytes that somebody made on purpose may hold
a wrong engine, but none that reads or writes beyond its memory.

`decoded` and `restoring` make a `DamagedStateError` of a ValueError. Any other exception is a bug, and stays
what it is.
"""

from __future__ import annotations

import struct
import sys
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.errors import DamagedStateError

_CRC: Final = struct.Struct("<I")
_LITTLE: Final = sys.byteorder == "little"

T = TypeVar("T")
A = TypeVar("A", bound=npt.NDArray[Any])

MOST: Final = 1 << 48
"""Upper limit on the labels or scores of a stream: a million a second for nine years."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
"""Number of labels, scores or events."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
"""Number of labels, at least one."""

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""Number of a version: with a growth near 1, far more versions begin than there are labels."""

Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class Part(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Part of an engine whose fields are its state."""


def encoded(state: object, *, json: bool = False) -> bytes:
    """Return a state as bytes of MessagePack, or of JSON; equal states give equal bytes."""
    encode = msgspec.json.encode if json else msgspec.msgpack.encode
    return encode(state, enc_hook=_leaf)


def decoded(data: bytes, kind: type[T], what: str, *, json: bool = False) -> T:
    """Return the bytes of `encoded` as a value of a type that msgspec knows.

    Raises
    ------
    DamagedStateError
        if they are no such bytes; it calls them the state of ``what``.
    """
    try:
        if json:
            return msgspec.json.decode(data, type=kind, dec_hook=_made)
        return msgspec.msgpack.decode(data, type=kind, dec_hook=_made)
    except (ValueError, RecursionError) as error:  # of msgspec, of UTF-8, of a leaf, of nesting
        raise DamagedStateError(f"not the state of {what}: {error}") from None


def sealed(kind: bytes, body: bytes) -> bytes:
    """Return bytes behind their kind, four letters and a format, and in front of a checksum."""
    return kind + body + _CRC.pack(zlib.crc32(kind + body))


def unsealed(data: bytes, kind: bytes, what: str) -> bytes:
    """Return the bytes inside what `sealed` returned.

    Raises
    ------
    DamagedStateError
        if they are not of this kind, or were altered; it calls them the state of ``what``.
    """
    if data[:4] != kind[:4]:
        raise DamagedStateError(f"not the state of {what}: it begins with {data[:4]!r}, not {kind[:4]!r}")
    if data[4:5] not in (kind[4:], b""):
        raise DamagedStateError(
            f"the state of {what} has format {data[4]}; this version of streamcal reads format {kind[4]} only"
        )
    if len(data) < len(kind) + _CRC.size or _CRC.pack(zlib.crc32(data[:-4])) != data[-4:]:
        raise DamagedStateError(f"the checksum of the state of {what} does not match: it was altered or cut")
    return data[5:-4]


@contextmanager
def restoring(place: str) -> Iterator[None]:
    """Turn a ValueError inside, while a state is restored, into a `DamagedStateError` that names the place.

    Examples
    --------
    >>> with restoring("an engine"), restoring("its labels"):
    ...     [1, 2].index(3)
    Traceback (most recent call last):
    streamcal.base.errors.DamagedStateError: an engine: its labels: 3 is not in list
    """
    try:
        yield
    except ValueError as error:
        raise DamagedStateError(f"{place}: {error}") from None


def require(holds: object, what: str) -> None:
    """Raise ``ValueError(what)`` unless it holds."""
    if not holds:
        raise ValueError(what)


def within(values: A, low: float, high: float, what: str, size: int | None = None) -> A:
    """Return an array; raise ValueError unless all lie in [low, high], and are so many, if that is given."""
    require(size is None or values.size == size, f"{what}: {values.size} values, expected {size}")
    require(((values >= low) & (values <= high)).all(), f"{what}: not all in [{low}, {high}]")
    return values


def _leaf(value: Any) -> Any:
    """Return a leaf as bytes, or as a number: uncompiled loops leave those of numpy."""
    if isinstance(value, np.ndarray):
        return (value if _LITTLE else value.astype(value.dtype.newbyteorder("<"))).tobytes()
    return value.item() if isinstance(value, np.generic) else bytes(value.to_bytes())


def _made(kind: Any, value: Any) -> Any:
    """Return a leaf from its bytes, which JSON has as text."""
    data = b64decode(value, validate=True) if isinstance(value, str) else value
    numbers = _numbers(kind)
    return np.frombuffer(data, numbers[0]).astype(numbers[1]) if numbers else kind.from_bytes(data)


@cache
def _numbers(kind: Any) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return the types of an array's numbers, little-endian and in memory; None: the type is no array."""
    if get_origin(kind) is not np.ndarray:
        return None
    number = np.dtype(get_args(get_args(kind)[1])[0])
    return number.newbyteorder("<"), number
