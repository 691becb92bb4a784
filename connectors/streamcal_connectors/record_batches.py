"""The rows of Parquet and Arrow files as Arrow record batches, each with its place in the file.

Whatever reads a table begins here: `Table.pieces` continues at any row, and reads the columns that are asked
for and no others.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import ipc

from streamcal_connectors.formats import TableKind

__all__ = ["Piece", "Table", "brief", "open_table"]

_END_BYTES: Final = 1 << 16  # at either end, that tell one file from another: the footer is among them
_ARROW_FILE: Final = b"ARROW1"
_STREAM_END: Final = b"\xff\xff\xff\xff\0\0\0\0"


class Piece(NamedTuple):
    """Consecutive rows of a table."""

    first: int
    """The number of the first of them in the file, from 0."""
    batch: Any
    """A `pyarrow.RecordBatch` of the columns that were asked for."""
    left: int
    """About how many bytes of the file come after them."""


class Table(Protocol):
    """A file of Parquet or Arrow."""

    schema: Any
    """Its `pyarrow.Schema`."""
    names: list[str]
    """Its columns."""
    size: int
    """Bytes of the file."""

    def pieces(self, first: int, rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Yield its rows from number ``first`` on, at most so many ``rows`` at a time.

        Raises
        ------
        OSError, ValueError
            where it cannot be read on: it is damaged, or compressed by a codec that is not there.
        """

    def fingerprint(self) -> list[int]:
        """Return its size and a checksum of its ends: those of another file differ."""

    def close(self) -> None:
        """Release; may be called twice."""


def open_table(path: Path, kind: TableKind, title: str) -> Table:
    """Open a file, which messages call by its ``title``.

    Raises
    ------
    OSError
        if it cannot be opened, or is none of its kind: cut off, empty, or something else.
    """
    if path.exists() and not path.is_file():
        raise OSError(f"{title} is no regular file, but a {_SAID[kind]} file is read from its end")
    file = pa.OSFile(str(path))
    try:
        return _Parquet(file) if kind == "parquet" else _Arrow(file)
    except (OSError, ValueError, pa.ArrowException) as error:
        size = file.size()
        file.close()
        raise OSError(
            f"{title} ({size:,} bytes) is no {_SAID[kind]} file: {brief(error)}. It was cut off, or is still"
            " being written, or it has the wrong name"
        ) from None


def brief(error: Exception) -> str:
    """Return what pyarrow says, in one line without its end."""
    return str(error).partition("\n")[0].rstrip(".")


_SAID: Final = {"parquet": "Parquet", "arrow": "Arrow"}


class _File:
    def __init__(self, file: Any) -> None:
        self._file = file
        self.size: int = file.size()

    def fingerprint(self) -> list[int]:
        """Return its size and a checksum of its ends; see `Table`."""
        before = self._file.tell()
        ends = self._file.read_at(min(self.size, _END_BYTES), 0)
        last = self._file.read_at(min(self.size, _END_BYTES), max(self.size - _END_BYTES, 0))
        self._file.seek(before)
        return [self.size, zlib.crc32(last, zlib.crc32(ends))]

    def close(self) -> None:
        """Release; may be called twice."""
        self._file.close()


class _Parquet(_File):
    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._parquet = pq.ParquetFile(file, page_checksum_verification=True)
        self.schema = self._parquet.schema_arrow
        self.names: list[str] = self.schema.names

    def pieces(self, first: int, rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Yield its rows; see `Table`. Row groups before the first row are not read."""
        about = self._parquet.metadata
        group = at = 0
        while group < about.num_row_groups and at + about.row_group(group).num_rows <= first:
            at += about.row_group(group).num_rows
            group += 1
        groups = list(range(group, about.num_row_groups))
        if not groups:
            return
        for whole in self._parquet.iter_batches(rows, row_groups=groups, columns=list(columns)):
            skipped = min(max(first - at, 0), len(whole))
            at += len(whole)
            batch = whole.slice(skipped).select(list(columns))
            if len(batch):
                left = self.size * (about.num_rows - at) // about.num_rows
                yield Piece(at - len(batch), batch, left)


class _Arrow(_File):
    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._is_stream = file.read_at(min(len(_ARROW_FILE), self.size), 0) != _ARROW_FILE
        self.schema = self._open(None).schema
        self.names: list[str] = self.schema.names
        ending = file.read_at(min(len(_STREAM_END), self.size), max(self.size - len(_STREAM_END), 0))
        if self._is_stream and not ending.endswith(_STREAM_END):  # else what is cut off would seem to end
            raise ValueError("the stream has no end")

    def _open(self, fields: list[int] | None) -> Any:
        options = ipc.IpcReadOptions(included_fields=fields)
        self._file.seek(0)
        if self._is_stream:
            return ipc.open_stream(self._file, options=options)
        return ipc.open_file(self._file, options=options)

    def pieces(self, first: int, rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Yield its rows; see `Table`."""
        reader = self._open([self.schema.get_field_index(name) for name in columns])
        at = 0
        for whole, end in _read(reader, self._is_stream):
            whole.validate(
                full=True
            )  # pyarrow believes the file: offsets beyond its ends would end the process
            start = max(first - at, 0)
            for begin in range(start, len(whole), rows):
                batch = whole.slice(begin, rows).select(list(columns))
                yield Piece(at + begin, batch, self._left(end))
            at += len(whole)

    def _left(self, share: float | None) -> int:
        return self.size - self._file.tell() if share is None else round(self.size * (1.0 - share))


def _read(reader: Any, is_stream: bool) -> Iterator[tuple[Any, float | None]]:
    """Yield the record batches, and which share of the file has been read then, if that is known."""
    if is_stream:
        for batch in reader:
            yield batch, None
    else:
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index), (index + 1) / reader.num_record_batches
