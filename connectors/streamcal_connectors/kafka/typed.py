"""Records whose fields have types, from Avro or Protobuf, as events.

Their columns take the way of the columns of tables (`streamcal.events.table_codec`), so all rules are those
of files: a null, or a field that is not set, is an absent field. A value that is no number or text there (a
datetime, a decimal) becomes one here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from types import NoneType
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from streamcal.events import Domain, Event
from streamcal.events.columns import Columns, Role
from streamcal.events.fields import Malformed, malformed, plain_kept
from streamcal.events.table_codec import RowsDecoder
from streamcal.times import read_time

__all__ = ["HEAD_BYTES", "Decoder", "Read", "Schema", "TypedValues", "refusing", "zigzag"]

HEAD_BYTES: Final = 5
"""Length of the frame of a value with a schema: the magic byte 0, and the id in four bytes."""

Decoder: TypeAlias = Callable[[Sequence[Any]], Sequence[Event | Malformed]]
"""Returns the event of each value, or why it is not one; never raises on bad input."""

Read: TypeAlias = Callable[[bytes], Sequence[Any]]
"""Returns the wanted fields of a value in their order, None for those that are absent.

Raises whatever it likes if the value is none of its type."""

_TEXT: Final = frozenset({str})
_FORMS: Final[dict[Role, frozenset[type]]] = {
    "id": _TEXT,
    "score": frozenset({float}),
    "label": frozenset({bool, int, float, str}),
    "time": frozenset({float}),
    "key": _TEXT,
    "domain": _TEXT,
}  # in which RowsDecoder takes a column

_CONVERSIONS: Final[dict[Role, dict[type, Callable[[Any], Any]]]] = {
    "id": {int: str, UUID: str},
    "score": {int: float, Decimal: float},
    "label": {Decimal: float},
    "key": {UUID: str},
    "domain": {UUID: str},
}  # of other values to these forms


class Schema(Protocol):
    """A schema: of one type of values, or of several."""

    def type_of(self, value: bytes) -> tuple[int, ...]:
        """Return the type of a value; raises ValueError if that cannot be told."""

    def names(self, path: tuple[int, ...]) -> list[str]:
        """Return the names of the fields of a type; raises ValueError if there is no such type."""

    def reader(
        self, path: tuple[int, ...], wanted: Sequence[tuple[str, Role | None]]
    ) -> tuple[Read, float | None]:
        """Return a function that reads the values of a type, and the unit of its times.

        Parameters
        ----------
        path
            the type.
        wanted
            names of fields, and their roles; None: the field passes through.

        Returns
        -------
        How many a second has of a time that is a whole number; None: its magnitude tells.
        """


class TypedValues:
    """A `Decoder` of values of one type.

    Parameters
    ----------
    number
        the id of the schema.
    schema
        it.
    path
        the type.
    domain
        domain of events that do not state one.
    columns
        the names of the fields.

    Raises
    ------
    ValueError
        if the type's values can be no events.
    """

    def __init__(
        self, number: int, schema: Schema, path: tuple[int, ...], domain: Domain, columns: Columns
    ) -> None:
        self._number = number
        self.rows = rows = RowsDecoder(schema.names(path), domain, columns)
        wanted: list[tuple[str, Role | None]] = [(name, role) for role, name in rows.roles.items()]
        wanted += [(name, None) for name in rows.kept]
        self._read, self._scale = schema.reader(path, wanted)

    def __call__(self, values: Sequence[bytes]) -> Sequence[Event | Malformed]:
        """Return the event of each value, or why it is not one; never raises on bad input."""
        wrong: dict[int, Malformed] = {}
        rows: list[Sequence[Any]] = []
        read = self._read
        for index, value in enumerate(values):
            try:
                rows.append(read(value))
            except Exception as error:  # the boundary: no value may end a run
                said = " ".join(str(error).split())
                reason = f"not to be decoded with schema {self._number}: {type(error).__name__}: {said}"
                wrong[index] = malformed(ValueError(reason), b"")
        events = self._decoded(rows) if rows else ()
        if not wrong:
            return events
        others = iter(events)
        return [wrong[index] if index in wrong else next(others) for index in range(len(values))]

    def _decoded(self, rows: Sequence[Sequence[Any]]) -> Sequence[Event | Malformed]:
        columns = list(zip(*rows, strict=True))
        roles = {
            role: self._in_form(role, column) for role, column in zip(self.rows.roles, columns, strict=False)
        }
        kept = [list(map(plain_kept, column)) for column in columns[len(roles) :]]
        if all(_kinds(column) <= _FORMS[role] for role, column in roles.items()):
            return self.rows.decode(roles, kept, len(rows))
        self.rows.count_rows(len(rows))
        return self.rows.rows(roles, kept)

    def _in_form(self, role: Role, column: Sequence[Any]) -> Sequence[Any]:
        """Return a column with its values in the form of its role, where they have one."""
        if _kinds(column) <= _FORMS[role]:
            return column
        if role == "time":
            scale = self._scale or 1.0
            return [value / scale if type(value) is int else _moment(value) for value in column]
        known = _CONVERSIONS[role]
        return [known[type(value)](value) if type(value) in known else value for value in column]


def refusing(reason: str) -> Decoder:
    """Return a decoder that refuses every value."""
    wrong = malformed(ValueError(reason), b"")
    return lambda values: [wrong] * len(values)


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


def _kinds(column: Sequence[Any]) -> set[type]:
    return set(map(type, column)) - {NoneType}


def _moment(value: Any) -> Any:
    """Return a date, a text or a number as a time is read; any other value as it is."""
    try:
        return None if value is None else read_time(float(value) if type(value) is Decimal else value)
    except ValueError:
        return value
