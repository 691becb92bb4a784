"""Predictions whose label has not come: which of them a label belongs to, and its memo."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

__all__ = ["Waiting"]

_MOST: Final = 100_000
_MOST_BYTES: Final = 100_000_000  # of memos


class Waiting:
    """Memos of predictions that wait for a label, by a key; of the latest 100,000, or 100 MB."""

    def __init__(self) -> None:
        self._memos: dict[int, tuple[Hashable, bytes]] = {}  # by number, the oldest first
        self._numbers: dict[Hashable, deque[int]] = {}
        self._next = 0

    def add(self, key: Hashable, memo: bytes) -> None:
        """Add a prediction."""
        self._memos[self._next] = key, memo
        self._numbers.setdefault(key, deque()).append(self._next)
        self._next += 1
        if len(self._memos) > min(_MOST, _MOST_BYTES // len(memo)):
            self._forget(next(iter(self._memos)))

    def take(self, key: Hashable) -> bytes | None:
        """Return the oldest prediction with a key, else the oldest of all; None if none waits."""
        if not self._memos:
            return None
        numbers = self._numbers.get(key)
        return self._forget(numbers[0] if numbers else next(iter(self._memos)))

    def clear(self) -> None:
        """Forget all: labels of earlier predictions are not expected."""
        self._memos.clear()
        self._numbers.clear()

    def _forget(self, number: int) -> bytes:
        key, memo = self._memos.pop(number)
        numbers = self._numbers[key]
        numbers.remove(number)
        if not numbers:
            del self._numbers[key]
        return memo
