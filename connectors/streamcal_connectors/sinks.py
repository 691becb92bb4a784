"""Where rows go: files, which are cut back to the last commit, and streams, which cannot be.

Nothing is lost that is not this run's own. A file is locked while it is open to be written. With a store, it
is cut back only if it is the file that the store knows: the same bytes stand before the recorded length.
Without one, it is replaced only if it holds rows of the kind that will be written.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import select
import stat
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import msgspec

from streamcal.base.errors import OutputError
from streamcal.run.ports import Position, Positions, RowKind, SinkOptions, StoppedError
from streamcal_connectors.encoding import RowEncoder, columns_of, is_row
from streamcal_connectors.readers import read_position

_TAIL_BYTES: Final = 4096  # before a recorded length, that tell one file from another
_HEAD_BYTES: Final = 1 << 20  # in which the first row must end
_PIPE_BYTES: Final = select.PIPE_BUF  # a pipe that can take something takes so much without waiting
_WAIT: Final = 0.2  # seconds between two questions whether to stop
_GRACE: Final = 25  # so many waits in a row, once the run is to stop, for a reader that takes nothing

log = logging.getLogger("streamcal_connectors")


def lock(descriptor: int, path: Path) -> None:
    """Lock a file that is open to be written; OutputError if another process has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise in_use(path) from None
    except OSError as error:  # a file system without locks
        log.warning("%s cannot be locked (%s): see to it that nothing else writes it", path, error)


def in_use(path: Path) -> OutputError:
    """Return the error of a file that another process is writing."""
    return OutputError(
        f"cannot write: {path} is in use by another process: let it end, or give another output"
    )


def no_rows(path: Path, size: int, rows: RowKind) -> ValueError:
    """Return the error of a file that holds something else than the rows that would replace it."""
    return ValueError(
        f"{path} has {size} bytes, which are no {rows} of a run of streamcal: move it away, or give another"
        " output"
    )


def refuse_store(name: object, job: str) -> None:
    """Raise ValueError if there is a store, as an output that is written at the end cannot be continued."""
    if job:
        raise ValueError(
            f"{name} would be written as a whole at the end, so a run that is killed would lose rows that its"
            " store counts as written: with --store, give an output that can be continued (.jsonl, .csv,"
            " Kafka) and copy or convert it when all is done; or leave out --store"
        )


class _Position(msgspec.Struct):
    """End of a commit: the length of the file, the checksum of its tail, and the number of the file."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    tail: int
    inode: int


class FileSink:
    """Writes rows to a file; see `streamcal.run.ports.CutBackSink`.

    Resumes at the length of the last commit; what is beyond it is cut off when something is written again. A
    commit ends a gzip member. If there is a store, it also waits until the rows are on the disk.

    Raises
    ------
    OutputError
        If another process is writing the file.
    OSError
        If it cannot be opened.
    """

    def __init__(self, path: Path, options: SinkOptions) -> None:
        self.name = str(path.absolute())
        self._path = path
        self._rows = options.rows
        self._append = options.append
        self._encoder = RowEncoder(path.name)
        self._durable = self._ready = self._closed = False
        self._length, self._tail = 0, b""
        # To be read too, so that its end can be compared.
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        lock(self._file, path)

    @property
    def position(self) -> Position:
        """Length, a checksum of the bytes before it, and the file's number."""
        return {"bytes": self._length, "tail": zlib.crc32(self._tail), "inode": os.fstat(self._file).st_ino}

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:
        """Find the place to go on from; see `streamcal.run.ports.Sink`."""
        self._durable = job != ""
        size = os.fstat(self._file).st_size
        if position is not None:
            self._go_to(position, size)
        elif size and self._append:
            self._check_kind(size)
            self._begin_behind(size)
        elif not self._durable:
            self._check_kind(size)
        elif size:
            raise ValueError(
                f"{self._path} has {size} bytes that this store knows nothing of: move it away, or give"
                " another output; if it was moved here, give the path that it had; or write behind them with"
                " --append"
            )
        return None

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write rows, one line each."""
        if rows:
            self._put(self._encoder.encode(rows))

    def commit(self, positions: Mapping[str, Positions]) -> Position:  # noqa: ARG002  # the length of the file is enough
        """Pass all rows to the operating system and, if there is a store, to the disk; return the length."""
        self._put(self._encoder.end_member())
        if self._durable:
            size = os.fstat(self._file).st_size
            if size != self._length:
                raise OSError(
                    f"{self._path} has {size} bytes, but {self._length} were written to it: something else"
                    " wrote to it during the run"
                )
            os.fsync(self._file)
        return self.position

    def close(self) -> None:
        """Release; may be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._ready and not self._length and self._encoder.is_gzip:
                _write_all(self._file, zlib.compress(b"", wbits=31))
        finally:
            os.close(self._file)

    def _check_kind(self, size: int) -> None:
        """Refuse to replace what is not rows of this kind."""
        head = self._head().lstrip()
        if not head and size <= _HEAD_BYTES:  # empty, also of gzip, or blank
            return
        line, end, _ = head.partition(b"\n")
        if not (end and is_row(line, self._rows, is_csv=self._encoder.is_csv)):
            raise no_rows(self._path, size, self._rows)

    def _head(self) -> bytes:
        """Return the first bytes of the file, decompressed if they are gzip."""
        data = os.pread(self._file, _HEAD_BYTES, 0)
        with suppress(zlib.error):
            if self._encoder.is_gzip:
                return zlib.decompressobj(wbits=31).decompress(data, _HEAD_BYTES)
        return data

    def _go_to(self, position: Position, size: int) -> None:
        """Go to the end of a commit in the file; ValueError if the file is another one."""
        end = read_position(position, _Position, "a file")
        length = end.bytes
        if 0 < size < length:
            raise ValueError(
                f"{self._path} has {size} bytes, but {length} were written to it: it was changed since. Move"
                " it away to start it anew"
            )
        if size < length:
            log.warning("%s was removed or emptied after the last run: starting it anew", self._path)
            return
        start = max(length - _TAIL_BYTES, 0)
        tail = os.pread(self._file, length - start, start)
        same = zlib.crc32(tail) == end.tail
        if not length and size:  # there is nothing to compare, and any rows are of an unfinished first commit
            same = os.fstat(self._file).st_ino == end.inode
        if not same or not self._is_own(os.pread(self._file, _HEAD_BYTES, length), length):
            raise ValueError(
                f"{self._path} is not the file that was written before: {length} bytes of it were, and it has"
                f" {size} with other content. Put that file back, or move this one away to start it anew"
            )
        self._length, self._tail = length, tail
        if length:
            self._take_header()

    def _begin_behind(self, size: int) -> None:
        """Go to the end of a file of rows that another run wrote."""
        start = max(size - _TAIL_BYTES, 0)
        self._length, self._tail = size, os.pread(self._file, size - start, start)
        if not (self._encoder.is_gzip or self._tail.endswith(b"\n")):
            raise ValueError(
                f"{self._path}: its last line has no end: a row was cut off; give another output"
            )
        self._take_header()

    def _take_header(self) -> None:
        if self._encoder.is_csv:
            self._encoder.header = columns_of(self._head().lstrip().partition(b"\n")[0]) or None

    def _is_own(self, beyond: bytes, length: int) -> bool:
        """Whether the bytes after a commit may be of a run that died before its next one."""
        line, end, _ = beyond.partition(b"\n")
        if not beyond or b"\0" in line:  # left by a power cut
            return True
        if self._encoder.is_gzip:
            return beyond.startswith(b"\x1f\x8b"[: len(beyond)])
        if self._encoder.is_csv and (length or not end):  # it tells its columns in its first line only
            return True
        if not end:  # the write was cut short
            return beyond.startswith(b"{")
        return is_row(line, self._rows, is_csv=self._encoder.is_csv)

    def _put(self, data: bytes) -> None:
        if not self._ready:
            self._ready = True
            os.ftruncate(self._file, self._length)
        _write_all(self._file, data)
        self._length += len(data)
        self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]


class StreamSink:
    """Writes rows to standard output, a pipe or a device, which cannot be cut back.

    After a crash, it may get the rows of one micro-batch twice. If nobody reads it, it waits.

    Parameters
    ----------
    path
        Path of a pipe or a device; None: standard output, as JSON lines.
    """

    def __init__(self, path: Path | None, options: SinkOptions) -> None:
        self.name = "-" if path is None else str(path.absolute())
        self._path = path
        self._stop = options.stop or _never
        self._descriptor = 1
        self._open = False
        self._encoder = RowEncoder("" if path is None else path.name)

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:  # noqa: ARG002
        """Open it: of a named pipe, wait for a reader."""
        if self._path is not None:
            self._descriptor = _open_stream(self._path, self._stop)
            self._open = True
        return None

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write rows, one line each."""
        if rows:
            _write_all(self._descriptor, self._encoder.encode(rows), self._stop)

    def commit(self, positions: Mapping[str, Positions]) -> Position:  # noqa: ARG002
        """End the gzip member; all rows were passed to the operating system before."""
        _write_all(self._descriptor, self._encoder.end_member(), self._stop)
        return None

    def close(self) -> None:
        """Release; may be called twice."""
        if self._open:
            self._open = False
            os.close(self._descriptor)


def _open_stream(path: Path, stop: Callable[[], bool]) -> int:
    """Open a pipe or a device; of a named pipe, wait until somebody reads it."""
    waiting = False
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(path.stat().st_mode):
                raise
        if stop():
            raise StoppedError(f"nobody reads {path}")
        if not waiting:
            waiting = True
            log.info("waiting for a reader of %s", path)
        time.sleep(_WAIT)


def _never() -> bool:
    return False


def _write_all(descriptor: int, data: bytes, stop: Callable[[], bool] = _never) -> None:
    """Write every byte, waiting where the reader is slower.

    Raises
    ------
    OSError
        If it cannot be written, or if the run is to stop and the reader takes nothing more.
    """
    rest = memoryview(data)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        return
    # One write of more than a pipe can take would wait inside the system, where no signal ends it.
    poll, idle = select.poll(), 0
    poll.register(descriptor, select.POLLOUT)
    while rest:
        if poll.poll(_WAIT * 1000):
            try:
                rest = rest[os.write(descriptor, rest[:_PIPE_BYTES]) :]
            except BlockingIOError:  # a pipe that others write too was filled in between
                time.sleep(_WAIT)
            else:
                idle = 0
                continue
        idle = idle + 1 if stop() else 0
        if idle > _GRACE:
            raise OSError(f"the run is to stop, and nobody reads the last {len(rest)} bytes of its output")
