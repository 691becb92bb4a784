"""NumberSet: which of the newest numbers were taken, a bit for each.

Numbers are taken in any order, each once. One that lies too far below the largest taken so far is refused, as
nothing is known of it any more. So the state depends only on the numbers in the order in which they were
given. Memory: one bit for each number that is not too far below the largest.
"""

from __future__ import annotations

from typing import Annotated, Self

import msgspec
import numpy as np

from streamcal.sketch.decoding import MOST, require
from streamcal.values import Counts, Flags

__all__ = ["NumberSet", "NumberSetState"]

_TRIM = 1 << 12  # bytes that may be kept for longer than needed


class NumberSetState(msgspec.Struct, array_like=True):
    """The state of a `NumberSet`."""

    largest: Annotated[int, msgspec.Meta(ge=-1, le=MOST)] = -1
    bits: bytes = b""


class NumberSet:
    """A set of integers from 0 on that forgets those far below its largest.

    Parameters
    ----------
    reach
        number of integers up to the largest that are remembered, at least 1.

    Examples
    --------
    >>> numbers = NumberSet(100)
    >>> numbers.take(7), numbers.take(7), numbers.take(500), numbers.take(8)
    (True, False, True, False)
    """

    __slots__ = ("_bits", "_largest", "_reach", "_start")

    def __init__(self, reach: int) -> None:
        self._reach = reach
        self._largest = -1
        self._start = 0  # the number of the first bit, a multiple of 8
        self._bits = bytearray()

    def take(self, number: int) -> bool:
        """Add a number from 0 on; return whether it is new, and not too far below the largest."""
        if number > self._largest:
            self._largest = number
            self._extend()
        elif number <= self._largest - self._reach or self._has(number):
            return False
        place = number - self._start
        self._bits[place >> 3] |= 1 << (place & 7)
        return True

    def take_many(self, numbers: Counts) -> Flags:
        """Add numbers from 0 on in turn, int64[k]; return the result of `take` for each, bool[k]."""
        return np.array([self.take(number) for number in numbers.tolist()], bool)

    def first_of(self, start: int, count: int) -> int | None:
        """Return the first of ``count`` numbers from ``start`` ≥ 0 on that was taken; None if none is."""
        first = max(start, self._largest - self._reach + 1)
        last = min(start + count - 1, self._largest)
        return next((number for number in range(first, last + 1) if self._has(number)), None)

    def to_state(self) -> NumberSetState:
        """Return the state; equal sets give equal states."""
        self._trim()
        return NumberSetState(self._largest, bytes(self._bits))

    def restore(self, state: NumberSetState) -> Self:
        """Replace the numbers by those of a state."""
        start = self._first(state.largest)
        size = (state.largest - start) // 8 + 1 if state.largest >= 0 else 0
        held = len(state.bits)
        require(held == size, f"{held} bytes of numbers up to {state.largest}, not {size}")
        self._largest, self._start, self._bits = state.largest, start, bytearray(state.bits)
        return self

    def _has(self, number: int) -> bool:
        place = number - self._start
        return bool(self._bits[place >> 3] >> (place & 7) & 1)

    def _first(self, largest: int) -> int:
        """Return the number of the first bit that is needed."""
        return max(0, largest - self._reach + 1) & ~7

    def _extend(self) -> None:
        """Make room for the largest number."""
        if self._first(self._largest) - self._start > 8 * _TRIM:
            self._trim()
        missing = ((self._largest - self._start) >> 3) + 1 - len(self._bits)
        if missing > 0:
            self._bits += bytes(missing)

    def _trim(self) -> None:
        """Forget the bits below the reach; those beyond the number of bits were never taken."""
        first = self._first(self._largest)
        del self._bits[: (first - self._start) >> 3]
        self._start = first
