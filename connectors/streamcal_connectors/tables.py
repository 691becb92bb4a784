"""Events from the rows of Parquet and Arrow files."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from streamcal.events import Event, Origin
from streamcal.events.blocks import Block
from streamcal.events.codec import Malformed
from streamcal.events.columns import ANSWER_FIELDS, Role
from streamcal.events.table_codec import RowsDecoder
from streamcal.run.ports import Positions, SourceOptions
from streamcal.values import shown
from streamcal_connectors.arrow import (
    as_kept,
    as_role,
    check_kept_type,
    check_role,
    kept_type,
    numbers_of,
    texts_of,
    values_of,
)
from streamcal_connectors.formats import TableKind
from streamcal_connectors.record_batches import Piece, brief, open_table

__all__ = ["TableSource"]

log = logging.getLogger("streamcal_connectors")


class _Position(msgspec.Struct):
    """The position of the next event: how many rows are before it, and the file's fingerprint."""

    row: Annotated[int, msgspec.Meta(ge=0)] = 0
    fingerprint: list[int] | None = None


class _Rows:
    """Events of consecutive rows; see `streamcal.run.ports.Batch`."""

    partition = ""

    def __init__(
        self, title: str, piece: Piece, events: Sequence[Event | Malformed], fingerprint: list[int]
    ) -> None:
        self.events = events
        self._title = title
        self._piece = piece
        self._fingerprint = fingerprint

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index: its row, from 1, as JSON."""
        columns = zip(self._piece.batch.schema.names, self._piece.batch.columns, strict=True)
        row = {name: values_of(as_kept(column.slice(index, 1)))[0] for name, column in columns}
        return Origin(self._title, self._piece.first + index + 1, msgspec.json.encode(row, enc_hook=repr))

    def position(self, count: int) -> dict[str, Any]:
        """Return the position after the first ``count`` events."""
        return {"row": self._piece.first + count, "fingerprint": self._fingerprint}


class TableSource:
    """Reads events from the rows of a table; see `streamcal.run.ports.Source`, and `TableSource` there.

    Resumes at any row of a file that is still the one that was read.

    Parameters
    ----------
    path, kind
        of the file.
    options
        how it is to be read.
    url
        where it comes from, if that is not its path.

    Raises
    ------
    OSError
        if it cannot be opened, or is no such file.
    ValueError
        if a column is missing, or of a type that cannot be what it is to be; or if it is to be followed.
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
        self._rest: Piece | None = None  # beyond the limit
        self._done = False

    def _take_schema(self, schema: Any, options: SourceOptions) -> None:
        columns, carried, names = options.columns, None, self._table.names
        if options.carry:
            known = {columns.names[role] for role in ("id", "score", "time", "key")} | set(ANSWER_FIELDS)
            carried = [name for name in names if name not in known]
            hidden = [name for name in names if name in known - set(columns.names.values())]
            if hidden:
                log.warning(
                    "%s: not carried through, since the output has a column of the name: %s",
                    self._title,
                    ", ".join(hidden),
                )
        try:
            self._decoder = RowsDecoder(names, options.domain, columns, options.required, carried)
            for role, name in self._decoder.roles.items():
                check_role(role, name, schema.field(name).type)
            for name in set(columns.keep).intersection(names):
                check_kept_type(name, schema.field(name).type)
        except ValueError as error:
            raise ValueError(f"{self._title}: {error}") from None
        here = [name for name in self._decoder.kept if name in names]
        self._read = list(dict.fromkeys([*self._decoder.roles.values(), *here]))
        self.kept = {
            name: kept_type(schema.field(name).type) if name in names else None for name in self._decoder.kept
        }

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """How often a column was ignored so far because events have no such field, by its name."""
        return self._decoder.unknown_fields

    def seek(self, positions: Positions) -> Positions:
        """Go to a position; see `streamcal.run.ports.Source`."""
        given = positions.get("", {})
        try:
            position = msgspec.convert(given, _Position)
        except ValueError as error:
            raise TypeError(f"{given!r} is no position in a table: {error}") from None
        if position.fingerprint not in (None, self._fingerprint):
            raise ValueError(
                f"{self._title} is not the file of which {position.row:,} rows were read before: its"
                f" {self._fingerprint[0]:,} bytes are others. Put that one back, or start with a new store"
            )
        self._next, self._pieces, self._rest = position.row, None, None
        self._done = self.ended = False
        return {"": self._position()}

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing beyond these positions; see `streamcal.run.ports.Source`."""
        self._until = None if positions is None else positions.get("", {"row": 0})["row"]
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
        except pa.ArrowException as error:  # such as a dictionary that has no such entry
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
            piece, self._rest = self._rest or next(self._pieces, None), None
        except (OSError, ValueError, pa.ArrowException) as error:
            self._break_off(error)
            return None
        if piece is None:
            self._done = self.ended = True
            return None
        if self._until is not None and piece.first + len(piece.batch) > self._until:
            count = self._until - piece.first
            self._rest = piece._replace(first=self._until, batch=piece.batch.slice(count))
            piece = piece._replace(batch=piece.batch.slice(0, count))
        self._next, self._left = piece.first + len(piece.batch), piece.left
        return piece

    def _break_off(self, error: Exception) -> None:
        """End where the data cannot be read; the position stays before, so that a mended file is read on."""
        where = f"{self._title} cannot be read beyond row {self._next:,}: {brief(error)}"
        if self._until is not None:
            raise ValueError(f"{where}; but it was read up to row {self._until:,} before")
        self._done = self.ended = True
        self.damage = f"{where}. Restore it, and run again"
        log.error("%s", self.damage)

    def _events(self, piece: Piece) -> Sequence[Event | Malformed]:
        batch, decoder = piece.batch, self._decoder
        names, rows = batch.schema.names, len(batch)
        columns = {role: as_role(role, batch.column(name)) for role, name in decoder.roles.items()}
        block = None if decoder.kept else self._arrays(columns)
        if block is not None:
            return block
        roles = {role: values_of(column) for role, column in columns.items()}
        kept = [
            self._passing(name, batch.column(name)) if name in names else [None] * rows
            for name in decoder.kept
        ]
        return decoder.decode(roles, kept, rows)

    def _arrays(self, columns: Mapping[Role, Any]) -> Block | None:
        """Return the events without an object for each, if they are as most are."""
        if "id" not in columns or not columns.keys() <= {"id", "score", "label", "time"}:
            return None
        ids = texts_of(columns["id"])
        numbers = {role: numbers_of(column) for role, column in columns.items() if role != "id"}
        if ids is None or any(each is None for each in numbers.values()):
            return None
        given = numbers.get("score"), numbers.get("label"), numbers.get("time")
        return self._decoder.decode_arrays(ids, *given)

    def _passing(self, name: str, column: Any) -> list[Any]:
        try:
            return values_of(as_kept(column))
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise ValueError(
                f"{self._title}: column {shown(name)} of type {column.type} cannot pass through:"
                f" {brief(error)}. Leave it out of the file"
            ) from None
