"""The schedule of map versions: h is re-formed when the label count reaches n_j = ⌈64·ρ^j⌉."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["FIRST_LABELS", "Schedule"]

FIRST_LABELS: Final = 64
"""The label count at which the first map is formed; before it, the map is the identity."""


class Schedule:
    """Geometric re-forming times for a growth ρ > 1: few versions, each at most ρ times out of date."""

    __slots__ = ("_growth", "_log_growth")

    def __init__(self, growth: float) -> None:
        self._growth = growth
        self._log_growth = math.log(growth)

    def count(self, j: int) -> int:
        """Return n_j, j ≥ 0."""
        return math.ceil(FIRST_LABELS * self._growth**j)

    def passed(self, labels: int) -> int:
        """Return how many n_j are at most ``labels``: the number of versions formed by then."""
        if labels < FIRST_LABELS:
            return 0
        passed = max(0, int(math.log(labels / FIRST_LABELS) / self._log_growth) - 1)
        while self.count(passed) <= labels:
            passed += 1
        return passed
