"""The embedded store: one SQLite file, which a person can read with ``sqlite3`` (docs/store.md).

It uses a write-ahead log with ``synchronous=FULL``, so a commit that has returned survives a power cut. The
outputs, which are committed before, rely on this. One process at a time has the store: see `access`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from streamcal.base.errors import StoreError
from streamcal.events.codes import Code
from streamcal.join.packs import Kind, Pack
from streamcal.run.ports import KEPT_REJECTS, Change, Checkpoint, Position, SegmentId
from streamcal.run.rows import RejectRow, VersionRow
from streamcal_connectors.paths import path_of
from streamcal_connectors.sqlite.access import StoreLock, reading_mode
from streamcal_connectors.sqlite.by_name import ByName
from streamcal_connectors.sqlite.database import APPLICATION, SCHEMA_VERSION, Database, make_tables, with_sum

KEPT_VERSIONS: Final = 1000
"""Number of map versions that the store keeps; beyond it, every second one of the older half is deleted."""

_VERSION: Final = version("streamcal-engine")
_CHECKED_BYTES: Final = 64 << 20  # in larger files, damage is noticed when a page is read
_META: Final = {"counts", "job", "positions", "run", "sinks"}
_Rows = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_PackValues = tuple[_Rows, Kind, float | None, bytes, int]
_VersionValues = tuple[int, int, str | None, float | None, str, str | None, str | None, int]
_RejectValues = tuple[int, str, int, Code, str, str, int]


class SqliteConnector:
    """``sqlite:`` URLs and bare paths: stores."""

    def store(self, url: str, *, read_only: bool) -> SqliteStore:
        """Open a store; see `streamcal.run.ports.Connector.store`."""
        return SqliteStore(path_of(url, "sqlite"), read_only=read_only)


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
                self._meta = self._read_meta()
                self._counts = Counter(msgspec.json.decode(self._meta["counts"], type=dict[str, _Rows]))
                names = ("key", "state", "number"), ("segment", "row", "segment")
                self._engines: ByName[str | None] = ByName(self._db, "engines", names[0], str | None)
                self._segments: ByName[SegmentId] = ByName(self._db, "segments", names[1], SegmentId)
                for table, found in (("engines", self._engines), ("segments", self._segments)):
                    if len(found) != self._counts[table]:
                        raise self._db.damaged(
                            f"table {table} has {len(found)} rows of {self._counts[table]}"
                        )
            self._opened = opened.pop_all()

    @property
    def job(self) -> str:
        """Name that no other store has."""
        return self._meta["job"]

    def load(self) -> Checkpoint:
        """Return the last commit; see `streamcal.run.ports.Store`."""
        with self._db.errors("read"):
            positions, sinks = (json.loads(self._meta[name]) for name in ("positions", "sinks"))
            return Checkpoint(
                self._engines,
                self._meta["run"].encode(),
                msgspec.convert(positions, dict[str, dict[str, Position]]),
                msgspec.convert(sinks, dict[str, Position]),
                self._segments,
                self._packs(),
            )

    def commit(self, change: Change) -> None:
        """Commit a micro-batch; see `streamcal.run.ports.Store`."""
        db, counts = self._db, self._counts.copy()
        with db.errors("written"), db.transaction():
            removed, added, marks = change.packs
            present = {**{pack.number: pack.present for pack in added}, **marks}
            marked = [
                (seq, int.from_bytes(bits, "little").bit_count(), bits) for seq, bits in present.items()
            ]
            counts["packs"] += self._replace("packs", removed, [pack[:-1] for pack in added])
            counts["marks"] += self._replace("marks", [*removed, *marks], marked)
            counts["engines"] += self._engines.write(change.engines)
            counts["segments"] += self._segments.write(change.segments)
            counts["versions"] = self._append_versions(counts["versions"], change.versions)
            rejects = [msgspec.structs.astuple(row) for row in change.rejects[-KEPT_REJECTS:]]
            last = self._append("rejects", rejects)
            db.execute("DELETE FROM rejects WHERE seq <= ?", (last - KEPT_REJECTS,))
            counts["rejects"] = min(counts["rejects"] + len(rejects), KEPT_REJECTS)
            db.execute("DELETE FROM journal")
            meta = {
                "run": change.run.decode(),
                "counts": json.dumps(counts),
                "positions": json.dumps(change.positions),
                "sinks": json.dumps(change.sinks),
                "streamcal_version": _VERSION,
            }
            db.executemany("REPLACE INTO meta VALUES (?, ?, ?)", map(with_sum, meta.items()))
        self._meta |= meta
        self._counts = counts

    def keep(self, batch: bytes) -> None:
        """Keep the entry of a micro-batch until the next commit; see `streamcal.run.ports.Store`."""
        with self._db.errors("written"):
            self._append("journal", [(batch,)])

    def kept(self) -> list[bytes]:
        """Return what was kept since the last commit; see `streamcal.run.ports.Store`."""
        with self._db.errors("read"):
            rows = self._db.execute("SELECT * FROM journal ORDER BY seq")
            return [batch for _, batch, _ in self._db.checked("journal", rows)]

    def versions(self) -> Iterator[VersionRow]:
        """Return the map versions that were served, in order; older ones are thinned out."""
        for _, number, key, time, weights, *texts, _ in self._all("versions", _VersionValues):
            with self._db.errors("read"):
                both = msgspec.json.decode(weights, type=tuple[float, float])
                row = VersionRow(number, key, time, both, *map(_raw, texts))
            yield row

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
        is_new = not (objects or found or application or read_only)
        if read_only and not (objects or found or application):
            raise StoreError(
                f"{path} holds nothing yet: a run that is starting makes its tables. Try again once it has;"
                " if none runs, this is the wrong file"
            )
        if application != APPLICATION and not is_new:
            raise StoreError(f"{path} is not a store of streamcal: it is a database of another application")
        writer = None
        if objects and found >= SCHEMA_VERSION:
            writer = db.value("SELECT max(value) FROM meta WHERE name = 'streamcal_version'") or "(unknown)"
        if found > SCHEMA_VERSION or (writer and _release(writer) > _release(_VERSION)):
            raise StoreError(
                f"{path} has schema version {found}, and was written by streamcal {writer}; this is streamcal"
                f" {_VERSION}, with schema version {SCHEMA_VERSION}: go on with that version or a later one,"
                " or with a copy of the store from before"
            )
        if (found < SCHEMA_VERSION or not objects) and not is_new:
            raise db.damaged(f"it has schema version {found} and {objects} tables and indices")
        if not read_only:
            db.set_up()
        if is_new:
            with db.transaction():
                make_tables(db)
        if path.stat().st_size <= _CHECKED_BYTES:
            verdict = db.value("PRAGMA integrity_check(1)")
            if verdict != "ok":
                raise db.damaged(verdict)

    def _read_meta(self) -> dict[str, str]:
        rows = self._db.execute("SELECT * FROM meta")
        meta = {name: text for name, text, _ in self._db.checked("meta", rows)}
        if not meta.keys() >= _META or not all(isinstance(text, str) for text in meta.values()):
            raise self._db.damaged("its last commit is incomplete")
        return meta

    def _packs(self) -> Iterator[Pack]:
        """Yield the rows of the join, in order."""
        marks = {seq: present for seq, _, present, _ in self._all("marks", tuple[_Rows, _Rows, bytes, int])}
        for seq, kind, since, content, _ in self._all("packs", _PackValues):
            yield Pack(seq, kind, since, content, marks[seq])

    def _replace(self, table: str, removed: Sequence[int], rows: Sequence[tuple[Any, ...]]) -> int:
        """Delete rows of a table, and add others; return how many are more."""
        numbers = [(seq,) for seq in sorted(removed)]
        found = self._db.executemany(f"DELETE FROM {table} WHERE seq = ?", numbers).rowcount  # noqa: S608
        if found != len(numbers):
            raise self._db.damaged(f"table {table} has {found} of {len(numbers)} rows")
        for row in rows[:1]:
            marks = ", ".join("?" * (len(row) + 1))
            self._db.executemany(f"INSERT INTO {table} VALUES ({marks})", map(with_sum, rows))  # noqa: S608
        return len(rows) - found

    def _append_versions(self, rows: int, versions: Sequence[VersionRow]) -> int:
        """Add map versions; whenever there are too many, delete every second one of the older half.

        The result does not depend on how the versions are divided into commits.

        Returns
        -------
        The number of rows now.
        """
        while versions:
            free = max(1, KEPT_VERSIONS + 1 - rows)
            self._append("versions", [_version_values(row) for row in versions[:free]])
            rows += len(versions[:free])
            versions = versions[free:]
            if rows > KEPT_VERSIONS:
                older = self._db.execute(
                    "SELECT seq FROM versions ORDER BY seq LIMIT ?", (KEPT_VERSIONS // 2,)
                )
                rows += self._replace("versions", [seq for (seq,) in older.fetchall()[1::2]], [])
        return rows

    def _append(self, table: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """Append rows, numbered on from the last one; return the number of the last one now."""
        last: int = self._db.value(f"SELECT ifnull(max(seq), 0) FROM {table}")  # noqa: S608  # names from above
        return last + self._replace(table, [], [(seq, *row) for seq, row in enumerate(rows, last + 1)])

    def _all(self, table: str, kind: Any) -> Iterator[tuple[Any, ...]]:
        """Return every row of a table in order, checked, of these types."""
        rows = 0
        with self._db.errors("read"):
            found = self._db.execute(f"SELECT * FROM {table} ORDER BY seq")  # noqa: S608  # names from above
            for row in self._db.checked(table, found):
                rows += 1
                yield msgspec.convert(row, kind)
        if rows != self._counts[table]:
            raise self._db.damaged(f"table {table} has {rows} rows of {self._counts[table]}")


def _version_values(row: VersionRow) -> tuple[Any, ...]:
    """Return a map version as the columns of its table."""
    weights = msgspec.json.encode(row.weights).decode()
    return row.version, row.key, row.time, weights, _text(row.certificate), _text(row.mixture)


def _raw(text: str | None) -> msgspec.Raw:
    """Return the JSON of a column; msgspec.DecodeError if it is none."""
    return msgspec.json.decode("null" if text is None else text, type=msgspec.Raw)


def _text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw).decode()
    return None if text == "null" else text


def _release(of: str) -> list[int]:
    """Return the numbers of a version."""
    return [int(part) for part in re.findall(r"\d+", of)[:3]]
