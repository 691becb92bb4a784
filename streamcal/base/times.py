"""Event times: seconds since the epoch, from whatever a time is given as.

A number of at least `LIMIT` is no count of seconds, which would lie beyond the year 5138: it is taken for
milliseconds, microseconds or nanoseconds by its magnitude. Neither pandas nor polars is imported: their
columns are read through numpy, their single values as the datetimes that they are.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from streamcal.base.values import Floats, parse_number, shown, unmasked

LIMIT: Final = 1e11
"""A time of this many seconds lies in the year 5138; in milliseconds, it is 3 March 1973."""

LATEST: Final = 1e20
"""Nanoseconds in `LIMIT` seconds: a number beyond is no time in any unit."""

UNITS: Final = ("seconds", "milliseconds", "microseconds", "nanoseconds")
"""By their number: 0 for seconds, and so on."""

Time: TypeAlias = float | str | date | np.datetime64
"""Type of a time as it may be given; a datetime is a date."""

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h|d|w)")
_LENGTHS: Final = {
    "s": timedelta(seconds=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_ISO_DURATION: Final = TypeAdapter(timedelta)
_DURATIONS: Final = "'30min', '12h' or '30d'"

RULE: Final = "a time must be seconds since the epoch, a datetime, or an ISO 8601 date and time"

_DATE: Final = re.compile(r"(\d{4}|\d\d?)([./-])(\d\d?)\2(\d{4}|\d\d?)(?:[T ,]+(\d\d?)(:\d\d.*))?", re.ASCII)
_LIMITS: Final = (LIMIT, LIMIT * 1e3, LIMIT * 1e6, LATEST)
SCALES: Final = (1.0, 1e3, 1e6, 1e9)
"""Number of each unit in a second."""
_EPOCH: Final = datetime(1970, 1, 1)
_DAY: Final = 86_400  # seconds
_COUNTED: Final = (  # how times are counted elsewhere: unit in seconds, numbers of 2000 to 2069, and to 2099
    ("a number of days since 1970", _DAY, 10_957, 36_526, _EPOCH),
    ("a day of Excel", _DAY, 36_526, 73_051, datetime(1899, 12, 30)),
    ("a number of hours since 1970", 3_600, 262_968, 876_576, _EPOCH),
    ("a number of minutes since 1970", 60, 15_778_080, 52_594_560, _EPOCH),
)
_TICKS: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}  # a second


def unit_of(number: float) -> int:
    """Return the unit of a time by its magnitude, a number of `UNITS`; their count if it is beyond all."""
    return len(UNITS) if math.isnan(number) else bisect_right(_LIMITS, abs(number))


def units_of(numbers: Floats) -> npt.NDArray[np.intp]:
    """Do the same for an array, float64[n]."""
    return np.where(np.isnan(numbers), len(UNITS), np.searchsorted(_LIMITS, np.abs(numbers), "right"))


def seconds_of(number: float) -> float:
    """Return a time in seconds, its unit told by its magnitude, which must be below that of any date."""
    return number if -LIMIT < number < LIMIT else number / SCALES[unit_of(number)]


def date_like(number: float) -> dict[str, Any]:
    """Return what a time in seconds looks like: fields of a message of ``bad_time``; none if it is plausible.

    A stream that begins at 20260131, 46053 or 20484 has its times as digits of dates, or as numbers of days;
    one that begins at 29497061, as minutes, unless these are seconds of a midnight.
    """
    if 19_000_101 <= number <= 20_991_231 and number == (digits := int(number)):
        with suppress(ValueError):
            day = date(digits // 10_000, digits // 100 % 100, digits % 100)
            return {"time": number, "like": "the digits of a date", "date": day.isoformat()}
    for kind, unit, first, end, origin in _COUNTED:
        if first <= number < end and number % _DAY:
            moment = origin + timedelta(seconds=number // 1 * unit)
            return {"time": number, "like": kind, "date": moment.isoformat()[: 10 if unit == _DAY else 16]}
    return {}


def iso_date(text: str, order: str | None = None) -> str:
    """Return a date, or a date and time, as ISO 8601 writes it; the text itself if it is none for certain.

    Parameters
    ----------
    order
        of ``01/02/2026`` and ``01-02-2026``: ``"dmy"`` or ``"mdy"``; None: they may mean either.

    Examples
    --------
    >>> iso_date("1.2.2026 9:45"), iso_date("2026/02/01"), iso_date("01/02/2026")
    ('2026-02-01T09:45', '2026-02-01', '01/02/2026')
    """
    match = _DATE.fullmatch(text)
    if match is None:
        return text
    first, mark, month, last, hour, clock = match.groups()
    if (len(first) == 4) == (len(last) == 4):
        return text
    year, day = (first, last) if len(first) == 4 else (last, first)
    if year == last and mark != ".":
        if order is None:
            return text
        day, month = (day, month) if order == "dmy" else (month, day)
    return f"{year}-{month:0>2}-{day:0>2}" + (f"T{hour:0>2}{clock}" if hour else "")


def read_time(value: object) -> float:
    """Return a time as a number: a number stays in its unit, a date and time becomes seconds.

    Raises
    ------
    ValueError
        if it is no time, not finite, or beyond the year 5138 in every unit.
    """
    number = _number(value)
    if number is None or unit_of(number) == len(UNITS):
        raise ValueError(f"{RULE}, got {shown(value)}")
    return number


def check_time(value: object) -> float | None:
    """Return a time in seconds; None stays None.

    Raises
    ------
    ValueError
        as `read_time`.
    """
    return None if value is None else seconds_of(read_time(value))


def as_times(times: Any, n: int) -> Floats:
    """Return event times in seconds as float64[n], checked. A single time applies to all n events.

    Accepts numbers, datetimes and texts of dates (`iso_date`): numpy arrays, lists, and pandas, polars and
    Arrow columns. What has no time zone is UTC.

    Raises
    ------
    ValueError
        if there are not n times, if one is missing or no time, or if their units differ; the message then
        names its index.
    """
    given = unmasked("times", times)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != n):
        raise ValueError(f"{n} scores but times of shape {given.shape}")
    column = np.atleast_1d(given)
    kind = column.dtype.kind
    if kind == "M":
        numbers = seconds_of_moments(column)
    elif kind in "fui":
        numbers = column.astype(np.float64)
    else:
        numbers = _from_objects(column)
    units = units_of(numbers)
    bad = np.flatnonzero(units == len(UNITS))
    if len(bad):
        raise ValueError(f"index {bad[0]}: {RULE}, got {shown(column[bad[0]].item())}")
    if len(units) and (units != units[0]).any():
        usual = int(np.bincount(units).argmax())
        odd = int(np.flatnonzero(units != usual)[0])
        raise ValueError(
            f"index {odd}: {shown(column[odd].item())} is a time in {UNITS[units[odd]]}, where most are in"
            f" {UNITS[usual]}: give all in one unit, or as datetimes"
        )
    numbers /= np.array(SCALES)[units]
    return np.full(n, numbers[0]) if given.ndim == 0 else numbers


def show_time(seconds: float, form: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Return a time in UTC for people, in a form of `datetime.strftime`; never fails."""
    try:
        return f"{_EPOCH + timedelta(seconds=seconds):{form}}"
    except (OverflowError, ValueError):
        return f"{seconds:g} seconds since the epoch"


def show_duration(seconds: float) -> str:
    """Return a duration for people: in days from one day on, in hours from two on, else in seconds."""
    for unit, size, least in (("days", 86_400.0, 86_400.0), ("hours", 3_600.0, 7_200.0)):
        if seconds >= least:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} seconds"


def as_timedelta(value: timedelta | str) -> timedelta:
    """Return a duration, or the one of a text: ``"90s"``, ``"30min"``, ``"12h"``, ``"2d"``, ISO 8601.

    Raises
    ------
    ValueError
        if the text is none.
    """
    if isinstance(value, str) and (found := _DURATION.fullmatch(value)):
        with suppress(OverflowError):
            return float(found[1]) * _LENGTHS[found[2]]
    with suppress(ValidationError):
        return _ISO_DURATION.validate_python(value)
    raise ValueError(f"must be a duration such as {_DURATIONS}")


def duration(name: str, value: timedelta | str) -> float:
    """Return a duration in seconds.

    Raises
    ------
    ValueError
        if it is none, or negative; ``name`` is that of the argument.
    """
    with suppress(ValueError):
        seconds = as_timedelta(value).total_seconds()
        if seconds >= 0.0:
            return seconds
    raise ValueError(
        f"{name} must be a duration of at least 0 seconds, such as {_DURATIONS}, got {shown(value)}"
    )


def _number(value: object) -> float | None:
    """Return the number that a time is or stands for; None if it is no time."""
    try:
        if isinstance(value, str):
            number = parse_number(value)
            return _from_date(_moment(value)) if number is None else number
        if isinstance(value, np.datetime64):
            return float(seconds_of_moments(np.array([value]))[0])
        if isinstance(value, date):  # a datetime, too
            return _from_date(value)
        is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        return float(value) if is_number else None  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(iso_date(text))


def _from_date(moment: date) -> float | None:
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds if abs(seconds) < LIMIT else None  # the others would be taken for another unit


def seconds_of_moments(moments: npt.NDArray[Any]) -> Floats:
    """Return datetimes, datetime64[n], in seconds: NaN for what is none or beyond the year 5138."""
    unit, step = np.datetime_data(moments.dtype)
    if step != 1 or unit not in _TICKS:
        unit = unit if unit in _TICKS else "ns" if unit in ("ps", "fs", "as") else "s"
        moments = moments.astype(f"datetime64[{unit}]")
    whole, part = np.divmod(moments.astype(np.int64), _TICKS.get(unit, 1))
    seconds = whole + part / _TICKS.get(unit, 1)
    seconds[np.isnat(moments) | (np.abs(seconds) >= LIMIT)] = np.nan
    return seconds


def _from_objects(column: npt.NDArray[Any]) -> Floats:
    numbers = np.empty(len(column))
    for index, value in enumerate(column.tolist()):
        try:
            numbers[index] = read_time(value)
        except ValueError as error:
            raise ValueError(f"index {index}: {error}") from None
    return numbers
