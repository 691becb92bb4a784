"""Events from the rows of Parquet and Arrow files.

A `Table` gives record batches, each with its place in the file. It continues at any row, and reads only the
columns that are asked for.
"""

from __future__ import annotations

import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple, cast

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import ipc

from streamcal.base.values import shown
from streamcal.events import Event, Origin
from streamcal.events.columns import ANSWER_FIELDS
from streamcal.events.fields import Malformed
from streamcal.events.table_codec import RowsDecoder
from streamcal.run.ports import Positions, SourceOptions
from streamcal_connectors.arrow import as_kept, as_role, check_kept_type, check_role, kept_type, values_of
from streamcal_connectors.paths import TableKind
from streamcal_connectors.readers import read_position

_END_BYTES: Final = 1 << 16  # at either end, that tell one file from another: the footer is among them
_MOST_BYTES: Final = 64 << 20  # of rows that are decoded at once, as far as those before them tell …
_FIRST_ROWS: Final = 256  # … of which these are the first
_ARROW_FILE: Final = b"ARROW1"
_STREAM_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
_DISTINCT: Final = {"id", "score", "weights", "time"}  # columns in which hardly a value comes twice

log = logging.getLogger("streamcal_connectors")


class Piece(NamedTuple):
    """Consecutive rows of a table."""

    first: int
    """Number of the first of them in the file, from 0."""
    batch: Any
    """Their `pyarrow.RecordBatch`, with the columns that were asked for."""
    left: int
    """Number of bytes of the file that come after them, roughly."""


class Table(ABC):
    """A file of Parquet or Arrow.

    Attributes
    ----------
    title
        Name of the format.
    schema
        Its `pyarrow.Schema`.
    size
        Bytes of the file.
    """

    title: ClassVar[str]
    schema: Any

    def __init__(self, file: Any) -> None:
        self._file = file
        self.size: int = file.size()

    @abstractmethod
    def pieces(self, first: int, rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Yield its rows from number ``first`` on, at most so many ``rows`` at a time.

        Raises
        ------
        OSError, ValueError
            Where it cannot be read on: it is damaged, or compressed by a codec that is not there.
        """

    @staticmethod
    @abstractmethod
    def writer(where: str, schema: Any) -> Any:
        """Return a writer of a new file, with ``write_batch`` and ``close``."""

    def fingerprint(self) -> list[int]:
        """Return its size and a checksum of its ends: those of another file differ."""
        before = self._file.tell()
        ends = self._file.read_at(min(self.size, _END_BYTES), 0)
        last = self._file.read_at(min(self.size, _END_BYTES), max(self.size - _END_BYTES, 0))
        self._file.seek(before)
        return [self.size, zlib.crc32(last, zlib.crc32(ends))]

    def close(self) -> None:
        """Release; may be called twice."""
        self._file.close()


class _Parquet(Table):
    title = "Parquet"

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._parquet = pq.ParquetFile(file, page_checksum_verification=True)
        self.schema = self._parquet.schema_arrow

    def pieces(self, first: int, rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Yield its rows; see `Table`: fewer at a time where they are large, as a small file may hold."""
        step, is_last = min(rows, _FIRST_ROWS), False
        while not is_last:
            is_last = True
            for piece in self._read(first, step, columns):
                yield piece
                count = len(piece.batch)
                first, fitting = piece.first + count, _MOST_BYTES * count // max(piece.batch.nbytes, 1)
                if step > fitting or step == _FIRST_ROWS < min(rows, fitting):
                    step, is_last = max(min(rows, fitting), 1), False
                    break

    def _read(self, first: int, rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Yield its rows, so many at a time. Row groups before the first row are not read."""
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
                yield Piece(at - len(batch), batch, self.size * (about.num_rows - at) // about.num_rows)

    @staticmethod
    def writer(where: str, schema: Any) -> Any:
        """Return a writer; see `Table`."""
        # Where hardly a value comes twice, a dictionary takes time and no less room.
        alike = [name for name in schema.names if name not in _DISTINCT]
        return pq.ParquetWriter(where, schema, write_page_checksum=True, use_dictionary=alike)


class _Arrow(Table):
    title = "Arrow"

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._is_stream = file.read_at(min(len(_ARROW_FILE), self.size), 0) != _ARROW_FILE
        self.schema = self._open(None).schema
        ending = file.read_at(min(len(_STREAM_END), self.size), max(self.size - len(_STREAM_END), 0))
        if self._is_stream and not ending.endswith(_STREAM_END):  # else what is cut off would seem to end
            raise ValueError("the stream has no end")

    def _open(self, fields: list[int] | None) -> Any:
        self._file.seek(0)
        opened = ipc.open_stream if self._is_stream else ipc.open_file
        return opened(self._file, options=ipc.IpcReadOptions(included_fields=fields))

    def pieces(self, first: int, rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Yield its rows; see `Table`."""
        reader = self._open([self.schema.get_field_index(name) for name in columns])
        count = None if self._is_stream else reader.num_record_batches
        at = 0
        for index, whole in enumerate(reader if count is None else map(reader.get_batch, range(count)), 1):
            whole.validate(full=True)  # pyarrow believes the file: wrong offsets would end the process
            read = self.size * index // count if count else self._file.tell()
            for begin in range(max(first - at, 0), len(whole), rows):
                yield Piece(at + begin, whole.slice(begin, rows).select(list(columns)), self.size - read)
            at += len(whole)

    @staticmethod
    def writer(where: str, schema: Any) -> Any:
        """Return a writer; see `Table`."""
        return ipc.new_file(where, schema)


FORMATS: Final[dict[TableKind, type[Table]]] = {"parquet": _Parquet, "arrow": _Arrow}
"""Formats of tables."""


def open_table(path: Path, kind: TableKind, title: str) -> Table:
    """Open a file, which messages call by its ``title``.

    Raises
    ------
    OSError
        If it cannot be opened, or is none of its kind: cut off, empty, or something else.
    """
    made: Any = FORMATS[kind]
    if path.exists() and not path.is_file():
        raise OSError(f"{title} is no regular file, but a {made.title} file is read from its end")
    file = pa.OSFile(str(path))
    try:
        return cast("Table", made(file))
    except (OSError, ValueError, pa.ArrowException) as error:
        size = file.size()
        file.close()
        raise OSError(
            f"{title} ({size:,} bytes) is no {made.title} file: {brief(error)}. It was cut off, or is still"
            " being written, or it has the wrong name"
        ) from None


def brief(error: Exception) -> str:
    """Return what pyarrow says, in one line without its end."""
    return str(error).partition("\n")[0].rstrip(".")


class _Position(msgspec.Struct):
    """Position of the next event: the number of rows before it, and the file's fingerprint."""

    row: Annotated[int, msgspec.Meta(ge=0)] = 0
    fingerprint: list[int] | None = None


class _Rows(NamedTuple):
    """Events of consecutive rows; see `streamcal.run.ports.Batch`."""

    title: str
    piece: Piece
    events: Sequence[Event | Malformed]
    fingerprint: list[int]
    partition: str = ""

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index: its row, from 1, as JSON."""
        columns = zip(self.piece.batch.schema.names, self.piece.batch.columns, strict=True)
        row = {name: values_of(as_kept(column.slice(index, 1)))[0] for name, column in columns}
        return Origin(self.title, self.piece.first + index + 1, msgspec.json.encode(row, enc_hook=repr))

    def position(self, count: int) -> dict[str, Any]:
        """Return the position after the first ``count`` events."""
        return {"row": self.piece.first + count, "fingerprint": self.fingerprint}


class TableSource:
    """Reads events from the rows of a table; see `streamcal.run.ports.Source`, and `TableSource` there.

    Resumes at any row of a file that is still the one that was read.

    Parameters
    ----------
    path, kind
        Path and format of the file.
    options
        Options of reading.
    url
        URL that it comes from, if that is not its path.

    Raises
    ------
    OSError
        If it cannot be opened, or is no such file.
    ValueError
        If a column is missing, or of a type that cannot be what it is to be; or if it is to be followed.
    """

    endless = False
    unfinished: str | None = None

    def __init__(self, path: Path, kind: TableKind, options: SourceOptions, url: str | None = None) -> None:
        if options.follow:
            raise ValueError(f"{path}: a file of this format never grows: leave out --follow")
        self.name = url or str(path.absolute())
        self.damage: str | None = None
        self.ended = False
        self._title = url or str(path)
        self._table = open_table(path, kind, self._title)
        try:
            self._take_schema(self._table.schema, options)
            self._fingerprint = self._table.fingerprint()
        except BaseException:
            self._table.close()
            raise
        self._next = 0  # the row to deliver next
        self._until: int | None = None
        self._left = self._table.size
        self._pieces: Iterator[Piece] | None = None
        self._done = False

    def _take_schema(self, schema: Any, options: SourceOptions) -> None:
        columns, carried, names = options.columns, None, schema.names
        if options.carry:
            known = {columns.names[role] for role in ("id", "score", "time", "key")} | set(ANSWER_FIELDS)
            carried = [name for name in names if name not in known]
            hidden = ", ".join(name for name in names if name in known - set(columns.names.values()))
            if hidden:
                why = "not carried through, since the output has a column of the name"
                log.warning("%s: %s: %s", self._title, why, hidden)
        try:
            self._decoder = RowsDecoder(names, options.domain, columns, options.required, carried)
            for role, name in self._decoder.roles.items():
                check_role(role, name, schema.field(name).type)
            for name in set(columns.carried).intersection(names):
                check_kept_type(name, schema.field(name).type)
        except ValueError as error:
            raise ValueError(f"{self._title}: {error}") from None
        here = [name for name in self._decoder.kept if name in names]
        self._read = list(dict.fromkeys([*self._decoder.roles.values(), *here]))
        self.kept = {
            name: kept_type(schema.field(name).type) if name in names else None
            for name in (columns.keep if carried is None else carried)
        }

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Counts of columns that were ignored so far because events have no such field, by name."""
        return self._decoder.unknown_fields

    def seek(self, positions: Positions) -> Positions:
        """Go to a position; see `streamcal.run.ports.Source`."""
        position = read_position(positions.get("", {}), _Position, "a table")
        if position.fingerprint not in (None, self._fingerprint):
            raise ValueError(
                f"{self._title} is not the file of which {position.row:,} rows were read before: its"
                f" {self._fingerprint[0]:,} bytes are others. Put that one back, or start with a new store"
            )
        self._next, self._pieces = position.row, None
        self._done = self.ended = False
        return {"": self._position()}

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing beyond these positions; see `streamcal.run.ports.Source`."""
        self._until = None
        if positions is not None:
            self._until = read_position(positions.get("", {}), _Position, "a table").row
        self.ended = self._done or self._at_limit()

    def poll(self, max_events: int, timeout: float) -> Sequence[_Rows]:  # noqa: ARG002  # nothing is waited for
        """Return the next events; see `streamcal.run.ports.Source`."""
        if self.ended:
            return ()
        piece = self._take(max_events)
        if piece is None:
            return ()
        try:
            events = self._events(piece)
        except (pa.ArrowException, MemoryError) as error:  # such as a dictionary that has no such entry
            self._next = piece.first
            self._break_off(error)
            return ()
        self.ended = self._at_limit()
        return (_Rows(self._title, piece, events, self._fingerprint),)

    def lag(self) -> Mapping[str, float]:
        """Return about how many bytes of the file were not read yet."""
        return {"": 0.0 if self._done else float(max(self._left, 1))}

    def close(self) -> None:
        """Release; may be called twice."""
        self._pieces = None
        self._table.close()

    def _position(self) -> dict[str, Any]:
        return {"row": self._next, "fingerprint": self._fingerprint} if self._next else {"row": 0}

    def _at_limit(self) -> bool:
        return self._until is not None and self._next >= self._until

    def _take(self, rows: int) -> Piece | None:
        """Return the next rows; None at the end."""
        if self._pieces is None:
            self._pieces = self._table.pieces(self._next, rows, self._read)
        try:
            piece = next(self._pieces, None)
        except (OSError, ValueError, pa.ArrowException, MemoryError) as error:
            self._break_off(error)
            return None
        if piece is None:
            self._done = self.ended = True
            return None
        if self._until is not None and piece.first + len(piece.batch) > self._until:
            piece = piece._replace(batch=piece.batch.slice(0, self._until - piece.first))
            self._pieces = None  # begin again there
        self._next, self._left = piece.first + len(piece.batch), piece.left
        return piece

    def _break_off(self, error: Exception) -> None:
        """End where the data cannot be read; the position stays before, so that a mended file is read on."""
        what = brief(error) or "too little memory"
        where = f"{self._title} cannot be read beyond row {self._next:,}: {what}"
        if self._until is not None:
            raise ValueError(f"{where}; but it was read up to row {self._until:,} before")
        self._done = self.ended = True
        advice = "Give the process more memory, or write it with fewer rows in a row group or record batch"
        self.damage = f"{where}. {advice if isinstance(error, MemoryError) else 'Restore it'}, and run again"
        log.error("%s", self.damage)

    def _events(self, piece: Piece) -> Sequence[Event | Malformed]:
        batch, decoder = piece.batch, self._decoder
        names, rows = batch.schema.names, len(batch)
        columns = {role: as_role(role, batch.column(name)) for role, name in decoder.roles.items()}
        kept = [
            self._passing(name, batch.column(name)) if name in names else [None] * rows
            for name in decoder.kept
        ]
        return decoder.decode(columns, kept, rows)

    def _passing(self, name: str, column: Any) -> list[Any]:
        try:
            return values_of(as_kept(column))
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise ValueError(
                f"{self._title}: column {shown(name)} of type {column.type} cannot pass through:"
                f" {brief(error)}. Leave it out of the file"
            ) from None
