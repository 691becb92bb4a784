"""Corrections of segments in SQLite: one row each, and a log of what has changed since they were written.

Segments come in any order, so that to write 30,000 of a million changes nearly every page of the table. So a
commit appends its changes to the log, as one row. When the log has a quarter as many as the table, they are
written into the table, and the log is emptied. What is in the log is in memory, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from streamcal.run.ports import Row, SegmentId
from streamcal_connectors.sqlite.database import Counts, Database, with_sum

__all__ = ["SqliteSegments"]

_LONGEST_LOG: Final = 1 << 18  # changes
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(SegmentId).decode
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(list[tuple[SegmentId, Row]]).decode


class SqliteSegments(Mapping[SegmentId, Row]):
    """Corrections as of the last commit, each read on demand.

    Parameters
    ----------
    counts
        Counts of each table, as of the last commit.
    """

    def __init__(self, db: Database, counts: Mapping[str, Counts]) -> None:
        self._db = db
        self._rows = counts.get("segments", Counts()).rows
        self._log = counts.get("segment_log", Counts())  # its rows are changes
        found, logged = db.value("SELECT count(*) FROM segments"), 0
        if found != self._rows:
            raise db.damaged(f"table segments has {found} rows of {self._rows}")
        self._recent: dict[SegmentId, Row] = {}
        for _, changes, _ in db.checked("segment_log", db.execute("SELECT * FROM segment_log ORDER BY seq")):
            some = _unpack(changes)
            logged += len(some)
            self._recent.update(some)
        if logged != self._log.rows:
            raise db.damaged(f"table segment_log has {logged} changes of {self._log.rows}")

    @property
    def counts(self) -> dict[str, Counts]:
        """Counts of each table, by its name."""
        return {"segments": Counts(self._rows, self._rows), "segment_log": self._log}

    def write(self, changes: Mapping[SegmentId, Row]) -> None:
        """Write changes, in the transaction that is open."""
        db, logged = self._db, self._log.rows + len(changes)
        self._recent.update(changes)
        if logged <= min(self._rows // 4, _LONGEST_LOG):
            seq = self._log.last + 1
            db.execute("INSERT INTO segment_log VALUES (?, ?, ?)", with_sum((seq, _pack([*changes.items()]))))
            self._log = Counts(logged, seq)
            return
        rows = sorted((_encode(segment).decode(), row) for segment, row in self._recent.items())
        db.executemany("REPLACE INTO segments VALUES (?, ?, ?)", map(with_sum, rows))
        db.execute("DELETE FROM segment_log")
        self._rows = db.value("SELECT count(*) FROM segments")
        self._log, self._recent = Counts(0, self._log.last), {}

    def __getitem__(self, segment: SegmentId) -> Row:
        if (recent := self._recent.get(segment)) is not None:
            return recent
        with self._db.errors("read"):
            found = self._db.execute("SELECT * FROM segments WHERE segment = ?", (_encode(segment).decode(),))
            for _, row, _ in self._db.checked("segments", found):
                return msgspec.convert(row, Row)
        raise KeyError(segment)

    def __iter__(self) -> Iterator[SegmentId]:
        with self._db.errors("read"):
            names = [name for (name,) in self._db.execute("SELECT segment FROM segments ORDER BY segment")]
            stored = [_decode(name) for name in names]
        return iter(dict.fromkeys([*stored, *self._recent]))

    def __len__(self) -> int:
        return len(list(iter(self)))
