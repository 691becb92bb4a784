"""The embedded store: one SQLite file, which a person can read with ``sqlite3`` (docs/store.md).

Write-ahead log, ``synchronous=FULL``: a commit that has returned survives a power cut, which the outputs
count on, since they were made last just before. One process has it at a time: an advisory lock
(``flock``) on ``<file>.lock``, which the kernel releases however the process ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, Generic, TypeVar
from urllib.parse import quote
from zlib import crc32

import msgspec

from streamcal.errors import StoreError
from streamcal.ports import Change, Checkpoint
from streamcal.rows import MapRow
from streamcal.tables import Early, Pending, Settled, StoredTable
from streamcal.types import LabelEvent, Origin
from streamcal_connectors.urls import path_of

__all__ = ["SCHEMA_VERSION", "SqliteConnector", "SqliteStore", "SqliteTables"]

SCHEMA_VERSION: Final = 1
"""What ``PRAGMA user_version`` says; a store of an older one is migrated, of a newer one refused."""

KEPT_REJECTS: Final = 10_000
"""How many of the latest rejects the store keeps; the ``--rejects`` output has them all."""

_APPLICATION: Final = 0x5343414C  # "SCAL", in the header of the file
_CHECKED_BYTES: Final = 64 << 20  # of larger files, a damaged page is noticed when it is read
_CACHE_KIB: Final = 64 << 10
_LOG_PAGES: Final = 4096  # 32 MiB of log before it is copied into the file: a page that changes often, once
_ROWS_AT_ONCE: Final = 128  # a statement of many rows costs half of as many statements
_IDS_AT_ONCE: Final = 2048  # always as many, so that there is but one statement to keep

_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE pending (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, since REAL, score REAL NOT NULL, probability REAL NOT NULL,
    domain TEXT NOT NULL, key TEXT, time REAL);
CREATE UNIQUE INDEX pending_id ON pending (id);
CREATE TABLE early (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, since REAL, label INTEGER NOT NULL, time REAL,
    source TEXT, line INTEGER, raw BLOB);
CREATE UNIQUE INDEX early_id ON early (id);
CREATE TABLE settled (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, since REAL, label INTEGER);
CREATE UNIQUE INDEX settled_id ON settled (id);
CREATE TABLE engines (key TEXT, state BLOB NOT NULL);
CREATE UNIQUE INDEX engines_key ON engines (key IS NULL, ifnull(key, ''));
CREATE TABLE positions (
    source TEXT, partition TEXT, position TEXT NOT NULL, PRIMARY KEY (source, partition)) WITHOUT ROWID;
CREATE TABLE sinks (name TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE maps (
    seq INTEGER PRIMARY KEY, version INTEGER NOT NULL, key TEXT, time REAL, map TEXT NOT NULL,
    certificate TEXT);
CREATE TABLE rejects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, line INTEGER NOT NULL,
    reason TEXT NOT NULL, raw TEXT NOT NULL);
"""

# Statements that bring a store of the version before to each version.
_MIGRATIONS: Final[dict[int, str]] = {1: _SCHEMA}

E = TypeVar("E", Pending, Early, Settled)


class SqliteConnector:
    """``sqlite:`` URLs and bare paths: stores."""

    def store(self, url: str, *, read_only: bool) -> SqliteStore:
        """Open a store; see `streamcal.ports.StoreConnector`."""
        return SqliteStore(path_of(url, "sqlite"), read_only=read_only)


class SqliteStore:
    """A store in one file; see `streamcal.ports.Store`."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._lock: IO[bytes] | None = None
        if read_only and not path.exists():
            raise StoreError(f"there is no store {path}")
        if not read_only and path.exists() and not os.access(path, os.W_OK):
            raise StoreError(f"{path} cannot be opened: it may only be read")
        try:
            if not read_only:
                self._lock = _locked(path)
            with _errors(self._path, "opened"):
                self._db = _connect(path, read_only=read_only)
            try:
                with _errors(self._path, "opened"):
                    self._prepare(read_only=read_only)
            except BaseException:
                self._db.close()
                raise
        except BaseException:
            if self._lock is not None:
                self._lock.close()
            raise

    @property
    def job(self) -> str:
        """A name that no other store has."""
        return self._job

    @property
    def tables(self) -> SqliteTables:
        """The join's tables."""
        return self._tables

    def load(self) -> Checkpoint:
        """Return the last commit; see `streamcal.ports.Store`."""
        with _errors(self._path, "read"):
            meta = dict(self._db.execute("SELECT name, value FROM meta"))
            checkpoint = Checkpoint(
                engines=dict(self._db.execute("SELECT key, state FROM engines")),
                run=meta.get("run", "").encode(),
                sinks={name: json.loads(text) for name, text in self._db.execute("SELECT * FROM sinks")},
            )
            for source, partition, text in self._db.execute("SELECT * FROM positions"):
                checkpoint.positions.setdefault(source, {})[partition] = json.loads(text)
        seal = _seal(checkpoint.run, checkpoint.positions, checkpoint.sinks)
        if checkpoint.run and meta.get("seal") != seal:
            raise StoreError(_damaged(self._path, "its last commit does not match its checksum"))
        return checkpoint

    def commit(self, change: Change) -> None:
        """Make a micro-batch last; see `streamcal.ports.Store`."""
        with _errors(self._path, "written"), _transaction(self._db) as db:
            self._tables.write()
            db.executemany("REPLACE INTO engines VALUES (?, ?)", change.engines.items())
            db.executemany(
                "REPLACE INTO meta VALUES (?, ?)",
                [("run", change.run.decode()), ("seal", _seal(change.run, change.positions, change.sinks))],
            )
            db.executemany(
                "REPLACE INTO positions VALUES (?, ?, ?)",
                [
                    (source, partition, json.dumps(position))
                    for source, each in change.positions.items()
                    for partition, position in each.items()
                ],
            )
            db.executemany(
                "REPLACE INTO sinks VALUES (?, ?)",
                [(name, json.dumps(position)) for name, position in change.sinks.items()],
            )
            db.executemany(
                "INSERT INTO maps (version, key, time, map, certificate) VALUES (?, ?, ?, ?, ?)",
                [
                    (
                        row.version,
                        row.key,
                        row.time,
                        _text(row.map),
                        row.certificate and _text(row.certificate),
                    )
                    for row in change.maps
                ],
            )
            if change.rejects:
                db.executemany(
                    "INSERT INTO rejects (source, line, reason, raw) VALUES (?, ?, ?, ?)",
                    [(row.source, row.line, row.reason, row.raw) for row in change.rejects[-KEPT_REJECTS:]],
                )
                db.execute(
                    "DELETE FROM rejects WHERE seq <= (SELECT max(seq) FROM rejects) - ?", (KEPT_REJECTS,)
                )

    def maps(self) -> Iterator[MapRow]:
        """Return every map version that was served, in order."""
        with _errors(self._path, "read"):
            for number, key, time, text, certificate in self._db.execute(
                "SELECT version, key, time, map, certificate FROM maps ORDER BY seq"
            ):
                yield MapRow(number, key, time, _raw(text), _raw(certificate))

    def close(self) -> None:
        """Release; may be called twice."""
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def _prepare(self, *, read_only: bool) -> None:
        db, path = self._db, self._path
        (found,) = db.execute("PRAGMA user_version").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (objects,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if objects and application != _APPLICATION:
            raise StoreError(f"{path} is no store of streamcal: it is the database of something else")
        if found > SCHEMA_VERSION:
            made = db.execute("SELECT value FROM meta WHERE name = 'streamcal_version'").fetchone()
            maker, mine = made[0] if made else "(unknown)", version("streamcal-engine")
            raise StoreError(
                f"{path} has schema version {found}, from streamcal {maker}; this is streamcal {mine}, which"
                f" knows schema version {SCHEMA_VERSION}: upgrade it"
            )
        if path.stat().st_size <= _CHECKED_BYTES:
            ((verdict,), *_) = db.execute("PRAGMA integrity_check(1)").fetchall()
            if verdict != "ok":
                raise StoreError(_damaged(path, verdict))
        if read_only:
            if found < SCHEMA_VERSION:
                raise StoreError(
                    f"{path} has schema version {found}: a run with --store brings it up to date"
                )
        else:
            self._migrate(found)
        self._job: str
        (self._job,) = db.execute("SELECT value FROM meta WHERE name = 'job'").fetchone()
        self._tables = SqliteTables(db, path)

    def _migrate(self, found: int) -> None:
        if found == SCHEMA_VERSION:
            return
        with _transaction(self._db) as db:
            for step in range(found + 1, SCHEMA_VERSION + 1):
                for statement in _MIGRATIONS[step].split(";"):
                    db.execute(statement)
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.execute("INSERT OR IGNORE INTO meta VALUES ('job', ?)", (uuid.uuid4().hex,))
            db.execute("REPLACE INTO meta VALUES ('streamcal_version', ?)", (version("streamcal-engine"),))


@contextmanager
def _errors(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise StoreError(_damaged(path, error)) from error
        if name.startswith("SQLITE_FULL"):
            raise StoreError(f"{path} cannot be {what}: the disk is full ({error})") from error
        raise StoreError(f"{path} cannot be {what}: {error}") from error
    except (OSError, json.JSONDecodeError) as error:
        raise StoreError(f"{path} cannot be {what}: {error}") from error


class SqliteTables:
    """The join's tables in SQLite; see `streamcal.tables.Tables`."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._pending: _Rows[Pending] = _Rows(
            db,
            path,
            "pending",
            "seq, id, since, score, probability, domain, key, time",
            lambda row: Pending(*row[2:]),
            lambda seq, id_, e: (seq, id_, e.since, e.score, e.probability, e.domain, e.key, e.time),
        )
        self._early: _Rows[Early] = _Rows(
            db, path, "early", "seq, id, since, label, time, source, line, raw", _read_early, _early_row
        )
        self._settled: _Rows[Settled] = _Rows(
            db,
            path,
            "settled",
            "seq, id, since, label",
            lambda row: Settled(*row[2:]),
            lambda seq, id_, e: (seq, id_, e.since, e.label),
        )
        self.pending: StoredTable[Pending] = StoredTable(self._pending)
        self.early: StoredTable[Early] = StoredTable(self._early)
        self.settled: StoredTable[Settled] = StoredTable(self._settled)

    def prefetch(self, ids: Iterable[str]) -> None:
        """Make ids ready to be looked up; see `streamcal.tables.Tables`."""
        wanted = sorted(set(ids))  # neighbours in the index share its pages
        self.pending.prefetch(wanted)
        self.early.prefetch(wanted)
        self.settled.prefetch(wanted)

    def write(self) -> None:
        """Write the changes, in the transaction that is open."""
        self._pending.write(*self.pending.changes())
        self._early.write(*self.early.changes())
        self._settled.write(*self.settled.changes())


class _Rows(Generic[E]):
    """One table; see `streamcal.tables.Rows`."""

    def __init__(
        self,
        db: sqlite3.Connection,
        path: Path,
        table: str,
        columns: str,
        read: Callable[[Any], E],
        row_of: Callable[[int, str, E], tuple[object, ...]],
    ) -> None:
        self._db = db
        self._path = path
        self._read: Callable[[Any], E] = read
        self._row_of: Callable[[int, str, E], tuple[object, ...]] = row_of
        row = "(" + ", ".join("?" * (columns.count(",") + 1)) + ")"
        ids = ", ".join("?" * _IDS_AT_ONCE)
        self._find = f"SELECT {columns} FROM {table} WHERE id IN ({ids})"  # noqa: S608  # names from above
        self._after = f"SELECT {columns} FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
        self._extent = f"SELECT count(*), ifnull(max(seq), 0) FROM {table}"  # noqa: S608
        self._insert = f"INSERT INTO {table} VALUES {row}"  # noqa: S608
        self._insert_many = self._insert + f", {row}" * (_ROWS_AT_ONCE - 1)
        self._delete = f"DELETE FROM {table} WHERE seq = ?"  # noqa: S608

    def find(self, ids: Sequence[str]) -> list[tuple[int, str, E]]:
        read = self._read
        found: list[tuple[int, str, E]] = []
        padded = [*ids, *[None] * (-len(ids) % _IDS_AT_ONCE)]  # NULL equals nothing
        with _errors(self._path, "read"):
            for start in range(0, len(padded), _IDS_AT_ONCE):
                rows = self._db.execute(self._find, padded[start : start + _IDS_AT_ONCE])
                found += [(row[0], row[1], read(row)) for row in rows]
        return found

    def after(self, seq: int, limit: int) -> list[tuple[int, str, E]]:
        read = self._read
        with _errors(self._path, "read"):
            return [(row[0], row[1], read(row)) for row in self._db.execute(self._after, (seq, limit))]

    def extent(self) -> tuple[int, int]:
        count, last = self._db.execute(self._extent).fetchone()
        return count, last

    def write(self, first: int, added: Collection[tuple[str, E]], removed: Sequence[int]) -> None:
        db, row_of = self._db, self._row_of
        db.executemany(self._delete, ((seq,) for seq in removed))
        rows = [row_of(seq, id_, entry) for seq, (id_, entry) in enumerate(added, first)]
        whole = len(rows) - len(rows) % _ROWS_AT_ONCE
        for start in range(0, whole, _ROWS_AT_ONCE):
            db.execute(self._insert_many, list(chain.from_iterable(rows[start : start + _ROWS_AT_ONCE])))
        db.executemany(self._insert, rows[whole:])


def _read_early(row: Sequence[Any]) -> Early:
    _, id_, since, label, time, source, line, raw = row
    origin = None if source is None else Origin(source, line, raw)
    return Early(since, LabelEvent(id_, label, time, origin))


def _early_row(seq: int, id_: str, early: Early) -> tuple[object, ...]:
    event = early.event
    where = (None, None, None) if event.origin is None else msgspec.structs.astuple(event.origin)[:3]
    return (seq, id_, early.since, event.label, event.time, *where)


def _locked(path: Path) -> IO[bytes]:
    """Take the lock of a store; it holds until the file is closed, or the process ends."""
    name = path.with_name(f"{path.name}.lock")
    try:
        lock = name.open("ab")
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreError(f"{path} is in use by another process (it holds {name})") from error
    return lock


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    mode = "ro" if read_only else "rwc"
    db = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}", uri=True, isolation_level=None, timeout=5.0
    )
    try:
        db.execute("PRAGMA cell_size_check = ON")
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        if not read_only:
            db.execute("PRAGMA page_size = 8192")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _seal(run: bytes, positions: Mapping[str, object], sinks: Mapping[str, object]) -> int:
    return crc32(json.dumps([run.decode(), positions, sinks], sort_keys=True).encode())


def _damaged(path: Path, why: object) -> str:
    return (
        f"{path} is damaged: {why}. Restore it from a copy, or move it away and run again from the"
        " beginning of the sources"
    )


def _raw(text: str | None) -> msgspec.Raw:
    return msgspec.Raw(b"null" if text is None else text.encode())


def _text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw).decode()
    return None if text == "null" else text
