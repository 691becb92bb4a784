"""Decodes events from columns: of CSV, Parquet, Arrow, a data frame, or records with a schema.

The rules are those of `streamcal.events.fields`, and a missing value (null) is an absent field, as an
empty cell of CSV is. Nothing here knows Arrow or a data frame: who reads brings each column into the form of
its role (`in_form`), and all that follows is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from types import NoneType
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np

from streamcal.base.string_column import StringColumn
from streamcal.base.times import LATEST, read_time
from streamcal.base.values import MAX_NAME_CHARACTERS, Floats, check_domain, check_key
from streamcal.events import Domain, Event, Kept
from streamcal.events.blocks import FEWEST, NO_LABEL, Block
from streamcal.events.columns import MAX_KEPT_BYTES, Columns, Role
from streamcal.events.fields import Malformed, TableFields, check_kept, malformed
from streamcal.sketch.checks import clipped

Column: TypeAlias = Floats | StringColumn | Sequence[Any]
"""Values of a column: numbers, float64[n], NaN where there is none; printable texts, none empty; or anything,
None where there is none."""

_TEXTS: Final[frozenset[Role]] = frozenset({"id", "key", "domain"})
_PLAIN: Final = frozenset({float, int, bool, str})
_NUMBERS: Final = frozenset({float, int})


class RowsDecoder(TableFields):
    """Decode rows into events.

    Parameters
    ----------
    names
        the columns that the table has.
    domain
        domain of events that do not state one.
    columns
        the names of those that are read.
    required
        columns that there must be.
    carried
        the columns that pass through, whatever they hold; None: those that `columns` keeps, under its rule.

    Raises
    ------
    ValueError
        if there is neither a score nor a label column, a column twice, or not all that are required.
    """

    def __init__(
        self,
        names: Sequence[str],
        domain: Domain,
        columns: Columns,
        required: Iterable[str] = (),
        carried: Sequence[str] | None = None,
    ) -> None:
        self.kept = columns.carried if carried is None else tuple(carried)
        """The columns that pass through; one that the table has not is null."""
        super().__init__("table", names, columns, domain, required, self.kept)
        self._domain: Domain = domain
        self._names = columns.names
        self._takes_labels = columns.positive is None
        self.roles: dict[Role, str] = {role: name for role, name in columns.names.items() if name in names}
        """The column of each role that the table has."""
        self._checks_kept = carried is None
        self._scores = columns.class_columns

    def decode(
        self, columns: Mapping[Role, Column], kept: Sequence[Sequence[Any]], rows: int
    ) -> Sequence[Event | Malformed]:
        """Return the event of each row, or why it is not one; never raises on bad input.

        Parameters
        ----------
        columns
            the column of each role that the table has, in its form (`in_form`); a time is in its unit.
        kept
            the values of each column that passes through.
        rows
            how many there are.
        """
        block = self.block(columns, kept, rows)
        if block is not None:
            return block if rows >= FEWEST else list(block)
        self._rows += rows
        names = [self._names[role] for role in columns]
        kept_of = zip(*kept, strict=True) if kept else repeat(())
        rows_of = zip(*(listed(role, column) for role, column in columns.items()), strict=True)
        return [
            self.row({name: value for name, value in zip(names, row, strict=True) if value is not None}, also)
            for row, also in zip(rows_of, kept_of, strict=False)
        ]

    def row(self, fields: Mapping[str, Any], kept: Kept = ()) -> Event | Malformed:
        """Return the event of one row, or why it is not one; never raises on bad input.

        Parameters
        ----------
        fields
            its values by the names of the columns, of any type.
        kept
            what passes through.
        """
        try:
            if self._scores:
                fields, kept = self._with_scores(fields, kept)
            if self._checks_kept and self._names["score"] in fields:
                for name, value in zip(self.kept, kept, strict=True):
                    check_kept(name, value)
            return self._fields.event(fields, kept)
        except Exception as error:  # the boundary: no value may end a run
            return malformed(error)

    def _with_scores(self, fields: Mapping[str, Any], kept: Kept) -> tuple[Mapping[str, Any], Kept]:
        """Return the fields with the scores of classes, which are among the columns that pass through."""
        given = dict(zip(self.kept, kept, strict=True))
        scores = {name: value for name in self._scores if (value := given.pop(name, None)) is not None}
        return {**fields, **scores}, tuple(given.values())

    def block(self, columns: Mapping[Role, Column], kept: Sequence[Sequence[Any]], rows: int) -> Block | None:
        """Return the events of rows, or None if one needs a closer look; arguments as for `decode`."""
        if self._fields.weights.keys() & self.roles.values() or self._scores or not rows:
            return None
        numbers = {role: column for role, column in columns.items() if isinstance(column, np.ndarray)}
        if numbers.keys() != columns.keys() - _TEXTS:
            return None
        scores, labels, alone = numbers.get("score"), numbers.get("label"), "score" not in numbers
        told = np.full(rows, NO_LABEL, np.int8)
        missing = np.full(rows, True) if labels is None else np.isnan(labels)
        if labels is not None:
            if not self._takes_labels or not ((labels == 0) | (labels == 1) | (missing & (not alone))).all():
                return None
            told[~missing] = labels[~missing]
        if scores is None:
            scores = np.full(rows, np.nan)  # a label has no key and no domain, and keeps nothing
        elif not ((scores >= 0.0) & (scores <= 1.0)).all():
            scores = clipped(scores)
            if not ((scores >= 0.0) & (scores <= 1.0)).all():
                return None
        ids: Sequence[Any] | None = columns.get("id")  # type: ignore[assignment]
        if ids is None and (alone or missing.any()):
            return None
        times = numbers.get("time", np.full(rows, np.nan))
        if (ids is not None and not _are_ids(ids)) or (np.abs(times) >= LATEST).any():
            return None
        keys: Sequence[Any] = () if alone else columns.get("key", ())  # type: ignore[assignment]
        domains: Sequence[Any] = () if alone else columns.get("domain", ())  # type: ignore[assignment]
        try:
            for key in set(keys):
                check_key(key)
            own, *others = {
                self._domain if name is None else check_domain(name) for name in {*domains} or {None}
            }
        except (ValueError, TypeError):  # the latter of what cannot be in a set
            return None
        if others or (self._checks_kept and not alone and not all(map(_are_short, kept))):
            return None
        kept_of = None if alone or not kept else list(zip(*kept, strict=True))
        keys_of = None if keys.count(None) == len(keys) else list(keys)
        self._rows += rows
        return Block([None] * rows if ids is None else ids, scores, told, times, own, keys_of, kept_of)


def in_form(role: Role, values: Sequence[Any]) -> Column:
    """Return the values of a column in the form of its role, as far as they have it.

    Scores, labels, times and weights become numbers if all are; dates and times become seconds. Whole numbers
    that are ids, and UUIDs, become texts.

    Parameters
    ----------
    values
        of any type, None where there is none.
    """
    kinds = set(map(type, values)) - {NoneType}
    if not kinds <= _PLAIN or (role == "id" and kinds != {str}):
        values = [_plain(role, value) for value in values]
        kinds = set(map(type, values)) - {NoneType}
    if role in _TEXTS:
        return values
    try:
        if role == "time" and not kinds <= _NUMBERS:
            values, kinds = [None if value is None else read_time(value) for value in values], {float}
        if kinds <= _NUMBERS | ({bool} if role == "label" else set()):
            numbers = np.array(values, np.float64)
            if int(np.isnan(numbers).sum()) == values.count(None):
                return numbers
    except (ValueError, OverflowError):  # a time that is none, a number of too many digits
        pass
    return values


def listed(role: Role, column: Column) -> Sequence[Any]:
    """Return the values of a column as objects, None where there is none."""
    if isinstance(column, StringColumn):
        return column.tolist()
    if not isinstance(column, np.ndarray):
        return column
    values: list[Any] = column.tolist()
    if role == "label":  # a message shows it as it is written
        values = [int(value) if value.is_integer() else value for value in values]
    return [None if value != value else value for value in values]


def _plain(role: Role, value: Any) -> Any:
    """Return a value as Python has it: a number, a text; or itself."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, UUID) or (role == "id" and type(value) is int):
        return str(value)
    return float(value) if isinstance(value, Decimal) and role not in _TEXTS else value


def _are_ids(ids: Sequence[Any]) -> bool:
    """Whether each is a printable text, not too long to be an id for certain."""
    if isinstance(ids, StringColumn):
        return bool((ids.sizes <= MAX_NAME_CHARACTERS).all())
    try:
        sizes = set(map(len, ids))
        return min(sizes) >= 1 and max(sizes) <= MAX_NAME_CHARACTERS and all(map(str.isprintable, ids))
    except TypeError:  # one is missing, or no text
        return False


def _are_short(values: Sequence[Any]) -> bool:
    """Whether none is a text so long that its bytes have to be counted, nor anything but a text or number."""
    return all(
        len(value) <= MAX_KEPT_BYTES // 4
        if type(value) is str
        else value is None or type(value) in (int, float, bool)
        for value in values
    )
