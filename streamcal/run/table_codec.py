"""Decodes events from the columns of a table: Parquet, Arrow or a data frame.

The rules are those of `streamcal.run.event_fields`, and a missing value (null) is an absent field, as an
empty cell of CSV is. Nothing here knows Arrow: who reads brings each column into the form that `RowsDecoder`
takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np

from streamcal.blocks import FEWEST, NO_LABEL, Block
from streamcal.events import Domain, Event, Kept
from streamcal.run.columns import MAX_KEPT_BYTES, Columns, Role
from streamcal.run.event_fields import Malformed, TableFields, check_kept, malformed
from streamcal.texts import Texts
from streamcal.times import LATEST
from streamcal.values import MAX_NAME_CHARACTERS, Floats, check_domain, check_key, shown

__all__ = ["RowsDecoder"]

_NOTHING: Final = repeat(None)


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
        self.kept = columns.keep if carried is None else tuple(carried)
        """The columns that pass through; one that the table has not is null."""
        super().__init__("table", names, columns, domain, required, self.kept)
        self._domain: Domain = domain
        self._names = columns.names
        self._takes_labels = columns.positive is None
        self.roles: dict[Role, str] = {role: name for role, name in columns.names.items() if name in names}
        """The column of each role that the table has."""
        self._checks_kept = carried is None

    def decode(
        self, roles: Mapping[Role, Sequence[Any]], kept: Sequence[Sequence[Any]], rows: int
    ) -> Sequence[Event | Malformed]:
        """Return the event of each row, or why it is not one; never raises on bad input.

        Parameters
        ----------
        roles
            the values in the column of each role that the table has, None where there is none: of ``score``
            floats, and of weights; of ``time`` floats (in their unit; NaN: no time) or texts; of ``label``
            booleans, numbers or texts; of the others texts. What is no text of UTF-8 is bytes.
        kept
            the values of each column that passes through.
        rows
            how many there are.
        """
        self._rows += rows
        block = self.decode_columns(roles, kept)
        if block is not None:
            return block if rows >= FEWEST else list(block)
        names = [self._names[role] for role in roles]
        kept_of = zip(*kept, strict=True) if kept else repeat(())
        rows_of = zip(*roles.values(), strict=True)
        return [
            self.row({name: value for name, value in zip(names, row, strict=True) if value is not None}, also)
            for row, also in zip(rows_of, kept_of, strict=False)
        ]

    def decode_arrays(
        self, ids: Texts, scores: Floats | None, labels: Floats | None, times: Floats | None
    ) -> Block | None:
        """Return the events of rows that have none but these columns, if none needs a closer look.

        Parameters
        ----------
        ids
            none missing; each byte is a printable character.
        scores, labels, times
            float64[n], NaN where there is none; None: no such column.
        """
        count, alone = len(ids), scores is None
        told = np.full(count, NO_LABEL, np.int8)
        if labels is not None:
            missing = np.isnan(labels)
            if not self._takes_labels or not ((labels == 0) | (labels == 1) | (missing & (not alone))).all():
                return None
            told[~missing] = labels[~missing]
        given = np.full(count, np.nan) if scores is None else scores
        plain = alone or bool(((given >= 0.0) & (given <= 1.0)).all())
        sizes = ids.sizes
        if count < FEWEST or not plain or not ((sizes >= 1) & (sizes <= MAX_NAME_CHARACTERS)).all():
            return None
        if times is not None and (np.abs(times) >= LATEST).any():
            return None
        self._rows += count
        return Block(ids, given, told, np.full(count, np.nan) if times is None else times, self._domain)

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
            if self._checks_kept and self._names["score"] in fields:
                for name, value in zip(self.kept, kept, strict=True):
                    check_kept(name, value)
            return self._fields.event(fields, kept)
        except Exception as error:  # the boundary: no value may end a run
            wrong = malformed(error, b"")
            column = getattr(error, "column", None)
            if column is None:
                return wrong
            return Malformed(f"{wrong.reason}, in column {shown(column)}", wrong.label, wrong.score)

    def decode_columns(
        self, roles: Mapping[Role, Sequence[Any]], kept: Sequence[Sequence[Any]]
    ) -> Block | None:
        """Return the events of rows, or None if one needs a closer look; arguments as for `decode`."""
        if self._fields.weights.keys() & self.roles.values():
            return None
        scores, labels = roles.get("score"), roles.get("label")
        has_both = scores is not None and labels is not None and None not in labels
        ids: Iterable[Any] | None = roles.get("id", _NOTHING if has_both else None)
        times, keys, domains = roles.get("time"), roles.get("key"), roles.get("domain")
        if ids is None or not (ids is _NOTHING or _are_plain_ids(ids)):
            return None
        if not (scores is None or _are_scores(scores)):
            return None
        if labels is not None:
            classes = {0, 1} if scores is None else {0, 1, None}
            if not (self._takes_labels and set(labels) <= classes):
                return None
        if not (times is None or _are_times(times)):
            return None
        alone = scores is None  # a label has no key and no domain, and keeps nothing
        try:
            for key in () if alone else set(keys or ()):
                check_key(key)
            named = {self._domain} if alone else {domain or self._domain for domain in domains or (None,)}
            own, *others = map(check_domain, named)
        except ValueError:
            return None
        if others:
            return None
        if self._checks_kept and not alone and not all(map(_are_short, kept)):
            return None
        count = len(next(iter(roles.values())))
        given = np.array([None] * count if scores is None else scores, np.float64)  # None becomes NaN
        told = np.full(count, NO_LABEL, np.int8)
        if labels is not None:
            told[:] = [NO_LABEL if label is None else label for label in labels]
        return Block(
            [None] * count if ids is _NOTHING else list(ids),
            given,
            told,
            np.full(count, np.nan) if times is None else np.array(times, np.float64),
            own,
            None if alone or keys is None or keys.count(None) == count else list(keys),
            None if alone or not kept else list(zip(*kept, strict=True)),
        )


def _are_plain_ids(ids: Iterable[Any]) -> bool:
    try:
        return all(map(str.isprintable, ids)) and not any(
            not 1 <= length <= MAX_NAME_CHARACTERS for length in set(map(len, ids))
        )
    except TypeError:  # one is missing, or no text
        return False


def _are_scores(scores: Sequence[Any]) -> bool:
    given = np.array(scores, np.float64)  # None becomes NaN
    return bool(np.all((given >= 0.0) & (given <= 1.0)))


def _are_times(times: Sequence[Any]) -> bool:
    """Whether all are numbers in some unit, or missing."""
    if type(next(filter(None, times), 0.0)) is not float:  # numpy would read the texts as numbers
        return False
    given = np.array(times, np.float64)  # None becomes NaN
    missing = np.isnan(given)
    return bool(np.all(missing | (np.abs(given) < LATEST))) and np.count_nonzero(missing) == times.count(None)


def _are_short(values: Sequence[Any]) -> bool:
    """Whether none is a text so long that its bytes have to be counted, nor anything but a text or number."""
    return all(
        len(value) <= MAX_KEPT_BYTES // 4
        if type(value) is str
        else value is None or type(value) in (int, float, bool)
        for value in values
    )
