"""The schedule of map versions: h is re-formed when the label count reaches n_j = ⌈64·ρ^j⌉.

Under a window the steps stop growing where they would exceed the stride by which it slides.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["FIRST_LABELS", "Schedule"]

FIRST_LABELS: Final = 64
"""The label count at which the first map is formed; before it, the map is the identity."""


class Schedule:
    """Geometric re-forming times for a growth ρ > 1: few versions, each at most ρ times out of date.

    Parameters
    ----------
    growth
        ρ.
    stride
        the longest step, in labels; None: none is too long.
    """

    __slots__ = ("_growth", "_last", "_log_growth", "_stride")

    def __init__(self, growth: float, stride: int | None = None) -> None:
        self._growth = growth
        self._log_growth = math.log(growth)
        self._stride = stride or 0
        self._last: int | None = None  # the last j that the growth alone decides
        if stride is not None:
            steps = math.log(stride / (FIRST_LABELS * (growth - 1.0))) / self._log_growth
            self._last = max(0, int(steps) - 2)
            while self._geometric(self._last + 1) - self._geometric(self._last) <= stride:
                self._last += 1

    def count(self, j: int) -> int:
        """Return n_j, j ≥ 0."""
        if self._last is None or j <= self._last:
            return self._geometric(j)
        return self._geometric(self._last) + (j - self._last) * self._stride

    def passed(self, labels: int) -> int:
        """Return how many n_j are at most ``labels``: the number of versions formed by then."""
        if labels < FIRST_LABELS:
            return 0
        if self._last is not None and labels >= self.count(self._last):
            return self._last + 1 + (labels - self.count(self._last)) // self._stride
        passed = max(0, int(math.log(labels / FIRST_LABELS) / self._log_growth) - 1)
        while self._geometric(passed) <= labels:
            passed += 1
        return passed

    def _geometric(self, j: int) -> int:
        return math.ceil(FIRST_LABELS * self._growth**j)
