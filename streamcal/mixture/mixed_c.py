"""MixedSteps: the mixture of a moment as a step function, of which each step is worked out when it is met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from streamcal.mixture.forecasts_c import Snapshot
    from streamcal.mixture.table import Table

__all__ = ["MixedSteps"]

_SINGLE: Final = 32  # steps worked out one by one: from then on, all of them together cost less


class MixedSteps:
    """The value of each interval is the mixture of what all candidates forecast in its middle.

    Parameters
    ----------
    table, snapshot
        What is mixed.
    """

    def __init__(self, table: Table, snapshot: Snapshot) -> None:
        self._table, self._snapshot = table, snapshot
        self._edges, self._middles, self._logits = table.cells
        self._values = np.full(len(self._middles), np.nan)  # NaN: not worked out yet
        self._row = np.empty(snapshot.weights.shape[1])
        self._left = _SINGLE

    def one(self, score: float) -> float:
        """Return the value at one score in [0, 1]."""
        low, size = 0, len(self._edges)
        while size > 0:
            half = (size + 1) // 2
            low += half * (self._edges[low + half - 1] <= score)  # a branch would often be foretold wrong
            size -= half
        value = self._values[low]
        if value == value:
            return value  # type: ignore[no-any-return]
        if not self._left:
            self._values = self._table.mixed(self._snapshot)
            return self._values[low]  # type: ignore[no-any-return]
        self._left -= 1
        self._snapshot.put(self._middles[low], self._logits[low], self._row)
        value = 0.0
        for k in range(len(self._row)):
            weight = self._snapshot._parts[0, k]
            if weight != 0.0:
                value += weight * self._row[k]
        self._values[low] = min(value, 1.0)  # rounding may lead above 1 by one ulp
        return self._values[low]  # type: ignore[no-any-return]
