"""Protobuf: what the messages of a schema hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf import (  # type: ignore[import-untyped]
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from streamcal_connectors.kafka.typed import HEAD_BYTES, Reader, Wanted, zigzag

__all__ = ["ProtobufSchema"]

_WELL_KNOWN: Final = {
    each.DESCRIPTOR.name: each.DESCRIPTOR
    for each in (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
}
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
        names, as they are imported, and serialized FileDescriptorProtos: first what others import, at last
        the file itself; or one FileDescriptorSet, in the same order.
    is_set
        whether it is a set.

    Raises
    ------
    ValueError
        if it cannot be used.
    """

    def __init__(self, parts: Sequence[tuple[str, bytes]], *, is_set: bool = False) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        try:
            files = _files(parts, is_set=is_set)
            added: set[str] = set()
            for file in files:
                for name in file.dependency:
                    if name in _WELL_KNOWN and name not in added:
                        self._add_well_known(name, added)
                if file.name not in added:
                    added.add(file.name)
                    self._pool.AddSerializedFile(file.SerializeToString())
            self._file = files[-1]
            self._pool.FindFileByName(self._file.name)
        except Exception as error:  # whatever a schema does to the library
            raise ValueError(f"protobuf cannot use it: {type(error).__name__}: {error}") from None

    def type_of(self, value: bytes) -> tuple[int, ...]:
        """Return which of the schema's types a value has; see `typed.Schema`."""
        return (0,) if value[HEAD_BYTES] == 0 else _message_indexes(value)[0]

    def names(self, path: tuple[int, ...]) -> list[str]:
        """Return the fields of a type; see `typed.Schema`."""
        return [field.name for field in self._message(path).fields]

    def reader(self, path: tuple[int, ...], wanted: Sequence[Wanted]) -> Reader:
        """Return what reads a value; see `typed.Schema`."""
        descriptor = self._message(path)
        parse = message_factory.GetMessageClass(descriptor).FromString
        getters = [_getter(descriptor.fields_by_name.get(each.name), each.role) for each in wanted]

        def read(value: bytes) -> list[Any]:
            start = HEAD_BYTES + 1 if value[HEAD_BYTES] == 0 else _message_indexes(value)[1]
            message = parse(value[start:])
            return [get(message) for get in getters]

        return Reader(read, None)

    def _message(self, path: tuple[int, ...]) -> Any:
        inside, name = self._file, self._file.package
        for index in path:
            types = inside.message_type if inside is self._file else inside.nested_type
            if index >= len(types):
                raise ValueError(f"it has no message with the indexes {list(path)}")
            inside = types[index]
            name = f"{name}.{inside.name}" if name else inside.name
        return self._pool.FindMessageTypeByName(name)

    def _add_well_known(self, name: str, added: set[str]) -> None:
        for other in _WELL_KNOWN[name].dependencies:
            if other.name not in added:
                self._add_well_known(other.name, added)
        added.add(name)
        self._pool.AddSerializedFile(_WELL_KNOWN[name].serialized_pb)


def _files(parts: Sequence[tuple[str, bytes]], *, is_set: bool) -> list[Any]:
    if is_set:
        found = descriptor_pb2.FileDescriptorSet.FromString(parts[0][1]).file
        if not found:
            raise ValueError("the set has no files")
        return list(found)
    files = []
    for name, data in parts:
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
        file.name = name or file.name or "schema.proto"
        files.append(file)
    return files


def _message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message type a value has, as indexes from the file inwards, and where it begins."""
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


def _getter(field: Any, role: str | None) -> Callable[[Any], Any]:
    """Return what takes the value of a field, None if it has none."""
    if field is None:
        return lambda _: None
    name, known = field.name, field.has_presence
    if field.is_repeated:
        return lambda message: getattr(message, name)
    if field.message_type is not None:
        inner = field.message_type.full_name
        if inner == _TIMESTAMP:
            return lambda message: _seconds(getattr(message, name)) if message.HasField(name) else None
        if inner in _WRAPPERS:
            return lambda message: getattr(message, name).value if message.HasField(name) else None
        return lambda message: getattr(message, name) if message.HasField(name) else None
    if field.enum_type is not None:
        texts = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        if known:
            return lambda message: _named(message, name, texts) if message.HasField(name) else None
        return lambda message: _named(message, name, texts)
    if known:
        return lambda message: getattr(message, name) if message.HasField(name) else None
    if role in _UNSET:
        return lambda message: getattr(message, name) or None
    return lambda message: getattr(message, name)


def _named(message: Any, name: str, texts: dict[int, str]) -> Any:
    number = getattr(message, name)
    return texts.get(number, number)


def _seconds(moment: Any) -> float:
    return float((moment.seconds * _NANOS + moment.nanos) / _NANOS)
