"""TextTable: texts by number, as bytes, in a hash table.

A dictionary of a million texts is a million objects. Here a text takes its bytes and some 20 more.

Compiled where there is a C compiler; `text_table_c.pxd` has the types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from streamcal.values import Counts

__all__ = ["TextTable", "grown", "hashed", "widened"]

# As C has them.
_WORD: Final = (1 << 64) - 1
_NUMBER: Final = (1 << 32) - 1
_SEED: Final = hash("streamcal") & _WORD
_ODD: Final = 0x9E37_79B9_7F4A_7C15  # 2⁶⁴ by the golden ratio
_FEWEST: Final = 64  # texts of a new table


class TextTable:
    """Different texts, numbered from 1 on in the order in which they came; none is removed."""

    def __init__(self) -> None:
        self._count = 0
        self._slots: Any = np.zeros(2 * _FEWEST, np.uint64).data
        self._mask = 2 * _FEWEST - 1
        self._ends: Any = np.zeros(_FEWEST + 1, np.int64).data
        self._text = bytearray(16 * _FEWEST)

    def __len__(self) -> int:
        return self._count

    def find(self, data: Sequence[int], start: int, size: int) -> int:
        """Return the number of ``data[start : start + size]``, bytes; 0 if it has none."""
        tag = hashed(data, start, size) >> 32
        at = tag & self._mask
        text = self._text
        while True:
            slot = self._slots[at]
            if not slot:
                return 0
            if slot >> 32 == tag:
                number: int = slot & _NUMBER
                other = self._ends[number - 1]
                if self._ends[number] - other == size:
                    i = 0
                    while i < size and text[other + i] == data[start + i]:
                        i += 1
                    if i == size:
                        return number
            at = (at + 1) & self._mask

    def add(self, data: Sequence[int], start: int, size: int) -> int:
        """Return a new number of a text that has none."""
        if 3 * self._count >= 2 * self._mask:
            self._slots = widened(self._slots)
            self._mask = len(self._slots) - 1
        if self._count + 1 == len(self._ends):
            self._ends = grown(self._ends)
        end = self._ends[self._count]
        if end + size > len(self._text):
            self._text.extend(bytes(len(self._text) // 2 + size))
        text = self._text
        for i in range(size):
            text[end + i] = data[start + i]
        self._count += 1
        self._ends[self._count] = end + size
        tag = hashed(data, start, size) >> 32
        at = tag & self._mask
        while self._slots[at]:
            at = (at + 1) & self._mask
        self._slots[at] = tag << 32 | self._count
        return self._count

    def put(self, texts: Sequence[bytes]) -> Counts:
        """Return the number of each text, int64[n]; those that have none get one."""
        found = np.empty(len(texts), np.int64)
        numbers: Any = found.data
        for i in range(len(texts)):
            text = texts[i]
            size = len(text)
            numbers[i] = self.find(text, 0, size) or self.add(text, 0, size)
        return found

    def text(self, number: int) -> bytes:
        """Return the text with a number."""
        text = self._text
        return bytes(text[self._ends[number - 1] : self._ends[number]])


def widened(before: Any) -> Any:
    """Return a hash table of twice the size, uint64[2 n]; of each slot the upper half is its tag."""
    slots = np.zeros(2 * len(before), np.uint64).data
    mask = 2 * len(before) - 1
    for i in range(len(before)):
        slot = before[i]
        if slot:
            at = slot >> 32 & mask
            while slots[at]:
                at = (at + 1) & mask
            slots[at] = slot
    return slots


def grown(column: Any) -> Any:
    """Return a column of twice the size that begins with another."""
    before = np.asarray(column)
    return np.append(before, np.zeros_like(before)).data


def hashed(data: Sequence[int], start: int, size: int) -> int:
    """Return the hash of bytes; it differs between processes, so nobody can choose texts that collide."""
    found, at, end = _SEED ^ size * _ODD & _WORD, start, start + size
    while at + 8 <= end:
        b0, b1, b2, b3 = data[at], data[at + 1], data[at + 2], data[at + 3]
        b4, b5, b6, b7 = data[at + 4], data[at + 5], data[at + 6], data[at + 7]
        word = b0 | b1 << 8 | b2 << 16 | b3 << 24 | b4 << 32 | b5 << 40 | b6 << 48 | b7 << 56
        found = (found ^ word) * _ODD & _WORD
        found ^= found >> 29
        at += 8
    word = 0
    while end > at:
        end -= 1
        word = word << 8 | data[end]
    found = (found ^ word) * _ODD & _WORD
    found ^= found >> 32
    found = found * _ODD & _WORD
    return found ^ found >> 32
