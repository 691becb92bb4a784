"""Bytes from files and pipes, and events from their lines: JSON lines or CSV, plain or gzip.

Blank lines, CRLF and a byte order mark are accepted. A line over 1 MiB is rejected, and never held in memory
as a whole. Damaged gzip is read up to the damage.
"""

from __future__ import annotations

import os
import select
import stat
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from streamcal.events import Event, Origin
from streamcal.run.codec import CsvDecoder, JsonDecoder, Malformed
from streamcal.run.ports import Positions, SourceOptions

__all__ = ["MAX_LINE_BYTES", "ByteReader", "DamagedGzipError", "GzipReader", "LineSource", "RawReader"]

MAX_LINE_BYTES: Final = 1 << 20
"""A longer line is rejected."""

_BLOCK: Final = (1 << 16, 1 << 22)  # minimum and maximum bytes of one read
_EVENT_BYTES: Final = 64  # a guess, to read about as many events as were asked for
_KEPT: Final = 4096  # bytes of an overlong line that its reject keeps
_BOM: Final = b"\xef\xbb\xbf"
_TAIL_SECONDS: Final = 0.05  # between two checks of a file that may grow

FilePosition: TypeAlias = dict[str, Any]
"""The position of the next event: ``offset`` in uncompressed bytes, and ``line``."""


class DamagedGzipError(Exception):
    """Nothing more can be read; the message says why."""


class ByteReader(Protocol):
    """Reads bytes from an offset on."""

    seekable: bool

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes, ``b""`` at the end, or None if none came in time."""

    def seek(self, offset: int) -> None:
        """Go to an offset in the bytes that `read` returns; ValueError if they end before it."""

    def left(self) -> int | None:
        """Return how many bytes of the file were not read yet; None if that is unknown."""

    def close(self) -> None:
        """Release."""


class RawReader:
    """A file, or a pipe.

    Parameters
    ----------
    descriptor
        a file descriptor, open to read.
    follow
        whether to wait at the end of a file, which may grow.
    owned
        whether `close` closes the descriptor.
    """

    def __init__(self, descriptor: int, *, follow: bool = False, owned: bool = True) -> None:
        self._descriptor = descriptor
        self._regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._follow = follow and self._regular
        self._owned = owned
        self._offset = 0
        self.seekable = self._regular

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes, ``b""`` at the end, or None if none came in time."""
        if not self._regular:
            ready = select.select([self._descriptor], [], [], timeout)[0]
            return os.read(self._descriptor, size) if ready else None
        data = os.read(self._descriptor, size)
        self._offset += len(data)
        if data or not self._follow:
            return data
        if (self.left() or 0) < 0:
            raise ValueError(f"the file is shorter than the {self._offset} bytes that were read from it")
        time.sleep(min(timeout, _TAIL_SECONDS))
        return None

    def seek(self, offset: int) -> None:
        """Go to an offset; ValueError if the file ends before."""
        size = os.fstat(self._descriptor).st_size
        if offset > size:
            raise ValueError(f"it has {size} bytes, but {offset} were read from it before")
        self._offset = os.lseek(self._descriptor, offset, os.SEEK_SET)

    def left(self) -> int | None:
        """Return how many bytes of the file were not read yet."""
        return os.fstat(self._descriptor).st_size - self._offset if self._regular else None

    def close(self) -> None:
        """Release."""
        if self._owned:
            os.close(self._descriptor)
            self._owned = False


class GzipReader:
    """Decompresses gzip with any number of members."""

    def __init__(self, packed: RawReader) -> None:
        self._packed = packed
        self._member: Any = None
        self._input = b""
        self.seekable = packed.seekable

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes, ``b""`` at the end, None if there were none in time.

        Raises
        ------
        DamagedGzipError
            if the data is damaged, or ends within a member.
        """
        while True:
            if not self._input:
                more = self._packed.read(size, timeout)
                if more is None:
                    return None
                if not more:
                    if self._member is not None:
                        raise DamagedGzipError("the end was cut off")
                    return b""
                self._input = more
            if self._member is None:
                self._input = self._input.lstrip(b"\0")  # members may be padded with zeros
                if not self._input:
                    continue
                self._member = zlib.decompressobj(wbits=31)
            try:
                data: bytes = self._member.decompress(self._input, size)
            except zlib.error as error:
                raise DamagedGzipError(str(error)) from error
            self._input = self._member.unconsumed_tail
            if self._member.eof:
                self._input, self._member = self._member.unused_data, None
            if data:
                return data

    def seek(self, offset: int) -> None:
        """Go to an offset in the uncompressed bytes, by decompressing up to there."""
        self._packed.seek(0)
        self._member, self._input = None, b""
        while offset > 0:
            data = self.read(min(offset, _BLOCK[1]), 0.0)
            if not data:
                raise ValueError(f"it ends {offset} bytes before the offset up to which it was read before")
            offset -= len(data)

    def left(self) -> int | None:
        """Return how many compressed bytes were not read yet."""
        return self._packed.left()

    def close(self) -> None:
        """Release."""
        self._packed.close()


class _Block:
    """Events of consecutive lines; see `streamcal.run.ports.Batch`."""

    partition = ""

    def __init__(
        self,
        title: str,
        data: bytes,
        events: Sequence[Event | Malformed],
        lines: Sequence[int] | None,
        start: FilePosition,
        end: FilePosition,
    ) -> None:
        self.events = events
        self._title = title
        self._data = data
        self._lines = lines  # the line of every event, from 0; None: one event per line
        self._start = start
        self._end = end
        self._split: list[bytes] | None = None

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index."""
        line = index if self._lines is None else self._lines[index]
        raw = self._texts()[line].removesuffix(b"\r").removeprefix(_BOM)
        return Origin(
            self._title, self._start["line"] + line + 1, raw[:_KEPT] if len(raw) > MAX_LINE_BYTES else raw
        )

    def position(self, count: int) -> FilePosition:
        """Return the position after the first ``count`` events."""
        if count == len(self.events):
            return self._end
        if not count:
            return self._start
        lines = count if self._lines is None else self._lines[count - 1] + 1
        size = sum(map(len, self._texts()[:lines])) + lines
        return {**self._end, "offset": self._start["offset"] + size, "line": self._start["line"] + lines}

    def _texts(self) -> list[bytes]:
        if self._split is None:
            self._split = self._data.split(b"\n")
        return self._split


class LineSource:
    """Reads events from lines; see `streamcal.run.ports.Source`.

    Resumes at any line of a file; gzip is decompressed up to it. A pipe continues with what it holds.

    Parameters
    ----------
    reader
        where the bytes come from.
    name, title
        its name in positions, and in rejects.
    options
        how it is to be read; a pipe is not followed beyond its end.
    is_csv
        CSV with a header, rather than JSON lines.
    """

    def __init__(
        self, reader: ByteReader, name: str, title: str, options: SourceOptions, *, is_csv: bool
    ) -> None:
        self.name = name
        self._title = title
        self.endless = options.follow and reader.seekable
        self.ended = False
        self._reader = reader
        self._options = options
        self._is_csv = is_csv
        self._json = JsonDecoder(options.domain, options.columns)
        self._csv: CsvDecoder | None = None
        self._offset = self._line = 0
        self._rest = b""  # the line that is not at its end yet, cut once it is overlong
        self._size = 0  # its true size
        self._until: int | None = None
        self._done = False  # for good, whatever the limit
        self._damaged = False
        if is_csv and options.required and reader.seekable:
            self._find_header()  # it says at once which column is missing
            self._csv = None
            reader.seek(0)

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """How often a field was ignored so far because events have no such field, by its name."""
        return (self._csv or self._json).unknown_fields

    def seek(self, positions: Positions) -> Positions:
        """Go to a position; see `streamcal.run.ports.Source`."""
        position = positions.get("", {}) if self._reader.seekable else {}
        self._offset, self._line = position.get("offset", 0), position.get("line", 0)
        self._damaged = self._done = self.ended = position.get("damaged", False)
        if self._offset and self._is_csv and not self._done:
            self._find_header()
            if self._csv is None:
                raise ValueError(f"{self._title} is not the file that was read before: it has no header")
        self._rest, self._size = b"", 0
        if self._offset and not self._done:
            try:
                self._reader.seek(self._offset)
            except (ValueError, DamagedGzipError) as error:
                raise ValueError(f"{self._title} is not the file that was read before: {error}") from error
        return {"": self._position()}

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing beyond these positions; see `streamcal.run.ports.Source`."""
        position = None if positions is None else positions.get("", {"offset": 0})
        if position is not None and position.get("damaged"):
            position = None  # it is at the end anyway
        self._until = None if position is None else position["offset"]
        self.ended = self._done or (self._until is not None and self._offset >= self._until)

    def poll(self, max_events: int, timeout: float) -> Sequence[_Block]:
        """Return the next events; see `streamcal.run.ports.Source`."""
        if self.ended:
            return ()
        size = min(max(max_events * _EVENT_BYTES, _BLOCK[0]), _BLOCK[1])
        if self._until is not None:
            size = min(size, self._until - self._offset - self._size)
        try:
            data = self._reader.read(size, timeout) if size else b""
        except DamagedGzipError as error:
            return self._end_damaged(f"damaged or truncated gzip, nothing can be read from here on: {error}")
        except ValueError as error:
            raise ValueError(f"{self._title}: {error}") from error
        if data is None:
            return ()
        blocks = self._take(data) if data else self._finish()
        if self._until is not None and self._offset >= self._until:
            self.ended = True
        return [block for block in blocks if block.events]

    def lag(self) -> Mapping[str, float]:
        """Return how many bytes of the file were not read yet."""
        left = self._reader.left()
        return {} if left is None else {"": float(left)}

    def close(self) -> None:
        """Release."""
        self._reader.close()

    def _position(self) -> FilePosition:
        position: FilePosition = {"offset": self._offset, "line": self._line}
        if self._damaged:
            position["damaged"] = True
        return position

    def _take(self, data: bytes) -> list[_Block]:
        """Return the complete lines; keep the rest."""
        blocks = []
        head, newline, tail = data.partition(b"\n")
        self._rest, self._size = self._rest + head, self._size + len(head)
        if self._size > MAX_LINE_BYTES:
            self._rest = self._rest[:_KEPT]
            if newline:
                blocks.append(self._overlong(ended=1))
                data = tail
        else:
            data = self._rest + newline + tail
        if newline:
            end = data.rfind(b"\n") + 1
            if end:
                blocks.append(self._block(data[:end]))
            self._rest, self._size = data[end:], len(data) - end
        return blocks

    def _finish(self) -> list[_Block]:
        """Return the last line if it has no line break."""
        self.ended = True
        self._done = self._until is None
        if not self._size:
            return []
        block = self._overlong(ended=0) if self._size > MAX_LINE_BYTES else self._block(self._rest)
        self._rest, self._size = b"", 0
        return [block]

    def _end_damaged(self, reason: str) -> list[_Block]:
        start, kept = self._position(), self._rest[:_KEPT]
        self.ended = self._done = self._damaged = True
        self._offset, self._line = self._offset + self._size, self._line + 1
        return [_Block(self._title, kept, [Malformed(reason)], None, start, self._position())]

    def _overlong(self, *, ended: int) -> _Block:
        start, reason = self._position(), f"a line may have at most {MAX_LINE_BYTES} bytes, got {self._size}"
        self._offset, self._line = self._offset + self._size + ended, self._line + 1
        return _Block(self._title, self._rest, [Malformed(reason)], None, start, self._position())

    def _block(self, data: bytes) -> _Block:
        start = self._position()
        lines: list[int] | None = None
        events: Sequence[Event | Malformed] | None = None if self._is_csv else self._json.decode_lines(data)
        if events is None:
            events, lines = self._singly(data)
        self._offset += len(data)
        self._line += data.count(b"\n") + (not data.endswith(b"\n"))
        return _Block(self._title, data, events, lines, start, self._position())

    def _singly(self, data: bytes) -> tuple[list[Event | Malformed], list[int]]:
        """Return the events of lines that need decoding one by one, and the line numbers, from 0."""
        events: list[Event | Malformed] = []
        lines: list[int] = []
        for line, text in enumerate(data.split(b"\n")):
            raw = text.removesuffix(b"\r")
            if not line and not self._line:
                raw = raw.removeprefix(_BOM)
            if not raw or raw.isspace():
                continue
            if len(raw) > MAX_LINE_BYTES:
                event: Event | Malformed = Malformed(
                    f"a line may have at most {MAX_LINE_BYTES} bytes, got {len(raw)}"
                )
            elif not self._is_csv:
                event = self._json.decode(raw)
            elif self._csv is None:
                self._take_header(raw, self._line + line + 1)
                continue
            else:
                event = self._csv.decode(raw)
            events.append(event)
            lines.append(line)
        return events, lines

    def _take_header(self, header: bytes, line: int) -> None:
        options = self._options
        try:
            self._csv = CsvDecoder(header, options.domain, options.columns, options.required)
        except ValueError as error:
            raise ValueError(f"{self._title}, line {line}: {error}") from None

    def _find_header(self) -> None:
        """Take the header, the first line that is not blank, if it is there already; moves the reader."""
        text, data = b"", None
        with suppress(DamagedGzipError):  # reading the events will say so
            self._reader.seek(0)
            while len(text) <= MAX_LINE_BYTES and (data := self._reader.read(_BLOCK[0], 0.0)):
                text += data
                if b"\n" in text.removeprefix(_BOM).lstrip():
                    break
        lines = text.removeprefix(_BOM).split(b"\n")
        for line, raw in enumerate(lines if data == b"" else lines[:-1], 1):  # only what has its line end
            if raw.strip():
                self._take_header(raw.removesuffix(b"\r"), line)
                return
