"""Bytes from files and pipes, plain or gzip, and what tells one file from another.

A file that may grow is read to the end that it has now. Each read makes sure that what was read last is still
there: a file that was truncated, and perhaps written anew, is noticed and never read on in.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from streamcal.run.ports import PositionError

__all__ = [
    "END_BYTES",
    "ByteReader",
    "CutGzipError",
    "DamagedGzipError",
    "Fingerprint",
    "GzipReader",
    "Input",
    "Prefix",
    "ReplacedError",
    "identity",
    "open_reader",
    "read_position",
]

END_BYTES: Final = 4096
"""Number of bytes at either end of what was read that tell files apart."""

Fingerprint: TypeAlias = list[int]
"""Value of `Prefix.fingerprint`, as it is kept in positions."""

T = TypeVar("T")

_STEP: Final = 1 << 22  # bytes to skip at a time
_TAIL_SECONDS: Final = 0.05  # between two checks of a file that may grow


class DamagedGzipError(Exception):
    """Nothing more can be read; the message says why."""


class CutGzipError(DamagedGzipError):
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
        DamagedGzipError
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
                        raise CutGzipError("it ends within a gzip member")
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
        raise DamagedGzipError(self._damage)

    def seek(self, offset: int) -> Prefix:
        """Go to an offset in the uncompressed bytes, by decompressing up to there; see `ByteReader`."""
        super().seek(0)
        self._member, self._input, self._full, self._damage = None, b"", False, None
        prefix = Prefix()
        while prefix.size < offset:
            try:
                data = self.read(min(offset - prefix.size, _STEP), 0.0)
            except DamagedGzipError:
                data = None
            if not data:
                raise ReplacedError(f"it holds {prefix.size} bytes, but {offset} were read from it before")
            prefix = prefix.extend(data)
        return prefix

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


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return device and inode, which tell files apart while they exist."""
    return status.st_dev, status.st_ino


def open_reader(path: Path, *, follow: bool, is_gzip: bool) -> ByteReader:
    """Open a file or a named pipe; waits for no writer of a pipe.

    Raises
    ------
    OSError
        if it cannot be opened, or is a directory.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return (GzipReader if is_gzip else ByteReader)(descriptor, follow=follow)


class Input:
    """Where the bytes of a source come from: a path, or what is open already, such as standard input.

    Parameters
    ----------
    source
        Path of a file, or a reader at its beginning.
    follow
        Whether to wait for more at the end of the file at the path.
    remedy
        Advice for when it was replaced by something else.
    """

    def __init__(self, source: Path | ByteReader, remedy: str, *, follow: bool = False) -> None:
        self.remedy = remedy
        self._source = source
        self._follow = follow

    def open(self) -> ByteReader:
        """Return a reader of it; OSError if it cannot be opened."""
        if isinstance(self._source, ByteReader):
            return self._source
        return open_reader(self._source, follow=self._follow, is_gzip=self._source.suffix == ".gz")

    def find(
        self, reader: ByteReader, offset: int, fingerprint: Fingerprint | None
    ) -> tuple[ByteReader, Prefix]:
        """Return a reader at an offset, and what precedes it, if that has a fingerprint; None is any.

        Raises
        ------
        ReplacedError
            If it has another.
        """
        if self._is_replaced(reader):
            reader = self.open()
        for end, known in (
            (min(offset, END_BYTES), 1),
            (offset, 2),
        ):  # its beginning first: quick in gzip too
            prefix = reader.seek(end)
            if fingerprint is not None and prefix.fingerprint[:known] != fingerprint[:known]:
                raise ReplacedError(f"its first {offset} bytes are not those that were read before")
        return reader, prefix

    def check(self, reader: ByteReader) -> None:
        """Raise ReplacedError if a file that is followed is not the one at its path any more."""
        if self._follow and self._is_replaced(reader):
            raise ReplacedError("another file has taken its place")

    def _is_replaced(self, reader: ByteReader) -> bool:
        try:
            return isinstance(self._source, Path) and identity(self._source.stat()) != reader.identity
        except FileNotFoundError:  # in the middle of it
            return False


def read_position(position: object, kind: type[T], where: str) -> T:
    """Return a position as it was kept; PositionError if it is none of this kind."""
    try:
        return msgspec.convert(position, kind)
    except ValueError as error:  # of msgspec; of half surrogates
        raise PositionError(f"{position!r} is no position in {where}: {error}") from None
