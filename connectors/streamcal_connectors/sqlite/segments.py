"""Corrections of segments in SQLite: blocks of them in the order in which they were written.

Segments come in any order, so that to write 30,000 of a million in place changes nearly every page of a
table. So a commit appends what has changed, in blocks of `BLOCK_SIZE`, and the older rows of these segments
are void. Once half of all rows are void, each commit also writes what is left of the oldest blocks behind the
others, and deletes these.

The names of all segments are in memory, each with the number of its row, and each row with the number of its
name: some 80 bytes. They are read once, when a run opens the store.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.join.tables import BLOCK_SIZE
from streamcal.run.ports import Row, SegmentId
from streamcal.text_table_c import TextTable
from streamcal_connectors.sqlite.database import Counts, Database, with_sum

__all__ = ["SqliteSegments"]

Places = npt.NDArray[np.int64]

_READ_BLOCKS: Final = 256
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(SegmentId).decode
_decode_names: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class SqliteSegments(Mapping[SegmentId, Row]):
    """Corrections as of the last commit, each read on demand.

    Parameters
    ----------
    counts
        Counts of each table, as of the last commit.
    """

    def __init__(self, db: Database, counts: Mapping[str, Counts]) -> None:
        self._db = db
        self._counts = counts.get("segment_blocks", Counts())  # with void rows
        self._names = TextTable()
        self._numbers = array("q", [-1])  # of the row of each name
        self._places = array("q")  # of the name of each row, from the first row on; 0: there is no row
        self._first, found = 0, 0
        for block, names, _ in self._blocks(db.execute("SELECT * FROM segment_blocks ORDER BY block")):
            self._point(self._names.put(names), block * BLOCK_SIZE)
            found += len(names)
        if found != self._counts.rows:
            raise db.damaged(f"table segment_blocks has {found} rows of {self._counts.rows}")

    @property
    def counts(self) -> dict[str, Counts]:
        """Counts of each table, by its name."""
        return {"segment_blocks": self._counts}

    def write(self, changes: Mapping[SegmentId, Row]) -> None:
        """Write changes, in the transaction that is open."""
        self._append(self._names.put([*map(_encode, changes)]), b"".join(changes.values()))
        while self._counts.rows > 2 * len(self):
            self._move_oldest()

    def _append(self, places: Places, rows: bytes) -> None:
        """Write the rows of names behind the others."""
        first = (self._counts.last // BLOCK_SIZE + 1) * BLOCK_SIZE
        names, size = [*map(self._names.text, places.tolist())], len(rows) // max(len(places), 1)
        blocks = (
            (
                (first + at) // BLOCK_SIZE,
                f"[{b','.join(names[at : at + BLOCK_SIZE]).decode()}]",
                rows[size * at : size * (at + BLOCK_SIZE)],
            )
            for at in range(0, len(names), BLOCK_SIZE)
        )
        self._db.executemany("INSERT INTO segment_blocks VALUES (?, ?, ?, ?)", map(with_sum, blocks))
        self._point(places, first)
        self._counts = Counts(self._counts.rows + len(names), first + len(names) - 1)

    def _point(self, places: Places, first: int) -> None:
        """Note that the rows of names are those from ``first`` on."""
        if not self._places:
            self._first = first
        self._places.frombytes(bytes(8 * (first - self._first - len(self._places))) + places.tobytes())
        self._numbers.frombytes(bytes(8 * (len(self) + 1 - len(self._numbers))))
        np.frombuffer(self._numbers, np.int64)[places] = np.arange(first, first + len(places))

    def _move_oldest(self) -> None:
        """Write what is not void of the oldest blocks behind the others, and delete these."""
        found = self._db.execute("SELECT * FROM segment_blocks ORDER BY block LIMIT ?", (_READ_BLOCKS,))
        blocks = [*self._db.checked("segment_blocks", found)]
        last = blocks[-1][0]
        end = (last + 1) * BLOCK_SIZE - self._first
        numbers = np.arange(self._first, self._first + end)[: len(self._places)]
        places = np.array(self._places[:end])
        there = places > 0
        places, numbers = places[there], numbers[there]
        rows = np.frombuffer(b"".join([data for _, _, data, _ in blocks]), np.uint8)
        left = np.frombuffer(self._numbers, np.int64)[places] == numbers
        del self._places[:end]
        self._first += end
        self._db.execute("DELETE FROM segment_blocks WHERE block <= ?", (last,))
        self._counts = Counts(self._counts.rows - len(places), self._counts.last)
        self._append(places[left], rows.reshape(len(places), -1)[left].tobytes())

    def _blocks(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, list[bytes], bytes]]:
        """Return the number, names and rows of each block."""
        for block, names, data, _ in self._db.checked("segment_blocks", rows):
            yield block, [*map(bytes, _decode_names(names))], data

    def __getitem__(self, segment: SegmentId) -> Row:
        name = _encode(segment)
        place = self._names.find(name, 0, len(name))
        if not place:
            raise KeyError(segment)
        block, at = divmod(self._numbers[place], BLOCK_SIZE)
        with self._db.errors("read"):
            found = self._db.execute("SELECT * FROM segment_blocks WHERE block = ?", (block,))
            for _, names, data in self._blocks(found):
                if names[at : at + 1] == [name]:
                    size = len(data) // len(names)
                    return data[at * size : (at + 1) * size]
        raise self._db.damaged("the row of a segment is missing")

    def __iter__(self) -> Iterator[SegmentId]:
        return (_decode(self._names.text(place)) for place in range(1, len(self) + 1))

    def __len__(self) -> int:
        return len(self._names)
