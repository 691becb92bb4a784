"""Rows of answers as Parquet or Arrow: written whole, or not at all.

Such a file can be read only once its footer is written, and cannot be continued. So the rows go into a file
beside it, which takes its place when the run ends, however it ends. A run that is killed leaves what was
there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from streamcal.run.kinds import kind_of
from streamcal.run.ports import Position, Positions, SinkOptions
from streamcal.run.rows import AnswerColumns, Answers, Column
from streamcal_connectors.arrow import from_kept, numbers_column, texts_column
from streamcal_connectors.paths import TableKind
from streamcal_connectors.sinks import in_use, lock, no_rows, refuse_store
from streamcal_connectors.tables import FORMATS, brief, open_table

_GROUP_ROWS: Final = 1 << 17  # of a row group or record batch: rows that come one by one make no small ones


class TableSink:
    """Writes answers to a table; see `streamcal.run.ports.Sink`.

    Parameters
    ----------
    path, kind
        Path and format of the file.
    options
        Options of writing.

    Raises
    ------
    OutputError
        If another process is writing the file.
    OSError
        If it cannot be written.
    """

    def __init__(self, path: Path, kind: TableKind, options: SinkOptions) -> None:
        self.name = str(path.absolute())
        self._path = Path(os.path.realpath(path))
        self._kind = kind
        self._schema = _schema(options.kept or {}, options.classes)
        self._batches: list[Any] = []
        self._writer: Any = None
        self._has_rows = self._failed = self._closed = False
        if self._path.is_dir():
            raise OSError(f"{path} is a directory: give the name of a file")
        self._beside = self._path.with_name(f".{self._path.name}.part")
        self._lock = os.open(self._beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        lock(self._lock, path)
        if not self._beside.exists() or not os.path.samestat(self._beside.stat(), os.fstat(self._lock)):
            os.close(self._lock)  # another process has just put it into its place
            raise in_use(path)

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:  # noqa: ARG002
        """Make sure that nothing else is replaced; with a store, refuse."""
        refuse_store(self._path, job)
        size = _size(self._path)
        if size and not self._is_replaceable():
            raise no_rows(self._path, size, "answers")
        self._writer = self._opened()  # so that what cannot be written is told now
        return None

    def write(self, rows: Answers) -> None:
        """Take rows."""
        self._batches += [_answers(part, self._schema) for part in rows.parts]
        self._has_rows = self._has_rows or bool(rows)
        if sum(map(len, self._batches)) >= _GROUP_ROWS:
            self._flush()

    def commit(self, positions: Mapping[str, Positions]) -> Position:  # noqa: ARG002
        """Do nothing: `close` makes them last."""
        return None

    def close(self) -> None:
        """Put the file in its place, unless something failed, or no row came where there are some already.

        May be called twice.

        Raises
        ------
        OSError, ValueError
            if it cannot be written; what was there is still there.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._writer is not None and not self._failed and (self._has_rows or not _size(self._path)):
                self._flush()
                with _said():
                    self._writer.close()
                os.fsync(self._lock)
                if self._path.exists():
                    self._beside.chmod(stat.S_IMODE(self._path.stat().st_mode))
                self._beside.replace(self._path)
        finally:
            if self._writer is not None:
                with suppress(Exception):  # of what is dropped
                    self._writer.close()
            self._beside.unlink(missing_ok=True)
            os.close(self._lock)

    def _opened(self) -> Any:
        """Return a writer of the file beside, emptied of what a run that was killed has left."""
        with _said():
            return FORMATS[self._kind].writer(str(self._beside), self._schema)

    def _flush(self) -> None:
        """Write the rows as one row group or record batch."""
        try:
            if not self._batches:
                return
            with _said():
                whole = pa.Table.from_batches(self._batches, self._schema).combine_chunks()
                self._writer.write_batch(whole.to_batches()[0])
        except BaseException:
            self._failed = True
            raise
        self._batches = []

    def _is_replaceable(self) -> bool:
        try:
            table = open_table(self._path, self._kind, str(self._path))
        except OSError:
            return False
        names = set(table.schema.names)
        table.close()
        return {"id", "map_version"} <= names and not names.isdisjoint(("probability", "probabilities"))


@contextmanager
def _said() -> Iterator[None]:
    """Let what only pyarrow knows be an error that a run reports."""
    try:
        yield
    except (OSError, ValueError):
        raise
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(brief(error)) from error


def _schema(kept: Mapping[str, Any], classes: Sequence[str]) -> Any:
    """Return the columns of answers; those that pass through are texts if their type is not known."""
    text, number = pa.string(), pa.float64()
    each = pa.struct([(name, number) for name in classes])
    types = {"id": text, "map_version": pa.int64(), "weights": pa.list_(number), "key": text}
    types |= {"scores": each, "probabilities": each}
    fields = [(name, types.get(name, number)) for name in kind_of(classes).row.__struct_fields__]
    return pa.schema(
        fields
        + [
            (name, pa.type_for_alias(kind) if isinstance(kind, str) else kind or text)
            for name, kind in kept.items()
        ]
    )


def _answers(columns: AnswerColumns, schema: Any) -> Any:
    """Return answers as a record batch."""
    count, keys, which = len(columns.ids), columns.keys, columns.which
    pairs = numbers_column(np.arange(0, 2 * count + 1, 2, dtype=np.int32))
    arrays = {
        "id": texts_column(columns.ids),
        "score": numbers_column(columns.scores),
        "probability": numbers_column(columns.probabilities),
        "map_version": numbers_column(np.array(columns.versions, np.int64)[which]),
        "weights": pa.ListArray.from_arrays(pairs, numbers_column(columns.weights[which].ravel())),
        "key": pa.nulls(count, pa.string()) if keys is None else pa.array(keys, pa.string()),
        "time": numbers_column(columns.times),
    }
    with _said():
        arrays |= {name: _added(values, schema.field(name)) for name, values in columns.added.items()}
        return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _added(values: Column, field: Any) -> Any:
    if isinstance(values, list):
        return _column(values, field)
    return numbers_column(values) if values.dtype == np.float64 else _column(values.tolist(), field)


def _column(values: list[Any], field: Any) -> Any:
    try:
        if isinstance(values[0], msgspec.Struct):  # numbers of classes
            numbers = zip(*map(msgspec.structs.astuple, values), strict=True)
            return pa.StructArray.from_arrays(
                [pa.array(each, pa.float64()) for each in numbers], fields=field.type.fields
            )
        if pa.types.is_string(field.type):
            values = [_as_text(value) for value in values]
        return from_kept(values, field.type)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"column {field.name!r} is of type {field.type}: {error}") from None


def _as_text(value: object) -> object:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
