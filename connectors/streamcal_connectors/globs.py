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
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from streamcal.base.errors import ColumnsError
from streamcal.events import Event, Origin
from streamcal.events.fields import Malformed
from streamcal.run.ports import Batch, FileSource, Positions, Source, SourceOptions
from streamcal_connectors.readers import read_position

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
    matches = sorted(Path(each) for each in glob.glob(str(path), recursive=True))  # noqa: PTH207  # also absolute
    found = [each for each in matches if not each.is_dir()]
    if not found:
        raise FileNotFoundError(errno.ENOENT, f"no file matches the pattern '{path}'")
    return found


def refuse_among(path: Path, title: str, several: Iterable[tuple[str, Path]]) -> None:
    """Raise ValueError if an output would be one of the files that are read.

    Parameters
    ----------
    path, title
        Path of the output, absolute, and its name in the message.
    several
        Patterns and directories that are read: the name in the message, and the absolute path.
    """
    for pattern, there in several:
        if "**" in there.parts:
            among = any(fnmatch(str(path), str(there).replace("**/", deep)) for deep in ("**/", ""))
        else:
            among = path.match(str(there)) or path.parent == there
        if among:
            raise ValueError(f"{title} would be one of the files that {pattern} reads: write it elsewhere")


class Member(NamedTuple):
    """One of several files."""

    name: str
    """Name in positions."""
    title: str
    """Name in messages."""
    size: int
    """Size in bytes."""
    mark: str
    """Text that tells it from another one of the same name."""
    open: Callable[[], Source]


def member(path: Path, open_one: Callable[[Path], Source]) -> Member:
    """Return a file as one of several; its size tells it from another."""
    size = path.stat().st_size
    name = os.fsencode(path.absolute()).decode(errors="backslashreplace")
    return Member(name, str(path), size, str(size), partial(open_one, path))


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Position(msgspec.Struct):
    """Position of the next event."""

    files: _Count = 0
    """Number of files that were read to their end."""
    before: int = 0
    """Checksum of their names and marks."""
    file: str = ""
    """Name of the next one."""
    at: Any = None
    """Position in it, as its own source gives it; None: at its beginning."""


class _Part(NamedTuple):
    """Events of one of the files; see `streamcal.run.ports.Batch`."""

    batch: Batch
    where: dict[str, Any]
    events: Sequence[Event | Malformed]
    partition: str = ""

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index; its ``source`` is the file."""
        return self.batch.origin(index)

    def position(self, count: int) -> dict[str, Any]:
        """Return the position after the first ``count`` events."""
        return {**self.where, "at": self.batch.position(count)}


class FilesSource:
    """Reads several files one after the other; see `streamcal.run.ports.Source`.

    Parameters
    ----------
    name
        Name of the pattern in positions.
    title
        Pattern as it was given.
    members
        Files, sorted by name; at least one.
    options
        Options of reading.

    Raises
    ------
    OSError, ValueError
        If the first cannot be opened; or if they are to be followed.
    """

    endless = False

    def __init__(self, name: str, title: str, members: Sequence[Member], options: SourceOptions) -> None:
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
        self._sums = [0]  # by index: the checksum of the files before
        for each in members:
            self._sums.append(zlib.crc32(f"{each.name}\0{each.mark}\n".encode(), self._sums[-1]))
        self._until: _Position | None = None
        self._current = members[0].open()
        self.kept: Mapping[str, Any] = getattr(self._current, "kept", {})

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Counts of fields that were ignored so far because events have no such field, by name."""
        return self._unknown + Counter(self._current.unknown_fields)

    def seek(self, positions: Positions) -> Positions:
        """Go to a position; see `streamcal.run.ports.Source`."""
        given = positions.get("", {})
        position = read_position(given, _Position, "several files")
        names, index = [each.name for each in self._members], position.files
        where = (position.before, position.file)
        if given and (index >= len(names) or (self._sums[index], names[index]) != where):
            raise ValueError(
                f"{self._title}: the {index} files before {position.file} are not those that were read"
                f" before, or have grown; of {len(names)} now, {sum(name < position.file for name in names)}"
                " come before it. Put them back as they were; give new ones names that come after it in"
                " order; or start with a new store"
            )
        if index != self._index:
            self._turn_to(index)
        self.ended = False
        at = self._current.seek({} if position.at is None else {"": position.at}).get("")
        return {"": {**self._where(), "at": at}}

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing beyond these positions; see `streamcal.run.ports.Source`."""
        given = {} if positions is None else positions.get("", {})
        self._until = None if positions is None else read_position(given, _Position, "several files")
        self._limit_current()
        self.ended = self._at_limit()

    def poll(self, max_events: int, timeout: float) -> Sequence[_Part]:
        """Return the next events; see `streamcal.run.ports.Source`."""
        if self.ended:
            return ()
        where = self._where()
        try:
            found = [_Part(each, where, each.events) for each in self._current.poll(max_events, timeout)]
        except OSError as error:
            error.filename = error.filename or self._members[self._index].title
            raise
        if self._current.ended:
            self._end_file()
        return found

    def lag(self) -> Mapping[str, float]:
        """Return how many bytes of the files were not read yet."""
        later = sum(each.size for each in self._members[self._index + 1 :])
        return {"": self._current.lag().get("", 0.0) + later}

    def close(self) -> None:
        """Release; may be called twice."""
        self._current.close()

    def _where(self) -> dict[str, Any]:
        return {
            "files": self._index,
            "before": self._sums[self._index],
            "file": self._members[self._index].name,
        }

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
        self._unknown += Counter(current.unknown_fields)
        self._turn_to(self._index + 1)
        self._current.seek({})
        self._limit_current()

    def _turn_to(self, index: int) -> None:
        """Open a file in place of the one that is open."""
        self._index = index
        self._current.close()
        try:
            self._current = self._members[index].open()
        except ValueError as error:  # as of the first, for which the command has not begun yet
            raise ColumnsError(str(error)) from None
        kept: Mapping[str, Any] = getattr(self._current, "kept", {})
        if kept != self.kept:
            raise ColumnsError(
                f"{self._members[index].title} has other columns that pass through than"
                f" {self._members[0].title}: {_shown(kept)}; there, {_shown(self.kept)}. Read them apart, or"
                " give them the same"
            )

    def _limit_current(self) -> None:
        until = self._until
        if until is None or self._index < until.files:
            self._current.limit(None)
        else:
            at = until.at if self._index == until.files else None
            self._current.limit({} if at is None else {"": at})

    def _at_limit(self) -> bool:
        return self._until is not None and self._index >= self._until.files and self._current.ended


def _shown(kept: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in kept.items()) or "none"
