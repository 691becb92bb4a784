"""Predictions whose label has not come: which of them a label belongs to, and its memo."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_MOST: Final = 100_000
_MOST_BYTES: Final = 100_000_000  # of memos


class Waiting:
    """Memos of predictions that wait for a label, by a key; of the latest 100,000, or 100 MB."""

    def __init__(self) -> None:
        self._memos: dict[int, tuple[Hashable, bytes]] = {}  # by number, the oldest first
        self._numbers: dict[Hashable, list[int]] = {}  # those of a key, the oldest first
        self._next = 0

    def add(self, key: Hashable, memo: bytes) -> None:
        """Add a prediction."""
        number = self._next
        self._next += 1
        self._memos[number] = key, memo
        self._numbers.setdefault(key, []).append(number)
        if len(self._memos) > _MOST or len(self._memos) * len(memo) > _MOST_BYTES:
            self._forget(next(iter(self._memos)))

    def take(self, key: Hashable) -> bytes | None:
        """Return the oldest prediction with a key, else the oldest of all; None if none waits."""
        if not self._memos:
            return None
        same = self._numbers.get(key)
        return self._forget(next(iter(self._memos)) if same is None else same[0])

    def clear(self) -> None:
        """Forget all: labels of earlier predictions are not expected."""
        self._memos.clear()
        self._numbers.clear()

    def _forget(self, number: int) -> bytes:
        key, memo = self._memos.pop(number)
        same = self._numbers[key]
        same.remove(number)
        if not same:
            del self._numbers[key]
        return memo
