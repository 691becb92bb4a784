"""The tables of the SQLite store, the migration of older ones, and the checksums that reveal damage.

Every row of engines, maps, rejects and the journal ends with a checksum of its values, as does every block
of the join's entries. The other tables, `Sealed`, have one checksum together; they also hold the number of
rows of each table.
"""

from __future__ import annotations

import json
import operator
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final
from zlib import crc32

import msgspec

from streamcal.errors import StoreError
from streamcal.events import LabelEvent, Origin
from streamcal.join.entries import Early, Pending, Settled
from streamcal.join.tables import BLOCK_SIZE

__all__ = [
    "APPLICATION",
    "SCHEMA_VERSION",
    "Counts",
    "Sealed",
    "bits_sum",
    "blocks_of",
    "checked",
    "checked_bits",
    "checked_text",
    "damaged",
    "make_new",
    "migrate",
    "read_sealed",
    "store_errors",
    "with_sum",
    "write_sealed",
]

SCHEMA_VERSION: Final = 3
"""The value of ``PRAGMA user_version``. A store of an older version is migrated, of a newer one refused."""

APPLICATION: Final = 0x5343414C
"""``PRAGMA application_id``: "SCAL", in the header of the file."""

# Columns of numbers have no type, so that a number comes back exactly as its checksum saw it: a REAL column
# would turn 5 into 5.0.
SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE engines (number INTEGER PRIMARY KEY, key TEXT, state BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE UNIQUE INDEX engines_key ON engines (key IS NULL, ifnull(key, ''));
CREATE TABLE positions (
    source TEXT, partition TEXT, position TEXT NOT NULL, PRIMARY KEY (source, partition)) WITHOUT ROWID;
CREATE TABLE sinks (name TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE maps (
    seq INTEGER PRIMARY KEY, version NOT NULL, key TEXT, time, map TEXT NOT NULL, certificate TEXT,
    mixture TEXT, crc INTEGER NOT NULL);
CREATE TABLE rejects (
    seq INTEGER PRIMARY KEY, source TEXT NOT NULL, line NOT NULL, reason TEXT NOT NULL, raw TEXT NOT NULL,
    crc INTEGER NOT NULL);
CREATE TABLE journal (seq INTEGER PRIMARY KEY, batch BLOB NOT NULL, crc INTEGER NOT NULL)
"""

# Each table of the join has blocks of entries, the bits of the removed ones, and a view of the others. The
# paths lead into an entry as JSON: its id, and msgspec's encoding of the types of streamcal.join.entries.
JOIN_SCHEMA: Final = """
CREATE TABLE {table}_blocks (block INTEGER PRIMARY KEY, rows TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE {table}_gone (block INTEGER PRIMARY KEY, bits INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE VIEW {table} AS SELECT {size} * b.block + e.key AS seq, {columns}
    FROM {table}_blocks b LEFT JOIN {table}_gone g ON g.block = b.block, json_each(b.rows) e
    WHERE (ifnull(g.bits, 0) >> e.key) & 1 = 0
"""
_COLUMNS: Final = {
    "pending": {
        "id": "[0]",
        "since": "[1][0]",
        "score": "[1][1]",
        "probability": "[1][2]",
        "domain": "[1][3]",
        "key": "[1][4]",
        "time": "[1][5]",
        "seen": "[1][6]",
    },
    "early": {
        "id": "[0]",
        "since": "[1].since",
        "label": "[1].event.label",
        "time": "[1].event.time",
        "source": "[1].event.origin.source",
        "line": "[1].event.origin.line",
        "raw": "[1].event.origin.raw",
    },
    "settled": {"id": "[0]", "since": "[1][0]", "label": "[1][1]"},
}

_MASK: Final = 0xFFFFFFFF
_encode: Final = msgspec.msgpack.Encoder().encode
_ROWS_AT_ONCE: Final = 256 * BLOCK_SIZE  # of a migration


def _plain(value: Any) -> Any:
    """Return a number of another type, such as numpy's, as one of Python's own."""
    return float(value) if isinstance(value, float) else operator.index(value)


_encode_json: Final = msgspec.json.Encoder(enc_hook=_plain).encode


# Rows


def with_sum(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row followed by the CRC-32 of its values and their types."""
    return (*row, crc32(_encode(row)))


def checked(path: Path, table: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Return the rows, each still followed by its checksum, after checking it.

    Raises
    ------
    StoreError
        at the first row that does not match its checksum.
    """
    for row in rows:
        if crc32(_encode(row[:-1])) != row[-1]:
            raise StoreError(damaged(path, f"row {row[0]!r} of table {table} does not match its checksum"))
        yield row


# Blocks


def blocks_of(block: int, entries: Sequence[tuple[str, Any]]) -> Iterator[tuple[int, str, int]]:
    """Return (id, entry) pairs as rows of a table of blocks, numbered from ``block``."""
    for number, start in enumerate(range(0, len(entries), BLOCK_SIZE), block):
        text = _encode_json(entries[start : start + BLOCK_SIZE])
        yield number, text.decode(), crc32(text, number & _MASK)


def bits_sum(block: int, bits: int) -> int:
    """Return the checksum of the bits of a block."""
    return crc32(b"%d %d" % (block, bits))


def checked_text(path: Path, table: str, block: int, text: Any, crc: Any) -> bytes:
    """Return the JSON of a block.

    Raises
    ------
    StoreError
        if it does not match its checksum.
    """
    found = text.encode() if isinstance(text, str) else b""
    if crc32(found, block & _MASK) != crc:
        raise StoreError(damaged(path, f"block {block} of table {table} does not match its checksum"))
    return found


def checked_bits(path: Path, table: str, block: int, bits: Any, crc: Any) -> int:
    """Return the bits of a block.

    Raises
    ------
    StoreError
        if they do not match their checksum.
    """
    if not isinstance(bits, int) or bits_sum(block, bits) != crc:
        raise StoreError(damaged(path, f"block {block} of table {table}_gone does not match its checksum"))
    return bits


# Sealed tables


_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Counts(msgspec.Struct, frozen=True):
    """The number of rows of a table, and the largest ``seq`` it ever had."""

    rows: _Number = 0
    last: _Number = 0


class Sealed(msgspec.Struct):
    """The tables meta, positions and sinks."""

    meta: dict[str, str]
    """By name: ``run``, ``counts`` (JSON), ``job`` and ``streamcal_version``."""
    positions: dict[tuple[str, str], str] = {}
    """JSON, by source and partition."""
    sinks: dict[str, str] = {}
    """JSON, by name."""

    @property
    def counts(self) -> dict[str, Counts]:
        """By table."""
        return msgspec.json.decode(self.meta["counts"], type=dict[str, Counts])

    def seal(self) -> int:
        """Return the checksum of the three tables."""
        return crc32(_encode([sorted(each.items()) for each in (self.meta, self.positions, self.sinks)]))


def read_sealed(db: sqlite3.Connection, path: Path) -> Sealed:
    """Return the tables meta, positions and sinks.

    Raises
    ------
    StoreError
        if they do not match their checksum.
    """
    found, seal = _tables_and_seal(db)
    try:
        whole = found.seal() == seal
    except TypeError:  # names that cannot be sorted
        whole = False
    if not whole:
        raise StoreError(damaged(path, "its last commit does not match its checksum"))
    texts = [*found.meta.values(), *found.positions.values(), *found.sinks.values()]
    if not {"job", "run", "counts"} <= found.meta.keys() or not all(isinstance(text, str) for text in texts):
        raise StoreError(damaged(path, "its last commit is incomplete"))
    return found


def _tables_and_seal(db: sqlite3.Connection) -> tuple[Sealed, Any]:
    """Return the tables meta, positions and sinks, and the checksum in the file."""
    meta = dict(db.execute("SELECT name, value FROM meta"))
    seal = meta.pop("seal", None)
    positions = {row[:2]: row[2] for row in db.execute("SELECT source, partition, position FROM positions")}
    return Sealed(meta, positions, dict(db.execute("SELECT name, position FROM sinks"))), seal


def write_sealed(db: sqlite3.Connection, before: Sealed | None, after: Sealed) -> None:
    """Write the changes of the tables meta, positions and sinks, in the open transaction."""
    old = before or Sealed({})
    db.executemany(
        "REPLACE INTO positions VALUES (?, ?, ?)",
        [(*place, text) for place, text in after.positions.items() if old.positions.get(place) != text],
    )
    db.executemany(
        "REPLACE INTO sinks VALUES (?, ?)",
        [item for item in after.sinks.items() if old.sinks.get(item[0]) != item[1]],
    )
    changed = [item for item in after.meta.items() if old.meta.get(item[0]) != item[1]]
    db.executemany("REPLACE INTO meta VALUES (?, ?)", [*changed, ("seal", after.seal())])


# Schema


def make_new(db: sqlite3.Connection) -> None:
    """Create the tables of a new store, in the open transaction."""
    _make_tables(db)
    write_sealed(
        db, None, Sealed({"job": uuid.uuid4().hex, "run": "", "counts": "{}", "streamcal_version": _maker()})
    )


def migrate(db: sqlite3.Connection, path: Path, found: int) -> None:
    """Upgrade a store of an older version, in the open transaction.

    Raises
    ------
    StoreError
        if it is damaged, as far as the older version can tell.
    """
    if found == 1:
        _from_1(db, path)  # to the newest
        return
    db.execute("CREATE TABLE journal (seq INTEGER PRIMARY KEY, batch BLOB NOT NULL, crc INTEGER NOT NULL)")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in SCHEMA.split(";"):
        db.execute(statement)
    for table, paths in _COLUMNS.items():
        columns = ", ".join(f"json_extract(e.value, '${path}') AS {name}" for name, path in paths.items())
        for statement in JOIN_SCHEMA.format(table=table, size=BLOCK_SIZE, columns=columns).split(";"):
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _from_1(db: sqlite3.Connection, path: Path) -> None:
    """Put the join's rows into blocks, with ``seen`` 0 (unknown); add checksums, and mixtures of maps."""
    old, seal = _tables_and_seal(db)
    meta = old.meta
    if meta.setdefault("run", "") and seal != _seal_1(old):
        raise StoreError(damaged(path, "its last commit does not match its checksum"))
    join: dict[str, Callable[..., Any]] = {
        "pending": lambda _, *values: Pending(*values),
        "early": lambda id_, since, label, time, source, line, raw: Early(
            since, LabelEvent(id_, label, time, None if source is None else Origin(source, line, raw))
        ),
        "settled": lambda _, *values: Settled(*values),
    }
    tables = {
        "engines": "key, state",
        "maps": "seq, version, key, time, map, certificate, NULL",
        "rejects": "seq, source, line, reason, raw",
    }
    db.execute("DROP INDEX engines_key")
    for table in (*join, *tables, "meta", "positions", "sinks"):
        db.execute(f"ALTER TABLE {table} RENAME TO {table}_1")
    _make_tables(db)
    counts = {}
    for table, entry_of in join.items():
        rows = db.execute(f"SELECT * FROM {table}_1 ORDER BY seq")  # noqa: S608  # names from above
        count = 0
        while block := rows.fetchmany(_ROWS_AT_ONCE):
            entries = [(id_, entry_of(id_, *values)) for _, id_, *values in block]
            db.executemany(
                f"INSERT INTO {table}_blocks VALUES (?, ?, ?)",  # noqa: S608
                blocks_of(1 + count // BLOCK_SIZE, entries),
            )
            count += len(entries)
        counts[table] = Counts(count, BLOCK_SIZE + count - 1)
    for table, columns in tables.items():
        rows = db.execute(f"SELECT {columns} FROM {table}_1 ORDER BY rowid")  # noqa: S608  # names from above
        marks = ", ".join("?" * (columns.count(",") + 2))
        into = table if table != "engines" else "engines (key, state, crc)"
        count = last = 0
        while block := rows.fetchmany(_ROWS_AT_ONCE):
            db.executemany(f"INSERT INTO {into} VALUES ({marks})", map(with_sum, block))  # noqa: S608
            count += len(block)
            last = count if table == "engines" else block[-1][0]
        counts[table] = Counts(count, last)
    for table in (*join, *tables, "meta", "positions", "sinks"):
        db.execute(f"DROP TABLE {table}_1")
    meta |= {"counts": msgspec.json.encode(counts).decode(), "streamcal_version": _maker()}
    write_sealed(db, None, Sealed(meta, old.positions, old.sinks))


def _seal_1(found: Sealed) -> int:
    positions: dict[str, dict[str, Any]] = {}
    for (source, partition), text in found.positions.items():
        positions.setdefault(source, {})[partition] = json.loads(text)
    sinks = {name: json.loads(text) for name, text in found.sinks.items()}
    return crc32(json.dumps([found.meta["run"], positions, sinks], sort_keys=True).encode())


def _maker() -> str:
    return version("streamcal-engine")


# Errors


def damaged(path: Path, why: object) -> str:
    """Return the message about a damaged store."""
    return (
        f"{path} is damaged: {why}. Restore it from a copy, or move it away and run again from the"
        " beginning of the sources"
    )


@contextmanager
def store_errors(path: Path, what: str) -> Iterator[None]:
    """Turn errors of SQLite and the system into StoreError; ``what`` says what failed, such as "read"."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "Could not decode" in str(error):
            raise StoreError(damaged(path, error)) from error
        if name.startswith("SQLITE_FULL"):
            raise StoreError(f"{path} cannot be {what}: the disk is full ({error})") from error
        raise StoreError(f"{path} cannot be {what}: {error}") from error
    except UnicodeDecodeError as error:  # a damaged name in the schema, which SQLite repeats in its message
        raise StoreError(damaged(path, error)) from error
    except (OSError, ValueError, RecursionError) as error:  # of the system, and of JSON
        raise StoreError(f"{path} cannot be {what}: {error}") from error
