"""Corrections of segments in SQLite: a row each, read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from streamcal.run.ports import Row, SegmentId
from streamcal_connectors.sqlite.database import Counts, Database, with_sum

__all__ = ["SqliteSegments"]

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(SegmentId).decode


class SqliteSegments(Mapping[SegmentId, Row]):
    """Corrections as of the last commit, each read on demand.

    Parameters
    ----------
    counts
        Counts of each table, as of the last commit.
    """

    def __init__(self, db: Database, counts: Mapping[str, Counts]) -> None:
        self._db = db
        self.counts = counts.get("segments", Counts())
        """Counts of the table."""
        if (found := db.value("SELECT count(*) FROM segments")) != self.counts.rows:
            raise db.damaged(f"table segments has {found} rows of {self.counts.rows}")

    def write(self, changes: Mapping[SegmentId, Row]) -> None:
        """Write changes, in the transaction that is open."""
        rows = sorted(with_sum((_encode(segment).decode(), row)) for segment, row in changes.items())
        changed = "UPDATE segments SET row = ?2, crc = ?3 WHERE segment = ?1"
        added = len(rows) - self._db.executemany(changed, rows).rowcount
        if added:
            self._db.executemany("INSERT OR IGNORE INTO segments VALUES (?, ?, ?)", rows)
        self.counts = Counts(self.counts.rows + added)

    def __getitem__(self, segment: SegmentId) -> Row:
        name = _encode(segment).decode()
        with self._db.errors("read"):
            found = self._db.execute("SELECT * FROM segments WHERE segment = ?", (name,))
            for _, row, _ in self._db.checked("segments", found):
                return row  # type: ignore[no-any-return]
        raise KeyError(segment)

    def __iter__(self) -> Iterator[SegmentId]:
        with self._db.errors("read"):
            for (name,) in self._db.execute("SELECT segment FROM segments"):
                yield _decode(name)

    def __len__(self) -> int:
        return self.counts.rows
