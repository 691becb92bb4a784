"""Positions in topics, and how a transaction stores those of all sources of a run.

The position of a partition is the offset of the next record, and the topic's id, which is another one once
the topic was deleted and created again: ``{"offset": 7, "topic_id": "…"}``. Where a broker tells no ids
(before Kafka 2.8), it is the offset alone.
"""

from __future__ import annotations

import base64
import zlib
from contextlib import suppress
from typing import Final

import msgspec

from streamcal.run.ports import Position
from streamcal_connectors.readers import read_position

_PACKED_FROM: Final = 2048  # characters; a broker accepts 4096 by default


class _At(msgspec.Struct):
    offset: int
    topic_id: str


class Mark(msgspec.Struct):
    """Number and input positions of a transaction, which it stores as the metadata of an offset."""

    number: int
    """Number of the transaction in its job, from 1 on."""
    positions: dict[str, dict[str, Position]]


def position_at(offset: int, topic_id: str | None) -> Position:
    """Return the position at an offset; the id is None where the broker tells none."""
    return offset if topic_id is None else {"offset": offset, "topic_id": topic_id}


def offset_of(position: Position) -> int:
    """Return the offset of the next record."""
    return position if isinstance(position, int) else read_position(position, _At, "a topic").offset


def topic_id_of(position: Position) -> str | None:
    """Return the id of the topic that a position belongs to; None if it is not known."""
    return read_position(position, _At, "a topic").topic_id if isinstance(position, dict) else None


def pack(mark: Mark) -> str:
    """Return the mark as a text; a long one is compressed, because brokers limit its length."""
    data = msgspec.json.encode(mark)
    return data.decode() if len(data) < _PACKED_FROM else base64.b85encode(zlib.compress(data, 9)).decode()


def unpack(text: str) -> Mark:
    """Return the mark of a text.

    Raises
    ------
    ValueError
        if `pack` did not write it.
    """
    data = text.encode()
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(data, type=Mark)
    try:
        return msgspec.json.decode(zlib.decompress(base64.b85decode(data)), type=Mark)
    except (ValueError, zlib.error):
        raise ValueError(f"the metadata of a group was not written by streamcal: {text[:100]!r}") from None
