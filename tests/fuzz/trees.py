"""States taken apart into nested lists and dicts, and packed again: with right lengths and checksums.

A state is bytes inside bytes: numbered parts, MessagePack, JSON, sketches, arrays. What is no more than an
array stays bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Final

import msgspec

_SKETCH: Final = struct.Struct("<4sBBBIIq")


class _Form:
    """Bytes of a known form: ``inside`` is what they hold."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside


class _Parts(_Form):
    """See `streamcal.engine.state`."""


class _Sketch(_Form):
    """See `streamcal.sketch.score_sketch`: format, rows, level, max_cells, cells, n, and the cells."""


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
    if data[:4] == b"SCRC":
        parts, place = [data[4]], 5
        while place < len(data) - 4:
            (length,) = struct.unpack_from("<I", data, place)
            parts.append(unpack(data[place + 4 : place + 4 + length]))
            place += 4 + length
        return _Parts(parts)
    if data[:4] == b"SCSK":
        _, *header = _SKETCH.unpack_from(data)
        return _Sketch([*header, data[_SKETCH.size : -4]])
    if data[4:6] == b"\x78\x5e":
        return _Compressed(unpack(zlib.decompress(data[4:])).inside)
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
    if isinstance(tree, _Parts):
        version, *parts = tree.inside
        packed = [pack(part) for part in parts]
        body = b"SCRC" + bytes([version]) + b"".join(struct.pack("<I", len(each)) + each for each in packed)
        return body + struct.pack("<I", zlib.crc32(body))
    if isinstance(tree, _Sketch):
        *header, cells = tree.inside
        body = _SKETCH.pack(b"SCSK", *header) + cells
        return body + struct.pack("<I", zlib.crc32(body))
    if isinstance(tree, _Json):
        text = json.dumps(tree.inside).encode()
        return text.replace(b'"%s"' % DEEP.encode(), b"[" * _DEPTH + b"]" * _DEPTH)
    if isinstance(tree, _Compressed):
        part = msgspec.msgpack.encode(_closed(tree.inside))
        return struct.pack("<I", len(part)) + zlib.compress(part, 3)
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
