"""Files and standard input/output: JSON lines or CSV, plain or gzip.

The name tells the format: ``.csv`` is CSV, anything else JSON lines; ``.gz`` at the end is gzip.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Final

from streamcal.errors import OutputError
from streamcal.run.ports import Role, SinkOptions, SourceOptions
from streamcal_connectors.lines import LineSource
from streamcal_connectors.readers import (
    ByteReader,
    CutGzipError,
    DamagedGzipError,
    RawReader,
    ReplacedError,
    identity,
    open_reader,
)
from streamcal_connectors.rotation import PathInput, SingleInput
from streamcal_connectors.sinks import FileSink, StreamSink
from streamcal_connectors.urls import identities_of, path_of

__all__ = ["FileConnector", "FileFeed", "StdioConnector"]

_FEED_BYTES: Final = 1 << 20


class FileConnector:
    """``file:`` URLs and bare paths."""

    def source(self, url: str, options: SourceOptions) -> LineSource:
        """Open a file to read.

        Raises
        ------
        OSError
            if it cannot be opened.
        """
        path = path_of(url, "file")
        is_csv = path.name.removesuffix(".gz").endswith(".csv")
        files = PathInput(path, follow=options.follow)
        return LineSource(files, str(path.absolute()), str(path), options, is_csv=is_csv)

    def sink(self, url: str, options: SinkOptions) -> FileSink | StreamSink:
        """Open a file to write, or a named pipe or a device; see `streamcal.run.ports.SinkConnector`."""
        path = path_of(url, "file")
        is_stream = path.exists() and not path.is_file() and not path.is_dir()
        return StreamSink(path, options) if is_stream else FileSink(path, options)

    def identities(self, url: str, role: Role) -> frozenset[Hashable]:
        """Return what identifies the file; see `streamcal.run.ports.IdentifyingConnector`."""
        return identities_of(path_of(url, "file"), role)

    def feed(self, url: str) -> FileFeed:
        """Open the file of a sink to read it back; it need not exist yet."""
        return FileFeed(path_of(url, "file"))


class StdioConnector:
    """``-``: standard input and output, as JSON lines."""

    def source(self, url: str, options: SourceOptions) -> LineSource:  # noqa: ARG002  # one standard input
        """Return standard input.

        Raises
        ------
        ValueError
            if it is closed.
        """
        if sys.stdin is None:
            raise ValueError("standard input (-) is closed: give a file, or send events through a pipe")
        reader = RawReader(sys.stdin.fileno(), follow=False, owned=False)
        return LineSource(SingleInput(reader), "-", "-", options, is_csv=False)

    def sink(self, url: str, options: SinkOptions) -> StreamSink:  # noqa: ARG002  # one standard output
        """Return standard output.

        Raises
        ------
        OutputError
            if it is closed.
        """
        if sys.stdout is None:
            raise OutputError("cannot write: standard output is closed")
        return StreamSink(None, options)

    def identities(self, url: str, role: Role) -> frozenset[Hashable]:  # noqa: ARG002  # one of each
        """Return what identifies the file behind standard input or output."""
        return identities_of(0 if role == "read" else 1, role)


class FileFeed:
    """Reads back the lines that a sink writes to a file; see `streamcal.run.ports.Feed`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: ByteReader | None = None
        self._rest = b""

    def poll(self, timeout: float) -> Sequence[bytes]:
        """Return the complete lines; if there are none, wait for some."""
        try:
            if self._reader is None:
                self._reader = open_reader(self._path, follow=True, is_gzip=self._path.suffix == ".gz")
            data = self._reader.read(_FEED_BYTES, timeout) or b""
            if not data and self._reader.identity != identity(self._path.stat()):
                self.close()  # another file has taken its place
        except FileNotFoundError:
            return ()  # the sink has not created it yet
        except ReplacedError:  # its sink truncated it, or started it anew
            self.close()
            return ()
        except (CutGzipError, DamagedGzipError) as error:
            raise ValueError(f"{self._path}: the gzip data are damaged ({error})") from error
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line]

    def close(self) -> None:
        """Release; may be called twice."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._rest = None, b""
