"""The axes of pictures: whatever the values are, they are within, and few ticks are written."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamcal.report.scales import Axis, count_axis, duration_axis, linear_axis, log_axis, time_axis

finite = st.floats(-1e15, 1e15)
above_zero = st.floats(1e-12, 1e12)


def holds(axis: Axis, values: list[float], most: int) -> None:
    assert all(-1e-9 <= axis.at(value) <= 1 + 1e-9 for value in values)
    assert len(axis.ticks) <= most
    assert all(-1e-9 <= axis.at(value) <= 1 + 1e-9 and name for value, name in axis.ticks)


@given(st.lists(finite, min_size=1, max_size=20), st.booleans())
@example([0.0, 5e-324], False)
@example([0.0, 1e-13], True)
@example([1e-10, 1e-10], False)
@example([1e15, 1e15], False)
def test_a_linear_axis_holds_its_values(values: list[float], zero: bool) -> None:
    axis = linear_axis(values, "", zero=zero)
    holds(axis, values, 9)
    assert len({name for _, name in axis.ticks}) == len(axis.ticks) or max(map(abs, values)) > 1e6


@given(st.lists(above_zero, min_size=1, max_size=20))
def test_a_logarithmic_axis_holds_its_values(values: list[float]) -> None:
    holds(log_axis(values, ""), values, 7)
    holds(duration_axis([max(each, 0.001) for each in values], ""), [max(each, 0.001) for each in values], 7)


@given(st.lists(st.floats(-6e10, 2.5e11), min_size=2, max_size=5))
def test_an_axis_of_times_holds_its_values(values: list[float]) -> None:
    axis = time_axis(values)
    if min(values) < max(values) and math.nextafter(min(values), math.inf) < max(values):
        assert axis is not None
        holds(axis, values, 13)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([0.0, 90.0], ["00:00:00", "00:00:30", "00:01:00", "00:01:30"]),
        ([0.0, 6 * 3600.0], ["00:00", "03:00", "06:00"]),
        ([1e9, 1e9 + 5 * 86_400], ["10 Sep", "11 Sep", "12 Sep", "13 Sep", "14 Sep"]),
        ([1367366400.0, 1388534400.0], ["May", "Jul", "Sep", "Nov", "Jan"]),
        ([0.0, 1e9], ["1970", "1980", "1990", "2000"]),
    ],
)
def test_times_are_written_as_people_do(values: list[float], names: list[str]) -> None:
    axis = time_axis(values)
    assert axis is not None
    assert [name for _, name in axis.ticks] == names


def test_times_outside_the_calendar_have_no_axis() -> None:
    assert time_axis([0.0, 1e300]) is None
    assert time_axis([5.0, 5.0]) is None


def test_many_are_written_in_thousands() -> None:
    assert [name for _, name in count_axis([221_871.0], "").ticks] == ["0", "100k", "200k", "300k"]
    assert [name for _, name in log_axis([0.004, 0.2], "").ticks] == [
        *("0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2")
    ]
