"""Blocks of CSV rows as columns, read by pyarrow.

`streamcal.events.codec.CsvDecoder` tells what a row means, and why it is refused, one row at a time. Rows
that need no closer look come out of here the same, many times faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import csv

from streamcal.base.times import iso_date
from streamcal.events import Domain
from streamcal.events.blocks import FEWEST, Block
from streamcal.events.codec import CsvDecoder, TextFormat
from streamcal.events.columns import WEIGHTS, Columns
from streamcal.events.table_codec import RowsDecoder
from streamcal_connectors.arrow import as_role

_LONGEST: Final = 1 << 17  # bytes of a line: Python's reader of CSV refuses longer cells
_BREAK: Final = ord("\n")
_NULL: Final = pa.nulls(1, pa.string())[0]


class CsvColumns(CsvDecoder):
    """Decode rows under one header as `CsvDecoder` does, many at once where none needs a closer look."""

    def __init__(
        self,
        header: bytes,
        domain: Domain = "target",
        columns: Columns | None = None,
        required: Iterable[str] = (),
        form: TextFormat | None = None,
    ) -> None:
        super().__init__(header, domain, columns, required, form)
        columns = columns or Columns()
        self._table_rows = RowsDecoder(self.names, domain, columns)
        roles = self._table_rows.roles
        kept_twice = set(columns.keep) & set(columns.names.values())
        self._suits = len(self.names) > 1 and not kept_twice and not roles.keys() & set(WEIGHTS)
        self._kept = [name if name in self.names else None for name in columns.carried]
        texts = (*roles.values(), *filter(None, self._kept))
        self._types: dict[str, Any] = dict.fromkeys(texts, pa.string())
        self._types |= {roles[role]: pa.float64() for role in ("score", "label") if role in roles}
        marks = {None: ".,", ",": ",.", ".": "."}[self._form.decimal] if self._separator != "," else "."
        times = (pa.float64(), pa.string()) if "time" in roles else (None,)
        self._tries = [(mark, kind) for mark in marks for kind in times]
        self._parse = csv.ParseOptions(delimiter=self._separator, quote_char=False, ignore_empty_lines=False)

    def decode_lines(self, block: bytes, *, rejects: bool = False) -> Block | None:  # noqa: ARG002
        """Return the events of rows, one a line, or None if `decode` must take them one by one.

        It must if there is a quotation mark, an empty line or a row that is no event.
        """
        text = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(text == _BREAK)
        lines = len(ends)
        if not self._suits or lines < FEWEST or ends[-1] != len(block) - 1 or b'"' in block:
            return None
        if int(np.diff(ends, prepend=-1).max()) > _LONGEST or block.count(b"\r") != block.count(b"\r\n"):
            return None
        try:
            if not block.isascii():
                block.decode()
            events = self._events(block)
        except (ValueError, pa.ArrowException):  # the rows, one by one, say what is wrong
            return None
        if events is None or len(events) != lines:
            return None
        self._rows += lines
        return events

    def _events(self, rows: bytes) -> Block | None:
        table = self._table(rows)
        mark, kind = self._tries[0]
        if mark == "," and self._form.decimal is None and "decimal" not in self.notes:
            return None
        if kind == pa.string() and (times := table[self._time]).null_count < len(times):
            if self._order is not None:
                moments = [time and iso_date(time, self._order) for time in times.to_pylist()]
                table[self._time] = pa.array(moments, pa.string())
            else:  # the first is noted; what has more than one meaning is refused below
                self._moment(times.drop_null()[0].as_py())
        columns = {role: as_role(role, table[name]) for role, name in self._table_rows.roles.items()}
        count = len(next(iter(table.values())))
        kept = [[None] * count if name is None else table[name].to_pylist() for name in self._kept]
        return self._table_rows.block(columns, kept, count)

    def _table(self, rows: bytes) -> dict[str, Any]:
        """Return the columns that are read; raise `pyarrow.ArrowException` where a cell has no such value."""
        for form in self._tries:
            try:
                table = self._read(rows, *form)
            except pa.ArrowInvalid as error:
                refused = error
                continue
            self._tries.remove(form)
            self._tries.insert(0, form)  # the next block will be like this one
            return table
        raise refused

    def _read(self, rows: bytes, mark: str, time: Any) -> dict[str, Any]:
        types = self._types if time is None else self._types | {self._time: time}
        convert = csv.ConvertOptions(
            check_utf8=False,
            column_types=types,
            decimal_point=mark,
            include_columns=list(self._types),
            null_values=[""],
            strings_can_be_null=True,
        )
        read = csv.ReadOptions(use_threads=False, block_size=len(rows), column_names=self.names)
        table = csv.read_csv(pa.BufferReader(rows), read, self._parse, convert).combine_chunks()
        return {name: _stripped(table.column(name).chunk(0)) for name in self._types}


def _stripped(column: Any) -> Any:
    """Return texts without white space around them, null where nothing is left; other columns as they are."""
    if not pa.types.is_string(column.type):
        return column
    texts = pc.utf8_trim_whitespace(column)
    # No Python value among the arguments: for one, pyarrow would import pandas.
    return pc.if_else(pc.binary_length(texts).cast(pa.bool_()), texts, _NULL)
