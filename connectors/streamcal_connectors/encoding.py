"""Rows as text: JSON lines or CSV, plain or gzip; and whether a text is such rows."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from streamcal.base.errors import OutputError
from streamcal.run.ports import RowKind
from streamcal.run.rows import Answers

_NEEDED: Final[Mapping[RowKind, frozenset[str]]] = {
    "answers": frozenset({"id", "probability", "map_version"}),
    "rejects": frozenset({"source", "line", "code"}),
    "maps": frozenset({"version", "map"}),
    "alarms": frozenset({"number", "code", "reason"}),
}


class RowEncoder:
    """Encodes rows.

    Parameters
    ----------
    name
        Name of the file: with ``.csv`` CSV, else JSON lines; with ``.gz`` at the end gzip.

    Attributes
    ----------
    header
        Columns of the CSV header that the output has already; None if it has none.
    """

    def __init__(self, name: str) -> None:
        self.is_csv = name.removesuffix(".gz").endswith(".csv")
        self.is_gzip = name.endswith(".gz")
        self._name = name
        self.header: Sequence[str] | None = None
        self._encode = msgspec.json.Encoder().encode_lines
        self._member: Any = None

    def encode(self, rows: Sequence[msgspec.Struct]) -> bytes:
        """Return rows as bytes; those of gzip may come later.

        Raises
        ------
        OutputError
            if the output has a CSV header with other columns.
        """
        if self.is_csv:
            text = self._csv(rows)
        else:
            text = rows.text() if isinstance(rows, Answers) else self._encode(rows)
        if not self.is_gzip:
            return text
        if self._member is None:
            self._member = zlib.compressobj(wbits=31)
        packed: bytes = self._member.compress(text)
        return packed

    def end_member(self) -> bytes:
        """Return the bytes that complete the output: the end of the gzip member."""
        member, self._member = self._member, None
        return b"" if member is None else member.flush()

    def _csv(self, rows: Sequence[msgspec.Struct]) -> bytes:
        text = _Lines()
        writer = csv.writer(text)
        columns, header = rows[0].__struct_fields__, rows[0].__struct_encode_fields__
        if self.header is None:
            self.header = header
            writer.writerow(header)
        elif tuple(self.header) != header:
            raise OutputError(
                f"cannot write: {self._name} has the columns {', '.join(self.header)}, but its rows now have"
                f" {', '.join(header)}: move it away, or give another output"
            )
        writer.writerows([_cell(getattr(row, column)) for column in columns] for row in rows)
        return "".join(text.lines).encode()


class _Lines:
    """Lines of a CSV writer, which calls `write` for each row.

    A carriage return in a cell is quoted only if the writer's lines end with one; here it is dropped again.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        self.lines.append(f"{line[:-2]}\n")


def is_row(line: bytes, rows: RowKind, *, is_csv: bool) -> bool:
    """Whether a line is a row of a kind that streamcal wrote; of CSV, the header."""
    try:
        found = columns_of(line) if is_csv else msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError, csv.Error):
        return False
    return _NEEDED[rows] <= {"probability" if name == "probabilities" else name for name in found}


def columns_of(line: bytes) -> list[str]:
    """Return the cells of a line of CSV; ValueError or `csv.Error` if it is none."""
    return next(csv.reader([line.decode()]), [])


def _cell(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return msgspec.json.encode(value).decode()
    plain = msgspec.to_builtins(value)  # what passes through of a table: bytes, a time of day, a list
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
