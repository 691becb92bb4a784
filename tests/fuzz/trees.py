"""States taken apart into nested lists and dicts, and packed again: with right lengths and checksums.

A state is bytes inside bytes: sealed ones, MessagePack, JSON, arrays. What is no more than an array stays
bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Final

import msgspec


class _Form:
    """Bytes of a known form: ``inside`` is what they hold."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside


class _Sealed(_Form):
    """See `streamcal.sketch.decoding.sealed`."""

    def __init__(self, kind: bytes, inside: Any) -> None:
        super().__init__(inside)
        self.kind = kind


class _Json(_Form):
    pass


class _MessagePack(_Form):
    pass


class _Compressed(_MessagePack):
    """See `streamcal.engine.state.compressed`."""


DEEP: Final = "<deep>"
"""Stands for a value nested more deeply than any decoder goes."""

_DEPTH: Final = 20_000


def unpack(data: bytes) -> Any:
    """Return bytes as a tree; see `pack`."""
    if data[:4] in (b"SCRC", b"SCSK"):
        return _Sealed(data[:5], _opened(msgspec.msgpack.decode(data[5:-4])))
    if data[:2] == b"\x78\x5e":
        return _Compressed(unpack(zlib.decompress(data)).inside)
    if data[:1] == b"{":
        try:
            return _Json(json.loads(data))
        except ValueError:
            return data  # numbers whose first byte is that of a brace
    if data and (data[0] >> 4 == 8 or data[0] in (0x93, 0xDE)):
        try:
            return _MessagePack(_opened(msgspec.msgpack.decode(data)))
        except ValueError:
            pass
    return data


def pack(tree: Any) -> bytes:
    """Return the bytes of a tree.

    Raises
    ------
    ValueError, TypeError, OverflowError, struct.error
        if the form has no room for a value.
    """
    if isinstance(tree, bytes):
        return tree
    if isinstance(tree, _Sealed):
        body = tree.kind + msgspec.msgpack.encode(_closed(tree.inside))
        return body + struct.pack("<I", zlib.crc32(body))
    if isinstance(tree, _Json):
        text = json.dumps(tree.inside).encode()
        return text.replace(b'"%s"' % DEEP.encode(), b"[" * _DEPTH + b"]" * _DEPTH)
    if isinstance(tree, _Compressed):
        return zlib.compress(msgspec.msgpack.encode(_closed(tree.inside)), 3)
    if isinstance(tree, _MessagePack):
        return msgspec.msgpack.encode(_closed(tree.inside))
    raise TypeError(f"bytes expected, got {tree!r}")


def _opened(value: Any) -> Any:
    if isinstance(value, bytes):
        return unpack(value)
    if isinstance(value, dict):
        return {name: _opened(each) for name, each in value.items()}
    return [_opened(each) for each in value] if isinstance(value, list) else value


def _closed(value: Any) -> Any:
    if isinstance(value, _Form):
        return pack(value)
    if value == DEEP:
        return msgspec.Raw(b"\x91" * _DEPTH + b"\x90")
    if isinstance(value, dict):
        return {name: _closed(each) for name, each in value.items()}
    return [_closed(each) for each in value] if isinstance(value, list) else value
