"""Values with the id of a schema in front, read by confluent-kafka: its client of the registry, its decoders.

The frame is Confluent's: a zero byte, the id of the schema in four bytes, for Protobuf the message's indexes,
then the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from io import BytesIO
from typing import Any, Final, TypeAlias, cast

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.common._httpx_compat import httpx
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.schema_registry.serde import SchemaId
from fastavro.read import LOGICAL_READERS
from google.protobuf import (  # type: ignore[import-untyped]
    empty_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

from streamcal_connectors.kafka.errors import brief, is_permanent

Read: TypeAlias = Callable[[bytes], Mapping[str, Any]]
"""Returns the fields of a value; raises whatever it likes if the value is none of its schema."""

_PASSING: Final = frozenset({408, 429})  # of the answers that are not the server's own failure (5xx)
_REFUSED: Final = frozenset({401, 403})
_TYPES: Final = 1_000  # of a schema, those of a name as often as it is used
_DEEPEST: Final = 64  # containers in containers: the decoder calls itself for each
_DEEPEST_ITEM: Final = 8  # the same, in the items of an array or map: what their bytes expand to
_DECIMAL_BYTES: Final = 256  # more than 600 digits
_WRAPPERS: Final = frozenset(
    kind.full_name for kind in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()
)


class AwayError(ConnectionError):
    """The registry cannot be reached, or fails; that may pass."""


class Registry:
    """A schema registry.

    Parameters
    ----------
    options
        of confluent-kafka's ``SchemaRegistryClient``.
    unset
        fields of Protobuf that are absent if they have the default and no presence.

    Raises
    ------
    ValueError
        if the client refuses them.
    """

    def __init__(self, options: Mapping[str, Any], unset: Set[str] = frozenset()) -> None:
        self._url = options["url"]
        self._unset = unset
        try:
            self._client = SchemaRegistryClient(dict(options))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"schema_registry: {brief(error)}") from None

    def __str__(self) -> str:
        return f"the schema registry at {self._url}"

    def reader(self, number: int) -> Read | None:
        """Return a function that reads the values of a schema; None: they are JSON text.

        Raises
        ------
        AwayError
            if that cannot be told now.
        LookupError
            if there is no schema of this id.
        OSError, ValueError
            if the registry refuses or is none, or the schema cannot be used.
        """
        try:
            schema = self._client.get_schema(number, fmt="serialized")
            if schema.schema_type == "JSON":
                return None
            return self._protobuf(schema) if schema.schema_type == "PROTOBUF" else self._avro(schema)
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status == 404:
                raise LookupError(f"{self} has no schema {number}, or not all that it refers to") from None
            if status in _REFUSED:
                raise OSError(f"{self} refuses: {error}; see basic.auth.user.info_file") from None
            if status >= 500 or status in _PASSING:
                raise AwayError(brief(error)) from None
            raise ValueError(f"{self} is none: {error}") from None
        except httpx.TransportError as error:
            if is_permanent(error):
                raise OSError(f"{self} refuses: {brief(error)}") from None
            raise AwayError(brief(error)) from None
        except Exception as error:  # whatever a schema does to the libraries
            raise ValueError(f"schema {number} cannot be used: {brief(error)}") from None

    def _avro(self, schema: Any) -> Read:
        read: Any = AvroDeserializer(self._client)
        refuse_bombs(read._get_parsed_schema(schema))
        return cast("Read", read)

    def _protobuf(self, schema: Any) -> Read:
        asking: Any = ProtobufDeserializer(empty_pb2.Empty, {}, self._client)
        proto, pool = asking._get_parsed_schema(schema)
        file = pool.FindFileByName(proto.name)
        parsers: dict[tuple[int, ...], Any] = {}

        def read(value: bytes) -> Mapping[str, Any]:
            frame = SchemaId("PROTOBUF")
            frame.from_bytes(BytesIO(value))
            path = tuple(frame.message_indexes or (0,))
            if path not in parsers:
                parsers[path] = ProtobufDeserializer(_message(file, path))
            return _fields(parsers[path](value), self._unset)

        return read


def refuse_bombs(schema: Any) -> None:
    """Refuse an Avro schema by which a short record could fill the memory, or overflow the decoder's stack.

    Every type takes a byte at least, unless it is the null of a union. So a record expands to at most
    `_TYPES` values, and `_DEEPEST_ITEM` + 1 for each of its bytes.

    Raises
    ------
    ValueError
        if it does not hold, or the schema is not of a record or a union of records.
    """
    named: dict[str, Any] = {}
    whole = schema if isinstance(schema, list) else [schema]
    waiting = [(each, 0) for each in reversed(whole) if each != "null"]
    types = 0
    while waiting:
        found, depth = waiting.pop()
        found = named.get(found, found) if isinstance(found, str) else found
        types += 1
        if types > _TYPES or depth > _DEEPEST:
            raise ValueError(
                f"it has more than {_TYPES:,} types, or they are nested deeper than {_DEEPEST}, or"
                f" {_DEEPEST_ITEM} in the items of an array or map; perhaps a type holds itself"
            )
        item = max(depth + 1, _DEEPEST - _DEEPEST_ITEM)
        match found:
            case list():
                waiting += [(each, depth) for each in reversed(found) if each != "null"]
            case {"type": "record" | "error", "name": name, "fields": [_, *_] as fields}:
                named[name] = found
                waiting += [(field["type"], depth + 1) for field in reversed(fields)]
            case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
                waiting.append((inner, item))
            case "null" | {"type": "null" | "record" | "error"} | {"type": "fixed", "size": 0}:
                raise ValueError("it has a type that takes no bytes: a short record could fill the memory")
            case {"type": list() | dict() as inner}:
                waiting.append((inner, depth))
    names = [each if isinstance(each, str) else each.get("name") for each in whole if each != "null"]
    if not named.keys() >= {*names}:
        raise ValueError("it is not of a record")


def _bounded(kind: str) -> Callable[..., Any]:
    read = LOGICAL_READERS[kind]

    def bounded(data: bytes, *others: Any) -> Any:
        """Return a decimal as fastavro does, whose time grows with the square of the bytes and more."""
        if len(data) > _DECIMAL_BYTES:
            raise ValueError(f"a decimal may have at most {_DECIMAL_BYTES} bytes, got {len(data):,}")
        return read(data, *others)

    return bounded


LOGICAL_READERS.update({kind: _bounded(kind) for kind in ("bytes-decimal", "fixed-decimal")})


def _message(file: Any, path: tuple[int, ...]) -> Any:
    """Return the class of messages at indexes from the file inwards."""
    kinds = file.message_types_by_name.values()
    for index in path:
        if not 0 <= index < len(kinds):
            raise ValueError(f"its file has no message with the indexes {list(path)}")
        kind = kinds[index]
        kinds = kind.nested_types
    return message_factory.GetMessageClass(kind)


def _fields(message: Any, unset: Set[str]) -> dict[str, Any]:
    """Return the fields of a message, None for those that are absent."""
    found = {field: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
    return {
        field.name: _plain(field, value)
        if (message.HasField(field.name) if field.has_presence else value or field.name not in unset)
        else None
        for field, value in found.items()
    }


def _plain(field: Any, value: Any) -> Any:
    if field.is_repeated:
        return value
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    inner = field.message_type and field.message_type.full_name
    if inner == timestamp_pb2.Timestamp.DESCRIPTOR.full_name:
        return value.ToNanoseconds() / 1e9
    return value.value if inner in _WRAPPERS else value
