"""Numbers as bytes: what was packed comes back, and nothing else is taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.sketch.cells import pack_numbers, unpack_numbers

NUMBERS = st.one_of(st.integers(0, 300), st.integers(65_000, 66_000), st.integers(0, 2**63 - 1))


@given(st.lists(NUMBERS, max_size=50), st.binary(max_size=20))
def test_numbers_come_back_with_what_stands_behind_them(numbers: list[int], rest: bytes) -> None:
    found, left = unpack_numbers(pack_numbers(np.array(numbers, np.int64)) + rest)
    assert (found.tolist(), left) == (numbers, rest)


def test_small_numbers_take_one_byte_beside_a_large_one() -> None:
    assert len(pack_numbers(np.array([3] * 1000))) == 1005
    assert len(pack_numbers(np.array([3] * 1000 + [2**40]))) == 1005 + 1 + 8
    assert len(pack_numbers(np.array([300] * 1000 + [2**40]))) == 2005 + 2 + 8


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_or_numbers(data: bytes) -> None:
    try:
        numbers, _ = unpack_numbers(data)
    except ValueError:
        return
    assert (numbers >= 0).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes do not hold 0 numbers"),
        (b"\x01\0\0\0\x03abc", "8 bytes do not hold 1 numbers of 3 bytes"),
        (b"\x01\0\0\0\x01\xff" + bytes(8), "numbers marked as large: not all in"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack_numbers(data)
