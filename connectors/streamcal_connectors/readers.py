"""Bytes from files and pipes, plain, gzip or UTF-16, and what tells one file from another.

A file that may grow is read to the end that it has now. Each read makes sure that what was read last is still
there: a file that was truncated, and perhaps written anew, is noticed and never read on in.
"""

from __future__ import annotations

import codecs
import errno
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

_NO_LINES: Final = {  # what files of other formats begin with
    rb"\x1f\x8b": "it is compressed by gzip: let its name end in .gz",
    rb"PK\x03\x04": "it is a zip archive, as of Excel: save the sheet as CSV, or unpack it",
    rb"PAR1": "it is Parquet: let its name end in .parquet",
    rb"ARROW1": "it is Arrow: let its name end in .arrow",
    rb"<!|<\?|<html": "it is HTML or XML: fetch the file itself",
    rb"\s*\[\s*\{": "it is an array in JSON: write an object a line, as `jq -c '.[]'` does",
}
_STEP: Final = 1 << 22  # bytes to skip at a time
_TAIL_SECONDS: Final = 0.05  # between two checks of a file that may grow


class DamagedError(Exception):
    """Nothing more can be read; the message says why."""


class CutError(DamagedError):
    """The file ends within a gzip member: it is still being written, or was cut off."""


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
    """Reads UTF-8 from another reader: UTF-16, which its mark tells, or a named encoding is recoded.

    UTF-8 comes out as it is. Offsets are those of what comes out. See `ByteReader`.

    Parameters
    ----------
    reader
        the other one, at its beginning.
    encoding
        the encoding, where that is neither UTF-8 nor told by the first bytes.
    """

    def __init__(self, reader: ByteReader, *, encoding: str | None = None) -> None:
        self._reader = reader
        self._encoding = encoding
        self.identity, self.seekable, self.follows = reader.identity, reader.seekable, reader.follows
        self.close = reader.close
        self._begin()

    def _begin(self) -> None:
        self._is_known = self.is_wide = False
        self._decoder: codecs.IncrementalDecoder | None = None  # of UTF-8, none
        self._out = b""

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes; see `ByteReader`."""
        while not self._out:
            if self._is_known and self._decoder is None:
                return self._reader.read(size, timeout)
            data = self._reader.read(max(size, END_BYTES), timeout)
            if data is None:
                return None
            if not self._is_known:
                self._tell(data)
            self._out = data if self._decoder is None else self._recoded(self._decoder, data)
            if not data:
                break
        data, self._out = self._out[:size], self._out[size:]
        return data

    def seek(self, offset: int) -> Prefix:
        """Go to an offset in the bytes that `read` returns; see `ByteReader`."""
        self._reader.seek(0)
        self._begin()
        if not offset:
            return Prefix()
        try:
            self.read(0, 0.0)  # tells what it is
        except DamagedError as error:
            raise ReplacedError(str(error)) from None
        if self._decoder is not None:
            return _skip(self, offset)
        self._out = b""
        return self._reader.seek(offset)

    def left(self) -> int | None:
        """Return about how many bytes were not read yet."""
        left = self._reader.left()
        return None if left is None else left + len(self._out)

    def _tell(self, data: bytes) -> None:
        """Find out by the first bytes what it is; DamagedError if they are of no text."""
        for begin, words in _NO_LINES.items():
            if re.match(begin, data):
                raise DamagedError(words)
        self.is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if self.is_wide:
            self._decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
        elif self._encoding is not None:  # wrong bytes come out as they are
            self._decoder = codecs.getincrementaldecoder(self._encoding)("surrogateescape")
        self._is_known = True

    @staticmethod
    def _recoded(decoder: codecs.IncrementalDecoder, data: bytes) -> bytes:
        return decoder.decode(data).encode(errors=decoder.errors)


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
