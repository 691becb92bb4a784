"""Decoders of the values of records: JSON text, or what a schema says behind its id.

JSON text never begins with a zero byte, as what has a schema does (`schemas`); a topic may hold both. The
columns of what has a schema take the way of those of tables (`streamcal.events.table_codec`), so all rules
are those of files: a null, or a field that is not set, is an absent field.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from streamcal.events import Domain, Event
from streamcal.events.codec import JsonDecoder
from streamcal.events.columns import Columns, Role
from streamcal.events.fields import Malformed, count_names, malformed, plain_kept
from streamcal.events.table_codec import RowsDecoder, in_form
from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.errors import brief

if TYPE_CHECKING:
    from streamcal_connectors.kafka.schemas import Read, Registry

log = logging.getLogger("streamcal_connectors")


_HEAD_BYTES: Final = 5  # of a value with a schema: a zero byte, and the id
_MOST_BYTES: Final = 1 << 20  # of such a value: it may expand to many times as many
_UNSET: Final[tuple[Role, ...]] = ("id", "key", "time", "domain")  # roles without a value that is a default


class Values:
    """Decodes the values of records: JSON text and, with a registry, values with a schema.

    Asks for each schema once. One that is not to be had ends the run, for then the registry is probably the
    wrong one; but once another of this source was had, its records are rejected.

    Parameters
    ----------
    registry
        options of the client of the registry that has them; empty: there is none.
    domain
        domain of events that do not state one.
    columns
        the names of the fields.
    """

    def __init__(self, registry: Mapping[str, Any], domain: Domain, columns: Columns | None) -> None:
        self._domain: Domain = domain
        self._columns = columns or Columns()
        self._json = JsonDecoder(domain, columns)
        self._registry = _opened(registry, self._columns) if registry else None
        self._readers: dict[bytes, Read | None] = {}  # by head; None: JSON
        self._refused: dict[bytes, Malformed] = {}  # by head: schemas that are not to be had
        self._rows: dict[tuple[str, ...], RowsDecoder] = {}  # by the names of fields
        self._away = False

    @property
    def unknown_fields(self) -> Counter[str]:
        """Counts of fields that were ignored because events have no such field; see `JsonDecoder`."""
        counted = Counter(self._json.unknown_fields)
        for decoder in self._rows.values():
            for name, times in decoder.unknown_fields.items():
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
                if value is not None and _is_framed(value) and value[:_HEAD_BYTES] not in self._readers:
                    new.setdefault(value[:_HEAD_BYTES], (partition, offset))
        wrong: dict[bytes, Exception] = {}
        for head in new:
            try:
                self._readers[head] = self._registry.reader(_id_of(head))
            except ConnectionError as error:
                if not self._away:
                    self._away = True
                    log.warning("%s is away (%s): waiting for it", self._registry, error)
                return False
            except (LookupError, ValueError) as error:
                wrong[head] = error
        if new and self._away:
            self._away = False
            log.info("%s is back: going on", self._registry)
        if wrong and not self._readers:
            head, why = next(iter(wrong.items()))
            (topic, number), offset = new[head]
            advice = "See docs/kafka.md, 'Values with a schema'"
            if isinstance(why, LookupError):
                advice = "Let schema_registry of the [kafka] options be the one that its producer uses"
            raise ValueError(
                f"topic {topic}, partition {number}, offset {offset} is of schema {_id_of(head)}:"
                f" {why}. {advice}"
            )
        self._refused = {head: malformed(ValueError(str(why))) for head, why in wrong.items()}
        return True

    def decode(self, values: Sequence[bytes | None]) -> Sequence[Event | Malformed]:
        """Return the event of each value, or why it is not one; never raises on bad input."""
        if self._registry is None:
            return self._decode_json(values)
        found: dict[int, Event | Malformed] = {}
        texts: dict[int, bytes | None] = {}
        kinds: dict[tuple[str, ...], dict[int, Mapping[str, Any]]] = {}  # rows, by the names of fields
        for index, value in enumerate(values):
            head = value[:_HEAD_BYTES] if value is not None and _is_framed(value) else None
            if value is None or head is None:
                texts[index] = value
            elif head in self._refused:
                found[index] = self._refused[head]
            elif (read := self._readers[head]) is None:
                texts[index] = value[_HEAD_BYTES:]
            else:
                row = _row(read, value)
                if isinstance(row, Malformed):
                    found[index] = row
                else:
                    kinds.setdefault(tuple(row), {})[index] = row
        parts: list[tuple[Iterable[int], Sequence[Event | Malformed]]] = [
            (rows, self._decode_rows(names, list(rows.values()))) for names, rows in kinds.items()
        ]
        if texts:
            parts.append((texts, self._decode_json(list(texts.values()))))
        if len(parts) == 1 and not found:
            return parts[0][1]
        for places, events in parts:
            found.update(zip(places, events, strict=True))
        return [found[index] for index in range(len(values))]

    def _decode_rows(
        self, names: tuple[str, ...], rows: Sequence[Mapping[str, Any]]
    ) -> Sequence[Event | Malformed]:
        """Return the events of rows that have the same fields."""
        if names not in self._rows:
            try:
                self._rows[names] = RowsDecoder(names, self._domain, self._columns)
            except ValueError as error:
                return [malformed(error)] * len(rows)
        decoder = self._rows[names]
        roles = {role: in_form(role, [row[name] for row in rows]) for role, name in decoder.roles.items()}
        kept = [[plain_kept(row.get(name)) for row in rows] for name in decoder.kept]
        return decoder.decode(roles, kept, len(rows))

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
            return Malformed("malformed")
        event = self._json.decode(value)
        if self._registry is None and _is_framed(value) and type(event) is Malformed:
            return Malformed("not_json", {"schema": _id_of(value)})
        return event


def _opened(options: Mapping[str, Any], columns: Columns) -> Registry:
    try:
        from streamcal_connectors.kafka.schemas import Registry
    except ImportError:
        raise ValueError(
            'schema_registry needs confluent-kafka: pip install "streamcal-engine[kafka-schemas]"'
        ) from None
    return Registry(options, frozenset(columns.names[role] for role in _UNSET))


def _is_framed(value: bytes) -> bool:
    return len(value) > _HEAD_BYTES and value[0] == 0


def _id_of(value: bytes) -> int:
    return int.from_bytes(value[1:_HEAD_BYTES])


def _row(read: Read, value: bytes) -> Mapping[str, Any] | Malformed:
    """Return the fields of a value, or why it has none."""
    number, wrong = _id_of(value), f"it may have at most {_MOST_BYTES:,} bytes, got {len(value):,}"
    if len(value) <= _MOST_BYTES:
        try:
            row = read(value)
        except Exception as error:  # the boundary: no value may end a run
            wrong = brief(error)
        else:
            if isinstance(row, dict):
                return row
            wrong = "it is no record"
    return Malformed("malformed", {"schema": number, "error": wrong})
