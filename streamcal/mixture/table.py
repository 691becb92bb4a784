"""Table of the forecasts of all candidates, from which their mixture is read as one step map.

Memory: float64 for every candidate and interval, about 50 kB.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.mixture.forecasts import Points, Snapshot
from streamcal.mixture.forecasts_c import mix
from streamcal.mixture.partition import LAST, choose_partition, quantile_edges
from streamcal.mixture.windows import Windows
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Cells, Floats

__all__ = ["ServedTable", "Table"]

_KEPT_FOR: Final = 2048  # labels, after which the partition follows the scores


class Table:
    """Forecasts of every candidate in the middle of every interval.

    Parameters
    ----------
    partition
        The left ends of the intervals, int32[p] in cells of the finest grid, strictly ascending from 0.
    """

    __slots__ = ("_base", "_filled", "_values", "cells", "partition")

    def __init__(self, partition: Cells) -> None:
        self.partition = partition
        """Left ends of the intervals."""
        middles = partition + np.append(partition[1:], np.int32(LAST))  # in halves of cells
        points = Points.of(grid.left_edges(middles, grid.MIN_LEVEL - 1))
        lefts = grid.left_edges(partition, grid.MIN_LEVEL)
        self.cells = lefts[1:].copy(), *points
        """Left ends but the first as scores, and the scores and logits in the middle, float64[p] each."""
        self._filled: Snapshot | None = None
        self._base, self._values = np.empty(len(partition)), np.empty((0, len(partition)))

    @property
    def edges(self) -> tuple[float, ...]:
        """Left ends of the intervals as scores, and 1."""
        return (0.0, *self.cells[0].tolist(), 1.0)

    def mixed(self, snapshot: Snapshot) -> Floats:
        """Return the mixture of a snapshot on every interval, float64[p].

        The forecasts stay until the next call, which evaluates only changed maps.
        """
        if self._filled is None:
            self._values = np.empty((snapshot.weights.shape[1], len(self.partition)))
        before, self._filled = self._filled, snapshot
        out = np.empty(len(self.partition))
        mix(snapshot, before, *self.cells[1:], self._base, self._values, out)
        return out


class ServedTable:
    """The table of the served map, with the schedule of its partition.

    The partition is chosen anew with every new source, with every new map of all labels, and after 2,048
    labels.
    """

    __slots__ = ("_chosen_at", "_source_edges", "table")

    def __init__(self) -> None:
        self._chosen_at = 0  # the label count at which the partition was chosen, −1 if it is out of date
        self._source_edges: Cells = np.empty(0, np.int32)
        self.table = Table(choose_partition(np.empty(0, np.int32)))
        """Table as of the last `follow`."""

    def set_source(self, sketch: ScoreSketch) -> None:
        """Make the partition follow the scores of a source from the next `follow` on."""
        self._source_edges = quantile_edges(sketch.cells, sketch.level, sketch.totals)
        self._chosen_at = -1

    def expire(self) -> None:
        """Make the next `follow` choose the partition anew."""
        self._chosen_at = -1

    def follow(self, windows: Windows) -> None:
        """Choose the partition anew, if it is due, by the labels of these windows."""
        if self._chosen_at < 0 or windows.n - self._chosen_at >= _KEPT_FOR:
            self._chosen_at = windows.n
            edges = windows.recent_edges() if windows.n else self._source_edges
            self.table = Table(choose_partition(edges))

    def to_state(self) -> tuple[int, Cells, Cells]:
        """Return the state without the values: the label count of the partition, the edges, the partition."""
        return self._chosen_at, self._source_edges, self.table.partition

    def restore(self, chosen_at: int, source_edges: Cells, partition: Cells) -> None:
        """Set the state."""
        self._chosen_at, self._source_edges = chosen_at, source_edges
        self.table = Table(partition)
