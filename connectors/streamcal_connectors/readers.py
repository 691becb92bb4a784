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
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

__all__ = [
    "END_BYTES",
    "ByteReader",
    "CutGzipError",
    "DamagedGzipError",
    "GzipReader",
    "Prefix",
    "RawReader",
    "ReplacedError",
    "identity",
    "open_reader",
]

END_BYTES: Final = 4096
"""How many bytes at either end of what was read tell files apart."""

_STEP: Final = 1 << 22  # bytes to skip at a time
_TAIL_SECONDS: Final = 0.05  # between two checks of a file that may grow


class DamagedGzipError(Exception):
    """Nothing more can be read; the message says why."""


class CutGzipError(Exception):
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
    def fingerprint(self) -> list[int]:
        """Checksums of the first and of the last bytes: those of another file differ."""
        return [zlib.crc32(self.head), zlib.crc32(self.tail)]


class ByteReader(Protocol):
    """Reads bytes from an offset on."""

    seekable: bool
    """Whether it is a file, so that `seek` works."""
    follows: bool
    """Whether it waits for more at the end."""

    @property
    def identity(self) -> tuple[int, int]:
        """What `identity` gives of it."""

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes, ``b""`` at the end, or None if none came in time.

        Raises
        ------
        ReplacedError
            if what was read last is no longer there.
        CutGzipError, DamagedGzipError
            if compressed data end too early, or are damaged; all bytes before that were returned.
        """

    def seek(self, offset: int) -> Prefix:
        """Go to an offset in the bytes that `read` returns, and return what precedes it.

        Raises
        ------
        ReplacedError
            if they end before it.
        """

    def left(self) -> int | None:
        """Return how many bytes of the file were not read yet; None if that is unknown."""

    def close(self) -> None:
        """Release; may be called twice."""


class RawReader:
    """A file from where its descriptor stands, or a pipe.

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
        status = os.fstat(descriptor)
        self.identity = identity(status)
        self.seekable = stat.S_ISREG(status.st_mode)
        self.follows = follow and self.seekable
        self._descriptor = descriptor
        self._owned = owned
        self._start = os.lseek(descriptor, 0, os.SEEK_CUR) if self.seekable else 0
        self._read = Prefix()

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes; see `ByteReader`."""
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
        """Go to an offset; see `ByteReader`."""
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
        """Return how many bytes of the file were not read yet."""
        if not self.seekable:
            return None
        return os.fstat(self._descriptor).st_size - self._start - self._read.size

    def close(self) -> None:
        """Release; may be called twice."""
        if self._owned:
            os.close(self._descriptor)
            self._owned = False


class GzipReader:
    """Decompresses gzip with any number of members."""

    def __init__(self, packed: RawReader) -> None:
        self._packed = packed
        self._member: Any = None
        self._input = b""
        self._full = False  # the last read gave as much as was asked for: the input may hold more
        self._damage: str | None = None
        self.identity = packed.identity
        self.seekable = packed.seekable
        self.follows = packed.follows

    def read(self, size: int, timeout: float) -> bytes | None:
        """Return some bytes; see `ByteReader`."""
        while self._damage is None:
            if not self._input and not self._full:
                more = self._packed.read(size, timeout)
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
        self._packed.seek(0)
        self._member, self._input, self._full, self._damage = None, b"", False, None
        prefix = Prefix()
        while prefix.size < offset:
            try:
                data = self.read(min(offset - prefix.size, _STEP), 0.0)
            except (CutGzipError, DamagedGzipError):
                data = None
            if not data:
                raise ReplacedError(f"it holds {prefix.size} bytes, but {offset} were read from it before")
            prefix = prefix.extend(data)
        return prefix

    def left(self) -> int | None:
        """Return how many compressed bytes were not read yet, or not decompressed."""
        left = self._packed.left()
        return None if left is None else left + len(self._input) + self._full

    def close(self) -> None:
        """Release; may be called twice."""
        self._packed.close()

    def _inflate(self, size: int) -> bytes:
        """Decompress what was read; where it is damaged, return all before, however the reads were cut."""
        before = self._member.copy()
        try:
            data: bytes = self._member.decompress(self._input, size)
        except zlib.error as error:
            self._damage = str(error)
            pieces: list[bytes] = []
            for byte in self._input:
                try:
                    pieces.append(before.decompress(bytes((byte,))))
                except zlib.error:
                    break
            return b"".join(pieces)
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
    raw = RawReader(descriptor, follow=follow)
    return GzipReader(raw) if is_gzip else raw
