"""Columns of Arrow in the forms that events need.

A column is brought into one of few forms, whatever its type, so that one rule holds for all: texts (also
dictionary-encoded, or large), numbers, times in seconds. A type that can hold no such value is refused by
name.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from streamcal.base.string_column import StringColumn, from_arrow, gathered
from streamcal.base.times import seconds_of_moments
from streamcal.base.values import shown
from streamcal.events.columns import Role
from streamcal.events.table_codec import Column, in_form

_MOST_BYTES: Final = (1 << 31) - 1  # of the texts of a column

_RULES: Final[dict[Role, str]] = {
    "id": "an id must be a text or a whole number",
    "score": "a score must be a number",
    "label": "a label must be a boolean, a number or a text",
    "time": "a time must be a timestamp, a date, a number or a text",
    "key": "a key must be a text",
    "domain": "a domain must be a text",
    "weight": "a weight must be a number from 1e-9 to 10000",
    "propensity": "a propensity must be a number from 0.0001 to 1",
}


def check_role(role: Role, name: str, kind: Any) -> None:
    """Raise ValueError if a column of this type cannot have a role."""
    kind = _plain(kind)
    types = pa.types
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    fits = {
        "id": _is_text(kind) or types.is_integer(kind) or (types.is_decimal(kind) and kind.scale == 0),
        "score": numbers,
        "weight": numbers,
        "propensity": numbers,
        "label": numbers or types.is_boolean(kind) or _is_text(kind),
        "time": numbers or types.is_timestamp(kind) or types.is_date(kind) or _is_text(kind),
    }
    if not (types.is_null(kind) or fits.get(role, _is_text(kind))):
        raise ValueError(f"{_RULES[role]}, but column {shown(name)} is of type {kind}")


def check_kept_type(name: str, kind: Any) -> None:
    """Raise ValueError if a column of this type holds no single values, which alone can be kept."""
    kind, types = _plain(kind), pa.types
    plain = (types.is_null, types.is_boolean, types.is_integer, types.is_floating)
    if not (_is_text(kind) or _has_text(kind) or any(fits(kind) for fits in plain)):
        raise ValueError(
            "a column to keep must hold numbers, booleans, texts or times, but column"
            f" {shown(name)} is of type {kind}"
        )


def as_role(role: Role, column: Any) -> Column:
    """Return a column in the form of its role, which `check_role` has admitted; see `in_form`.

    A date and time beyond the year 5138 is no number.
    """
    column = _decoded(column)
    kind, types = column.type, pa.types
    is_text = role in ("id", "key", "domain")
    if role == "time" and (types.is_timestamp(kind) or types.is_date(kind)):
        if types.is_timestamp(kind):
            column = column.cast(pa.timestamp(kind.unit))  # in UTC
        seconds = seconds_of_moments(column.to_numpy(zero_copy_only=False))
        column = pa.array(seconds, mask=column.is_null().to_numpy(zero_copy_only=False))
    elif types.is_decimal(kind):  # through text, as the cast itself is not exact: 0.7010000000000001
        column = column.cast(pa.string())
        column = column if is_text else column.cast(pa.float64())
    elif not (types.is_null(kind) or _is_text(kind)):
        column = column.cast(pa.string() if is_text else pa.float64(), safe=False)
    if types.is_float64(column.type):
        missing = column.null_count
        filled = pc.fill_null(column, float("nan")) if missing else column
        numbers = np.frombuffer(filled.buffers()[1], np.float64, len(filled), 8 * filled.offset)
        if int(np.count_nonzero(np.isnan(numbers))) == missing:
            return numbers
    texts = from_arrow(column) if role == "id" else None
    return in_form(role, values_of(column)) if texts is None else texts


def kept_type(kind: Any) -> Any:
    """Return the type in which a column that passes through comes out: that of its values."""
    kind = _plain(kind)
    return pa.string() if pa.types.is_string_view(kind) else kind


def as_kept(column: Any) -> Any:
    """Return a column that passes through as what JSON can hold: times and decimals as text.

    Durations are whole numbers, in their unit.
    """
    column = _decoded(column)
    kind, types = column.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return as_kept(column.storage)
    if types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if _has_text(kind):
        return column.cast(pa.string())
    if types.is_duration(kind):
        return column.cast(pa.int64())
    return column.cast(pa.float64()) if types.is_floating(kind) else column


def from_kept(values: list[Any], kind: Any) -> Any:
    """Return the column of a type of which `as_kept` gave the values.

    Raises
    ------
    ValueError
        if a value has no place in that type.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(from_kept(values, kind.storage_type))
    if types.is_duration(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if not _has_text(kind):
        return pa.array(values, kind)
    texts = pa.array(values, pa.string())
    if types.is_time(kind):  # a text is read as a moment only
        moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)
    if types.is_timestamp(kind) and kind.tz is not None:
        return texts.cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
    return texts.cast(kind)


def values_of(column: Any) -> list[Any]:
    """Return the values of a column, None where there is none; of a text that is no UTF-8 the bytes."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        return [_text(value) for value in column.cast(pa.large_binary()).to_pylist()]
    return values


def numbers_column(numbers: npt.NDArray[Any]) -> Any:
    """Return numbers, float64[n], int64[n] or int32[n], as a column, null in the place of NaN.

    `pyarrow.array` would do it, too, but imports pandas for that, if it is installed: a fifth of a second.
    """
    known = np.ascontiguousarray(numbers)
    kind = pa.from_numpy_dtype(known.dtype)
    return pa.Array.from_buffers(kind, len(known), [_valid(known == known), pa.py_buffer(known)])


def texts_column(texts: StringColumn) -> Any:
    """Return texts as a column, null in the place of None."""
    data, sizes = gathered(texts)
    if len(data) > _MOST_BYTES:
        return pa.array(texts.tolist(), pa.string())
    bounds = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    buffers = [_valid(sizes > 0), pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.string(), len(sizes), buffers)


def _valid(known: npt.NDArray[np.bool_]) -> Any:
    """Return the bitmap of the values that are not null; None if none is."""
    return None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))


def _text(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _has_text(kind: Any) -> bool:
    """Whether it is kept as a text from which it can be had again."""
    types = pa.types
    is_span = types.is_duration(kind) or types.is_interval(kind)
    return bool(types.is_decimal(kind) or (types.is_temporal(kind) and not is_span))


def _plain(kind: Any) -> Any:
    """Return the type of the values of an encoded column."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return kind.value_type
    return kind


def _decoded(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        if pa.types.is_string_view(column.type.value_type):  # as polars writes it: pyarrow cannot look it up
            texts = column.dictionary.cast(pa.string())
            column = pa.DictionaryArray.from_arrays(column.indices, texts)
        return column.dictionary_decode()
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column
