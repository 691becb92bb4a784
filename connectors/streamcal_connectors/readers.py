"""Bytes from files and pipes, plain, gzip, UTF-16 or an array in JSON, and what tells one file from another.

A file that may grow is read to the end that it has now. Each read makes sure that what was read last is still
there: a file that was truncated, and perhaps written anew, is noticed and never read on in.
"""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import select
import stat
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from streamcal.run.ports import PositionError

END_BYTES: Final = 4096
"""Number of bytes at either end of what was read that tell files apart."""

Fingerprint: TypeAlias = list[int]
"""Value of `Prefix.fingerprint`, as it is kept in positions."""

T = TypeVar("T")

_BEFORE: Final = re.compile(r"[ \t\r\n]*(\[[ \t\r\n]*)?")
_ARRAY: Final = re.compile(r"[ \t\r\n]*\[[ \t\r\n]*\{")
_MARK: Final = re.compile(r"[ \t\r\n]*([\[,\]])[ \t\r\n]*")
_JSON: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)  # only its end counts
_NO_TEXT: Final = {  # what files of other formats begin with
    b"\x1f\x8b": "it is compressed by gzip: let its name end in .gz",
    b"PK\x03\x04": "it is a zip archive, as of Excel: save the sheet as CSV, or unpack it",
    b"PAR1": "it is Parquet: let its name end in .parquet",
    b"ARROW1": "it is Arrow: let its name end in .arrow",
    **dict.fromkeys((b"<!", b"<?", b"<html"), "it is HTML or XML: fetch the file itself"),
}
_LONGEST: Final = 1 << 20  # characters of an element
_STEP: Final = 1 << 22  # bytes to skip at a time
_TAIL_SECONDS: Final = 0.05  # between two checks of a file that may grow


class DamagedError(Exception):
    """Nothing more can be read; the message says why."""


class CutError(DamagedError):
    """The file ends within a gzip member or an array: it is still being written, or was cut off."""


class ReplacedError(ValueError):
    """The file no longer holds what was read from it."""


class Prefix(NamedTuple):
    """The bytes of a file up to an offset: how many, and those at both ends."""

    size: int = 0
    head: bytes = b""
    tail: bytes = b""

    def extend(self, data: bytes) -> Prefix:
        """Return the prefix that is longer by some bytes."""
        return Prefix(
            self.size + len(data),
            self.head + data[: END_BYTES - len(self.head)],
            (self.tail + data[-END_BYTES:])[-END_BYTES:],
        )

    @property
    def fingerprint(self) -> Fingerprint:
        """Checksums of the first and of the last bytes: those of another file differ."""
        return [zlib.crc32(self.head), zlib.crc32(self.tail)]


class ByteReader:
    """Reads bytes of a file from where its descriptor stands, or of a pipe.

    Parameters
    ----------
    descriptor
        File descriptor, open to read.
    follow
        Whether to wait at the end of a file, which may grow.
    owned
        Whether `close` closes the descriptor.

    Attributes
    ----------
    identity
        Device and inode; see `identity`.
    seekable
        Whether it is a file, so that `seek` works.
    follows
        Whether it waits for more at the end.
    """

    def __init__(self, descriptor: int, *, follow: bool = False, owned: bool = True) -> None:
        status = os.fstat(descriptor)
        self.identity = identity(status)
        self.seekable = stat.S_ISREG(status.st_mode)
        self.follows = follow and self.seekable
        self._descriptor = descriptor
        self._owned = owned
        self._start = os.lseek(descriptor, 0, os.SEEK_CUR) if self.seekable else 0
        self._read = Prefix()

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes, ``b""`` at the end, or None if none came in time.

        Raises
        ------
        ReplacedError
            If what was read last is no longer there.
        DamagedError
            If compressed data end too early, or are damaged; all bytes before that were returned.
        """
        if not self.seekable:
            if not select.select([self._descriptor], [], [], timeout)[0]:
                return None
            try:
                return os.read(self._descriptor, size)
            except BlockingIOError:
                return None
        data = os.read(self._descriptor, size)
        tail = self._read.tail
        there = os.pread(self._descriptor, len(tail), self._start + self._read.size - len(tail))
        if there != tail:
            raise ReplacedError(
                f"its first {self._read.size} bytes are no longer those that were read from it"
            )
        self._read = self._read.extend(data)
        if data or not self.follows:
            return data
        time.sleep(min(timeout, _TAIL_SECONDS))
        return None

    def seek(self, offset: int) -> Prefix:
        """Go to an offset in the bytes that `read` returns; return what precedes it.

        Raises
        ------
        ReplacedError
            If they end before it.
        """
        size = os.fstat(self._descriptor).st_size - self._start
        if offset > size:
            raise ReplacedError(f"it has {size} bytes, but {offset} were read from it before")
        os.lseek(self._descriptor, self._start + offset, os.SEEK_SET)
        ends = min(offset, END_BYTES)
        head = os.pread(self._descriptor, ends, self._start)
        tail = os.pread(self._descriptor, ends, self._start + offset - ends)
        self._read = Prefix(offset, head, tail)
        return self._read

    def left(self) -> int | None:
        """Return how many bytes of the file were not read yet; None if that is unknown."""
        if not self.seekable:
            return None
        return os.fstat(self._descriptor).st_size - self._start - self._read.size

    def close(self) -> None:
        """Release; may be called twice."""
        if self._owned:
            os.close(self._descriptor)
            self._owned = False


class GzipReader(ByteReader):
    """Decompresses gzip with any number of members."""

    _member: Any = None
    _input = b""
    _full = False  # the last read gave as much as was asked for: the input may hold more
    _damage: str | None = None

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes; see `ByteReader`."""
        while self._damage is None:
            if not self._input and not self._full:
                more = super().read(size, timeout)
                if more is None:
                    return None
                if not more:
                    if self._member is not None:
                        raise CutError("it ends within a gzip member")
                    return b""
                self._input = more
            if self._member is None:
                self._input = self._input.lstrip(b"\0")  # members may be padded with zeros
                if not self._input:
                    self._full = False
                    continue
                self._member = zlib.decompressobj(wbits=31)
            data = self._inflate(size)
            self._full = len(data) == size
            if data:
                return data
        raise DamagedError(f"the gzip data are damaged ({self._damage})")

    def seek(self, offset: int) -> Prefix:
        """Go to an offset in the uncompressed bytes, by decompressing up to there; see `ByteReader`."""
        super().seek(0)
        self._member, self._input, self._full, self._damage = None, b"", False, None
        return _skip(self, offset)

    def left(self) -> int | None:
        """Return how many compressed bytes were not read yet, or not decompressed."""
        left = super().left()
        return None if left is None else left + len(self._input) + self._full

    def _inflate(self, size: int) -> bytes:
        """Decompress what was read; where it is damaged, return all before, however the reads were cut."""
        before = self._member.copy()
        try:
            data: bytes = self._member.decompress(self._input, size)
        except zlib.error as error:
            self._damage, whole = str(error), bytearray()
            with suppress(zlib.error):
                for byte in self._input:
                    whole += before.decompress(bytes((byte,)))
            return bytes(whole)
        self._input = self._member.unconsumed_tail
        if self._member.eof:
            self._input, self._member = self._member.unused_data, None
        return data


class TextReader:
    """Reads UTF-8 from another reader: UTF-16 is recoded, and an array in JSON comes out in lines.

    The first bytes say which it is: a byte order mark, and a first element that is an object. All else comes
    out as it is. Offsets are those of what comes out. See `ByteReader`.

    Parameters
    ----------
    reader
        the other one, at its beginning.
    arrays
        whether it may hold an array in JSON.
    encoding
        the encoding, where that is neither UTF-8 nor told by the first bytes.
    """

    def __init__(self, reader: ByteReader, *, arrays: bool, encoding: str | None = None) -> None:
        self._reader = reader
        self._arrays = arrays
        self._encoding = encoding
        self.identity, self.seekable, self.follows = reader.identity, reader.seekable, reader.follows
        self.close = reader.close
        self._begin()

    def _begin(self) -> None:
        self.is_wide = self.is_array = self._is_plain = self._is_closed = False
        self._decoder: codecs.IncrementalDecoder | None = None  # none before it is known what it is
        self._head, self._text, self._out = b"", "", bytearray()
        self._elements = 0
        self._failure: DamagedError | None = None

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes; see `ByteReader`."""
        while not self._out:
            if self._is_plain:
                return self._reader.read(size, timeout)
            if self._failure is not None:
                raise self._failure
            data = self._reader.read(max(size, END_BYTES), timeout)
            if data is None:
                return None
            self._take(data)
            if not data and self._failure is None:
                break
        data = bytes(self._out[:size])
        del self._out[:size]
        return data

    def seek(self, offset: int) -> Prefix:
        """Go to an offset in the bytes that `read` returns; see `ByteReader`."""
        self._reader.seek(0)
        self._begin()
        if offset:
            with suppress(DamagedError):
                self.read(0, 0.0)  # tells what it is
        if not self._is_plain:
            return _skip(self, offset)
        self._out.clear()
        return self._reader.seek(offset)

    def left(self) -> int | None:
        """Return about how many bytes were not read yet."""
        left = self._reader.left()
        return None if left is None else left + len(self._text) + len(self._out)

    def _take(self, data: bytes) -> None:
        """Take bytes that were read; none is the end."""
        head = data
        if self._decoder is None:
            head = self._head = self._head + data
            for begin, words in _NO_TEXT.items():
                if head.startswith(begin):
                    self._failure = DamagedError(words)
                    return
            self._decoder = self._told(at_end=not data)
            if self._decoder is None:
                return
            self._head = b""
        if self._is_plain:
            self._out += head
            return
        text = self._decoder.decode(head)
        if self.is_array:
            text = self._lines_of(text, at_end=not data)
        self._out += text.encode(errors=self._decoder.errors)

    def _told(self, *, at_end: bool) -> codecs.IncrementalDecoder | None:
        """Find out what it is, and return its decoder; None if more bytes are needed."""
        self.is_wide = self._head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        name, errors = self._encoding or "utf-8-sig", "surrogateescape"  # wrong bytes come out as they are
        if self.is_wide:
            name, errors = "utf-16", "surrogatepass"
        decoder = codecs.getincrementaldecoder(name)(errors)
        text = decoder.decode(self._head) if self._arrays else ""
        half = self._head in (b"\xff", b"\xfe") or (self._arrays and _BEFORE.fullmatch(text))
        if half and not at_end and len(self._head) < _LONGEST:
            return None
        decoder.reset()
        self.is_array = _ARRAY.match(text) is not None
        self._is_plain = not (self.is_wide or self.is_array or self._encoding)
        return decoder

    def _lines_of(self, text: str, *, at_end: bool) -> str:
        """Return the elements that are complete, one a line; keep the rest."""
        lines = list[str]()
        text, at, why, is_cut = self._text + text, 0, "", True
        while not self._is_closed:
            mark = _MARK.match(text, at)
            if mark is None or (mark[1] == "[" and self._elements):
                why, is_cut = "Expecting ',' or ']'", not text[at:].strip()
                break
            if mark[1] == "]":
                self._is_closed, at = True, mark.end()
                break
            try:
                end = _JSON.raw_decode(text, mark.end())[1]
            except (ValueError, RecursionError) as error:
                why = getattr(error, "msg", str(error))
                is_cut = getattr(error, "pos", 0) >= len(text) or why.startswith("Unterminated")
                break
            if end - at > _LONGEST or (end == len(text) and not at_end):  # a number may go on
                why = "it is too long"
                break
            lines.append(text[mark.end() : end].replace("\n", " ").replace("\r", " ") + "\n")
            self._elements, at = self._elements + 1, end
        self._text = text[at:]
        if self._is_closed:
            if self._text.strip():
                self._failure = DamagedError("something follows the end of the array")
        elif len(self._text) > _LONGEST or (at_end and not is_cut):
            self._failure = DamagedError(f"element {self._elements + 1:,} of the array is not JSON: {why}")
        elif at_end:
            self._failure = CutError("it ends within the array")
        return "".join(lines)


def _skip(reader: GzipReader | TextReader, offset: int) -> Prefix:
    """Read up to an offset, in a reader at its beginning; return what precedes it."""
    prefix = Prefix()
    while prefix.size < offset:
        try:
            data = reader.read(min(offset - prefix.size, _STEP), 0.0)
        except DamagedError:
            data = None
        if not data:
            raise ReplacedError(f"it holds {prefix.size} bytes, but {offset} were read from it before")
        prefix = prefix.extend(data)
    return prefix


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return device and inode, which tell files apart while they exist."""
    return status.st_dev, status.st_ino


def open_reader(path: Path, *, follow: bool) -> ByteReader:
    """Open a file or a named pipe, gzip by its name; waits for no writer of a pipe.

    Raises
    ------
    OSError
        if it cannot be opened, or is a directory.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return (GzipReader if path.suffix == ".gz" else ByteReader)(descriptor, follow=follow)


def read_position(position: object, kind: type[T], where: str) -> T:
    """Return a position as it was kept; PositionError if it is none of this kind."""
    try:
        return msgspec.convert(position, kind)
    except ValueError as error:  # of msgspec; of half surrogates
        raise PositionError(f"{position!r} is no position in {where}: {error}") from None
