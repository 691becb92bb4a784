"""Predictions whose label has not come: which of them a label belongs to, and its number in the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

__all__ = ["Waiting"]

_MOST: Final = 100_000


class Waiting:
    """Numbers of predictions that wait for a label, by a key; of the latest 100,000."""

    def __init__(self) -> None:
        self._keys: dict[int, Hashable] = {}  # by number, the oldest first
        self._numbers: dict[Hashable, deque[int]] = {}

    def add(self, key: Hashable, number: int) -> None:
        """Add a prediction."""
        self._keys[number] = key
        self._numbers.setdefault(key, deque()).append(number)
        if len(self._keys) > _MOST:
            self._forget(next(iter(self._keys)))

    def take(self, key: Hashable) -> int | None:
        """Return the oldest prediction with a key, else the oldest of all; None if none waits."""
        if not self._keys:
            return None
        numbers = self._numbers.get(key)
        number = numbers[0] if numbers else next(iter(self._keys))
        self._forget(number)
        return number

    def clear(self) -> None:
        """Forget all: labels of earlier predictions are not expected."""
        self._keys.clear()
        self._numbers.clear()

    def _forget(self, number: int) -> None:
        key = self._keys.pop(number)
        numbers = self._numbers[key]
        numbers.remove(number)
        if not numbers:
            del self._numbers[key]
