"""Which event times are believed: one unit, no jump far beyond the others, however they are cut."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.events.codes import Refusal
from streamcal.events.guard import SURE, GuardState, TimeGuard

DAY = 86_400.0
NOW = 1_700_000_000.0
JUMP = 30 * DAY
FAR = 4_070_908_800.0
"""The year 2099."""


def judge(times: list[float], max_jump: float = JUMP) -> list[float | str]:
    """Return the seconds of each time, or why it is refused."""
    guard = TimeGuard(max_jump)
    found: list[float | str] = []
    for time in times:
        taken = guard.take(time)
        found.append(taken.reason if isinstance(taken, Refusal) else taken)
    return found


def refused(times: list[float], max_jump: float = JUMP) -> list[int]:
    return [index for index, found in enumerate(judge(times, max_jump)) if isinstance(found, str)]


def test_a_unit_is_told_by_magnitude() -> None:
    seconds = [NOW + i for i in range(20)]
    assert judge([time * 1e3 for time in seconds]) == pytest.approx(seconds, abs=1e-3)
    found = judge([*seconds, (NOW + 20) * 1e3, NOW + 21])
    assert found[:20] == seconds
    assert "is in milliseconds, the others of its input are in seconds" in str(found[20])
    assert found[21] == NOW + 21


def test_a_wrong_first_unit_costs_itself_and_one_more() -> None:
    assert refused([NOW * 1e3, *(NOW + i for i in range(50))]) == [1]


def test_a_stream_that_changes_its_unit_goes_on() -> None:
    times = [NOW + i for i in range(100)] + [(NOW + i) * 1e3 for i in range(100, 200)]
    assert refused(times) == list(range(100, 100 + SURE))


def test_a_mix_is_refused_however_even() -> None:
    times = [(NOW + i) * (1e3 if i % 2 else 1) for i in range(100)]
    assert refused(times) == list(range(1, 100, 2))


def test_a_jump_is_refused_with_the_reason() -> None:
    times = [NOW + i for i in range(10)]
    found = judge([*times, FAR, NOW + 10])
    assert found[:10] == times
    assert found[10] == (
        "a time too far ahead: time 4070908800 (2099-01-01 00:00:00 UTC) is more than 30 days past those"
        " before it, whose median is 2023-11-14 22:13:25 UTC; if it is right, raise max_jump of [join]"
    )
    assert found[11] == NOW + 10
    assert refused([*times, FAR], math.inf) == []
    assert refused([*times, NOW + 31 * DAY], 32 * DAY) == []


def test_outliers_cannot_climb_from_one_to_the_next() -> None:
    times = [NOW + i for i in range(200)]
    for step in range(1, 8):
        times[step * 20] += step * 29 * DAY
    assert refused(times) == [40, 60, 80, 100, 120, 140]


def test_a_stream_that_resumes_after_a_pause_goes_on() -> None:
    times = [NOW + i for i in range(50)] + [NOW + 60 * DAY + i for i in range(50)]
    assert refused(times) == [50, 51, 52, 53, 54]


@pytest.mark.parametrize("days", [29, 365])
def test_a_sparse_stream_is_believed(days: float) -> None:
    assert refused([NOW + i * days * DAY for i in range(100)]) == []


def test_looked_at_ahead_even_the_first_is_refused() -> None:
    times = [FAR, *(NOW + i for i in range(40))]
    guard = TimeGuard(JUMP)
    guard.begin(np.array(times))
    seconds, reasons = guard.take_many(np.array(times))
    assert list(reasons) == [0]
    assert seconds[1:].tolist() == times[1:]
    guard = TimeGuard(JUMP)
    guard.begin(np.array([NOW * 1e3, *times[1:]]))
    assert list(guard.take_many(np.array([NOW * 1e3, *times[1:]]))[1]) == [0]


TIMES = st.one_of(
    st.floats(NOW, NOW + 10 * DAY),
    st.floats(NOW, NOW + 100 * DAY),
    st.sampled_from([math.nan, 0.0, FAR, NOW * 1e3, NOW * 1e6, NOW * 1e9, 1e20, math.inf]),
)


@given(st.lists(TIMES, max_size=200), st.data())
def test_the_outcome_is_the_same_however_the_events_are_cut(times: list[float], data: st.DataObject) -> None:
    one, many = TimeGuard(JUMP), TimeGuard(JUMP)
    alone: list[float] = []
    for time in times:
        taken = time if math.isnan(time) else one.take(time)
        alone.append(math.nan if isinstance(taken, Refusal) else taken)
    together: list[float] = []
    start = 0
    while start < len(times):
        end = start + data.draw(st.integers(1, 80))
        seconds, _ = many.take_many(np.array(times[start:end]))
        together += seconds.tolist()
        many, start = TimeGuard(JUMP, many.state), end
    np.testing.assert_array_equal(alone, together)
    begun = any(not math.isnan(time) for time in times)
    assert one.state == (many.state if begun else GuardState())
