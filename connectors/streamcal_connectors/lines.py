"""Lines of files and pipes, and where a run goes on in them.

Blank lines, CRLF and a byte order mark are accepted. A line over 1 MiB is rejected, and never held in memory
as a whole. A last line without a line end may be half of one: it is left for later unless it is surely whole.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec
import numpy as np

from streamcal.events import RAW_BYTES, Event, Origin
from streamcal.events.codec import TextFormat
from streamcal.events.fields import Malformed
from streamcal.run.ports import Positions, SourceOptions
from streamcal_connectors.line_decoder import BOM, MAX_LINE_BYTES, LineDecoder, too_long
from streamcal_connectors.readers import (
    END_BYTES,
    ByteReader,
    CutError,
    DamagedError,
    Fingerprint,
    Prefix,
    ReplacedError,
    TextReader,
    identity,
    open_reader,
    read_position,
)

_BLOCK: Final = (1 << 16, 1 << 22)  # minimum and maximum bytes of one read
_BREAK: Final = ord("\n")
_MOST_LINES: Final = 4  # times as many as the events that were asked for
_EVENT_BYTES: Final = 64  # a guess, to read about as many events as were asked for

log = logging.getLogger("streamcal_connectors")


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _Position(msgspec.Struct):
    """Position of the next event."""

    offset: _Count = 0
    """Number of uncompressed bytes before it."""
    line: _Count = 0
    """Number of line breaks before it."""
    fingerprint: Fingerprint | None = None
    """Fingerprint of the bytes before it, if it is in a file and not at its beginning."""

    def record(self) -> dict[str, Any]:
        """Return it as it is kept, without what is unknown."""
        found = {"offset": self.offset, "line": self.line, "fingerprint": self.fingerprint}
        return {name: value for name, value in found.items() if value is not None}


@dataclass
class _Block:
    """Events of consecutive lines; see `streamcal.run.ports.Batch`."""

    partition: ClassVar = ""

    title: str
    data: bytes
    events: Sequence[Event | Malformed]
    lines: Sequence[int] | None
    """Last line of every event, from 0; None: one event per line."""
    before: Prefix
    start: _Position
    end: _Position

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index, with what its reject keeps of the line."""
        first = last = index
        if self.lines is not None:
            first, last = self.lines[index - 1] + 1 if index else 0, self.lines[index]
            while first < last and not self._texts[first].strip():
                first += 1
        raw = b"\n".join(self._texts[first : last + 1]).removesuffix(b"\r").removeprefix(BOM)
        return Origin(self.title, self.start.line + first + 1, raw)

    def position(self, count: int) -> dict[str, Any]:
        """Return the position after the first ``count`` events."""
        if count == len(self.events):
            return self.end.record()
        if not count:
            return self.start.record()
        lines = count if self.lines is None else self.lines[count - 1] + 1
        breaks = np.flatnonzero(np.frombuffer(self.data, np.uint8) == _BREAK)
        prefix = self.before.extend(self.data[: int(breaks[lines - 1]) + 1])
        fingerprint = self.end.fingerprint and prefix.fingerprint
        return _Position(prefix.size, self.start.line + lines, fingerprint).record()

    @cached_property
    def _texts(self) -> list[bytes]:
        return self.data.split(b"\n")


class LineSource:
    """Reads events from lines; see `streamcal.run.ports.Source`.

    Resumes at any line of a file that is still the one that was read; gzip is decompressed up to it. A pipe
    continues with what it holds.

    Parameters
    ----------
    source
        Path of a file, or a reader at its beginning, such as of standard input.
    name, title
        Name in positions, and in rejects.
    options, form
        Options of reading, and of the file; a pipe is not followed beyond its end.
    is_csv
        Whether it is CSV with a header, or JSON.
    remedy
        Advice for when it was replaced by something else.

    Raises
    ------
    OSError
        If the input cannot be opened.
    """

    def __init__(
        self,
        source: Path | ByteReader,
        name: str,
        title: str,
        options: SourceOptions,
        form: TextFormat,
        *,
        is_csv: bool,
        remedy: str,
    ) -> None:
        self.name = name
        self.unfinished: str | None = None
        self.damage: str | None = None
        self.ended = False
        self._title = title
        self._source = source
        self._encoding = form.encoding
        self._remedy = remedy
        self._options = options
        self._is_csv = is_csv
        self._decoder = LineDecoder(title, options, form if is_csv else None)
        self._reader = self._open()
        self.endless = self._reader.follows
        self._line = 0
        self._before = Prefix()  # of what was delivered
        self._read = Prefix()  # … and what was read
        self._rest = b""  # the line that is not at its end yet, cut once it is overlong
        self._ahead = b""  # read, but more lines than a poll takes
        self._until: _Position | None = None
        self._done = False  # for good, whatever the limit
        self._lost = False  # whether what was read before is gone: it came through a pipe
        if is_csv and options.required and self._reader.seekable:
            self._find_header()  # it says at once which column is missing
            self._decoder.begin()

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Counts of fields that were ignored so far because events have no such field, by name."""
        return self._decoder.unknown_fields

    def seek(self, positions: Positions) -> Positions:
        """Go to a position; see `streamcal.run.ports.Source`."""
        given = positions.get("", {}) if self._reader.seekable else {}
        position = read_position(given, _Position, "a file")
        self._done = self.ended = False
        self._decoder.begin()
        self._lost = "" in positions and not self._reader.seekable
        self._line = position.line
        self._find(position.offset, position.fingerprint)
        return {"": self._position().record()}

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing beyond these positions; see `streamcal.run.ports.Source`."""
        self._until = None if positions is None else read_position(positions.get("", {}), _Position, "a file")
        self.ended = self._done or self._at_limit()

    def poll(self, max_events: int, timeout: float) -> Sequence[_Block]:
        """Return the next events; see `streamcal.run.ports.Source`."""
        if self.ended:
            return ()
        size = min(max(max_events * _EVENT_BYTES, _BLOCK[0]), _BLOCK[1])
        if self._until is not None:
            size = min(size, self._until.offset - self._read.size)
        try:
            blocks = self._next(size, timeout, _MOST_LINES * max_events) if size > 0 else self._finish()
        except OSError as error:
            error.filename = error.filename or self._title
            raise
        if self._decoder.broken is not None:
            self._break_off(self._decoder.broken)
        if self._until is not None and self._at_limit():
            self.ended = True
            if self._until.fingerprint not in (None, self._before.fingerprint):
                size = self._before.size
                raise ValueError(f"{self._title}: its first {size} bytes are not those that were read before")
        return [block for block in blocks if block.events]

    def lag(self) -> Mapping[str, float]:
        """Return how many bytes of the file were not read yet."""
        left = self._reader.left()
        return {} if left is None else {"": float(max(left + len(self._ahead), 0))}

    def close(self) -> None:
        """Release; may be called twice."""
        self._reader.close()

    def _open(self) -> TextReader:
        source = self._source
        if isinstance(source, Path):
            source = open_reader(source, follow=self._options.follow)
        return TextReader(source, encoding=self._encoding)

    def _is_replaced(self) -> bool:
        """Whether the file at the path is another one than that which is read."""
        try:
            return isinstance(self._source, Path) and identity(self._source.stat()) != self._reader.identity
        except FileNotFoundError:  # in the middle of it
            return False

    def _position(self) -> _Position:
        known = self._before.size and self._reader.seekable
        fingerprint = self._before.fingerprint if known else None
        return _Position(self._before.size, self._line, fingerprint)

    def _find(self, offset: int, fingerprint: Fingerprint | None) -> None:
        """Go to an offset of the file that was read before."""
        self._before, self._ahead = Prefix(), b""
        if self._reader.seekable:
            if self._is_replaced():
                self._reader.close()
                self._reader = self._open()
            why = ""
            try:
                for end, known in (min(offset, END_BYTES), 1), (offset, 2):  # quick if it begins otherwise
                    self._before = self._reader.seek(end)
                    if fingerprint is not None and self._before.fingerprint[:known] != fingerprint[:known]:
                        why = f"its first {offset} bytes are not those that were read before"
                        break
            except ReplacedError as error:
                why = str(error)
            if why:
                raise ValueError(
                    f"{self._title} is not the file that was read before: {why}. That one was read up to byte"
                    f" {offset}, line {self._line}; what came after was not. {self._remedy}, or start with a"
                    " new store"
                )
        self._read, self._rest = self._before, b""
        if self._decoder.needs_header and self._before.size:
            self._find_header()

    def _at_limit(self) -> bool:
        until = self._until
        return until is not None and (self._lost or self._before.size >= until.offset)

    # Reading

    def _next(self, size: int, timeout: float, most: int) -> list[_Block]:
        """Read on, at most so many lines."""
        rest = self._ahead[size:]
        try:
            data = self._ahead[:size] or self._reader.read(size, timeout)
            if data:
                end = len(data)
                if data.count(b"\n") > most:
                    end = int(np.flatnonzero(np.frombuffer(data, np.uint8) == _BREAK)[most - 1]) + 1
                self._ahead = data[end:] + rest
                return self._take(data[:end])
            is_replaced = self._options.follow and self._is_replaced()
        except ReplacedError:
            is_replaced = True
        except DamagedError as error:
            return self._break_off(error)
        if is_replaced:
            self._find(self._before.size, self._before.fingerprint)
            return []
        return [] if data is None else self._finish()

    def _take(self, data: bytes) -> list[_Block]:
        """Return the complete lines; keep the rest."""
        blocks = []
        end = data.find(b"\n")
        first = data if end < 0 else data[: end + 1]
        after = self._read.extend(first)
        self._read = self._read.extend(data)
        size = after.size - self._before.size - (end >= 0)
        if size <= MAX_LINE_BYTES:
            data, self._rest = self._rest + data, b""
        elif b"\n" in self._rest:
            self._decoder.break_row(self._line + 1, f" for more than {MAX_LINE_BYTES:,} bytes")
            return []
        else:
            self._rest = (self._rest[:RAW_BYTES] + first[:RAW_BYTES]).rstrip(b"\n")[:RAW_BYTES]
            if end < 0:
                return []
            blocks.append(self._overlong(size, after))
            data = data[end + 1 :]
        while self._decoder.needs_header and (end := data.find(b"\n") + 1):  # up to the header
            blocks.append(self._block(data[:end]))
            data = data[end:]
        end = data.rfind(b"\n") + 1
        if end:
            blocks.append(self._block(data[:end]))
        self._rest += data[end:]
        return blocks

    def _finish(self) -> list[_Block]:
        """End, for good unless there is a limit; return the last line if it has no line end but is whole."""
        self.ended = True
        if self._until is not None:
            self._refuse_short(self._until)
            return self._last_line()
        self._done = True
        if not self._may_be_torn() or b"\n" in self._rest:
            return self._last_line()
        self._leave(
            f"the last line of {self._title} (line {self._line + 1}) has no line end and was not taken:"
            " --final takes it"
        )
        return []

    def _last_line(self) -> list[_Block]:
        """Return what there is of a line that will get no line end."""
        size = self._read.size - self._before.size
        if not size:
            return []
        if size > MAX_LINE_BYTES and b"\n" not in self._rest:
            return [self._overlong(size, self._read)]
        return [self._block(self._rest, last=True)]

    def _may_be_torn(self) -> bool:
        """Whether the line without a line end may be a part: it is not of a pipe, nor a whole JSON object."""
        text = (self._rest if self._before.size else self._rest.removeprefix(BOM)).strip()
        if not text or self._options.final or not self._reader.seekable:
            return False
        overlong = self._read.size - self._before.size > MAX_LINE_BYTES
        if overlong or self._is_csv or not text.endswith(b"}"):
            return True
        try:
            msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (ValueError, RecursionError):
            return True
        return False

    def _break_off(self, error: DamagedError) -> list[_Block]:
        """End where compressed data do; the position stays before, so that a mended file is read on."""
        if self._until is not None:
            self._refuse_short(self._until, f" ({error})")
        self.ended = self._done = True
        where = f"{self._title} cannot be read beyond line {self._line}"
        if isinstance(error, CutError) and self._reader.seekable and not self._options.final:
            self._leave(
                f"{where}: {error}. It was cut off, or is still being written: run again when it is whole"
            )
        else:
            self.damage = f"{where}: {error}. Restore it, and run again"
            log.error("%s", self.damage)
        return []

    def _leave(self, why: str) -> None:
        self.unfinished = why
        log.warning("%s", why)

    def _refuse_short(self, until: _Position, why: str = "") -> None:
        if self._read.size < until.offset:
            raise ValueError(
                f"{self._title} ends at byte {self._read.size}{why}, but was read up to byte {until.offset}"
                " before"
            )

    # Decoding

    def _overlong(self, size: int, after: Prefix) -> _Block:
        """Return a reject in the place of the line at the front; what follows it begins ``after``."""
        before, start = self._before, self._position()
        self._line += after.tail.endswith(b"\n")
        self._before = after
        raw, self._rest = self._rest, b""
        return _Block(self._title, raw, [too_long(size)], None, before, start, self._position())

    def _block(self, data: bytes, *, last: bool = False) -> _Block:
        """Return the events of whole lines, and keep a row that goes on behind them unless it is the last."""
        before, start, reader = self._before, self._position(), self._reader
        if self._decoder.needs_order:
            with closing(self._first_lines()) as first:
                # Of a pipe, only its first row can tell.
                lines = first if reader.seekable else data.split(b"\n", 1)[:1]
                self._decoder.find_order(lines, again=reader.seekable and self._read.size <= MAX_LINE_BYTES)
        events, ends, size = self._decoder.decode(data, self._line, begins=not before.size, last=last)
        data, self._rest = data[:size], data[size:]
        self._before = before.extend(data)
        self._line += len(events) if ends is None and data.endswith(b"\n") else data.count(b"\n")
        self._decoder.note(is_wide=reader.is_wide)
        return _Block(self._title, data, events, ends, before, start, self._position())

    def _find_header(self) -> None:
        """Take the header, the first line that is not blank, if it is there already."""
        with closing(self._first_lines(last=True)) as lines:
            self._decoder.find_header(lines)

    def _first_lines(self, *, last: bool = False) -> Generator[bytes]:
        """Yield the lines of the first MiB, or to the ``last`` one; the reader is then where it was."""
        rest, left, data = b"", MAX_LINE_BYTES, None
        with suppress(DamagedError, ReplacedError):  # reading the events will say so
            try:
                self._reader.seek(0)
                while left > 0 and (data := self._reader.read(min(left, _BLOCK[0]), 0.0)):
                    left -= len(data)
                    *lines, rest = (rest + data).split(b"\n")
                    yield from lines
                if last and data == b"":
                    yield rest
            finally:
                self._reader.seek(self._read.size)
                self._ahead = b""
