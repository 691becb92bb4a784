"""States of engines and corrections of segments in SQLite: a row each, read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from streamcal_connectors.sqlite.database import Database, with_sum

K = TypeVar("K")

_encode: Final = msgspec.json.Encoder().encode


class ByName(Mapping[K, bytes]):
    """Rows of a table as of the last commit, by name; raises StoreError where one is damaged.

    Parameters
    ----------
    table
        its name.
    columns
        names of its columns: names as JSON, values as bytes, and what the names are ordered by.
    kind
        type of a name.
    """

    def __init__(self, db: Database, table: str, columns: tuple[str, str, str], kind: Any) -> None:
        name, value, order = columns
        self._db, self._table = db, table
        self._decode = msgspec.json.Decoder(kind).decode
        self._find = f"SELECT {name}, {value}, crc FROM {table} WHERE {name} = ?"  # noqa: S608  # of the schema
        self._names = f"SELECT {name} FROM {table} ORDER BY {order}"  # noqa: S608
        self._change = f"UPDATE {table} SET {value} = ?2, crc = ?3 WHERE {name} = ?1"  # noqa: S608
        self._add = f"INSERT OR IGNORE INTO {table} ({name}, {value}, crc) VALUES (?, ?, ?)"  # noqa: S608

    def write(self, changes: Mapping[K, bytes]) -> int:
        """Write changes, in the transaction that is open; return how many names are new."""
        rows = [with_sum((_encode(name).decode(), value)) for name, value in changes.items()]
        new = len(rows) - self._db.executemany(self._change, rows).rowcount
        if new:
            self._db.executemany(self._add, rows)
        return new

    def __getitem__(self, name: K) -> bytes:
        with self._db.errors("read"):
            found = self._db.execute(self._find, (_encode(name).decode(),))
            for text, value, _ in self._db.checked(self._table, found):
                if not isinstance(value, bytes):
                    raise self._db.damaged(f"row {text} of table {self._table} has no bytes")
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[K]:
        with self._db.errors("read"):
            for (name,) in self._db.execute(self._names).fetchall():
                yield self._decode(name)

    def __len__(self) -> int:
        with self._db.errors("read"):
            return int(self._db.value(f"SELECT count(*) FROM {self._table}"))  # noqa: S608
