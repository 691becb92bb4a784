"""Files and standard input/output: JSON lines or CSV, plain or gzip.

The name tells the format: ``.csv`` is CSV, anything else JSON lines; ``.gz`` at the end is gzip.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import stat
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from streamcal.run.ports import Position, Positions, SourceOptions
from streamcal_connectors.lines import LineSource
from streamcal_connectors.readers import ByteReader, RawReader, ReplacedError, open_reader
from streamcal_connectors.rotation import PathInput, SingleInput
from streamcal_connectors.urls import path_of

__all__ = ["FileConnector", "FileFeed", "FileSink", "StdioConnector", "StreamSink"]

_FEED_BYTES: Final = 1 << 20

log = logging.getLogger("streamcal_connectors")


class FileConnector:
    """``file:`` URLs and bare paths."""

    def source(self, url: str, options: SourceOptions) -> LineSource:
        """Open a file to read.

        Raises
        ------
        OSError
            if it cannot be opened.
        """
        path = path_of(url, "file")
        is_csv = path.name.removesuffix(".gz").endswith(".csv")
        files = PathInput(path, follow=options.follow)
        return LineSource(files, str(path.absolute()), str(path), options, is_csv=is_csv)

    def sink(self, url: str) -> FileSink:
        """Open a file to write.

        Raises
        ------
        OSError
            if it cannot be opened.
        """
        return FileSink(path_of(url, "file"))

    def feed(self, url: str) -> FileFeed:
        """Open the file of a sink to read it back; it need not exist yet."""
        return FileFeed(path_of(url, "file"))


class StdioConnector:
    """``-``: standard input and output, as JSON lines."""

    def source(self, url: str, options: SourceOptions) -> LineSource:  # noqa: ARG002  # one standard input
        """Return standard input.

        Raises
        ------
        ValueError
            if it is closed.
        """
        if sys.stdin is None:
            raise ValueError("standard input (-) is closed: give a file, or send events through a pipe")
        reader = RawReader(sys.stdin.fileno(), follow=False, owned=False)
        return LineSource(SingleInput(reader), "-", "-", options, is_csv=False)

    def sink(self, url: str) -> StreamSink:  # noqa: ARG002  # one standard output
        """Return standard output."""
        return StreamSink(sys.stdout.buffer)


class _Encoder:
    """Encodes rows as JSON lines or CSV, with gzip or without."""

    def __init__(self, *, is_csv: bool, is_gzip: bool) -> None:
        self._header_done = False
        self._is_csv = is_csv
        self._is_gzip = is_gzip
        self._encode = msgspec.json.Encoder().encode_lines
        self._member: Any = None

    def resume(self, *, header_done: bool) -> None:
        """Start on an output that has its CSV header already, or not."""
        self._header_done = header_done

    def encode(self, rows: Sequence[msgspec.Struct]) -> bytes:
        text = self._csv(rows) if self._is_csv else self._encode(rows)
        if not self._is_gzip:
            return text
        if self._member is None:
            self._member = zlib.compressobj(wbits=31)
        packed: bytes = self._member.compress(text)
        return packed

    def end_member(self) -> bytes:
        """Return the bytes that complete the output: the end of the gzip member."""
        member, self._member = self._member, None
        return b"" if member is None else member.flush()

    def empty(self) -> bytes:
        """Return the bytes of an output without rows."""
        return zlib.compress(b"", wbits=31) if self._is_gzip else b""

    def _csv(self, rows: Sequence[msgspec.Struct]) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = rows[0].__struct_fields__
        if not self._header_done:
            self._header_done = True
            writer.writerow(columns)
        writer.writerows([_cell(getattr(row, column)) for column in columns] for row in rows)
        return text.getvalue().encode()


class FileSink:
    """Writes rows to a file; see `streamcal.run.ports.Sink`.

    Resumes at the length of the last commit, and truncates the file to it. A commit ends a gzip member. If
    there is a store, it also waits until the rows are on the disk. A pipe or a device cannot be truncated:
    after a crash it may receive the rows of one micro-batch twice.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path.absolute())
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        self._durable = False
        is_csv = path.name.removesuffix(".gz").endswith(".csv")
        self._encoder = _Encoder(is_csv=is_csv, is_gzip=path.suffix == ".gz")

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:
        """Truncate the file to a commit, or to nothing; see `streamcal.run.ports.Sink`."""
        self._durable = job != "" and self._regular
        if not self._regular:
            return None
        length = 0 if position is None else position["bytes"]
        size = os.fstat(self._file.fileno()).st_size
        if 0 < size < length:
            raise ValueError(
                f"{self._path} has {size} bytes, but {length} were written to it: it was changed since"
            )
        if size < length:
            log.warning("%s was removed or emptied after the last run: starting it anew", self._path)
            length = 0
        os.ftruncate(self._file.fileno(), length)
        self._encoder.resume(header_done=length > 0)
        return None

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write rows, one line each."""
        if rows:
            self._put(self._encoder.encode(rows))

    def commit(self, positions: Mapping[str, Positions]) -> Position:  # noqa: ARG002  # the length of the file is enough
        """Pass all rows to the operating system and, if there is a store, to the disk; return the length."""
        self._put(self._encoder.end_member())
        if self._durable:
            os.fsync(self._file.fileno())
        return {"bytes": os.fstat(self._file.fileno()).st_size} if self._regular else None

    def close(self) -> None:
        """Release; may be called twice."""
        if self._file.closed:
            return
        try:
            if self._regular and not os.fstat(self._file.fileno()).st_size:
                self._put(self._encoder.empty())
        finally:
            self._file.close()

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]


class StreamSink:
    """Writes rows to a byte stream that cannot be truncated."""

    name = "-"

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encoder = _Encoder(is_csv=False, is_gzip=False)

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:  # noqa: ARG002
        """Do nothing."""
        return None

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write rows, one line each."""
        self._stream.write(self._encoder.encode(rows))

    def commit(self, positions: Mapping[str, Positions]) -> Position:  # noqa: ARG002
        """Pass all rows to the operating system."""
        self._stream.flush()
        return None

    def close(self) -> None:
        """Flush."""
        self._stream.flush()


class FileFeed:
    """Reads back the lines that a sink writes to a file; see `streamcal.run.ports.Feed`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: ByteReader | None = None
        self._rest = b""

    def poll(self, timeout: float) -> Sequence[bytes]:
        """Return the complete lines; if there are none, wait for some."""
        try:
            if self._reader is None:
                self._reader = open_reader(self._path, follow=True, is_gzip=self._path.suffix == ".gz")
            data = self._reader.read(_FEED_BYTES, timeout) or b""
        except FileNotFoundError:
            return ()  # the sink has not created it yet
        except ReplacedError:  # its sink truncated it, or started it anew
            self.close()
            return ()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line]

    def close(self) -> None:
        """Release; may be called twice."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._rest = None, b""


def _cell(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return msgspec.json.encode(value).decode() if isinstance(value, tuple) else value
