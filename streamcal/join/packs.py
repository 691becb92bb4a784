"""Pack: some rows of the join's table as a store has them, in columns."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.events import LabelEvent, Weight
from streamcal.join.entries import Memo, Pending

Kind: TypeAlias = Literal["pending", "settled", "early"]
"""Kind of the rows of a pack: predictions that wait, predictions that have ended, labels that wait."""

_Column: TypeAlias = npt.NDArray[Any]

PACK: Final = 256
"""Most rows of a pack."""

_NUMBERS: Final = "<u2", "<u2", "<f8", "<i8", "u1"
_WIDTHS: Final = {"pending": [1, 1, 4, 1, 1], "settled": [1, 1, 1], "early": [1, 1, 1]}
_MOST: Final = 1 << 48  # target scores that an engine has observed; packs


class Pack(NamedTuple):
    """Some rows in a store, one behind the other in their queue."""

    number: int
    """Number from 1 on; those of a queue ascend."""
    kind: Kind
    since: float | None
    """Time of the join's clock when the first of them came to its queue; None if it had no time yet."""
    data: bytes
    """`PackRows` as bytes."""
    present: bytes
    """Bits of rows, the first in the lowest bit: whether a row is still there."""


class PackChanges(NamedTuple):
    """Changes of packs that a store has to write."""

    removed: Sequence[int] = ()
    """Numbers of packs to delete."""
    added: Sequence[Pack] = ()
    """Packs to add then; one that is written again is among both."""
    marks: Mapping[int, bytes] = {}
    """`Pack.present` of others, by number."""


class PackRows(msgspec.Struct, array_like=True, omit_defaults=True):
    """Content of a pack."""

    columns: Annotated[list[bytes], msgspec.Meta(min_length=3, max_length=5)]
    """Sizes of ids, uint16[n]; states, uint16[n]; times of the clock, float64[n]. Predictions that wait have
    all their numbers in place of the times, float64[n, 4], then indices, int64[n], and domains, uint8[n]."""
    text: bytes
    """Ids, one behind the other."""
    keys: Sequence[str | None] = ()
    """Keys; empty if no row has one."""
    predictions: dict[int, Pending] = {}
    """Objects of rows by index, as are the next two."""
    labels: dict[int, LabelEvent] = {}
    memos: dict[int, Memo | Weight] = {}

    def encoded(self) -> bytes:
        """Return the content as bytes."""
        return _encode(self)

    @classmethod
    def of(cls, pack: Pack, states: Sequence[int], classes: int) -> tuple[PackRows, list[_Column], _Column]:
        """Return the content of a pack, its columns as arrays, and for each row whether it is still there.

        Raises
        ------
        ValueError
            if it is no content of rows in these states, with labels of so many classes.
        """
        rows, widths = msgspec.msgpack.decode(pack.data, type=cls), _WIDTHS[pack.kind]
        rows.text.decode("utf-8", "surrogatepass")
        columns = [np.frombuffer(*pair) for pair in zip(rows.columns, _NUMBERS, strict=False)]
        count = len(columns[0])
        columns[2] = columns[2].reshape(count, -1)
        chances, (indices, domains) = columns[2][:, 1:3], columns[3:] or (columns[0][:0],) * 2
        labels = [held.told[0] for held in rows.predictions.values() if held.told]
        labels += [event.label for event in rows.labels.values()]
        places, present = set(range(count)), np.frombuffer(pack.present, np.uint8)
        if (
            not 0 < pack.number <= _MOST
            or not 0 < count <= PACK
            or len(present) != (count + 7) // 8
            or [column.size for column in columns] != [count * width for width in widths]
            or columns[0].sum(dtype=np.int64) != len(rows.text)
            or not np.isin(columns[1], states).all()
            or not ((chances >= 0.0) & (chances <= 1.0)).all()
            or not ((indices >= 0) & (indices <= _MOST)).all()
            or (domains > 1).any()
            or len(rows.keys) not in (0, count)
            or rows.labels.keys() != (places if pack.kind == "early" else set())
            or not rows.predictions.keys() | rows.memos.keys() <= places
            or max(labels, default=0) >= classes
        ):
            raise ValueError(f"pack {pack.number} has no rows of the join")
        return rows, columns, np.unpackbits(present, count=count, bitorder="little").astype(bool)


def _plain(value: Any) -> Any:
    """Return a number of another type, such as numpy's, as one of Python's own."""
    return float(value) if isinstance(value, float) else operator.index(value)


_encode: Final = msgspec.msgpack.Encoder(enc_hook=_plain).encode
