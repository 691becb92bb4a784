"""Protobuf: schemas, and readers of their messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

from streamcal.events.columns import Role
from streamcal_connectors.kafka.typed import HEAD_BYTES, Read, zigzag

__all__ = ["ProtobufSchema"]

_NAMES: Final = ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
_WELL_KNOWN: Final = {
    f"google/protobuf/{name}.proto": import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.serialized_pb
    for name in _NAMES
}  # none of which imports another
_TIMESTAMP: Final = timestamp_pb2.Timestamp.DESCRIPTOR.full_name
_WRAPPERS: Final = frozenset(
    each.full_name for each in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()
)
_NANOS: Final = 1_000_000_000
_UNSET: Final = ("id", "key", "time", "domain")  # roles that have no value equal to the default


class ProtobufSchema:
    """A file of message types, with the files that it imports.

    Parameters
    ----------
    parts
        serialized FileDescriptorProtos by the names by which they are imported: first those that others
        import, at last the file itself; or one FileDescriptorSet, in the same order.
    is_set
        whether it is a set.

    Raises
    ------
    ValueError
        if it cannot be used.
    """

    def __init__(self, parts: Mapping[str, bytes], *, is_set: bool = False) -> None:
        pool = descriptor_pool.DescriptorPool()
        try:
            files = _files(parts, is_set=is_set)
            given = {file.name: file.SerializeToString() for file in files}
            for data in (_WELL_KNOWN | given).values():
                pool.AddSerializedFile(data)
            self._file = pool.FindFileByName(files[-1].name)
        except Exception as error:  # whatever a schema does to the library
            raise ValueError(f"protobuf cannot use it: {type(error).__name__}: {error}") from None

    def type_of(self, value: bytes) -> tuple[int, ...]:
        """Return the indexes of a value's message type; see `typed.Schema`."""
        return (0,) if value[HEAD_BYTES] == 0 else _message_indexes(value)[0]

    def names(self, path: tuple[int, ...]) -> list[str]:
        """Return the fields of a type; see `typed.Schema`."""
        return [field.name for field in self._message(path).fields]

    def reader(
        self, path: tuple[int, ...], wanted: Sequence[tuple[str, Role | None]]
    ) -> tuple[Read, float | None]:
        """Return a function that reads the values of a type; see `typed.Schema`."""
        descriptor = self._message(path)
        parse = message_factory.GetMessageClass(descriptor).FromString
        getters = [_getter(descriptor.fields_by_name.get(name), role) for name, role in wanted]

        def read(value: bytes) -> list[Any]:
            start = HEAD_BYTES + 1 if value[HEAD_BYTES] == 0 else _message_indexes(value)[1]
            message = parse(value[start:])
            return [get(message) for get in getters]

        return read, None

    def _message(self, path: tuple[int, ...]) -> Any:
        found, types = None, list(self._file.message_types_by_name.values())
        for index in path:
            if index >= len(types):
                raise ValueError(f"it has no message with the indexes {list(path)}")
            found = types[index]
            types = found.nested_types
        return found


def _files(parts: Mapping[str, bytes], *, is_set: bool) -> list[Any]:
    if is_set:
        found = descriptor_pb2.FileDescriptorSet.FromString(next(iter(parts.values()))).file
        if not found:
            raise ValueError("the set has no files")
        return list(found)
    files = []
    for name, data in parts.items():
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
        file.name = name or file.name or "schema.proto"
        files.append(file)
    return files


def _message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return a value's message type, as indexes from the file inwards, and where the message begins."""
    count, at = zigzag(value, HEAD_BYTES)
    if not count:
        return (0,), at
    path = []
    for _ in range(count):
        index, at = zigzag(value, at)
        path.append(index)
    if not path or min(path) < 0:
        raise ValueError("its message indexes are negative")
    return tuple(path), at


def _getter(field: Any, role: Role | None) -> Callable[[Any], Any]:
    """Return a function that takes the value of a field from a message, None if it has none."""
    if field is None:
        return lambda _: None
    name, get = field.name, attrgetter(field.name)
    convert: Callable[[Any], Any] | None = None
    if field.is_repeated:
        return get
    if field.message_type is not None:
        inner = field.message_type.full_name
        convert = _seconds if inner == _TIMESTAMP else attrgetter("value") if inner in _WRAPPERS else None
    elif field.enum_type is not None:
        texts = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        convert = partial(_named, texts)
    if convert is not None:
        read: Callable[[Any], Any] = lambda message: convert(get(message))  # noqa: E731
    elif not field.has_presence and role in _UNSET:
        return lambda message: get(message) or None
    else:
        read = get
    if not field.has_presence:
        return read
    return lambda message: read(message) if message.HasField(name) else None


def _named(texts: dict[int, str], number: int) -> int | str:
    return texts.get(number, number)


def _seconds(moment: Any) -> float:
    return float((moment.seconds * _NANOS + moment.nanos) / _NANOS)
