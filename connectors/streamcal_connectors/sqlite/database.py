"""The SQLite database of a store: how it is opened, its tables, and the checksums that reveal damage.

Every row ends with a checksum of its values. Table meta has the number of rows of the others.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from zlib import crc32

import msgspec

from streamcal.base.errors import StoreError

SCHEMA_VERSION: Final = 7
"""Value of ``PRAGMA user_version``. A store of another version is refused."""

APPLICATION: Final = 0x5343414C
"""Value of ``PRAGMA application_id``: "SCAL", in the header of the file."""

# Columns of numbers have no type, so that a number comes back exactly as its checksum saw it: a REAL column
# would turn 5 into 5.0.
_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE engines (
    number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, state BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE versions (
    seq INTEGER PRIMARY KEY, version NOT NULL, key TEXT, time, weights TEXT NOT NULL, certificate TEXT,
    mixture TEXT, crc INTEGER NOT NULL);
CREATE TABLE rejects (
    seq INTEGER PRIMARY KEY, source TEXT NOT NULL, line NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL,
    raw TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE journal (seq INTEGER PRIMARY KEY, batch BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE segments (segment TEXT PRIMARY KEY, row BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE packs (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, since, content BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE marks (seq INTEGER PRIMARY KEY, rows NOT NULL, present BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE VIEW entries AS SELECT kind, rows, since FROM packs JOIN marks USING (seq)
"""

_CACHE_KIB: Final = 16 << 10  # for the pages of one micro-batch; the system caches the others
_LOG_PAGES: Final = 4096  # 32 MiB; a page that changes often is copied into the file once
_WRITING: Final = (
    "page_size = 8192",
    "journal_mode = WAL",
    "synchronous = FULL",
    f"wal_autocheckpoint = {_LOG_PAGES}",
    f"cache_size = -{_CACHE_KIB}",  # last: SQLite converts it to pages, of the page size set by then
)
_encode: Final = msgspec.msgpack.Encoder().encode


class Database(sqlite3.Connection):
    """Connection to the file of a store.

    Parameters
    ----------
    path
        Path of the file.
    mode
        Options of SQLite's URL: ``mode=rw``, or what `access.reading_mode` returns.

    Raises
    ------
    StoreError
        If it cannot be opened.
    """

    def __init__(self, path: Path, mode: str) -> None:
        self.path = path
        url = f"file:{quote(str(path.absolute()))}?{mode}"
        with self.errors("opened"):
            # A server opens it in one thread, and runs in another.
            super().__init__(url, timeout=5.0, isolation_level=None, check_same_thread=False, uri=True)
            try:
                self.execute("PRAGMA cell_size_check = ON")
            except BaseException:
                self.close()
                raise

    def set_up(self) -> None:
        """Get ready to write, which changes the file of another application."""
        for setting in _WRITING:
            self.execute(f"PRAGMA {setting}")

    def value(self, statement: str) -> Any:
        """Return the single value that a statement asks for."""
        return self.execute(statement).fetchone()[0]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is written within, or nothing of it."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self.in_transaction:
                self.execute("ROLLBACK")
            raise

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Turn errors of SQLite and the system into StoreError; ``what`` says what failed, such as "read"."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or "Could not decode" in str(error):
                raise self.damaged(error) from error
            why = f"the disk is full ({error})" if name.startswith("SQLITE_FULL") else error
            raise StoreError(f"{self.path} cannot be {what}: {why}") from error
        except UnicodeDecodeError as error:  # of a damaged name in the schema, which SQLite repeats
            raise self.damaged(error) from error
        except (OSError, ValueError, RecursionError) as error:  # of the system, and of JSON
            raise StoreError(f"{self.path} cannot be {what}: {error}") from error

    def damaged(self, why: object) -> StoreError:
        """Return the error of a damaged store."""
        return StoreError(
            f"{self.path} is damaged: {why}. Restore it from a copy, or move it away and run again from the"
            " beginning of the sources"
        )

    def checked(self, table: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Return the rows, each still followed by its checksum, after checking it.

        Raises
        ------
        StoreError
            At the first row that does not match its checksum.
        """
        for row in rows:
            if with_sum(row[:-1]) != row:
                raise self.damaged(f"row {row[0]!r} of table {table} does not match its checksum")
            yield row


def with_sum(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row followed by the CRC-32 of its values and their types."""
    return (*row, crc32(_encode(row)))


def make_tables(db: Database) -> None:
    """Create the tables of a new store, in the open transaction."""
    numbers = f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {SCHEMA_VERSION}"
    for statement in (*_SCHEMA.split(";"), *numbers):
        db.execute(statement)
    meta = dict.fromkeys(("counts", "positions", "sinks"), "{}")
    meta |= {"job": uuid.uuid4().hex, "run": "", "streamcal_version": version("streamcal-engine")}
    db.executemany("INSERT INTO meta VALUES (?, ?, ?)", map(with_sum, meta.items()))
