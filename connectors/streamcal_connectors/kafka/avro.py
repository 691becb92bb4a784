"""Avro: schemas, and readers of their records."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro
import msgspec
from fastavro.read import LOGICAL_READERS

from streamcal.events.columns import Role
from streamcal_connectors.kafka.typed import HEAD_BYTES, Read, zigzag

__all__ = ["AvroSchema"]

_SCALES: Final = {
    f"{local}timestamp-{unit}": scale
    for local in ("", "local-")
    for unit, scale in (("millis", 1e3), ("micros", 1e6), ("nanos", 1e9))
}  # logical types of long: how many a second has; what is local is taken for UTC, as a text without a zone is
_WHOLE: Final = ("int", "long")
_VALUES: Final = 8  # that a record may expand to for each of its bytes
_EXPANDED: Final = 1_000  # and so many more
_DEEPEST: Final = 64  # types in types: the decoder calls itself for each
_TOO_DEEP: Final = f"its types are nested deeper than {_DEEPEST}"
_ITEMS: Final = {"array": "items", "map": "values"}
_DECIMAL: Final = "streamcal-decimal"  # a logical type of our own
_DECIMAL_BYTES: Final = 256  # more than 600 digits


class AvroSchema:
    """An Avro schema: of a record, or of a union of records, which are types of their own.

    Parameters
    ----------
    parts
        texts by name: first those that others refer to, at last the schema itself.

    Raises
    ------
    ValueError
        if fastavro cannot use it; if it is recursive: a damaged record could then overflow the decoder's
        stack, which ends the process; or if a record could expand to more values than its bytes allow for.
    """

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self._named: dict[str, Any] = {}
        self._costs: dict[str, _Cost] = {}  # of records, by name
        try:
            for text in parts.values():
                whole = fastavro.parse_schema(msgspec.json.decode(text), named_schemas=self._named)
        except Exception as error:  # whatever a schema does to the library
            raise ValueError(f"fastavro cannot use it: {type(error).__name__}: {error}") from None
        if self._cost(whole, ()).excess > _EXPANDED:
            raise ValueError(
                f"its types expand to more than {_EXPANDED:,} values that take no bytes: a short record could"
                " fill the memory, so such schemas are not read"
            )
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

    def _cost(self, schema: Any, within: tuple[str, ...]) -> _Cost:
        """Return what one of a type may cost; refuse it if its items could exceed what their bytes allow."""
        schema = self._known(schema)
        if len(within) > _DEEPEST:
            raise ValueError(_TOO_DEEP)
        if isinstance(schema, list):  # the number of the branch takes a byte
            return _outside(-_VALUES, [self._cost(each, (*within, "")) for each in schema], max)
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if not isinstance(kind, str):
            return self._cost(kind, (*within, ""))
        if kind in _ITEMS:  # the end takes a byte; so does the key of each value of a map
            items = self._cost(schema[_ITEMS[kind]], (*within, ""))
            if items.excess > (_VALUES if kind == "map" else 0):
                raise ValueError(
                    f"the items of its {kind} take no bytes, or hardly any for what they hold: a short record"
                    " could fill the memory, so such schemas are not read"
                )
            return _outside(1 - _VALUES, [items._replace(excess=0)], sum)
        if _is_record(schema):
            return self._cost_of_record(schema, within)
        if isinstance(schema, Mapping) and schema.get("logicalType") == "decimal":
            schema["logicalType"] = _DECIMAL  # type: ignore[index]  # a dict
        least = {"null": 0, "fixed": schema["size"] if kind == "fixed" else 0}.get(kind, 1)
        return _Cost(1 - _VALUES * least, 1)

    def _cost_of_record(self, schema: Any, within: tuple[str, ...]) -> _Cost:
        name = schema["name"]
        if name in within:
            raise ValueError(
                f"its type {name!r} holds itself: a damaged record could end the process, so such schemas are"
                " not read"
            )
        if name not in self._costs:
            fields = [self._cost(field["type"], (*within, name)) for field in schema["fields"]]
            self._costs[name] = _outside(1, fields, sum)
        return self._costs[name]


class _Cost(NamedTuple):
    """Most that a type may cost to decode, whatever its bytes are."""

    excess: int
    """Values that one of it expands to, beyond `_VALUES` for each byte that it takes.

    Items of arrays and maps have no part in it: they never exceed what their own bytes allow."""
    depth: int
    """Types in types."""


def _outside(excess: int, inside: Sequence[_Cost], joined: Callable[[list[int]], int]) -> _Cost:
    """Return the cost of a type around others."""
    depth = 1 + max((each.depth for each in inside), default=0)
    if depth > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    return _Cost(excess + (joined([each.excess for each in inside]) if inside else 0), depth)


def _bounded_decimal(data: bytes, schema: Any, *_: Any) -> Any:
    """Return a decimal as fastavro does, whose time grows with the square of the bytes and more."""
    if len(data) > _DECIMAL_BYTES:
        raise ValueError(f"a decimal may have at most {_DECIMAL_BYTES} bytes, got {len(data):,}")
    return LOGICAL_READERS["bytes-decimal"](data, schema, None)


LOGICAL_READERS.update({f"{kind}-{_DECIMAL}": _bounded_decimal for kind in ("bytes", "fixed")})


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
    return isinstance(schema, Mapping) and schema.get("type") in ("record", "error")
