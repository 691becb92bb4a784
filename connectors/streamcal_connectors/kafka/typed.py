"""Records whose fields have types, from Avro or Protobuf, as events.

Their columns take the way of the columns of tables (`streamcal.events.table_codec`), so all rules are those
of files: a null, or a field that is not set, is an absent field. What is no number or text there (a datetime,
a decimal) becomes one here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from streamcal.events import Domain, Event
from streamcal.events.columns import Columns, Role
from streamcal.events.fields import Fields, Malformed, check_kept, count_names, malformed
from streamcal.events.table_codec import RowsDecoder
from streamcal.times import read_time

__all__ = ["HEAD_BYTES", "Reader", "Schema", "TypedValues", "Wanted", "by_kind", "merged", "zigzag"]

HEAD_BYTES: Final = 5
"""Of a value with a schema: the magic byte 0, and the id in four bytes."""

_TEXT: Final = frozenset({str})
_FORMS: Final[dict[Role, frozenset[type]]] = {
    "id": _TEXT,
    "score": frozenset({float}),
    "label": frozenset({bool, int, float, str}),
    "time": frozenset({float}),
    "key": _TEXT,
    "domain": _TEXT,
}  # in which RowsDecoder takes a column

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Wanted(NamedTuple):
    """A field to read."""

    name: str
    role: Role | None
    """None: it passes through."""


class Reader(NamedTuple):
    """What reads values of one type."""

    read: Callable[[bytes], Sequence[Any]]
    """Returns the fields of a value in the order in which they were wanted, None for those that are absent;
    raises whatever it likes if the value is none of its type."""
    scale: float | None
    """How many a second has of what a whole number is as a time; None: its magnitude tells."""


class Schema(Protocol):
    """A schema: of one type of values, or of several."""

    def type_of(self, value: bytes) -> tuple[int, ...]:
        """Return which type a value has; raises ValueError if that cannot be told."""

    def names(self, path: tuple[int, ...]) -> list[str]:
        """Return the names of the fields of a type; raises ValueError if there is no such type."""

    def reader(self, path: tuple[int, ...], wanted: Sequence[Wanted]) -> Reader:
        """Return what reads the values of a type."""


class TypedValues:
    """Decode values of one schema into events.

    Parameters
    ----------
    number
        the id of the schema.
    schema
        it.
    domain
        domain of events that do not state one.
    columns
        the names of the fields.
    """

    def __init__(self, number: int, schema: Schema, domain: Domain, columns: Columns) -> None:
        self._number, self._schema = number, schema
        self._domain: Domain = domain
        self._columns = columns
        self._of: dict[tuple[int, ...], _OfOneType] = {}

    def count_unknown(self, counted: Counter[str]) -> None:
        """Add how often a field was ignored so far because events have no such field."""
        for each in self._of.values():
            each.count_unknown(counted)

    def decode(self, values: Sequence[bytes]) -> Sequence[Event | Malformed]:
        """Return the event of each value, or why it is not one; never raises on bad input."""
        kinds, groups = by_kind(values, self._type_of)
        found: dict[Any, Sequence[Event | Malformed]] = {}
        for kind, indices in groups.items():
            part = values if len(groups) == 1 else [values[index] for index in indices]
            if isinstance(kind, Malformed):
                found[kind] = [kind] * len(part)
                continue
            if kind not in self._of:
                try:
                    names = self._schema.names(kind)
                    made = _OfOneType(self._number, self._schema, kind, names, self._domain, self._columns)
                except ValueError as error:
                    found[kind] = [self._malformed(error)] * len(part)
                    continue
                self._of[kind] = made
            found[kind] = self._of[kind].decode(part)
        return merged(kinds, found)

    def _type_of(self, value: bytes) -> tuple[int, ...] | Malformed:
        try:
            return self._schema.type_of(value)
        except ValueError as error:
            return self._malformed(error)

    def _malformed(self, error: ValueError) -> Malformed:
        return malformed(ValueError(f"schema {self._number}: {error}"), b"")


class _OfOneType:
    def __init__(
        self,
        number: int,
        schema: Schema,
        path: tuple[int, ...],
        names: list[str],
        domain: Domain,
        columns: Columns,
    ) -> None:
        self._number = number
        self._rows = RowsDecoder(names, domain, columns)
        self._fields = Fields(columns, domain)
        self._roles = list(self._rows.roles)
        self._names = list(self._rows.roles.values())
        wanted = [Wanted(name, role) for role, name in self._rows.roles.items()]
        wanted += [Wanted(name, None) for name in self._rows.kept]
        self._read, self._scale = schema.reader(path, wanted)

    def count_unknown(self, counted: Counter[str]) -> None:
        for name, times in self._rows.unknown_fields.items():
            count_names(counted, [name], times)

    def decode(self, values: Sequence[bytes]) -> Sequence[Event | Malformed]:
        apart: dict[int, Event | Malformed] = {}
        rows: list[Sequence[Any]] = []
        read = self._read
        for index, value in enumerate(values):
            try:
                rows.append(read(value))
            except Exception as error:  # the boundary: no value may end a run
                said = " ".join(str(error).split())
                reason = f"not to be decoded with schema {self._number}: {type(error).__name__}: {said}"
                apart[index] = malformed(ValueError(reason), b"")
        if not rows:
            return [apart[index] for index in range(len(values))]
        columns = list(zip(*rows, strict=True))
        roles = {
            role: self._in_form(role, column) for role, column in zip(self._roles, columns, strict=False)
        }
        kept = [list(map(_kept, column)) for column in columns[len(roles) :]]
        odd = {
            index
            for role, column in roles.items()
            if not _FORMS[role].issuperset(set(map(type, column)) - {NoneType})
            for index, value in enumerate(column)
            if value is not None and type(value) not in _FORMS[role]
        }
        if not odd and not apart:
            return self._rows.decode(roles, kept, len(rows))
        whole = [index for index in range(len(rows)) if index not in odd]
        plain = iter(
            self._rows.decode(
                {role: [column[index] for index in whole] for role, column in roles.items()},
                [[column[index] for index in whole] for column in kept],
                len(whole),
            )
            if whole
            else ()
        )
        decoded = iter(
            [
                self._one({role: column[index] for role, column in roles.items()}, [c[index] for c in kept])
                if index in odd
                else next(plain)
                for index in range(len(rows))
            ]
        )
        return [apart[index] if index in apart else next(decoded) for index in range(len(values))]

    def _one(self, roles: Mapping[Role, Any], kept: Sequence[Any]) -> Event | Malformed:
        """Decode a row with a value that no column can hold."""
        fields = {
            name: value for name, value in zip(self._names, roles.values(), strict=True) if value is not None
        }
        try:
            values = tuple(map(check_kept, self._rows.kept, kept))
            return self._fields.event(fields, values)
        except Exception as error:  # the boundary: no value may end a run
            return malformed(error, b"")

    def _in_form(self, role: Role, column: Sequence[Any]) -> Sequence[Any]:
        """Return a column with its values in the form of its role, where they have one."""
        kinds = set(map(type, column)) - {NoneType}
        if kinds <= _FORMS[role]:
            return column
        if role == "time":
            scale = self._scale or 1.0
            if kinds == {int}:
                return [None if value is None else value / scale for value in column]
            return [value / scale if type(value) is int else _moment(value) for value in column]
        convert = {"id": _id, "score": _score, "label": _label}.get(role, _text)
        return [None if value is None else convert(value) for value in column]


def by_kind(values: Sequence[V], kind_of: Callable[[V], K]) -> tuple[list[K], dict[K, list[int]]]:
    """Return the kind of each value, and by kind their indices."""
    kinds = list(map(kind_of, values))
    groups: dict[K, list[int]] = {kind: [] for kind in kinds}
    if len(groups) > 1:
        for index, kind in enumerate(kinds):
            groups[kind].append(index)
    return kinds, groups


def merged(kinds: Sequence[K], parts: Mapping[K, Sequence[Event | Malformed]]) -> Sequence[Event | Malformed]:
    """Return the events of all kinds in one order: that of their kinds."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    events = {kind: iter(part) for kind, part in parts.items()}
    return [next(events[kind]) for kind in kinds]


def zigzag(value: bytes, at: int) -> tuple[int, int]:
    """Return the whole number at a place of a value, as Avro and Protobuf write it, and the place behind it.

    Raises
    ------
    ValueError
        if the value ends within it, or it has more than 64 bits.
    """
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(value):
            break
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError("what tells its type is cut off")


def _id(value: Any) -> Any:
    return str(value) if type(value) in (int, UUID) else value


def _score(value: Any) -> Any:
    return float(value) if type(value) in (int, Decimal) else value


def _label(value: Any) -> Any:
    return float(value) if type(value) is Decimal else value


def _text(value: Any) -> Any:
    return str(value) if type(value) is UUID else value


def _moment(value: Any) -> Any:
    """Return a date, a text or a number as a time is read; what is none as it is."""
    try:
        return None if value is None else read_time(float(value) if type(value) is Decimal else value)
    except ValueError:
        return value


def _kept(value: Any) -> Any:
    """Return a value that passes through as what JSON can hold: times and decimals as text."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value
