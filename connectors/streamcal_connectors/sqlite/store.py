"""The embedded store: one SQLite file, which a person can read with ``sqlite3`` (docs/store.md).

It uses a write-ahead log with ``synchronous=FULL``, so a commit that has returned survives a power cut. The
outputs, which are committed before, rely on this. One process at a time has the store: see `access`.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from streamcal.errors import StoreError
from streamcal.events.codes import Code
from streamcal.join.entries import Early, Pack, Pending, Settled
from streamcal.run.ports import Change, Checkpoint, Role
from streamcal.run.rows import MapRow, RejectRow
from streamcal_connectors.paths import identities_of, path_of
from streamcal_connectors.sqlite.access import StoreLock, reading_mode
from streamcal_connectors.sqlite.database import (
    APPLICATION,
    SCHEMA_VERSION,
    Counts,
    Database,
    Sealed,
    make_tables,
    read_sealed,
    with_sum,
    write_sealed,
)
from streamcal_connectors.sqlite.segments import SqliteSegments

__all__ = ["SCHEMA_VERSION", "SqliteConnector", "SqliteStore"]

KEPT_MAPS: Final = 1000
"""Number of map versions that the store keeps; beyond it, every second one of the older half is deleted."""

KEPT_REJECTS: Final = 10_000
"""Number of the latest rejects that the store keeps; the ``--rejects`` output has all of them."""

_CHECKED_BYTES: Final = 64 << 20  # in larger files, damage is noticed when a page is read
_NONE: Final = Counts()
_KINDS: Final = {Pending: "pending", Early: "early", Settled: "settled"}
_DECODERS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    name: msgspec.json.Decoder(list[tuple[str, kind]])  # type: ignore[valid-type]
    for kind, name in _KINDS.items()
}
_PackValues = tuple[int, Literal["pending", "early", "settled"], str, int]
_MapValues = tuple[int, int, str | None, float | None, str, str | None, str | None, int]
_RejectValues = tuple[int, str, int, Code, str, str, int]


class SqliteConnector:
    """``sqlite:`` URLs and bare paths: stores."""

    def store(self, url: str, *, read_only: bool) -> SqliteStore:
        """Open a store; see `streamcal.run.ports.Connector.store`."""
        return SqliteStore(path_of(url, "sqlite"), read_only=read_only)

    def identities(self, url: str, role: Role) -> set[Hashable]:
        """Return what identifies the file, and those that SQLite keeps beside it."""
        path = os.path.realpath(path_of(url, "sqlite"))
        files = (Path(f"{path}{end}") for end in ("", "-wal", "-shm", "-journal"))
        return {each for file in files for each in identities_of(file, role)}


class SqliteStore:
    """A store in one file; see `streamcal.run.ports.Store`.

    A read-only store shows the last commit at the time it was opened, until it is closed.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        mode = reading_mode(path) if read_only else "mode=rw"
        with ExitStack() as opened:
            if not read_only:
                opened.callback(StoreLock(path).close)
            self._db = Database(path, mode)
            opened.callback(self._db.close)
            with self._db.errors("opened"):
                self._prepare(read_only=read_only)
                self._sealed = read_sealed(self._db)
                self._segments = SqliteSegments(self._db, self._sealed.counts)
            self._opened = opened.pop_all()

    @property
    def job(self) -> str:
        """Name that no other store has."""
        return self._sealed.meta["job"]

    def load(self) -> Checkpoint:
        """Return the last commit; see `streamcal.run.ports.Store`."""
        sealed = self._sealed
        engines = _Engines(self._db)
        with self._db.errors("read"):
            rows, found = sealed.counts.get("engines", _NONE).rows, len(engines)
            if found != rows:
                raise self._db.damaged(f"table engines has {found} rows of {rows}")
            sinks = {name: json.loads(text) for name, text in sealed.sinks.items()}
            run = sealed.meta["run"].encode()
            checkpoint = Checkpoint(engines, run, sinks=sinks, segments=self._segments, packs=self._packs())
            for (source, partition), text in sealed.positions.items():
                checkpoint.positions.setdefault(source, {})[partition] = json.loads(text)
        return checkpoint

    def commit(self, change: Change) -> None:
        """Commit a micro-batch; see `streamcal.run.ports.Store`."""
        db = self._db
        with db.errors("written"), db.transaction():
            counts = self._sealed.counts
            counts["packs"] = self._write_packs(counts.get("packs", _NONE), change)
            if change.segments:
                self._segments.write(change.segments)
                counts["segments"] = self._segments.counts
            if change.engines:
                counts["engines"] = self._write_engines(change.engines)
            counts["maps"] = self._append_maps(counts.get("maps", _NONE), change.maps)
            rejects = [msgspec.structs.astuple(row) for row in change.rejects[-KEPT_REJECTS:]]
            counts["rejects"] = self._append("rejects", counts.get("rejects", _NONE), rejects)
            if counts["rejects"].rows > KEPT_REJECTS:
                last = counts["rejects"].last
                db.execute("DELETE FROM rejects WHERE seq <= ?", (last - KEPT_REJECTS,))
                counts["rejects"] = Counts(KEPT_REJECTS, last)
            db.execute("DELETE FROM journal")
            sealed = self._sealed_with(change, counts)
            write_sealed(db, self._sealed, sealed)
        self._sealed = sealed

    def keep(self, batch: bytes) -> None:
        """Keep the entry of a micro-batch until the next commit; see `streamcal.run.ports.Store`."""
        with self._db.errors("written"):
            last = self._db.value("SELECT ifnull(max(seq), 0) FROM journal")
            self._db.execute("INSERT INTO journal VALUES (?, ?, ?)", with_sum((last + 1, batch)))

    def kept(self) -> list[bytes]:
        """Return what was kept since the last commit; see `streamcal.run.ports.Store`."""
        with self._db.errors("read"):
            rows = self._db.execute("SELECT * FROM journal ORDER BY seq")
            return [batch for _, batch, _ in self._db.checked("journal", rows)]

    def maps(self) -> Iterator[MapRow]:
        """Return the map versions that were served, in order; older ones are thinned out."""
        for _, number, key, time, *texts, _ in self._all("maps", _MapValues):
            with self._db.errors("read"):
                map_, certificate, mixture = map(_raw, texts)
                made = MapRow(number, key, time, map_, certificate, mixture)
            yield made

    def rejects(self) -> Iterator[RejectRow]:
        """Return the latest rejects, in order."""
        for _, *values, _ in self._all("rejects", _RejectValues):
            yield RejectRow(*values)

    def close(self) -> None:
        """Release; may be called twice."""
        self._opened.close()

    def _prepare(self, *, read_only: bool) -> None:
        db, path = self._db, self._db.path
        if read_only:
            db.execute("BEGIN")  # every read sees the same commit, even while a run writes
        found = db.value("PRAGMA user_version")
        application = db.value("PRAGMA application_id")
        objects = db.value("SELECT count(*) FROM sqlite_schema")
        if not objects and not found and not application and not read_only:
            with db.transaction():
                make_tables(db)
        elif application != APPLICATION:
            raise StoreError(f"{path} is not a store of streamcal: it is a database of another application")
        elif found > SCHEMA_VERSION:
            made = db.execute("SELECT value FROM meta WHERE name = 'streamcal_version'").fetchone()
            maker, mine = made[0] if made else "(unknown)", version("streamcal-engine")
            raise StoreError(
                f"{path} has schema version {found}, from streamcal {maker}; this is streamcal {mine}, which"
                f" supports schema version {SCHEMA_VERSION}: upgrade it"
            )
        elif found < SCHEMA_VERSION or not objects:
            raise db.damaged(f"it has schema version {found} and {objects} tables and indices")
        if path.stat().st_size <= _CHECKED_BYTES:
            verdict = db.value("PRAGMA integrity_check(1)")
            if verdict != "ok":
                raise db.damaged(verdict)

    def _packs(self) -> Iterator[Pack]:
        """Yield the entries of the join, in order."""
        with self._db.errors("read"):
            for seq, kind, text, _ in self._all("packs", _PackValues):
                yield seq, _DECODERS[kind].decode(text)

    def _write_packs(self, before: Counts, change: Change) -> Counts:
        """Delete and add entries of the join; return the new counts."""
        db = self._db
        removed = [(seq,) for seq in sorted(change.removed)]
        found = db.executemany("DELETE FROM packs WHERE seq = ?", removed).rowcount
        if removed and found != len(removed):
            raise db.damaged(f"table packs has {found} of {len(removed)} rows")
        rows = (
            with_sum((seq, _KINDS[type(entries[0][1])], _encode(entries).decode()))
            for seq, entries in change.packs
        )
        added = db.executemany("INSERT INTO packs VALUES (?, ?, ?, ?)", rows).rowcount
        return Counts(before.rows - len(removed) + added)

    def _write_engines(self, engines: Mapping[str | None, bytes]) -> Counts:
        self._db.executemany(
            "INSERT INTO engines (key, state, crc) VALUES (?, ?, ?)"
            " ON CONFLICT (key IS NULL, ifnull(key, '')) DO UPDATE SET"
            " state = excluded.state, crc = excluded.crc",
            map(with_sum, engines.items()),
        )
        rows = self._db.value("SELECT count(*) FROM engines")
        return Counts(rows, rows)

    def _sealed_with(self, change: Change, counts: Mapping[str, Counts]) -> Sealed:
        """Return the sealed tables as they are after a change."""
        meta = {"run": change.run.decode(), "counts": msgspec.json.encode(counts).decode()}
        positions = {
            (source, partition): json.dumps(position)
            for source, each in change.positions.items()
            for partition, position in each.items()
        }
        sinks = {name: json.dumps(position) for name, position in change.sinks.items()}
        before = self._sealed
        return Sealed(before.meta | meta, before.positions | positions, before.sinks | sinks)

    def _append_maps(self, counts: Counts, maps: Sequence[MapRow]) -> Counts:
        """Add map versions; whenever there are too many, delete every second one of the older half.

        The result does not depend on how the versions are divided into commits.
        """
        while maps:
            free = max(1, KEPT_MAPS + 1 - counts.rows)
            counts = self._append("maps", counts, [_map_values(row) for row in maps[:free]])
            maps = maps[free:]
            if counts.rows > KEPT_MAPS:
                older = self._db.execute("SELECT seq FROM maps ORDER BY seq LIMIT ?", (KEPT_MAPS // 2,))
                gone = older.fetchall()[1::2]
                self._db.executemany("DELETE FROM maps WHERE seq = ?", gone)
                counts = Counts(counts.rows - len(gone), counts.last)
        return counts

    def _append(self, table: str, before: Counts, rows: Sequence[tuple[Any, ...]]) -> Counts:
        """Append rows, numbered on from the last one; return the new counts."""
        if not rows:
            return before
        numbered = ((seq, *row) for seq, row in zip(count(before.last + 1), rows, strict=False))
        marks = ", ".join("?" * (len(rows[0]) + 2))
        self._db.executemany(f"INSERT INTO {table} VALUES ({marks})", map(with_sum, numbered))  # noqa: S608
        return Counts(before.rows + len(rows), before.last + len(rows))

    def _all(self, table: str, kind: Any) -> Iterator[tuple[Any, ...]]:
        """Return every row of a table in order, checked, of these types."""
        rows = 0
        with self._db.errors("read"):
            found = self._db.execute(f"SELECT * FROM {table} ORDER BY seq")  # noqa: S608  # names from above
            for row in self._db.checked(table, found):
                rows += 1
                yield msgspec.convert(row, kind)
        expected = self._sealed.counts.get(table, _NONE).rows
        if rows != expected:
            raise self._db.damaged(f"table {table} has {rows} rows of {expected}")


class _Engines(Mapping[str | None, bytes]):
    """States of the engines as of the last commit; each is read on demand."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __getitem__(self, key: str | None) -> bytes:
        with self._db.errors("read"):
            found = self._db.execute(
                "SELECT key, state, crc FROM engines WHERE (key IS NULL) = ? AND ifnull(key, '') = ?",
                (key is None, key or ""),
            )
            for _, state, _ in self._db.checked("engines", found):
                if not isinstance(state, bytes):
                    raise self._db.damaged(f"the engine of key {key!r} is no bytes")
                return state
        raise KeyError(key)

    def __iter__(self) -> Iterator[str | None]:
        with self._db.errors("read"):
            keys = [key for (key,) in self._db.execute("SELECT key FROM engines ORDER BY number")]
        if not all(key is None or isinstance(key, str) for key in keys):
            raise self._db.damaged("the key of an engine is no text")
        return iter(keys)

    def __len__(self) -> int:
        with self._db.errors("read"):
            return int(self._db.value("SELECT count(*) FROM engines"))


def _plain(value: Any) -> Any:
    """Return a number of another type, such as numpy's, as one of Python's own."""
    return float(value) if isinstance(value, float) else operator.index(value)


_encode: Final = msgspec.json.Encoder(enc_hook=_plain).encode


def _map_values(row: MapRow) -> tuple[Any, ...]:
    """Return a map version as the columns of its table."""
    return row.version, row.key, row.time, _text(row.map), _text(row.certificate), _text(row.mixture)


def _raw(text: str | None) -> msgspec.Raw:
    """Return the JSON of a column; msgspec.DecodeError if it is none."""
    return msgspec.json.decode("null" if text is None else text, type=msgspec.Raw)


def _text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw).decode()
    return None if text == "null" else text
