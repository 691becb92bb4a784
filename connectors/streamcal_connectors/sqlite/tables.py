"""The join's tables in SQLite: pending predictions, early labels and settled predictions.

One row of the file is a block of `BLOCK_SIZE` entries: JSON with one checksum. A view shows the entries one
by one. A block is written once, and again where an entry is replaced. Removing an entry sets a bit; removing
the last one deletes the block. So adding a prediction costs a fraction of an insertion, removing it a bit.

An entry is identified by ``seq``, its number in the order of arrival. An `IdIndex` in memory maps ids to
numbers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic

import msgspec
import numpy as np

from streamcal.errors import StoreError
from streamcal.join.entries import E, Early, Pending, Settled
from streamcal.join.id_table_c import EARLY, ENDED, WAITING
from streamcal.join.tables import BLOCK_SIZE, Changes, StoredTables
from streamcal_connectors.sqlite.id_index import IdIndex, Int64s, hashes
from streamcal_connectors.sqlite.schema import (
    Counts,
    bits_sum,
    blocks_of,
    checked_bits,
    checked_text,
    damaged,
    store_errors,
)

__all__ = ["SqliteTables"]

_BLOCKS_AT_ONCE: Final = 2048  # always the same number, so that there is one prepared statement
_READ_BLOCKS: Final = 1024


class SqliteTables(StoredTables):
    """The join's tables in SQLite; see `streamcal.join.tables.StoredTables`.

    Parameters
    ----------
    counts
        of each table, as of the last commit.
    """

    def __init__(self, db: sqlite3.Connection, path: Path, counts: Mapping[str, Counts]) -> None:
        self._pending: _Rows[Pending] = _Rows(db, path, counts, "pending", Pending)
        self._early: _Rows[Early] = _Rows(db, path, counts, "early", Early)
        self._settled: _Rows[Settled] = _Rows(db, path, counts, "settled", Settled)
        super().__init__((self._pending, self._settled, self._early))
        self._index: IdIndex | None = None  # of all three tables, made when it is first needed
        self._asked: Int64s = hashes(())  # the hashes of the ids prefetched last
        self._db = db
        self._path = path

    @property
    def counts(self) -> dict[str, Counts]:
        """How many entries each table has."""
        return {rows.table: rows.counts for rows in (self._pending, self._early, self._settled)}

    def prefetch(self, ids: Iterable[str]) -> None:
        """Load the entries of ids; see `streamcal.join.tables.Tables`."""
        self._asked = hashes(ids)
        self._fetch()

    def flush(self) -> None:
        """Write the changes, in a transaction that a commit ends; see `streamcal.join.tables.Tables`."""
        with store_errors(self._path, "written"):
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            self.write()
        self._fetch()

    def _fetch(self) -> None:
        if self._index is None:
            self._index = self._read_through()
        numbers = self._index.find(self._asked)
        table, seqs = numbers % 3, numbers // 3
        self.load(WAITING, self._pending.read(seqs[table == 0].tolist()))
        self.load(EARLY, self._early.read(seqs[table == 1].tolist()))
        self.load(ENDED, self._settled.read(seqs[table == 2].tolist()))

    def write(self) -> None:
        """Write the changes, in the transaction that is open."""
        pending, settled, early = self.changes()
        self._write(self._pending, pending, 0)
        self._write(self._early, early, 1)
        self._write(self._settled, settled, 2)

    def _write(self, rows: _Rows[E], changes: Changes[E], number: int) -> None:
        first, added, removed, replaced = changes
        old = [seq for seq, _ in removed]
        if replaced:
            rows.replace(replaced)
        rows.write(first, added, old)
        if self._index is not None:
            self._index.remove(hashes([id_ for _, id_ in removed]), 3 * np.array(old, np.int64) + number)
            new = np.arange(first, first + len(added), dtype=np.int64)
            self._index.add(hashes(added), 3 * new + number)

    def _read_through(self) -> IdIndex:
        """Return the index of all entries; reading them checks every block when a run begins."""
        index = IdIndex()
        everything = self._pending.all_ids(), self._early.all_ids(), self._settled.all_ids()
        for number, some in enumerate(everything):
            for seqs, ids in some:
                index.add(hashes(ids), 3 * np.array(seqs, np.int64) + number)
        return index


class _Rows(Generic[E]):
    """The entries of one table; see `streamcal.join.tables.Rows`."""

    def __init__(
        self, db: sqlite3.Connection, path: Path, counts: Mapping[str, Counts], table: str, kind: type[E]
    ) -> None:
        self.table = table
        self.counts = counts.get(table, Counts())
        self._db = db
        self._path = path
        self._decode = msgspec.json.Decoder(list[tuple[str, kind]]).decode  # type: ignore[valid-type]
        # Blocks that were read since the last write: their sizes, and the bits of removed entries.
        self._read: dict[int, tuple[int, int]] = {}
        blocks = f"SELECT b.block, rows, b.crc, bits, g.crc FROM {table}_blocks b LEFT JOIN {table}_gone g"  # noqa: S608  # names from above
        blocks += " ON g.block = b.block WHERE b.block"
        marks = ", ".join("?" * _BLOCKS_AT_ONCE)
        self._find = f"{blocks} IN ({marks})"
        self._from = f"{blocks} >= ? ORDER BY b.block LIMIT ?"

    def read(self, seqs: Sequence[int]) -> list[tuple[int, str, E]]:
        """Return the entries with these numbers, all of which must exist."""
        wanted: dict[int, list[int]] = {}
        for seq in seqs:
            wanted.setdefault(seq // BLOCK_SIZE, []).append(seq % BLOCK_SIZE)
        found: list[tuple[int, str, E]] = []
        blocks = [
            *wanted,
            *[None] * (-len(wanted) % _BLOCKS_AT_ONCE),
        ]  # padded with NULL, which equals nothing
        with store_errors(self._path, "read"):
            for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
                rows = self._db.execute(self._find, blocks[start : start + _BLOCKS_AT_ONCE])
                for block, entries, bits in self._entries(rows):
                    self._read[block] = len(entries), bits
                    for slot in wanted[block]:
                        if slot < len(entries) and not bits >> slot & 1:
                            id_, entry = entries[slot]
                            found.append((block * BLOCK_SIZE + slot, id_, entry))
        if len(found) != len(seqs):
            raise StoreError(damaged(self._path, f"entries of table {self.table} are missing"))
        return found

    def after(self, seq: int, limit: int) -> list[tuple[int, str, E]]:
        """Return the first entries after ``seq``, in order."""
        found: list[tuple[int, str, E]] = []
        with store_errors(self._path, "read"):
            # Only the first block may have no entry after seq.
            rows = self._db.execute(self._from, (max(seq, 0) // BLOCK_SIZE, limit // BLOCK_SIZE + 2))
            for block, entries, bits in self._entries(rows):
                self._read[block] = len(entries), bits
                found += [
                    (block * BLOCK_SIZE + slot, id_, entry)
                    for slot, (id_, entry) in enumerate(entries)
                    if block * BLOCK_SIZE + slot > seq and not bits >> slot & 1
                ]
        return found

    def extent(self) -> tuple[int, int]:
        """Return the number of entries, and the largest ``seq`` ever used."""
        return self.counts.rows, self.counts.last

    def all_ids(self) -> Iterator[tuple[list[int], list[str]]]:
        """Return the numbers and ids of all entries in order, in batches."""
        count = 0
        with store_errors(self._path, "read"):
            rows = self._db.execute(self._from, (0, -1))
            while some := rows.fetchmany(_READ_BLOCKS):
                seqs: list[int] = []
                ids: list[str] = []
                for block, entries, bits in self._entries(some):
                    for slot, (id_, _) in enumerate(entries):
                        if not bits >> slot & 1:
                            seqs.append(block * BLOCK_SIZE + slot)
                            ids.append(id_)
                count += len(ids)
                yield seqs, ids
        if count != self.counts.rows:
            raise StoreError(
                damaged(self._path, f"table {self.table} has {count} entries of {self.counts.rows}")
            )

    def replace(self, entries: Mapping[int, E]) -> None:
        """Write other entries, by number, in place of those that have the same ids."""
        blocks: dict[int, dict[int, E]] = {}
        for seq, entry in entries.items():
            blocks.setdefault(seq // BLOCK_SIZE, {})[seq % BLOCK_SIZE] = entry
        wanted = [*blocks, *[None] * (-len(blocks) % _BLOCKS_AT_ONCE)]
        for start in range(0, len(wanted), _BLOCKS_AT_ONCE):
            found = self._entries(self._db.execute(self._find, wanted[start : start + _BLOCKS_AT_ONCE]))
            written = [
                row
                for block, held, _ in found
                for row in blocks_of(
                    block, [(id_, blocks[block].get(slot, entry)) for slot, (id_, entry) in enumerate(held)]
                )
            ]
            self._db.executemany(f"REPLACE INTO {self.table}_blocks VALUES (?, ?, ?)", written)  # noqa: S608

    def write(self, first: int, added: Mapping[str, E], removed: Sequence[int]) -> None:
        """Remove entries by number, and add others, numbered from ``first``, a multiple of `BLOCK_SIZE`."""
        gone: dict[int, int] = {}
        for seq in removed:
            gone[seq // BLOCK_SIZE] = gone.get(seq // BLOCK_SIZE, 0) | 1 << seq % BLOCK_SIZE
        dead, alive = [], []
        for block, bits in gone.items():
            size, before = self._read[block]
            now = bits | before
            if now == (1 << size) - 1:
                dead.append((block,))
            else:
                alive.append((block, now, bits_sum(block, now)))
        db, table = self._db, self.table
        db.executemany(f"DELETE FROM {table}_blocks WHERE block = ?", dead)  # noqa: S608  # names from above
        db.executemany(f"DELETE FROM {table}_gone WHERE block = ?", dead)  # noqa: S608
        db.executemany(f"REPLACE INTO {table}_gone VALUES (?, ?, ?)", alive)  # noqa: S608
        db.executemany(
            f"INSERT INTO {table}_blocks VALUES (?, ?, ?)",  # noqa: S608
            blocks_of(first // BLOCK_SIZE, list(added.items())),
        )
        self._read.clear()
        self.counts = Counts(
            self.counts.rows + len(added) - len(removed),
            first - 1 + len(added) if added else self.counts.last,
        )

    def _entries(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, list[tuple[str, E]], int]]:
        """Return every block as its number, its entries and the bits of the removed ones."""
        for block, text, crc, bits, bits_crc in rows:
            entries: list[tuple[str, E]] = self._decode(
                checked_text(self._path, self.table, block, text, crc)
            )
            mask = 0 if bits is None else checked_bits(self._path, self.table, block, bits, bits_crc)
            yield block, entries, mask
