"""Objects of a store such as S3: ``s3://bucket/key``, ``gs://`` and ``az://``, through fsspec.

An object has no end that grows and no middle that can be changed: it is read whole and written whole. So it
is brought into a temporary file, from which it is read as any file is, and what is written is a temporary
file that becomes an object at the end.

Credentials and endpoints are those that fsspec's file systems find in the environment.

Needs the extra: ``pip install '.[objects]'`` in a checkout.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from streamcal.events.codec import TextFormat
from streamcal.run.ports import Position, Positions, Sink, SinkOptions, Source, SourceOptions
from streamcal_connectors.files import FileConnector, TextConnector, open_file
from streamcal_connectors.globs import FilesSource, Member, refuse_among
from streamcal_connectors.paths import format_of
from streamcal_connectors.sinks import refuse_store

_NEEDS: Final = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs"}
_PREFIX: Final = "streamcal-"  # of what lies in the directory for temporary files

T = TypeVar("T")


class ObjectError(OSError):
    """An object cannot be read or written; it says which, and why."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class _Object(NamedTuple):
    """One object, or a pattern of them."""

    url: str
    files: Any
    """File system of fsspec."""
    path: str
    """Bucket and key."""

    @property
    def where(self) -> Path:
        return Path("/", self.path)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def call(self, what: Callable[[], T]) -> T:
        """Ask the store.

        Raises
        ------
        OSError
            if it refuses, or is not there.
        """
        try:
            return what()
        except FileNotFoundError:
            raise self.error("there is no such object") from None
        except Exception as error:  # each file system has errors of its own, and its library some more
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                folder = tempfile.gettempdir()
                raise self.error(f"no room for it in {folder}: set TMPDIR to another directory") from None
            text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
            needs = _NEEDS[urlsplit(self.url).scheme]
            raise self.error(
                f"{text.rstrip('.')}. Credentials and the endpoint come from the environment, where {needs}"
                " finds them"
            ) from None

    def error(self, text: str) -> ObjectError:
        return ObjectError(errno.EIO, text, self.url)

    def members(self) -> list[tuple[_Object, Mapping[str, Any]]] | None:
        """Return the objects of a pattern, sorted, and what is known of each; None if it is no pattern.

        Raises
        ------
        OSError
            if there is none.
        """
        if not any(each in self.path for each in "*?["):
            return None
        found = self.call(lambda: self.files.glob(self.path, detail=True))
        members = [
            (self._replace(url=f"{urlsplit(self.url).scheme}://{path}", path=path), about)
            for path, about in sorted(found.items())
            if about["type"] == "file" and not path.endswith("/")  # which stands for a directory
        ]
        if not members:
            raise self.error("no object matches this pattern")
        return members


class ObjectConnector(TextConnector):
    """``s3:``, ``gs:``, ``az:``, ``abfs:`` and ``abfss:`` URLs."""

    def __init__(self) -> None:
        self._several: list[tuple[str, Path]] = []  # the patterns that are read

    def source(self, url: str, options: SourceOptions) -> Source:
        """Open an object to read, or those of a pattern.

        Raises
        ------
        OSError
            if it cannot be read, or there is none.
        ValueError
            if the URL, the format or a column is wrong.
        """
        if options.follow:
            raise ValueError(
                f"{url}: an object never grows: leave out --follow, and run again for later ones"
            )
        found = _object(url)
        several = found.members()
        if several is None:
            return _open(found, options, self._form)
        self._several.append((url, found.where))
        members = []
        for each, about in several:
            size, mark = about["size"], str(about.get("ETag") or about["size"])
            members.append(Member(each.url, each.url, size, mark, partial(_open, each, options, self._form)))
        return FilesSource(url, url, members, options)

    def sink(self, url: str, options: SinkOptions) -> Sink:
        """Open an object to write; see `ObjectSink`."""
        found = _object(url)
        refuse_among(found.where, url, self._several)
        return ObjectSink(found, options)


class ObjectSink:
    """Writes rows to a file, which becomes an object when it is closed; see `streamcal.run.ports.Sink`.

    Until then there is no object, and what is there is not replaced: the run is refused.

    Raises
    ------
    OSError, ValueError
        if the object exists, or its store refuses; or if the name says no format that rows can have.
    """

    def __init__(self, found: _Object, options: SinkOptions) -> None:
        self.name = found.url
        self._object = found
        self._refuse_existing()
        self._folder: str | None = tempfile.mkdtemp(prefix=_PREFIX)
        self._file = Path(self._folder, found.name)
        self._committed = False
        try:
            self._sink = FileConnector().sink(str(self._file), options)
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:
        """Get ready; with a store, refuse."""
        refuse_store(self.name, job)
        return self._sink.resume(job, position)

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write rows to the file."""
        self._sink.write(rows)

    def commit(self, positions: Mapping[str, Positions]) -> Position:
        """Pass them to the file; `close` makes it an object."""
        self._committed = True
        return self._sink.commit(positions)

    def close(self) -> None:
        """Make the object, unless nothing was committed: a run that failed at once leaves nothing behind.

        May be called twice.

        Raises
        ------
        OSError
            if that fails; it says where the rows are instead.
        """
        if self._folder is None:
            return
        folder, self._folder = self._folder, None
        try:
            self._sink.close()
            if self._committed and self._file.exists():
                self._refuse_existing()
                self._object.call(lambda: self._object.files.put_file(str(self._file), self._object.path))
        except OSError as error:
            if not self._file.exists():
                raise
            why = error.strerror or str(error)
            raise self._object.error(f"{why}. Its rows are in {self._file}: copy that file there") from None
        shutil.rmtree(folder)

    def _refuse_existing(self) -> None:
        found = self._object
        found.files.invalidate_cache()
        if found.call(lambda: found.files.exists(found.path)):
            raise found.error("it exists, and an object is never replaced: delete it, or give another one")


def _object(url: str) -> _Object:
    """Return what a URL names, without asking its store."""
    parts = urlsplit(url)
    if ":" in parts.netloc.partition("@")[0] and "@" in parts.netloc:
        raise ValueError(
            f"{parts.scheme}://…@{parts.netloc.rpartition('@')[2]}{parts.path}: credentials do not belong in"
            " a URL; they come from the environment"
        )
    try:
        import fsspec  # type: ignore[import-untyped]

        files, path = fsspec.url_to_fs(url)
    except ImportError as error:
        needs = _NEEDS[parts.scheme]
        raise ValueError(
            f'{url} needs {needs}: pip install "streamcal-engine[objects]" {needs} ({error})'
        ) from None
    if not path.partition("/")[2] or path.endswith("/"):
        raise ValueError(
            f"{url} names no object: give {parts.scheme}://BUCKET/KEY, or a pattern such as"
            f" {parts.scheme}://BUCKET/2026/*.parquet"
        )
    return _Object(url, files, path)


def _open(found: _Object, options: SourceOptions, form: TextFormat) -> Source:
    """Bring an object into a temporary file, and open that; it has no name any more then."""
    format_of(found.name, options.format, read=True)  # which is refused before it is fetched
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        path = Path(folder, found.name)
        found.call(lambda: found.files.get_file(found.path, str(path)))
        return open_file(path, options, form, found.url)
