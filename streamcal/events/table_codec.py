"""Decodes events from the columns of a table: Parquet, Arrow or a data frame.

The rules are those of `streamcal.events.fields`, and a missing value (null) is an absent field, as an
empty cell of CSV is. Nothing here knows Arrow: who reads brings each column into the form that `RowsDecoder`
takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from types import NoneType
from typing import Any, Final

import numpy as np
from msgspec import structs

from streamcal.events import Domain, Event, Kept
from streamcal.events.blocks import FEWEST, NO_LABEL, Block
from streamcal.events.columns import MAX_KEPT_BYTES, Columns, Role
from streamcal.events.fields import Malformed, TableFields, check_kept, malformed
from streamcal.string_column import StringColumn
from streamcal.times import LATEST
from streamcal.values import MAX_NAME_CHARACTERS, Floats, check_domain, check_key, shown

__all__ = ["RowsDecoder", "is_in_form"]

_TEXT: Final = frozenset({str})
_FORMS: Final[dict[Role, tuple[frozenset[type], ...]]] = {
    "score": (frozenset({float}),),
    "time": (frozenset({float}), _TEXT),
    "label": (frozenset({bool, int, float, str}),),
}  # types of the values of a column, by role; those of other roles are texts


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
        self._scores = columns.score_columns if columns.classes else ()

    def decode(
        self, roles: Mapping[Role, Sequence[Any]], kept: Sequence[Sequence[Any]], rows: int
    ) -> Sequence[Event | Malformed]:
        """Return the event of each row, or why it is not one; never raises on bad input.

        Parameters
        ----------
        roles
            the values in the column of each role that the table has, None where there is none. Columns that
            are in form (`is_in_form`) become a block; a ``time`` is in its unit, or NaN if there is none.
        kept
            the values of each column that passes through.
        rows
            how many there are.
        """
        self._rows += rows
        block = None
        if rows and all(is_in_form(role, column) for role, column in roles.items()):
            block = self.decode_columns(roles, kept)
        if block is None:
            return self.rows(roles, kept)
        return block if rows >= FEWEST else list(block)

    def rows(
        self, roles: Mapping[Role, Sequence[Any]], kept: Sequence[Sequence[Any]] = ()
    ) -> list[Event | Malformed]:
        """Return the event of each row, or why it is not one; the values may be of any type."""
        names = [self._names[role] for role in roles]
        kept_of = zip(*kept, strict=True) if kept else repeat(())
        rows_of = zip(*roles.values(), strict=True)
        return [
            self.row({name: value for name, value in zip(names, row, strict=True) if value is not None}, also)
            for row, also in zip(rows_of, kept_of, strict=False)
        ]

    def decode_arrays(
        self, ids: StringColumn, scores: Floats | None, labels: Floats | None, times: Floats | None
    ) -> Block | None:
        """Return the events of rows that have none but these columns, if none needs a closer look.

        Parameters
        ----------
        ids
            none missing; each byte is a printable character.
        scores, labels, times
            float64[n], NaN where there is none; None: no such column.
        """
        if (
            len(ids) < FEWEST
            or self._scores
            or not ((ids.sizes >= 1) & (ids.sizes <= MAX_NAME_CHARACTERS)).all()
        ):
            return None
        return self._block(ids, scores, labels, times, self._domain)

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
            wrong = malformed(error, b"")
            if wrong.column is None:
                return wrong
            return structs.replace(wrong, reason=f"{wrong.reason}, in column {shown(wrong.column)}")

    def _with_scores(self, fields: Mapping[str, Any], kept: Kept) -> tuple[Mapping[str, Any], Kept]:
        """Return the fields with the scores of classes, which are among the columns that pass through."""
        given = dict(zip(self.kept, kept, strict=True))
        scores = {name: value for name in self._scores if (value := given.pop(name, None)) is not None}
        return {**fields, **scores}, tuple(given.values())

    def decode_columns(
        self, roles: Mapping[Role, Sequence[Any]], kept: Sequence[Sequence[Any]]
    ) -> Block | None:
        """Return the events of rows, or None if one needs a closer look; arguments as for `decode`."""
        if self._fields.weights.keys() & self.roles.values() or self._scores:
            return None
        scores, labels, times = roles.get("score"), roles.get("label"), roles.get("time")
        alone = scores is None  # a label has no key and no domain, and keeps nothing
        count = len(next(iter(roles.values())))
        has_both = not alone and labels is not None and None not in labels
        ids: Sequence[Any] | None = roles.get("id", [None] * count if has_both else None)
        if ids is None or ("id" in roles and not _are_plain_ids(ids)):
            return None
        if labels is not None and not set(labels) <= {0, 1, None}:
            return None
        if times is not None and not _are_times(times):
            return None
        keys = None if alone else roles.get("key")
        try:
            for key in set(keys or ()):
                check_key(key)
            named = set((None if alone else roles.get("domain")) or [None])
            own, *others = {self._domain if each is None else check_domain(each) for each in named}
        except ValueError:
            return None
        if others or (self._checks_kept and not alone and not all(map(_are_short, kept))):
            return None
        if keys is not None and keys.count(None) == count:
            keys = None
        kept_of = None if alone or not kept else list(zip(*kept, strict=True))
        numbers = _floats(scores), _floats(labels), _floats(times)
        return self._block(ids, *numbers, own, None if keys is None else list(keys), kept_of)

    def _block(
        self,
        ids: Sequence[str | None],
        scores: Floats | None,
        labels: Floats | None,
        times: Floats | None,
        domain: Domain,
        keys: list[str | None] | None = None,
        kept: list[Kept] | None = None,
    ) -> Block | None:
        """Return the events of columns, NaN where there is no value, or None if one is out of range."""
        count, alone = len(ids), scores is None
        told = np.full(count, NO_LABEL, np.int8)
        if labels is not None:
            missing = np.isnan(labels)
            if not self._takes_labels or not ((labels == 0) | (labels == 1) | (missing & (not alone))).all():
                return None
            told[~missing] = labels[~missing]
        given = np.full(count, np.nan) if scores is None else scores
        if not alone and not ((given >= 0.0) & (given <= 1.0)).all():
            return None
        moments = np.full(count, np.nan) if times is None else times
        if (np.abs(moments) >= LATEST).any():
            return None
        return Block(ids, given, told, moments, domain, keys, kept)


def is_in_form(role: Role, values: Sequence[Any]) -> bool:
    """Whether the values of a column are of the types of its role, or None."""
    types = set(map(type, values)) - {NoneType}
    return any(types <= form for form in _FORMS.get(role, (_TEXT,)))


def _floats(values: Sequence[Any] | None) -> Floats | None:
    """Return a column as numbers, NaN for None."""
    return None if values is None else np.array(values, np.float64)


def _are_plain_ids(ids: Iterable[Any]) -> bool:
    try:
        return all(map(str.isprintable, ids)) and not any(
            not 1 <= length <= MAX_NAME_CHARACTERS for length in set(map(len, ids))
        )
    except TypeError:  # one is missing, or no text
        return False


def _are_times(times: Sequence[Any]) -> bool:
    """Whether all are numbers in some unit, or missing."""
    if type(next(filter(None, times), 0.0)) is not float:  # numpy would read the texts as numbers
        return False
    return bool(np.isnan(np.array(times, np.float64)).sum() == times.count(None))


def _are_short(values: Sequence[Any]) -> bool:
    """Whether none is a text so long that its bytes have to be counted, nor anything but a text or number."""
    return all(
        len(value) <= MAX_KEPT_BYTES // 4
        if type(value) is str
        else value is None or type(value) in (int, float, bool)
        for value in values
    )
