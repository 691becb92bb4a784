"""The forecasts of all candidates as a table, from which their mixture is read as one step map.

Memory: float64 for every candidate and interval, about 50 kB.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.mixture.fits import Cells, Floats
from streamcal.mixture.forecasts import Points, Snapshot, forecasts, refill
from streamcal.mixture.partition import LAST, choose_partition, quantile_edges
from streamcal.mixture.windows import Windows
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["ServedTable", "Table"]

_KEPT_FOR: Final = 2048  # labels, after which the partition follows the scores


class Table:
    """What every candidate forecasts in the middle of every interval.

    Parameters
    ----------
    partition
        The left ends of the intervals, int32[p] in cells of the finest grid, strictly ascending from 0.
    """

    __slots__ = ("_filled", "_inner", "_points", "edges", "partition", "values")

    def __init__(self, partition: Cells) -> None:
        self.partition = partition
        """The left ends of the intervals."""
        middles = partition + np.append(partition[1:], np.int32(LAST))  # in halves of cells
        self._points = Points.of(grid.left_edges(middles, grid.MIN_LEVEL - 1))
        lefts = grid.left_edges(partition, grid.MIN_LEVEL)
        self._inner = lefts[1:]
        self.edges = (*lefts.tolist(), 1.0)
        """The left ends of the intervals as scores, and 1."""
        self._filled: Snapshot | None = None
        self.values: Floats = np.empty((0, len(partition)))
        """float64[K, p] as of the last `fill`."""

    def fill(self, snapshot: Snapshot) -> None:
        """Bring the values up to date with a snapshot; only what has changed is evaluated."""
        if self._filled is None:
            self.values = forecasts(snapshot, self._points)
        else:
            refill(snapshot, self._points, self.values, self._filled)
        self._filled = snapshot

    def at(self, scores: Floats) -> Floats:
        """Return the values for scores, float64[n]: float64[K, n]."""
        return self.values.take(self._inner.searchsorted(scores, "right"), axis=1)

    def mixed(self, weights: Floats) -> Floats:
        """Return the mixture with weights, float64[K] with sum 1, on every interval, float64[p]."""
        means: Floats = weights.dot(self.values)
        return np.minimum(means, 1.0, out=means)  # rounding may lead above 1 by one ulp


class ServedTable:
    """The table of the served map, and when its partition is chosen anew.

    That is with every new source, with every new map of all labels, and after 2,048 labels.
    """

    __slots__ = ("_chosen_at", "_source_edges", "table")

    def __init__(self) -> None:
        self._chosen_at = 0  # the label count at which the partition was chosen, −1 if it is out of date
        self._source_edges: Cells = np.empty(0, np.int32)
        self.table = Table(choose_partition(np.empty(0, np.int32)))
        """The table, as of the last `fill`."""

    def set_source(self, sketch: ScoreSketch) -> None:
        """Have the partition follow the scores of a source from the next `fill` on."""
        self._source_edges = quantile_edges(sketch.cells, sketch.level, sketch.totals)
        self._chosen_at = -1

    def expire(self) -> None:
        """Have the partition chosen anew at the next `fill`."""
        self._chosen_at = -1

    def fill(self, snapshot: Snapshot, windows: Windows) -> None:
        """Bring the table up to date with a snapshot of these windows."""
        if self._chosen_at < 0 or windows.n - self._chosen_at >= _KEPT_FOR:
            self._chosen_at = windows.n
            edges = windows.recent_edges() if windows.n else self._source_edges
            self.table = Table(choose_partition(edges))
        self.table.fill(snapshot)

    def to_state(self) -> tuple[int, Cells, Cells]:
        """Return the state without the values: when the partition was chosen, the edges, the partition."""
        return self._chosen_at, self._source_edges, self.table.partition

    def restore(self, chosen_at: int, source_edges: Cells, partition: Cells, snapshot: Snapshot) -> None:
        """Set the state, and fill the table with the snapshot that is served."""
        self._chosen_at, self._source_edges = chosen_at, source_edges
        self.table = Table(partition)
        self.table.fill(snapshot)
