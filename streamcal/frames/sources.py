"""Data frames as sources of events: pandas, polars or Arrow, by narwhals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from streamcal.base.string_column import from_arrow
from streamcal.base.times import SCALES, as_times, read_time, units_of
from streamcal.base.values import Counts, Floats, shown
from streamcal.events import Domain, Event, Origin
from streamcal.events.columns import WEIGHTS, Columns, InputKind, Role, did_you_mean
from streamcal.events.fields import Malformed, plain_kept
from streamcal.events.table_codec import Column, RowsDecoder, in_form, listed
from streamcal.run.kinds import kind_of
from streamcal.run.ports import Position, Positions

if TYPE_CHECKING:
    import narwhals as nw

_ROWS: Final = 65_536  # of a frame that are read at a time
_WHOLE: Final = 2.0**53  # every whole float below is exact

ROW: Final = "row of the frame"
"""Column that numbers the rows of predictions; it goes with each, so that an answer says whose it is."""

Frame = Any
"""A data frame of a library that narwhals knows."""


@dataclass
class _Batch:
    """Rows of a frame; see `streamcal.run.ports.Batch`."""

    events: Sequence[Event | Malformed]
    name: str
    first: int
    numbers: Counts
    frame: nw.DataFrame[Any]
    partition = ""

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return self.frame.rows(named=True)

    def origin(self, index: int) -> Origin:
        row = self._rows[index]
        named = {str(name): str(value) for name, value in row.items() if value is not None and name != ROW}
        raw = msgspec.json.encode(named)
        return Origin(self.name, int(self.numbers[index]) + 1, raw)

    def position(self, count: int) -> Position:
        return self.first + count


class FrameSource:
    """A frame as a source of events, sorted by time; see `streamcal.run.ports.Source`.

    Parameters
    ----------
    alone
        whether no other frame has labels of these predictions, so that they may go without ids.

    Raises
    ------
    ImportError
        if narwhals is not installed.
    TypeError
        if what is given is no data frame.
    ValueError
        if a column that is needed is not there, or no row.
    """

    endless = False

    def __init__(self, frame: Frame, kind: InputKind, columns: Columns, *, alone: bool = False) -> None:
        self.name = "predictions" if kind == "events" else kind
        self.unknown_fields: Mapping[str, int] = {}
        own = columns.of(kind)
        rows = _identified(_rows_of(frame, self.name), own, alone=alone)
        own = own.model_copy(update={"keep": (ROW,) if kind == "events" else ()})
        if kind == "events":
            rows = rows.with_row_index(ROW)
        score: tuple[Role, ...] = () if own.classes else ("score",)  # theirs are carried
        needed: dict[InputKind, tuple[Role, ...]] = {
            "events": ("id", *score),
            "labels": ("id", "label"),
            "calibration": (*score, "label"),
        }
        weights = [role for role in WEIGHTS if own.names.get(role) in columns.required(kind)]
        _check_columns(rows, own, kind, self.name, (*needed[kind], *weights))
        domain: Domain = "source" if kind == "calibration" else "target"
        ignored = {"score", "key", "domain"} if kind == "labels" else set()
        read = {name for role, name in own.names.items() if role not in ignored}
        self.rows = rows.select([name for name in rows.columns if name in read or name in own.carried])
        """Columns of the frame that are read, in its order."""
        self._decoder = RowsDecoder(self.rows.columns, domain, own)
        self._columns, self.kind = own, kind_of(own.classes)
        self.roles: Mapping[Role, str] = self._decoder.roles
        """Columns that are read, by their role."""
        self.order: Counts = np.arange(len(rows))
        """Index of each row in the frame, in the order in which they are read: int64[n]."""
        if kind == "labels":
            labels = (label for piece in self._pieces("label") for label in _values("label", piece))
            self.order = np.flatnonzero(np.fromiter((label is not None for label in labels), np.bool_))
        if "time" in self.roles:
            moments = self._moments()[self.order]
            if not (moments[1:] >= moments[:-1]).all():
                self.order = self.order[np.argsort(moments, kind="stable")]
        if not len(self):
            raise ValueError(
                f"none of the {len(rows):,} rows of {self.name} has a label in column"
                f" {shown(self.roles['label'])}"
                if len(rows)
                else f"there are no rows in {self.name}{'' if kind == 'events' else ': leave it out'}"
            )
        self._at, self.ended = 0, False

    def __len__(self) -> int:
        return len(self.order)

    def ids(self) -> Iterator[str]:
        """Yield the ids."""
        for start in range(0, len(self), _ROWS):
            yield from _values("id", self._part(start, start + _ROWS)[self.roles["id"]])

    def moments(self) -> dict[str, float]:
        """Return the time of each id, in seconds."""
        return dict(zip(self.ids(), self._moments()[self.order].tolist(), strict=True))

    def seek(self, positions: Positions) -> Positions:  # noqa: ARG002  # nothing is ever resumed
        """Return where reading begins."""
        return {"": self._at}

    def limit(self, positions: Positions | None) -> None:
        """Do nothing: nothing is ever resumed."""

    def poll(self, max_events: int, timeout: float) -> Sequence[_Batch]:  # noqa: ARG002  # all is there
        """Return the next rows."""
        first, self._at = self._at, min(self._at + min(max_events, _ROWS), len(self))
        self.ended = self._at >= len(self)
        rows = self._part(first, self._at)
        return [_Batch(self._events(rows), self.name, first, self.order[first : self._at], rows)]

    def lag(self) -> Mapping[str, float]:
        """Return the number of rows that are left."""
        return {"": float(len(self) - self._at)}

    def close(self) -> None:
        """Do nothing."""

    def _part(self, start: int, end: int) -> nw.DataFrame[Any]:
        """Return some rows, in the order of reading."""
        return self.at(self.order[start:end])

    def at(self, order: Counts) -> nw.DataFrame[Any]:
        """Return the rows at these indices of the frame; of consecutive ones, no copy."""
        first, end = (int(order[0]), int(order[-1]) + 1) if len(order) else (0, 0)
        is_slice = end - first == len(order) and (np.diff(order) == 1).all()
        rows: nw.DataFrame[Any] = self.rows[first:end] if is_slice else self.rows[order]
        return rows

    def _pieces(self, role: Role) -> Iterator[nw.Series[Any]]:
        """Yield the column of a role, a piece at a time, in the order of the frame."""
        column = self.rows[self.roles[role]]
        return (column[start : start + _ROWS] for start in range(0, len(column), _ROWS))

    def _moments(self) -> Floats:
        """Return times to sort by, float64[n]; a row without a time stays behind the row before it."""
        pieces = [_numbers(_column("time", piece)) for piece in self._pieces("time")]
        numbers = np.concatenate([np.zeros(0), *pieces])
        numbers /= np.array([*SCALES, np.nan])[units_of(numbers)]
        if not (lacks := np.isnan(numbers)).any():
            return numbers
        latest = numbers[np.maximum.accumulate(np.where(lacks, 0, np.arange(len(numbers))))]
        return np.where(np.isnan(latest), -np.inf, latest)

    def _events(self, rows: nw.DataFrame[Any]) -> Sequence[Event | Malformed]:
        columns = {role: _column(role, rows[name]) for role, name in self.roles.items()}
        kept = [
            rows[name].to_list()
            if name == ROW
            else _values("score", rows[name])
            if name in self._columns.class_columns
            else list(map(plain_kept, _values("key", rows[name])))
            for name in self._decoder.kept
        ]
        return self._decoder.decode(columns, kept, len(rows))


def apart(frame: Frame, columns: Columns, time: str | None, delay: float) -> tuple[Frame, Frame]:
    """Return predictions without their labels, and the labels with their times.

    Parameters
    ----------
    time
        column of the times of labels; None: those of predictions, and ``delay``, in seconds.

    Raises
    ------
    ValueError
        if a column is not there, or a time is none.
    """
    rows, own = _rows_of(frame, "predictions"), columns.of("events").names
    rows = _identified(rows, columns, alone=True)
    wanted = [own["id"], own["label"], time or own["time"]]
    for name in wanted:
        if name not in rows.columns:
            has = ", ".join(map(shown, rows.columns))
            raise ValueError(f"predictions have no column {shown(name)}: they have {has}")
    labels = rows.select(wanted)
    if time is None:
        made = as_times(labels[own["time"]].to_native(), len(labels)) + delay
        library = narwhals_module().get_native_namespace(labels)
        labels = narwhals_module().maybe_reset_index(labels)  # or a new column would have another index
        labels = labels.select(wanted[:2]).with_columns(
            narwhals_module().new_series(own["time"], made, backend=library)
        )
    return rows.drop(own["label"]).to_native(), labels.to_native()


def _rows_of(frame: Frame, name: str) -> nw.DataFrame[Any]:
    """Return a frame as narwhals has it."""
    narwhals = narwhals_module()
    try:
        found: Any = narwhals.from_native(frame, pass_through=True)
        names = list(getattr(found, "columns", ()))
    except narwhals.exceptions.DuplicateError as error:
        words = " ".join(str(error).split())
        raise ValueError(f"{name} has columns of the same name: {words}") from None
    if isinstance(found, narwhals.LazyFrame):
        found = found.collect()
    if not isinstance(found, narwhals.DataFrame):
        raise TypeError(
            f"{name} must be a data frame of pandas, polars or Arrow, got a {type(frame).__qualname__};"
            " pandas.DataFrame(…) makes one of a dictionary of columns, or of a list of rows"
        )
    if not all(isinstance(each, str) for each in names):
        raise ValueError(
            f"names of columns must be texts, got {shown(names[0])} in {name}: rename them, such as with"
            " frame.columns = […]"
        )
    rows: nw.DataFrame[Any] = found
    return rows


def _identified(rows: nw.DataFrame[Any], own: Columns, *, alone: bool) -> nw.DataFrame[Any]:
    """Return rows with what an index holds as columns: those of roles, by name, and ids.

    An index without a name holds ids if it is of texts; whole numbers may be those of rows. Where nothing is
    joined by id, any index of texts does, and without one the number of the row.
    """
    index, column = narwhals_module().maybe_get_index(rows), own.names["id"]
    if index is not None:
        made = {
            name: index.get_level_values(name)
            for name in own.names.values()
            if name in index.names and name not in rows.columns
        }
        is_text = index.nlevels == 1 and index.inferred_type in {"string", "mixed"}
        if column not in {*rows.columns, *made} and is_text and (alone or index.name is None):
            made[column] = index
        rows = narwhals_module().from_native(rows.to_native().assign(**made)) if made else rows
    has_other = any(did_you_mean(name) == "id" for name in rows.columns) or "id" in own.model_fields_set
    return rows if not alone or has_other else rows.with_row_index(column)


def _numbers(times: Column) -> Floats:
    """Return times as numbers in their units, NaN in the place of what is none."""
    if isinstance(times, np.ndarray):
        return times
    found = np.full(len(times), np.nan)
    for index, value in enumerate(times):
        with suppress(ValueError):
            found[index] = read_time(value)
    return found


def _values(role: Role, column: nw.Series[Any]) -> Sequence[Any]:
    """Return the values of a column as objects, None where one is missing."""
    return listed(role, _column(role, column))


def _column(role: Role, column: nw.Series[Any]) -> Column:
    """Return a column in the form of its role; NaN, too, is a missing value."""
    narwhals, kind, is_text = narwhals_module(), column.dtype, role in ("id", "key", "domain")
    missing = np.asarray(column.is_null().to_numpy(), np.bool_)
    if role == "time" and kind in (narwhals.Datetime, narwhals.Date):
        with suppress(ValueError):  # one lies beyond all times: each is left for its row
            seconds = np.full(len(column), np.nan)
            seconds[~missing] = as_times(column.drop_nulls().to_native(), int((~missing).sum()))
            return seconds
    if kind.is_numeric() and not is_text:
        return np.asarray(column.cast(narwhals.Float64()).to_numpy(), np.float64)
    if kind.is_integer():
        column = column.cast(narwhals.String())
    if role == "id" and column.dtype == narwhals.String:
        with suppress(ImportError, ValueError, TypeError):  # without pyarrow, or of objects
            if (texts := from_arrow(column.to_arrow())) is not None:
                return texts
    values = list(map(_without_gap, column.to_list())) if is_text else column.to_list()
    for index in np.flatnonzero(missing):
        values[index] = None
    return in_form(role, values)


def _without_gap(value: Any) -> Any:
    """Return as text a whole number that a gap in its column has made a float; else the value."""
    if isinstance(value, (float, np.integer)) and abs(float(value)) < _WHOLE and float(value).is_integer():
        return str(int(value))
    return value


def _check_columns(
    rows: nw.DataFrame[Any], own: Columns, kind: InputKind, frame: str, needed: Sequence[Role]
) -> None:
    """Check that there are the columns of roles that are needed, and of segments."""
    found = rows.columns
    missing = {role: name for role, name in own.names.items() if name not in found}
    absent = [own.names[role] for role in needed if role in missing]
    absent += [name for name in own.carried if name not in found]
    if not absent:
        return
    looks = {did_you_mean(name): name for name in reversed(found)}
    meant = {role: looks.get(role, "NAME") for role in needed if role in missing}
    if "time" in missing and "time" in looks:
        meant["time"] = looks["time"]
    named = _classes_of(rows, own) or (meant if kind == "events" else {kind: meant} if meant else {})
    hint = f"columns={named} names those" if named else "give others"
    if several := [name for name in found if ";" in name]:
        hint = f"read the file with sep=';' and decimal=',', as {shown(several[0])} is several names"
    elif "id" in meant and narwhals_module().maybe_get_index(rows) is not None:
        hint += ", and reset_index(names='id') makes the index the id"
    raise ValueError(
        f"{frame} has no column {', '.join(map(shown, absent))}: {hint}; it has"
        f" {', '.join(map(shown, found))}"
    )


def _classes_of(rows: nw.DataFrame[Any], own: Columns) -> dict[str, Any]:
    """Return the options of columns by which some of these are the scores of classes; empty: none are."""
    label = own.names["label"]
    names = list(own.classes) or (
        sorted(map(str, rows[label].drop_nulls().unique().to_list())) if label in rows.columns else []
    )
    for prefix in ("p_", ""):
        is_new = len(names) > 1 and not (own.classes and prefix == own.prefix)
        if is_new and all(f"{prefix}{name}" in rows.columns for name in names):
            return {"classes": names} | ({} if prefix == "p_" else {"prefix": prefix})
    return {}


def narwhals_module() -> Any:
    """Return the module narwhals; raise ImportError with what to install."""
    try:
        import narwhals
    except ImportError:
        raise ImportError("data frames need narwhals: pip install 'streamcal-engine[frames]'") from None
    return narwhals
