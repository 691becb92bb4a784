"""Blocks of CSV rows as columns, read by pyarrow.

`streamcal.events.codec.CsvDecoder` tells what a row means, and why it is refused, one row at a time. Rows
that need no closer look come out of here the same, many times faster.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import csv

from streamcal.events.blocks import FEWEST, Block
from streamcal.events.codec import CsvDecoder
from streamcal.events.columns import WEIGHTS
from streamcal.events.table_codec import RowsDecoder
from streamcal.run.ports import SourceOptions
from streamcal_connectors.arrow import as_role

__all__ = ["CsvColumns"]

_LONGEST: Final = 1 << 17  # bytes of a line: Python's reader of CSV refuses longer cells
_BREAK: Final = ord("\n")
_PARSE: Final = csv.ParseOptions(quote_char=False, ignore_empty_lines=False)


class CsvColumns:
    """Decode blocks of rows under one header.

    Parameters
    ----------
    decoder
        Decoder of single rows under this header.
    options
        How the input is read.
    """

    def __init__(self, decoder: CsvDecoder, options: SourceOptions) -> None:
        columns, self._names = options.columns, decoder.names
        self._decoder = decoder
        self._rows = RowsDecoder(self._names, options.domain, columns)
        roles = self._rows.roles
        kept_twice = set(columns.keep) & set(columns.names.values())
        self._suits = len(self._names) > 1 and not kept_twice and not roles.keys() & set(WEIGHTS)
        self._kept = [name if name in self._names else None for name in columns.carried]
        texts = (*roles.values(), *filter(None, self._kept))
        self._types: dict[str, Any] = dict.fromkeys(texts, pa.string())
        self._types |= {roles[role]: pa.float64() for role in ("score", "label", "time") if role in roles}

    def decode(self, rows: bytes) -> Block | None:
        """Return the events of rows, one a line, or None if `CsvDecoder` must take them one by one.

        Parameters
        ----------
        rows
            Lines, each with its line end. A block that holds a quotation mark, an empty line or a row that
            is no event gives None.
        """
        text = np.frombuffer(rows, np.uint8)
        ends = np.flatnonzero(text == _BREAK)
        lines = len(ends)
        if not self._suits or lines < FEWEST or ends[-1] != len(rows) - 1 or b'"' in rows:
            return None
        if int(np.diff(ends, prepend=-1).max()) > _LONGEST or rows.count(b"\r") != rows.count(b"\r\n"):
            return None
        try:
            if not rows.isascii():
                rows.decode()
            block = self._block(rows)
        except (ValueError, pa.ArrowException):  # the rows, one by one, say what is wrong
            return None
        if block is None or len(block) != lines:
            return None
        self._decoder.count_rows(lines)
        return block

    def _block(self, rows: bytes) -> Block | None:
        table = self._table(rows)
        columns = {role: as_role(role, table[name]) for role, name in self._rows.roles.items()}
        count = len(next(iter(table.values())))
        kept = [[None] * count if name is None else table[name].to_pylist() for name in self._kept]
        return self._rows.block(columns, kept, count)

    def _table(self, rows: bytes) -> dict[str, Any]:
        """Return the columns that are read; raise `pyarrow.ArrowException` where a cell has no such value."""
        try:
            return self._read(rows)
        except pa.ArrowInvalid:
            time = self._rows.roles.get("time")
            if time is None or pa.types.is_string(self._types[time]):
                raise
            self._types[time] = pa.string()  # dates and times: from now on
            return self._read(rows)

    def _read(self, rows: bytes) -> dict[str, Any]:
        convert = csv.ConvertOptions(
            check_utf8=False,
            column_types=self._types,
            include_columns=list(self._types),
            null_values=[""],
            strings_can_be_null=True,
        )
        read = csv.ReadOptions(use_threads=False, block_size=len(rows), column_names=self._names)
        table = csv.read_csv(pa.BufferReader(rows), read, _PARSE, convert).combine_chunks()
        return {name: _stripped(table.column(name).chunk(0)) for name in self._types}


def _stripped(column: Any) -> Any:
    """Return texts without white space around them, null where nothing is left; other columns as they are."""
    if not pa.types.is_string(column.type):
        return column
    texts = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(texts, ""), None, texts)
