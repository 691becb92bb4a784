"""The axes of a picture: where a value stands, and which values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

__all__ = ["Axis", "count_axis", "duration_axis", "linear_axis", "log_axis", "time_axis"]

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_STEPS: Final = (1.0, 5.0, 15.0, 30.0, _MINUTE, 5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR)
_STEPS_OF_DAYS: Final = (3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY)
_MONTHS: Final = (1, 2, 3, 6, 12, 24, 60, 120, 600, 1200, 6000, 12_000, 60_000)
_DURATIONS: Final = {
    0.001: "1 ms",
    0.01: "10 ms",
    0.1: "0.1 s",
    1.0: "1 s",
    10.0: "10 s",
    _MINUTE: "1 min",
    10 * _MINUTE: "10 min",
    _HOUR: "1 h",
    6 * _HOUR: "6 h",
    _DAY: "1 d",
    7 * _DAY: "7 d",
    30 * _DAY: "30 d",
    365 * _DAY: "1 y",
    3650 * _DAY: "10 y",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Axis(msgspec.Struct, frozen=True):
    """From ``low`` to ``high``, with values to be written."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    title: str
    log: bool = False

    def at(self, value: float) -> float:
        """Return where a value stands: 0 at the low end, 1 at the high one."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return (value - low) / (high - low)


def linear_axis(values: Sequence[float], title: str, *, zero: bool = False, most: int = 5) -> Axis:
    """Return an axis that holds some values, at least one, from one round number to another."""
    low, high = min(values), max(values)
    low = min(low, 0.0) if zero else low
    size = max(abs(low), abs(high))
    if high - low <= 1e-12 * max(size, 1.0):  # as good as one value
        room = 0.05 * size if size > 1e-9 else 0.05
        low, high = low - room, high + room
    step = _round_step((high - low) / most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = [(number * step, _plain(number * step, digits)) for number in range(first, last + 1)]
    return Axis(first * step, last * step, ticks, title)


def log_axis(values: Sequence[float], title: str) -> Axis:
    """Return a logarithmic axis that holds some values, all above 0."""
    low, high = min(values) * (1 + 1e-9), max(values) * (1 - 1e-9)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        marks = [float(f"{digit}e{power}") for power in powers for digit in digits]
        below = max(mark for mark in marks if mark <= low)
        above = min((mark for mark in marks if mark >= high and mark > below), default=below * 10.0)
        ticks = [(mark, f"{mark:g}") for mark in marks if below <= mark <= above]
        if len(ticks) <= 7:
            break
    return Axis(below, above, ticks[:: math.ceil(len(ticks) / 7)], title, log=True)


def count_axis(values: Sequence[float], title: str) -> Axis:
    """Return an axis of numbers of something, in thousands or millions if there are so many."""
    axis = linear_axis(values, title, zero=True, most=4)
    unit, name = next(
        ((unit, name) for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if axis.high >= 2 * unit),
        (1.0, ""),
    )
    return msgspec.structs.replace(
        axis, ticks=[(value, f"{value / unit:g}{name if value else ''}") for value, _ in axis.ticks]
    )


def duration_axis(values: Sequence[float], title: str) -> Axis:
    """Return a logarithmic axis of durations, in seconds above 0."""
    low = max((mark for mark in _DURATIONS if mark <= min(values)), default=min(_DURATIONS))
    high = max(*values, low * 10.0)
    ticks = [(mark, name) for mark, name in _DURATIONS.items() if low <= mark <= high]
    return Axis(low, high, ticks[:: max(1, math.ceil(len(ticks) / 6))], title, log=True)


def time_axis(values: Sequence[float], most: int = 5) -> Axis | None:
    """Return an axis of event times, seconds since the epoch, UTC; None for times outside the calendar."""
    low, high = min(values), max(values)
    try:
        first, last = (_EPOCH + timedelta(seconds=each) for each in (low, high))
    except (OverflowError, ValueError):
        return None
    if high <= low:
        return None
    form = "%H:%M:%S" if high - low < 10 * _MINUTE else "%H:%M" if high - low < 2 * _DAY else "%d %b"
    for step in (*_STEPS, *_STEPS_OF_DAYS):
        if (high - low) / step <= most:
            start = math.ceil(low / step)
            moments = [number * step for number in range(start, math.floor(high / step) + 1)]
            ticks = [(moment, f"{_EPOCH + timedelta(seconds=moment):{form}}") for moment in moments]
            return Axis(low, high, ticks, _span(first, last))
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    stride = next((each for each in _MONTHS if months / each <= most + 1), _MONTHS[-1])
    ticks = []
    for number in range(first.year * 12, last.year * 12 + 12, stride):
        year, month = divmod(number, 12)
        moment = (datetime(year, month + 1, 1, tzinfo=UTC) - _EPOCH).total_seconds()
        if low <= moment <= high:
            ticks.append(
                (moment, f"{year}" if stride >= 12 else f"{datetime(year, month + 1, 1, tzinfo=UTC):%b}")
            )
    return Axis(low, high, ticks, _span(first, last))


def _span(first: datetime, last: datetime) -> str:
    """Return what the labels of the ticks do not say."""
    if last - first < timedelta(days=2):
        return f"event time, {first:%d %b %Y}, UTC"
    years = f"{first.year}" if first.year == last.year else f"{first.year} to {last.year}"
    return f"event time, {years}"


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(each * power for each in (1.0, 2.0, 5.0, 10.0) if each * power >= step * (1 - 1e-9))


def _plain(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if digits <= 6 else f"{value:g}"
