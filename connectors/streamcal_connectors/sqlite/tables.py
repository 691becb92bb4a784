"""The join's tables in SQLite: pending predictions, early labels and settled predictions.

One row of the file is a block of `BLOCK_SIZE` entries: JSON with one checksum. A view shows the entries one
by one. A block is written once, and again where an entry is replaced. Removing an entry sets a bit; removing
the last one deletes the block. So adding a prediction costs a fraction of an insertion, removing it a bit.

An entry is identified by ``seq``, its number in the order of arrival.

An `IdIndex` finds the number of an id, in 16 bytes of memory per entry. A unique index in the file would
write to a random page for every prediction, and nearly every look-up would find nothing. It is rebuilt when a
run opens the store, by reading all entries once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.join.entries import E, Early, Pending, Settled
from streamcal.join.tables import BLOCK_SIZE, StoredTables
from streamcal_connectors.sqlite.database import Counts, Database

__all__ = ["IdIndex", "SqliteTables", "bits_sum"]

Int64s = npt.NDArray[np.int64]

_GONE: Final = -1
_READ_BLOCKS: Final = 1024
_MASK: Final = 0xFFFFFFFF


class SqliteTables(StoredTables):
    """The join's tables in SQLite; see `streamcal.join.tables.StoredTables`.

    Parameters
    ----------
    counts
        Counts of each table, as of the last commit.
    """

    def __init__(self, db: Database, counts: Mapping[str, Counts]) -> None:
        stored = (
            _Rows(db, counts, "pending", Pending),
            _Rows(db, counts, "settled", Settled),
            _Rows(db, counts, "early", Early),
        )
        super().__init__(stored)
        self._index: IdIndex | None = None  # of all three tables, made when it is first needed
        self._asked: Int64s = hashes(())  # the hashes of the ids prefetched last
        self._db = db

    @property
    def counts(self) -> dict[str, Counts]:
        """Counts of each table, by its name."""
        return {rows.table: rows.counts for rows in self._stored}

    def prefetch(self, ids: Iterable[str]) -> None:
        """Load the entries of ids; see `streamcal.join.tables.Tables`."""
        self._asked = hashes(ids)
        self._fetch()

    def flush(self) -> None:
        """Write the changes, in a transaction that a commit ends; see `streamcal.join.tables.Tables`."""
        with self._db.errors("written"):
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            self.write()
        self._fetch()

    def write(self) -> None:
        """Write the changes, in the transaction that is open."""
        for queue, (rows, changes) in enumerate(zip(self._stored, self.changes(), strict=True)):
            first, added, removed, replaced = changes
            old = [seq for seq, _ in removed]
            if replaced:
                rows.replace(replaced)
            rows.write(first, added, old)
            if self._index is not None:
                self._index.remove(hashes([id_ for _, id_ in removed]), 3 * np.array(old, np.int64) + queue)
                new = np.arange(first, first + len(added), dtype=np.int64)
                self._index.add(hashes(added), 3 * new + queue)

    def _fetch(self) -> None:
        """Load the entries of the ids prefetched last."""
        if self._index is None:
            self._index = self._read_through()
        numbers = self._index.find(self._asked)
        for queue, rows in enumerate(self._stored):
            self.load(queue, rows.read((numbers[numbers % 3 == queue] // 3).tolist()))

    def _read_through(self) -> IdIndex:
        """Return the index of all entries; reading them checks every block when a run begins."""
        index = IdIndex()
        for queue, rows in enumerate(self._stored):
            for seqs, ids in rows.all_ids():
                index.add(hashes(ids), 3 * np.array(seqs, np.int64) + queue)
        return index


class _Rows(Generic[E]):
    """The entries of one table; see `streamcal.join.tables.Rows`."""

    def __init__(self, db: Database, counts: Mapping[str, Counts], table: str, kind: type[E]) -> None:
        self.table = table
        self.counts = counts.get(table, Counts())
        self._db = db
        self._decode = msgspec.json.Decoder(list[tuple[str, kind]]).decode  # type: ignore[valid-type]
        # Blocks that were read since the last write: their sizes, and the bits of removed entries.
        self._read: dict[int, tuple[int, int]] = {}
        blocks = f"SELECT b.block, rows, b.crc, bits, g.crc FROM {table}_blocks b LEFT JOIN {table}_gone g"  # noqa: S608  # names from above
        blocks += " ON g.block = b.block WHERE b.block"
        self._find = f"{blocks} IN (SELECT value FROM json_each(?))"  # noqa: S608
        self._from = f"{blocks} >= ? ORDER BY b.block LIMIT ?"

    def read(self, seqs: Sequence[int]) -> list[tuple[int, str, E]]:
        """Return the entries with these numbers, all of which must exist."""
        wanted: dict[int, list[int]] = {}
        for seq in seqs:
            wanted.setdefault(seq // BLOCK_SIZE, []).append(seq % BLOCK_SIZE)
        found: list[tuple[int, str, E]] = []
        with self._db.errors("read"):
            for block, entries, bits in self._blocks(wanted):
                self._read[block] = len(entries), bits
                slots = [slot for slot in wanted[block] if slot < len(entries) and not bits >> slot & 1]
                found += [(block * BLOCK_SIZE + slot, entries[slot][0], entries[slot][1]) for slot in slots]
        if len(found) != len(seqs):
            raise self._db.damaged(f"entries of table {self.table} are missing")
        return found

    def after(self, seq: int, limit: int) -> list[tuple[int, str, E]]:
        """Return the first entries after ``seq``, in order."""
        found: list[tuple[int, str, E]] = []
        with self._db.errors("read"):
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
        with self._db.errors("read"):
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
            raise self._db.damaged(f"table {self.table} has {count} entries of {self.counts.rows}")

    def replace(self, entries: Mapping[int, E]) -> None:
        """Write other entries, by number, in place of those that have the same ids."""
        blocks: dict[int, dict[int, E]] = {}
        for seq, entry in entries.items():
            blocks.setdefault(seq // BLOCK_SIZE, {})[seq % BLOCK_SIZE] = entry
        for block, held, _ in list(self._blocks(blocks)):  # read before it is written to
            new = [(id_, blocks[block].get(slot, entry)) for slot, (id_, entry) in enumerate(held)]
            self._db.executemany(f"REPLACE INTO {self.table}_blocks VALUES (?, ?, ?)", _packed(block, new))  # noqa: S608

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
        packed = _packed(first // BLOCK_SIZE, list(added.items()))
        db.executemany(f"INSERT INTO {table}_blocks VALUES (?, ?, ?)", packed)  # noqa: S608
        self._read.clear()
        last = first - 1 + len(added) if added else self.counts.last
        self.counts = Counts(self.counts.rows + len(added) - len(removed), last)

    def _blocks(self, numbers: Iterable[int]) -> Iterator[tuple[int, list[tuple[str, E]], int]]:
        """Return the blocks with these numbers, as `_entries` does."""
        return self._entries(self._db.execute(self._find, (_encode_json(list(numbers)).decode(),)))

    def _entries(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, list[tuple[str, E]], int]]:
        """Return every block as its number, its entries and the bits of the removed ones."""
        fault = "block {} of table {} does not match its checksum".format
        for block, text, crc, bits, bits_crc in rows:
            data = text.encode() if isinstance(text, str) else b""
            if crc32(data, block & _MASK) != crc:
                raise self._db.damaged(fault(block, self.table))
            if bits is not None and (not isinstance(bits, int) or bits_sum(block, bits) != bits_crc):
                raise self._db.damaged(fault(block, f"{self.table}_gone"))
            yield block, self._decode(data), bits or 0


def _plain(value: Any) -> Any:
    """Return a number of another type, such as numpy's, as one of Python's own."""
    return float(value) if isinstance(value, float) else operator.index(value)


_encode_json: Final = msgspec.json.Encoder(enc_hook=_plain).encode


def _packed(block: int, entries: Sequence[tuple[str, Any]]) -> Iterator[tuple[int, str, int]]:
    """Return (id, entry) pairs as rows of a table of blocks, numbered from ``block``."""
    for number, start in enumerate(range(0, len(entries), BLOCK_SIZE), block):
        text = _encode_json(entries[start : start + BLOCK_SIZE])
        yield number, text.decode(), crc32(text, number & _MASK)


def bits_sum(block: int, bits: int) -> int:
    """Return the checksum of the bits of a block."""
    return crc32(b"%d %d" % (block, bits))


class IdIndex:
    """Multimap from 64-bit hashes to entry numbers, integers of at least 0.

    It keeps sorted runs of geometrically growing lengths and merges them as entries come (a log-structured
    merge). An entry takes part in O(log n) merges; a look-up is one binary search per run.

    Different ids may have the same hash, so the caller must compare the ids of the entries found.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Int64s, Int64s]] = []  # (sorted hashes, their numbers), the longest first

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(numbers != _GONE)) for _, numbers in self._runs)

    def add(self, keys: Int64s, numbers: Int64s) -> None:
        """Add entry numbers under their hashes, int64[n] each."""
        if not len(keys):
            return
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], numbers[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            self._runs.append(_merged(self._runs.pop(), self._runs.pop()))

    def remove(self, keys: Int64s, numbers: Int64s) -> None:
        """Remove entry numbers from under their hashes, int64[n] each."""
        order = np.argsort(keys, kind="stable")
        keys, numbers = keys[order], numbers[order]
        for known, where in self._runs:
            asked, found = _matches(known, keys)
            where[found[where[found] == numbers[asked]]] = _GONE

    def find(self, keys: Int64s) -> Int64s:
        """Return the entry numbers under any of these hashes, int64[m], ascending and distinct."""
        keys = np.sort(keys)
        found = [where[_matches(known, keys)[1]] for known, where in self._runs]
        if not found:
            return np.empty(0, np.int64)
        numbers: Int64s = np.unique(np.concatenate(found))
        return numbers[np.searchsorted(numbers, 0) :]


def hashes(ids: Iterable[str]) -> Int64s:
    """Return the hash of every id, int64[n]; hashes differ between processes."""
    return np.fromiter(map(hash, ids), np.int64)


def _merged(one: tuple[Int64s, Int64s], other: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s]:
    one, other = _left(one), _left(other)
    keys, numbers = np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1]))
    del one, other  # the merge of the longest runs is the peak of memory
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    return keys, numbers[order]


def _left(run: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s]:
    """Return a run without the removed entries."""
    keys, numbers = run
    left = numbers != _GONE
    return run if left.all() else (keys[left], numbers[left])


def _matches(known: Int64s, keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return every pair of equal values in two ascending arrays, as indices into ``keys`` and ``known``."""
    first = np.searchsorted(known, keys, side="left")
    hit = np.flatnonzero(known[np.minimum(first, len(known) - 1)] == keys) if len(known) else first[:0]
    first = first[hit]
    times = np.searchsorted(known, keys[hit], side="right") - first
    ends = np.cumsum(times)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times, times)
    return np.repeat(hit, times), np.repeat(first, times) + within
