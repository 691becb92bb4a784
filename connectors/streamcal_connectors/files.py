"""Files and standard input/output: JSON lines or CSV, plain or gzip.

The format follows the name: ``.csv`` is CSV, all else JSON lines; ``.gz`` behind it is gzip. Blank lines,
CRLF and a byte order mark are taken. A source reads from the beginning; a sink starts its file anew and
holds what was written as soon as it is closed.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

import msgspec

from streamcal.codec import CsvDecoder, JsonDecoder, Malformed
from streamcal.types import Domain, Event, Origin

__all__ = ["MAX_LINE_BYTES", "FileConnector", "LineSource", "RowSink", "StdioConnector"]

MAX_LINE_BYTES: Final = 1 << 20
"""A longer line is no event; it is rejected without being held in memory."""

_BLOCK: Final = 1 << 20
_KEPT: Final = 4096  # bytes of an overlong line that its reject shows
_BOM: Final = b"\xef\xbb\xbf"


class FileConnector:
    """``file:`` URLs and bare paths."""

    def source(self, url: str, domain: Domain) -> LineSource:
        """Open a file to read.

        Raises
        ------
        OSError
            if it cannot be opened.
        """
        path = _path(url)
        name = path.name.removesuffix(".gz")
        stream: BinaryIO = path.open("rb")
        if path.suffix == ".gz":
            stream = gzip.GzipFile(fileobj=stream)  # type: ignore[assignment]  # has read1, which is used
        return LineSource(stream, str(path), domain, is_csv=name.endswith(".csv"))

    def sink(self, url: str) -> RowSink:
        """Open a file to write, emptied.

        Raises
        ------
        OSError
            if it cannot be opened.
        """
        path = _path(url)
        name = path.name.removesuffix(".gz")
        stream: Any = gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb")  # noqa: SIM115
        return RowSink(stream, is_csv=name.endswith(".csv"))


class StdioConnector:
    """``-``: standard input and output, JSON lines."""

    def source(self, url: str, domain: Domain) -> LineSource:  # noqa: ARG002  # one standard input
        """Return standard input."""
        return LineSource(sys.stdin.buffer, "-", domain, is_csv=False)

    def sink(self, url: str) -> RowSink:  # noqa: ARG002  # one standard output
        """Return standard output."""
        return RowSink(sys.stdout.buffer, is_csv=False, owned=False)


class LineSource:
    """Events from the lines of a byte stream.

    Parameters
    ----------
    stream
        a binary stream with ``read1``.
    name
        what rejects call it.
    domain
        of events that name none.
    is_csv
        CSV with a header, rather than JSON lines.
    """

    def __init__(self, stream: BinaryIO, name: str, domain: Domain, *, is_csv: bool) -> None:
        self._stream = stream
        self._name = name
        self._domain = domain
        self._is_csv = is_csv
        self._decoder: JsonDecoder | CsvDecoder | None = None if is_csv else JsonDecoder(domain)

    @property
    def unknown_fields(self) -> int:
        """How many fields were kept out so far because no event has them."""
        return self._decoder.unknown_fields if self._decoder else 0

    def batches(self) -> Iterator[list[Event | Malformed]]:
        """Yield the events of each block read; see `streamcal.ports.Source`."""
        line = 0
        for lines in self._line_blocks():
            batch: list[Event | Malformed] = []
            for text in lines:
                line += 1
                if isinstance(text, _Unreadable):
                    batch.append(Malformed(Origin(self._name, line, text.kept), text.reason))
                    continue
                raw = text.removesuffix(b"\r")
                if line == 1:
                    raw = raw.removeprefix(_BOM)
                if not raw or raw.isspace():
                    continue
                if self._decoder is None:
                    self._decoder = self._csv(raw, line)
                    continue
                batch.append(self._decoder.decode(Origin(self._name, line, raw)))
            if batch:
                yield batch

    def _csv(self, header: bytes, line: int) -> CsvDecoder:
        try:
            return CsvDecoder(header, self._domain)
        except ValueError as error:
            raise ValueError(f"{self._name}, line {line}: {error}") from None

    def _line_blocks(self) -> Iterator[list[bytes | _Unreadable]]:
        rest, size = (
            b"",
            0,
        )  # the line that is not at its end yet, cut once it is overlong; its true size
        while True:
            block, damage = self._read()
            first, *others = block.split(b"\n")
            size += len(first)
            rest += first
            if size > MAX_LINE_BYTES:
                rest = rest[:_KEPT]
            lines: list[bytes | _Unreadable] = []
            if others:
                lines.append(_line(rest, size))
                *whole, rest = others
                lines += [_line(text, len(text)) for text in whole]
                size = len(rest)
            if damage:
                lines.append(_Unreadable(rest[:_KEPT], damage))
            elif not block and size:
                lines.append(_line(rest, size))
            yield lines
            if damage or not block:
                return

    def _read(self) -> tuple[bytes, str]:
        """Return the next block, empty at the end, and what is wrong with the stream, if anything."""
        try:
            return self._stream.read1(_BLOCK), ""  # type: ignore[attr-defined]  # not in BinaryIO
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            return b"", f"damaged or truncated gzip, nothing can be read from here on: {error}"


class _Unreadable(msgspec.Struct, frozen=True):
    kept: bytes
    reason: str


def _line(text: bytes, size: int) -> bytes | _Unreadable:
    if size <= MAX_LINE_BYTES:
        return text
    return _Unreadable(text[:_KEPT], f"a line may have {MAX_LINE_BYTES} bytes, got {size}")


class RowSink:
    """Rows as JSON lines or CSV onto a byte stream.

    Parameters
    ----------
    stream
        a binary stream.
    is_csv
        CSV with a header, rather than JSON lines.
    owned
        whether `close` closes the stream, rather than flush it.
    """

    def __init__(self, stream: Any, *, is_csv: bool, owned: bool = True) -> None:
        self._stream = stream
        self._owned = owned
        self._is_csv = is_csv
        self._columns: tuple[str, ...] = ()
        self._encode = msgspec.json.Encoder().encode_lines

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write rows, each as one line."""
        if rows:
            self._stream.write(self._csv(rows) if self._is_csv else self._encode(rows))

    def close(self) -> None:
        """Flush, and close what was opened here."""
        if self._owned:
            self._stream.close()
        else:
            self._stream.flush()

    def _csv(self, rows: Sequence[msgspec.Struct]) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._columns:
            self._columns = rows[0].__struct_fields__
            writer.writerow(self._columns)
        writer.writerows([_cell(getattr(row, column)) for column in self._columns] for row in rows)
        return text.getvalue().encode()


def _cell(value: object) -> object:
    return msgspec.json.encode(value).decode() if isinstance(value, tuple) else value


def _path(url: str) -> Path:
    if not url.startswith("file:"):
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path))
