"""The file at a path, and those that follow it there: rotation by renaming, or by copying and truncating.

``log`` becomes ``log.1`` (or ``log-20261122``, ``log.old``; perhaps compressed, as ``log.1.gz``), and another
``log`` takes its place. The old file is read to its end first. That end is certain once the next file holds
something, because a writer has then closed the old one. Files are told apart by inode while they are open,
and by the fingerprint of what was read of them after a restart. What cannot be found for certain is refused.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from streamcal_connectors.paths import ROTATED
from streamcal_connectors.readers import END_BYTES, ByteReader, Prefix, ReplacedError, identity, open_reader

__all__ = ["Fingerprint", "Input", "PathInput", "SingleInput"]

Fingerprint = list[int]
"""Value of `Prefix.fingerprint`, as it is kept in positions."""

_PIPE: Final = "To read it as well, send it through a pipe"

log = logging.getLogger("streamcal_connectors")


class SingleInput:
    """Bytes of what is open already, such as standard input; nothing follows.

    Parameters
    ----------
    reader
        Reader of it, at its beginning.
    remedy
        Advice for when it was replaced by something else.
    """

    def __init__(self, reader: ByteReader, remedy: str = _PIPE) -> None:
        self.remedy = remedy
        self._reader = reader

    def open(self) -> ByteReader:
        """Return the reader."""
        return self._reader

    def find(self, offset: int, fingerprint: Fingerprint | None) -> tuple[ByteReader, Prefix]:
        """Go to an offset; see `PathInput`."""
        return self._reader, _check(self._reader, offset, fingerprint)

    def successor(self, reader: ByteReader) -> None:
        """Return None."""

    def waiting(self, reader: ByteReader) -> int:  # noqa: ARG002  # nothing follows
        """Return 0."""
        return 0


class _File(NamedTuple):
    path: Path
    status: os.stat_result
    age: tuple[int, ...]
    """Greater for a newer one, by its name."""


class PathInput:
    """Bytes of the file at a path, and of those that follow it there.

    Parameters
    ----------
    path
        Path of the newest file.
    follow
        Whether to wait for more at the end of a file.
    """

    remedy = "To read it as well, move it to a new name"

    def __init__(self, path: Path, *, follow: bool) -> None:
        self._path = path
        self._follow = follow

    def open(self) -> ByteReader:
        """Return a reader of the file at the path; OSError if it cannot be opened."""
        return self._reader(self._path)

    def find(self, offset: int, fingerprint: Fingerprint | None) -> tuple[ByteReader, Prefix]:
        """Return a reader of the file whose first bytes have a fingerprint, at an offset, and those bytes.

        It is looked for at the path, then among the rotated files, the newest first. None is any fingerprint.

        Raises
        ------
        ReplacedError
            If there is none.
        """
        reader = self.open()
        try:
            return reader, _check(reader, offset, fingerprint)
        except ReplacedError:
            reader.close()
            if fingerprint is None:
                raise
            for old in reversed(self._rotated()):
                reader = self._reader(old.path)
                try:
                    prefix = _check(reader, offset, fingerprint)
                except ReplacedError:
                    reader.close()
                else:
                    log.info("%s was rotated: reading on in %s", self._path, old.path)
                    return reader, prefix
            raise

    def successor(self, reader: ByteReader) -> ByteReader | None:
        """Return a reader of the file that follows, which is not empty; None if there is none yet.

        Raises
        ------
        ReplacedError
            If it is not certain which file follows.
        """
        following = self._following(reader)
        if following is None:
            if self._follow:
                raise ReplacedError("another file has taken its place, and it is not beside it any more")
            return None
        if not following:
            return None
        try:
            opened = self._reader(following[0].path)
        except FileNotFoundError:  # renamed in this moment
            return None
        if opened.identity != identity(following[0].status):
            opened.close()
            return None
        log.info("%s was rotated: going on with the file that followed", self._path)
        return opened

    def waiting(self, reader: ByteReader) -> int:
        """Return how many bytes the files hold that follow."""
        return sum(each.status.st_size for each in self._following(reader) or ())

    def _following(self, reader: ByteReader) -> list[_File] | None:
        """Return the files after the one that is read that hold something; None if that one is not there."""
        newest = _look(self._path, (0,))
        if not newest or identity(newest[0].status) == reader.identity:
            return []
        files = [*self._rotated(), *newest]
        identities = [identity(each.status) for each in files]
        if reader.identity not in identities:
            return None
        return [each for each in files[identities.index(reader.identity) + 1 :] if each.status.st_size]

    def _rotated(self) -> list[_File]:
        """Return the files that were at the path before, the oldest first."""
        found: list[_File] = []
        own = self._path.name
        names = {each.name for each in self._path.parent.iterdir()}
        for name in names:
            match = ROTATED.fullmatch(name, len(own)) if name.startswith(own) else None
            if match is None or (match[2] and name.removesuffix(match[2]) in names):  # it is being compressed
                continue
            digits = [int(each) for each in re.findall(r"\d+", match[1])]
            is_count = len(digits) == 1 and digits[0] < 1000  # .1 is the newest; of dates, the greatest is
            found += _look(self._path.with_name(name), (-digits[0],) if is_count else tuple(digits))
        return sorted(found, key=lambda file: (file.status.st_mtime_ns, file.age))

    def _reader(self, path: Path) -> ByteReader:
        is_gzip = ".gz" in (path.suffix, self._path.suffix)
        return open_reader(path, follow=self._follow, is_gzip=is_gzip)


def _look(path: Path, age: tuple[int, ...]) -> list[_File]:
    """Return what is at a path: one file, or none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return []
    return [_File(path, status, age)] if stat.S_ISREG(status.st_mode) else []


def _check(reader: ByteReader, offset: int, fingerprint: Fingerprint | None) -> Prefix:
    """Go to an offset, and compare what precedes it: its beginning first, which is quick in gzip too."""
    for end, known in ((min(offset, END_BYTES), 1), (offset, 2)):
        prefix = reader.seek(end)
        if fingerprint is not None and prefix.fingerprint[:known] != fingerprint[:known]:
            raise ReplacedError(f"its first {offset} bytes are not those that were read before")
    return prefix


Input: TypeAlias = SingleInput | PathInput
"""Where the bytes of a source come from: a pipe, or one file after the other."""
