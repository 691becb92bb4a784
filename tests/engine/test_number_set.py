"""A set of numbers that forgets: against a plain set, one by one and many at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.engine.number_set import NumberSet, NumberSetState

NUMBERS = st.lists(st.one_of(st.integers(0, 60), st.integers(0, 400)), max_size=40)


def taken_by(numbers: list[int], reach: int) -> list[bool]:
    """Return what a set that forgets takes, from the definition."""
    known: set[int] = set()
    taken = []
    for number in numbers:
        largest = max([number, *known])
        taken.append(number not in known and number > largest - reach)
        if taken[-1]:
            known.add(number)
    return taken


@given(NUMBERS, st.lists(st.integers(0, 40), max_size=3), st.sampled_from([1, 7, 8, 50]))
def test_many_at_a_time_are_taken_as_one_by_one(numbers: list[int], cuts: list[int], reach: int) -> None:
    one, many = NumberSet(reach), NumberSet(reach)
    singly = [one.take(number) for number in numbers]
    assert singly == taken_by(numbers, reach)
    parts = np.split(np.array(numbers, np.int64), sorted(min(cut, len(numbers)) for cut in cuts))
    assert np.concatenate([many.take_many(part) for part in parts]).tolist() == singly
    assert one.to_state() == many.to_state()
    again = NumberSet(reach).restore(one.to_state())
    known = [number for number, is_taken in zip(numbers, singly, strict=True) if is_taken]
    known = [number for number in known if number > max(numbers) - reach]
    for start, count in ((0, 500), (3, 1), (10, 20), (399, 5)):
        expected = min((number for number in known if start <= number < start + count), default=None)
        assert one.first_of(start, count) == again.first_of(start, count) == expected
    assert again.to_state() == one.to_state()
    assert again.take(401)


def test_memory_is_bounded_by_the_reach() -> None:
    numbers = NumberSet(1_000)
    for start in range(0, 1_000_000, 10_000):
        assert numbers.take_many(np.arange(start, start + 10_000)).all()
    assert len(numbers._bits) < 8_000
    assert len(numbers.to_state().bits) <= 126
    assert not numbers.take(5)
    assert numbers.first_of(5, 1) is None


def test_a_state_with_other_bits_is_damaged() -> None:
    with pytest.raises(ValueError, match="0 bytes of numbers up to 5, not 1"):
        NumberSet(10).restore(NumberSetState(5, b""))
    with pytest.raises(ValueError, match="2 bytes of numbers up to -1, not 0"):
        NumberSet(10).restore(NumberSetState(-1, b"ab"))
