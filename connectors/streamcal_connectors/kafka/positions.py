"""Positions in topics, and how a transaction stores those of all sources of a run.

The position of a partition is the offset of the next record. That of partition 0 also names the topic's id,
which is another one once the topic was deleted and created again: ``{"offset": 7, "topic_id": "…"}``. Where a
broker tells no ids (before Kafka 2.8), and in a store of an older version, it is the offset alone.
"""

from __future__ import annotations

import base64
import zlib
from contextlib import suppress
from typing import Final

import msgspec

from streamcal.run.ports import Position, Positions
from streamcal_connectors.readers import read_position

__all__ = ["Mark", "offset_of", "pack", "position_at", "topic_id_of", "unpack"]

_PACKED_FROM: Final = 2048  # characters; a broker accepts 4096 by default
_KEEPS_ID: Final = 0  # a partition that every topic has


class _At(msgspec.Struct):
    offset: int
    topic_id: str


class Mark(msgspec.Struct):
    """Number and input positions of a transaction, which it stores as the metadata of an offset."""

    number: int
    """Number of the transaction in its job, from 1 on."""
    positions: dict[str, dict[str, Position]]


def position_at(partition: int, offset: int, topic_id: str | None) -> Position:
    """Return the position of a partition at an offset; the id is None where the broker tells none."""
    if partition != _KEEPS_ID or topic_id is None:
        return offset
    return {"offset": offset, "topic_id": topic_id}


def offset_of(position: Position) -> int:
    """Return the offset of the next record."""
    return position if isinstance(position, int) else read_position(position, _At, "a topic").offset


def topic_id_of(positions: Positions) -> str | None:
    """Return the id of the topic that the positions of its partitions belong to; None if it is not known."""
    position = positions.get(str(_KEEPS_ID))
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
