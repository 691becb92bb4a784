"""Decoders of the values of records: JSON text, or text or bytes behind the id of a schema.

The frame is Confluent's: a zero byte, the id of the schema in four bytes, for Protobuf the message's indexes,
then the data. JSON text never begins with a zero byte, so a topic may hold both.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from streamcal.events import Domain, Event
from streamcal.events.codec import JsonDecoder
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed
from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.registry import AwayError, Registry
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
        self._typed: list[TypedValues] = []
        self._known: dict[bytes, Callable[[bytes], Decoder]] = {}  # by head: tells the decoder of a value
        self._refused: dict[bytes, Decoder] = {}  # by head: schemas that are not to be had
        self._away = False

    @property
    def unknown_fields(self) -> Counter[str]:
        """Counts of fields that were ignored because events have no such field; see `JsonDecoder`."""
        counted = Counter(self._json.unknown_fields)
        for each in self._typed:
            each.count_unknown(counted)
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
                if value is not None and _is_framed(value) and value[:HEAD_BYTES] not in self._known:
                    new.setdefault(value[:HEAD_BYTES], (partition, offset))
        wrong: dict[bytes, Exception] = {}
        for head in new:
            try:
                self._known[head] = self._chooser(_id_of(head), self._registry)
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
        if wrong and not self._known:
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
                " options says where schemas are"
            )
        return event

    def _decoder(self, value: bytes | None) -> Decoder:
        if value is None or not _is_framed(value):
            return self._decode_plain
        head = value[:HEAD_BYTES]
        chooser = self._known.get(head)
        return self._refused[head] if chooser is None else chooser(value)

    def _chooser(self, number: int, registry: Registry) -> Callable[[bytes], Decoder]:
        """Return a function that tells the decoder of a value of a schema."""
        kind, parts = registry.schema(number)
        if kind == "JSON":
            return lambda _: self._decode_framed
        made: Schema
        try:
            if kind == "AVRO":
                from streamcal_connectors.kafka.avro import AvroSchema

                made = AvroSchema(parts)
            else:
                from streamcal_connectors.kafka.protobuf import ProtobufSchema

                made = ProtobufSchema(parts, is_set=kind == "DESCRIPTORS")
        except ImportError:
            raise ValueError(
                'Avro and Protobuf need fastavro and protobuf: pip install "streamcal-engine[kafka-schemas]"'
            ) from None
        typed = TypedValues(number, made, self._domain, self._columns)
        self._typed.append(typed)
        return typed.decoder


def _is_framed(value: bytes) -> bool:
    return len(value) > HEAD_BYTES and value[0] == 0


def _id_of(head: bytes) -> int:
    return int.from_bytes(head[1:HEAD_BYTES])
