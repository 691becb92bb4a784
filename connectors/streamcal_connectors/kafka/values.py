"""Decoders of the values of records: JSON text, or text or bytes behind the id of a schema.

The frame is Confluent's: a zero byte, the id of the schema in four bytes, for Protobuf the message's indexes,
then the data. JSON text never begins with a zero byte, so a topic may hold both.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from streamcal.events import Domain, Event
from streamcal.events.codec import JsonDecoder
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed, count_names
from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.registry import AwayError, Kind, Registry
from streamcal_connectors.kafka.typed import HEAD_BYTES, Decoder, Schema, TypedValues, refusing

__all__ = ["Values"]

log = logging.getLogger("streamcal_connectors")


class Values:
    """Decodes the values of records: JSON text and, with a registry, values with a schema.

    Asks for each schema once. One that is not to be had ends the run, for then the registry is probably the
    wrong one; but once another of this source was had, its records are rejected.

    Parameters
    ----------
    registry
        where the schemas are; None: there are none.
    domain
        domain of events that do not state one.
    columns
        the names of the fields.
    """

    def __init__(self, registry: Registry | None, domain: Domain, columns: Columns | None) -> None:
        self._registry = registry
        self._domain: Domain = domain
        self._columns = columns or Columns()
        self._json = JsonDecoder(domain, columns)
        self._decode_plain: Decoder = self._decode_json
        self._decode_framed: Decoder = lambda values: self._decode_json([v[HEAD_BYTES:] for v in values])
        self._schemas: dict[bytes, Schema | None] = {}  # by head; None: JSON
        self._refused: dict[bytes, Decoder] = {}  # by head: schemas that are not to be had
        self._types: dict[tuple[bytes, tuple[int, ...]], TypedValues] = {}  # by head and type
        self._away = False

    @property
    def unknown_fields(self) -> Counter[str]:
        """Counts of fields that were ignored because events have no such field; see `JsonDecoder`."""
        counted = Counter(self._json.unknown_fields)
        for each in self._types.values():
            for name, times in each.rows.unknown_fields.items():
                count_names(counted, [name], times)
        return counted

    def prepare(self, found: Mapping[TopicPartition, Chunk]) -> bool:
        """Get the schemas of records; return False if that has to wait.

        Raises
        ------
        OSError, ValueError
            if they are not to be had.
        """
        if self._registry is None:
            return True
        new: dict[bytes, tuple[TopicPartition, int]] = {}
        for partition, chunk in found.items():
            for offset, value in zip(chunk.offsets, chunk.values, strict=True):
                if value is not None and _is_framed(value) and value[:HEAD_BYTES] not in self._schemas:
                    new.setdefault(value[:HEAD_BYTES], (partition, offset))
        wrong: dict[bytes, Exception] = {}
        for head in new:
            try:
                self._schemas[head] = _made(*self._registry.schema(_id_of(head)))
            except AwayError as error:
                if not self._away:
                    self._away = True
                    log.warning("%s is away (%s): waiting for it", self._registry, error)
                return False
            except (LookupError, ValueError) as error:
                wrong[head] = error
        if new and self._away:
            self._away = False
            log.info("%s is back: going on", self._registry)
        if wrong and not self._schemas:
            head, why = next(iter(wrong.items()))
            (topic, number), offset = new[head]
            advice = "See docs/kafka.md, 'Values with a schema'"
            if isinstance(why, LookupError):
                advice = "Let schema_registry of the [kafka] options be the one that its producer uses"
            raise ValueError(
                f"topic {topic}, partition {number}, offset {offset} is of schema {_id_of(head)}:"
                f" {why.args[0]}. {advice}"
            )
        self._refused = {head: refusing(str(why.args[0])) for head, why in wrong.items()}
        return True

    def decode(self, values: Sequence[bytes | None]) -> Sequence[Event | Malformed]:
        """Return the event of each value, or why it is not one; never raises on bad input."""
        if self._registry is None:
            return self._decode_json(values)
        decoders = list(map(self._decoder, values))
        if len({*decoders}) == 1:
            return decoders[0](values)
        parts: dict[Decoder, list[bytes | None]] = {}
        for decoder, value in zip(decoders, values, strict=True):
            parts.setdefault(decoder, []).append(value)
        events = {decoder: iter(decoder(part)) for decoder, part in parts.items()}
        return [next(events[decoder]) for decoder in decoders]

    def _decode_json(self, values: Sequence[bytes | None]) -> Sequence[Event | Malformed]:
        if None not in values:
            block = b"\n".join(values)  # type: ignore[arg-type]  # none is None
            if block.count(b"\n") == len(values) - 1:
                events = self._json.decode_lines(block)
                if events is not None and len(events) == len(values):
                    return events
        return [self._one(value) for value in values]

    def _one(self, value: bytes | None) -> Event | Malformed:
        if value is None:
            return Malformed("the record has no value")
        event = self._json.decode(value)
        if self._registry is None and _is_framed(value) and type(event) is Malformed:
            return Malformed(
                f"not JSON, but as of schema {_id_of(value[:HEAD_BYTES])}: schema_registry of the [kafka]"
                " options says where schemas are",
                code="not_json",
            )
        return event

    def _decoder(self, value: bytes | None) -> Decoder:
        if value is None or not _is_framed(value):
            return self._decode_plain
        head = value[:HEAD_BYTES]
        if head not in self._schemas:
            return self._refused[head]
        schema = self._schemas[head]
        if schema is None:
            return self._decode_framed
        number = _id_of(head)
        try:
            path = schema.type_of(value)
            if (head, path) not in self._types:
                self._types[head, path] = TypedValues(number, schema, path, self._domain, self._columns)
        except ValueError as error:
            return refusing(f"schema {number}: {error}")
        return self._types[head, path]


def _made(kind: Kind, parts: Mapping[str, bytes]) -> Schema | None:
    """Return the schema of texts from a registry; None of JSON."""
    if kind == "JSON":
        return None
    try:
        if kind == "AVRO":
            from streamcal_connectors.kafka.avro import AvroSchema

            return AvroSchema(parts)
        from streamcal_connectors.kafka.protobuf import ProtobufSchema

        return ProtobufSchema(parts, is_set=kind == "DESCRIPTORS")
    except ImportError:
        raise ValueError(
            'Avro and Protobuf need fastavro and protobuf: pip install "streamcal-engine[kafka-schemas]"'
        ) from None


def _is_framed(value: bytes) -> bool:
    return len(value) > HEAD_BYTES and value[0] == 0


def _id_of(head: bytes) -> int:
    return int.from_bytes(head[1:HEAD_BYTES])
