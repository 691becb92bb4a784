"""What the values of records say: JSON text, or text or bytes behind the id of a schema.

The frame is Confluent's: a zero byte, the id of the schema in four bytes, for Protobuf the message's indexes,
then the data. JSON text never begins with a zero byte, so a topic may hold both.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from streamcal.events import Domain, Event
from streamcal.events.codec import JsonDecoder
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed, malformed
from streamcal_connectors.kafka.client import Chunk, Partition
from streamcal_connectors.kafka.registry import AwayError, Registry, Schema
from streamcal_connectors.kafka.typed import HEAD_BYTES, TypedValues, by_kind, merged

__all__ = ["FramedValues", "JsonValues", "Values"]

log = logging.getLogger("streamcal_connectors")

_MAGIC: Final = 0
_PLAIN: Final = b""  # the head of what is not framed
_ID: Final = struct.Struct(">xI")


class Values(Protocol):
    """Decodes the values of records."""

    @property
    def unknown_fields(self) -> Counter[str]:
        """How often a field was ignored because events have no such field; see `JsonDecoder`."""

    def prepare(self, found: Mapping[Partition, Chunk]) -> bool:
        """Get what these records need to be decoded; return False if that has to wait.

        Raises
        ------
        OSError, ValueError
            if they never can be.
        """

    def decode(self, values: Sequence[bytes | None]) -> Sequence[Event | Malformed]:
        """Return the event of each value, or why it is not one; never raises on bad input."""


class JsonValues:
    """Decodes JSON text; see `Values`.

    Parameters
    ----------
    domain
        domain of events that do not state one.
    columns
        the names of the fields.
    """

    def __init__(self, domain: Domain, columns: Columns | None) -> None:
        self._decoder = JsonDecoder(domain, columns)

    @property
    def unknown_fields(self) -> Counter[str]:
        """How often a field was ignored; see `Values`."""
        return self._decoder.unknown_fields

    def prepare(self, found: Mapping[Partition, Chunk]) -> bool:  # noqa: ARG002
        """Do nothing; see `Values`."""
        return True

    def decode(self, values: Sequence[bytes | None]) -> Sequence[Event | Malformed]:
        """Decode every value; see `Values`."""
        if None not in values:
            block = b"\n".join(values)  # type: ignore[arg-type]  # none is None
            if block.count(b"\n") == len(values) - 1:
                events = self._decoder.decode_lines(block)
                if events is not None and len(events) == len(values):
                    return events
        return [self._one(value) for value in values]

    def _one(self, value: bytes | None) -> Event | Malformed:
        if value is None:
            return Malformed("the record has no value")
        event = self._decoder.decode(value)
        if _is_framed(value) and type(event) is Malformed:
            return Malformed(
                f"not JSON, but as of schema {_id_of(value[:HEAD_BYTES])}: schema_registry of the [kafka]"
                " options says where schemas are"
            )
        return event


class FramedValues:
    """Decodes values with a schema, and JSON text; see `Values`.

    Asks for each schema once. One that is not to be had ends the run, for then the registry is probably the
    wrong one; but once another of this source was had, its records are rejected.

    Parameters
    ----------
    registry
        where the schemas are.
    domain, columns
        as of `JsonValues`.
    """

    def __init__(self, registry: Registry, domain: Domain, columns: Columns | None) -> None:
        self._registry = registry
        self._domain: Domain = domain
        self._columns = columns or Columns()
        self._json = JsonValues(domain, columns)
        self._known: dict[bytes, TypedValues | None] = {}  # by head; None: JSON
        self._unknown: dict[bytes, Malformed] = {}
        self._away = False

    @property
    def unknown_fields(self) -> Counter[str]:
        """How often a field was ignored; see `Values`."""
        counted = Counter(self._json.unknown_fields)
        for each in self._known.values():
            if each is not None:
                each.count_unknown(counted)
        return counted

    def prepare(self, found: Mapping[Partition, Chunk]) -> bool:
        """Get the schemas of records; see `Values`."""
        new: dict[bytes, tuple[Partition, int]] = {}
        for partition, chunk in found.items():
            for offset, value in zip(chunk.offsets, chunk.values, strict=True):
                head = _PLAIN if value is None else _head(value)
                if head != _PLAIN and head not in self._known:
                    new.setdefault(head, (partition, offset))
        self._unknown = {}
        met: dict[bytes, Exception] = {}
        for head in new:
            number = _id_of(head)
            try:
                self._known[head] = self._typed(number, self._registry.schema(number))
            except AwayError as error:
                if not self._away:
                    self._away = True
                    log.warning("%s is away (%s): waiting for it", self._registry, error)
                return False
            except (LookupError, ValueError) as error:
                met[head] = error
        if new and self._away:
            self._away = False
            log.info("%s is back: going on", self._registry)
        for head, why in met.items():
            said = str(why.args[0])
            if not self._known:
                first, at = new[head]
                place = f"topic {first.topic}, partition {first.partition}, offset {at}"
                raise ValueError(f"{place} is of schema {_id_of(head)}: {said}. {_advice(why)}")
            self._unknown[head] = malformed(ValueError(said), b"")
        return True

    def decode(self, values: Sequence[bytes | None]) -> Sequence[Event | Malformed]:
        """Decode every value; see `Values`."""
        heads, groups = by_kind(values, lambda value: _PLAIN if value is None else _head(value))
        parts: dict[bytes, Sequence[Event | Malformed]] = {}
        for head, indices in groups.items():
            part: Sequence[Any] = values if len(groups) == 1 else [values[index] for index in indices]
            if head == _PLAIN:
                parts[head] = self._json.decode(part)
            elif head in self._unknown:
                parts[head] = [self._unknown[head]] * len(part)
            elif (typed := self._known[head]) is None:
                parts[head] = self._json.decode([value[HEAD_BYTES:] for value in part])
            else:
                parts[head] = typed.decode(part)
        return merged(heads, parts)

    def _typed(self, number: int, schema: Schema) -> TypedValues | None:
        if schema.kind == "JSON":
            return None
        try:
            if schema.kind == "AVRO":
                from streamcal_connectors.kafka.avro import AvroSchema

                return TypedValues(number, AvroSchema(schema.parts), self._domain, self._columns)
            from streamcal_connectors.kafka.protobuf import ProtobufSchema

            is_set = schema.kind == "DESCRIPTORS"
            made = ProtobufSchema(schema.parts, is_set=is_set)
            return TypedValues(number, made, self._domain, self._columns)
        except ImportError:
            raise ValueError(
                'Avro and Protobuf need fastavro and protobuf: pip install "streamcal-engine[kafka-schemas]"'
            ) from None


def _advice(why: Exception) -> str:
    if isinstance(why, LookupError):
        return "Let schema_registry of the [kafka] options be the one that its producer uses"
    return "See docs/kafka.md, 'Values with a schema'"


def _is_framed(value: bytes) -> bool:
    return len(value) > HEAD_BYTES and value[0] == _MAGIC


def _head(value: bytes) -> bytes:
    return value[:HEAD_BYTES] if _is_framed(value) else _PLAIN


def _id_of(head: bytes) -> int:
    number: int = _ID.unpack(head)[0]
    return number
