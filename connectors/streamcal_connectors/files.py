"""Files and standard input/output: JSON lines or CSV, plain or gzip, Parquet and Arrow.

The name tells the format; see `streamcal_connectors.paths`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from streamcal.base.errors import OutputError
from streamcal.events.codec import TextFormat
from streamcal.run.ports import Sink, SinkOptions, Source, SourceOptions
from streamcal_connectors.globs import FilesSource, files_at, member, refuse_among
from streamcal_connectors.lines import LineSource
from streamcal_connectors.paths import TABLES, format_of, path_of
from streamcal_connectors.readers import ByteReader, DamagedError, ReplacedError, identity, open_reader
from streamcal_connectors.sinks import FileSink, StreamSink

_FEED_BYTES: Final = 1 << 20


class TextConnector:
    """Base of what reads files of text, with their options."""

    _form = TextFormat()

    def set_up(self, options: Mapping[str, Any], stop: Callable[[], bool]) -> None:  # noqa: ARG002  # nothing waits
        """Take the options of the files; see `Connector.set_up`."""
        try:
            self._form = msgspec.convert(options, TextFormat)
        except msgspec.ValidationError as error:
            raise ValueError(
                f"options of files: {error}; they are {', '.join(TextFormat.__struct_fields__)}"
            ) from None


class FileConnector(TextConnector):
    """``file:`` URLs and bare paths."""

    def __init__(self) -> None:
        self._several: list[tuple[str, Path]] = []  # the patterns and directories that are read

    def source(self, url: str, options: SourceOptions) -> Source:
        """Open a file to read, or the files of a pattern or a directory.

        Raises
        ------
        OSError
            If it cannot be opened, or there is none.
        ValueError
            If its format is not known, or its columns are not those that it must have.
        """
        path = path_of(url, "file")
        files = files_at(path)
        if files is None:
            return open_file(path, options, self._form)
        self._several.append((str(path), Path(os.path.abspath(path))))  # noqa: PTH100  # without links resolved
        members = [member(file, lambda file: open_file(file, options, self._form)) for file in files]
        return FilesSource(str(path.absolute()), str(path), members, options)

    def sink(self, url: str, options: SinkOptions) -> Sink:
        """Open a file to write, or a named pipe or a device; see `streamcal.run.ports.Connector.sink`."""
        path = path_of(url, "file")
        kind = format_of(path.name, read=False)
        is_stream = path.exists() and not path.is_file() and not path.is_dir()
        refuse_among(Path(os.path.abspath(path)), str(path), self._several)  # noqa: PTH100
        if kind not in TABLES.values():
            kind_of_sink = StreamSink if is_stream else FileSink
            return kind_of_sink(path, options)
        if options.append:
            raise ValueError(f"{path}: a file of this format cannot be continued: leave out --append")
        if is_stream or options.rows != "answers":
            what = "a pipe" if is_stream else options.rows
            raise ValueError(f"{path}: {what} can be JSON lines or CSV only, not Parquet or Arrow")
        return cast("Sink", tables("table_sink").TableSink(path, kind, options))

    def feed(self, url: str) -> FileFeed:
        """Open the file of a sink to read it back; it need not exist yet."""
        return FileFeed(path_of(url, "file"))


def open_file(path: Path, options: SourceOptions, form: TextFormat, url: str | None = None) -> Source:
    """Open one file to read, which has come from a URL if that is given."""
    kind = format_of(path.name, options.format, read=True)
    if kind in TABLES.values():
        return cast("Source", tables("tables").TableSource(path, kind, options, url))
    remedy = "To read it as well, move it to a new name"
    if options.follow:
        remedy += " (rotated logs are for a log shipper, which can write to Kafka)"
    name, title, is_csv = url or str(path.absolute()), url or str(path), kind == "csv"
    return LineSource(path, name, title, options, form, is_csv=is_csv, remedy=remedy)


def tables(module: str) -> Any:
    """Import a module that needs pyarrow: only where a table is read or written."""
    try:
        return import_module(f"streamcal_connectors.{module}")
    except ImportError as error:
        raise ValueError(
            f'Parquet and Arrow files need pyarrow: pip install "streamcal-engine[parquet]" ({error})'
        ) from None


class StdioConnector(TextConnector):
    """``-``: standard input, as JSON lines or CSV, and output, as JSON lines."""

    def source(self, url: str, options: SourceOptions) -> LineSource:  # noqa: ARG002  # one standard input
        """Return standard input.

        Raises
        ------
        ValueError
            If it is closed.
        """
        if sys.stdin is None:
            raise ValueError("standard input (-) is closed: give a file, or send events through a pipe")
        reader = ByteReader(sys.stdin.fileno(), follow=False, owned=False)
        is_csv, remedy = options.format == "csv", "To read it as well, send it through a pipe"
        return LineSource(reader, "-", "-", options, self._form, is_csv=is_csv, remedy=remedy)

    def sink(self, url: str, options: SinkOptions) -> StreamSink:  # noqa: ARG002  # one standard output
        """Return standard output.

        Raises
        ------
        OutputError
            If it is closed.
        """
        if sys.stdout is None:
            raise OutputError("cannot write: standard output is closed")
        return StreamSink(None, options)


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
                self._reader = open_reader(self._path, follow=True)
            data = self._reader.read(_FEED_BYTES, timeout) or b""
            if not data and self._reader.identity != identity(self._path.stat()):
                self.close()  # another file has taken its place
        except FileNotFoundError:
            return ()  # the sink has not created it yet
        except ReplacedError:  # its sink truncated it, or started it anew
            self.close()
            return ()
        except DamagedError as error:
            raise ValueError(f"{self._path}: {error}") from error
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line]

    def close(self) -> None:
        """Release; may be called twice."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._rest = None, b""
