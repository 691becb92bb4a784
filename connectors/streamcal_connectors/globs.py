"""Several files as one source: those of a pattern or a directory, in the order of their names.

A position says how many files were read to their end, which they were, and where in the next one a run
stands. So what was added behind them is read, and what was changed, added or taken away before is noticed.
"""

from __future__ import annotations

import errno
import glob
import logging
import os
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from streamcal.events import Event, Origin
from streamcal.events.codec import Malformed
from streamcal.run.ports import Batch, FileSource, Positions, Source, SourceOptions, TableSource

__all__ = ["FilesSource", "Member", "files_at", "is_among", "member"]

_HIDDEN: Final = (".", "_")  # what other programs leave in a directory: _SUCCESS, .part-0.crc

log = logging.getLogger("streamcal_connectors")


def files_at(path: Path) -> list[Path] | None:
    """Return the files that a pattern or a directory stands for, sorted; None if the path is that of a file.

    In a directory, these are the files right in it whose names begin with neither ``.`` nor ``_``. What is
    there under a name with ``*``, ``?`` or ``[`` is no pattern. ``**`` is any number of directories.

    Raises
    ------
    OSError
        if there is none, or if a directory holds others.
    """
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if not each.name.startswith(_HIDDEN))
        inner = next((each for each in found if each.is_dir()), None)
        if inner is not None:
            raise OSError(
                f"the directory {path} holds others, such as {inner.name}: give a pattern of the files,"
                f" such as '{path}/**/*.parquet'"
            )
        if not found:
            raise FileNotFoundError(errno.ENOENT, f"there is no file in the directory {path}")
        return found
    if path.exists() or not glob.has_magic(str(path)):
        return None
    found = sorted(Path(each) for each in glob.glob(str(path), recursive=True))  # noqa: PTH207  # also absolute
    found = [each for each in found if not each.is_dir()]
    if not found:
        raise FileNotFoundError(errno.ENOENT, f"no file matches the pattern '{path}'")
    return found


def is_among(path: Path, several: Path) -> bool:
    """Whether a file at this path is one of those that a pattern or directory stands for; both absolute."""
    if "**" not in several.parts:
        return path.match(str(several)) or path.parent == several
    return any(fnmatch(str(path), str(several).replace("**/", deep)) for deep in ("**/", ""))


class Member(NamedTuple):
    """One of several files."""

    name: str
    """In positions."""
    title: str
    """In messages."""
    size: int
    """Bytes."""
    mark: str
    """Tells it from another one of the same name."""
    open: Callable[[], Source]


def member(path: Path, open_one: Callable[[Path], Source]) -> Member:
    """Return a file as one of several; its size tells it from another."""
    size = path.stat().st_size
    name = os.fsencode(path.absolute()).decode(errors="backslashreplace")
    return Member(name, str(path), size, str(size), partial(open_one, path))


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Position(msgspec.Struct):
    """The position of the next event."""

    files: _Count = 0
    """How many files were read to their end."""
    before: int = 0
    """A checksum of their names and marks."""
    file: str = ""
    """The next one."""
    at: Any = None
    """The position in it, as its own source gives it; None: at its beginning."""


class _Part:
    """Events of one of the files; see `streamcal.run.ports.Batch`."""

    partition = ""

    def __init__(self, batch: Batch, where: dict[str, Any]) -> None:
        self._batch = batch
        self._where = where
        self.events: Sequence[Event | Malformed] = batch.events

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index; its ``source`` is the file."""
        return self._batch.origin(index)

    def position(self, count: int) -> dict[str, Any]:
        """Return the position after the first ``count`` events."""
        return {**self._where, "at": self._batch.position(count)}


class FilesSource:
    """Reads several files one after the other; see `streamcal.run.ports.Source`.

    Parameters
    ----------
    name
        that of the pattern in positions.
    title
        the pattern as it was given.
    members
        the files, sorted by name; at least one.
    options
        how they are to be read.

    Raises
    ------
    OSError, ValueError
        if the first cannot be opened; or if they are to be followed.
    """

    endless = False

    def __init__(
        self,
        name: str,
        title: str,
        members: Sequence[Member],
        options: SourceOptions,
    ) -> None:
        if options.follow:
            raise ValueError(
                f"{title}: several files are read as they are now: leave out --follow, and run again for"
                " later ones"
            )
        self.name = name
        self.ended = False
        self.unfinished: str | None = None
        self.damage: str | None = None
        self._title = title
        self._members = members
        self._unknown: Counter[str] = Counter()  # of files that were read to their end
        self._index = 0
        self._before = 0
        self._until: _Position | None = None
        self._current = members[0].open()
        self.kept = self._current.kept if isinstance(self._current, TableSource) else {}

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """How often a field was ignored so far because events have no such field, by its name."""
        return self._unknown + Counter(self._current.unknown_fields)

    def seek(self, positions: Positions) -> Positions:
        """Go to a position; see `streamcal.run.ports.Source`."""
        given = positions.get("", {})
        try:
            position = msgspec.convert(given, _Position)
        except ValueError as error:
            raise TypeError(f"{given!r} is no position in several files: {error}") from None
        names, before = [each.name for each in self._members], 0
        for index in range(min(position.files, len(names))):
            before = self._chained(before, index)
        index = position.files
        if given and (index >= len(names) or before != position.before or names[index] != position.file):
            raise ValueError(
                f"{self._title}: the {index} files before {position.file} are not those that were read"
                f" before, or have grown; of {len(names)} now, {sum(name < position.file for name in names)}"
                " come before it. Put them back as they were; give new ones names that come after it in"
                " order; or start with a new store"
            )
        self._before = before
        if index != self._index:
            self._index = index
            self._turn_to(index)
        self.ended = False
        at = self._current.seek({} if position.at is None else {"": position.at}).get("")
        return {"": {**self._where(), "at": at}}

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing beyond these positions; see `streamcal.run.ports.Source`."""
        self._until = None if positions is None else msgspec.convert(positions.get("", {}), _Position)
        self._limit_current()
        self.ended = self._at_limit()

    def poll(self, max_events: int, timeout: float) -> Sequence[_Part]:
        """Return the next events; see `streamcal.run.ports.Source`."""
        if self.ended:
            return ()
        where = self._where()
        try:
            found = [_Part(batch, where) for batch in self._current.poll(max_events, timeout)]
        except OSError as error:
            error.filename = error.filename or self._members[self._index].title
            raise
        if self._current.ended:
            self._end_file()
        return found

    def lag(self) -> Mapping[str, float]:
        """Return how many bytes of the files were not read yet."""
        return {
            "": self._current.lag().get("", 0.0) + sum(each.size for each in self._members[self._index + 1 :])
        }

    def close(self) -> None:
        """Release; may be called twice."""
        self._current.close()

    def _where(self) -> dict[str, Any]:
        return {"files": self._index, "before": self._before, "file": self._members[self._index].name}

    def _end_file(self) -> None:
        """Go on with the next file, or end; nothing behind what was not read to its end is read."""
        current = self._current
        if isinstance(current, FileSource):
            self.unfinished, self.damage = current.unfinished, current.damage
        more = len(self._members) - 1 - self._index
        if not more or self._at_limit() or self.unfinished or self.damage:
            self.ended = True
            if self._until is not None and not self._at_limit():
                raise ValueError(f"{self._title}: cannot be read as far as it was before: {self._until.file}")
            if more and (self.unfinished or self.damage):
                log.warning("%s: the %d files behind it are not read", self._title, more)
            return
        self._before = self._chained(self._before, self._index)
        self._unknown += Counter(current.unknown_fields)
        self._index += 1
        self._turn_to(self._index)
        self._current.seek({})
        self._limit_current()

    def _turn_to(self, index: int) -> None:
        """Open a file in place of the one that is open."""
        self._current.close()
        self._current = self._members[index].open()
        kept = self._current.kept if isinstance(self._current, TableSource) else {}
        if kept != self.kept:
            raise ValueError(
                f"{self._members[index].title} has other columns that pass through than"
                f" {self._members[0].title}: {_shown(kept)}; there, {_shown(self.kept)}. Read them apart, or"
                " give them the same"
            )

    def _limit_current(self) -> None:
        until = self._until
        if until is None or self._index < until.files:
            self._current.limit(None)
        elif self._index > until.files or until.at is None:
            self._current.limit({})
        else:
            self._current.limit({"": until.at})

    def _at_limit(self) -> bool:
        return self._until is not None and self._index >= self._until.files and self._current.ended

    def _chained(self, before: int, index: int) -> int:
        """Return the checksum of the files up to and with one."""
        member = self._members[index]
        return zlib.crc32(f"{member.name}\0{member.mark}\n".encode(), before)


def _shown(kept: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in kept.items()) or "none"
