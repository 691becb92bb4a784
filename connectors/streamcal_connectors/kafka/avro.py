"""Avro: schemas, and readers of their records."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro
import msgspec

from streamcal.events.columns import Role
from streamcal_connectors.kafka.typed import HEAD_BYTES, Read, zigzag

__all__ = ["AvroSchema"]

_SCALES: Final = {
    f"{local}timestamp-{unit}": scale
    for local in ("", "local-")
    for unit, scale in (("millis", 1e3), ("micros", 1e6), ("nanos", 1e9))
}  # logical types of long: how many a second has; what is local is taken for UTC, as a text without a zone is
_WHOLE: Final = ("int", "long")


class AvroSchema:
    """An Avro schema: of a record, or of a union of records, which are types of their own.

    Parameters
    ----------
    parts
        texts by name: first those that others refer to, at last the schema itself.

    Raises
    ------
    ValueError
        if fastavro cannot use it, or if it is recursive: a damaged record could then overflow the decoder's
        stack, which ends the process.
    """

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self._named: dict[str, Any] = {}
        self._sound: set[str] = set()  # types that do not hold themselves
        try:
            for text in parts.values():
                whole = fastavro.parse_schema(msgspec.json.decode(text), named_schemas=self._named)
        except Exception as error:  # whatever a schema does to the library
            raise ValueError(f"fastavro cannot use it: {type(error).__name__}: {error}") from None
        self._refuse_recursion(whole, ())
        self._is_union = isinstance(whole, list)
        self._members = [self._known(each) for each in (whole if self._is_union else [whole])]

    def type_of(self, value: bytes) -> tuple[int, ...]:
        """Return the number of a value's type in the union; see `typed.Schema`."""
        return zigzag(value, HEAD_BYTES)[:1] if self._is_union else (0,)

    def names(self, path: tuple[int, ...]) -> list[str]:
        """Return the fields of a type; see `typed.Schema`."""
        (index,) = path
        if not 0 <= index < len(self._members) or not _is_record(self._members[index]):
            raise ValueError(
                "it is not of a record" if not self._is_union else f"its type {index} is no record"
            )
        return [field["name"] for field in self._members[index]["fields"]]

    def reader(
        self, path: tuple[int, ...], wanted: Sequence[tuple[str, Role | None]]
    ) -> tuple[Read, float | None]:
        """Return a function that reads the values of a type; see `typed.Schema`."""
        record = {**self._members[path[0]], "__fastavro_parsed": True, "__named_schemas": self._named}
        scale = next((_to_numbers(record, name) for name, role in wanted if role == "time"), None)
        names = [name for name, _ in wanted]
        decode, stream_of, is_union = fastavro.schemaless_reader, BytesIO, self._is_union

        def read(value: bytes) -> list[Any]:
            stream = stream_of(value)
            stream.seek(zigzag(value, HEAD_BYTES)[1] if is_union else HEAD_BYTES)
            row: Any = decode(stream, record)
            if (left := len(value) - stream.tell()) > 0:
                raise ValueError(f"{left} bytes follow the record")
            return list(map(row.get, names))

        return read, scale

    def _known(self, schema: Any) -> Any:
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def _refuse_recursion(self, schema: Any, within: tuple[str, ...]) -> None:
        schema = self._known(schema)
        if isinstance(schema, list):
            for each in schema:
                self._refuse_recursion(each, within)
        elif isinstance(schema, Mapping):
            for inner in ("items", "values"):
                if inner in schema:
                    self._refuse_recursion(schema[inner], within)
            if not _is_record(schema) or schema["name"] in self._sound:
                return
            if schema["name"] in within:
                raise ValueError(
                    f"its type {schema['name']!r} holds itself: a damaged record could end the process, so"
                    " such schemas are not read"
                )
            for field in schema["fields"]:
                self._refuse_recursion(field["type"], (*within, schema["name"]))
            self._sound.add(schema["name"])


def _to_numbers(record: dict[str, Any], name: str) -> float | None:
    """Let the timestamps in a field of a record be numbers; return how many a second has.

    Making a datetime of each would take as much time as all else. None: they stay what they are.
    """
    fields = copy.copy(record["fields"])
    at = next(index for index, field in enumerate(fields) if field["name"] == name)
    kind = fields[at]["type"]
    members = kind if isinstance(kind, list) else [kind]
    logical = [each["logicalType"] for each in members if isinstance(each, Mapping) and "logicalType" in each]
    plain = [each["type"] if isinstance(each, Mapping) else each for each in members]
    if len(logical) != 1 or logical[0] not in _SCALES or sum(each in _WHOLE for each in plain) != 1:
        return None
    fields[at] = {**fields[at], "type": plain if isinstance(kind, list) else plain[0]}
    record["fields"] = fields
    return _SCALES[logical[0]]


def _is_record(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "record"
