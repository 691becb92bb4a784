"""SourceMap: the map and class prior of the source, with the mean of the map in each cell of a grid."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from streamcal.sketch import checks, grid
from streamcal.values import Cells, Floats

__all__ = ["SourceMap", "SourceState", "cell_means"]


class SourceState(msgspec.Struct):
    """The state of a `SourceMap`."""

    edges: Floats
    values: Floats
    prior: float


class SourceMap:
    """A step map h of the source, with its mean value in each cell of a grid.

    Parameters
    ----------
    edges, values
        edges and values of the map: [B+1] ascending from 0 to 1, and [B] in [0, 1].
    prior
        P[Y=1], in [0, 1].

    Raises
    ------
    ValueError
        if shapes or ranges are wrong.
    """

    __slots__ = ("_cells", "_edges", "_means", "_values", "prior")

    def __init__(self, edges: Any, values: Any, prior: float) -> None:
        self._edges, self._values = checks.as_scores(edges), checks.as_scores(values)
        self.prior = checks.check_score(prior)
        """Class prior P[Y=1] of the source, in [0, 1]."""
        bins, ends = len(self._values), self._edges[[0, -1]].tolist() if len(self._edges) else None
        if len(self._edges) != bins + 1 or ends != [0.0, 1.0] or not (np.diff(self._edges) > 0.0).all():
            raise ValueError(f"{len(self._edges)} edges of {bins} bins do not ascend from 0 to 1")
        self._cells: Cells | None = None
        self._means: Floats = np.empty(0)

    @property
    def informs(self) -> bool:
        """Whether scores are evidence of a target's prior: the source must have both classes."""
        return 0.0 < self.prior < 1.0

    def means(self, cells: Cells, level: int) -> Floats:
        """Return the mean value of the map in each cell of a level, float64[m].

        The result is cached by the identity of the array of cells, int32[m]: never change that array.
        """
        if self._cells is not cells:
            left, right = grid.left_edges(cells, level), grid.left_edges(cells + np.int32(1), level)
            self._means, self._cells = cell_means(self._edges, self._values, left, right), cells
        return self._means

    def to_state(self) -> SourceState:
        """Return the state: what the map is made of."""
        return SourceState(self._edges, self._values, self.prior)


def cell_means(edges: Floats, values: Floats, left: Floats, right: Floats) -> Floats:
    """Return the mean of a step map over intervals of scores.

    The mean assumes that scores are uniform inside a bin, and that all bins have the same mass, as in a
    uniform-mass map without ties.

    Parameters
    ----------
    edges, values
        edges and values of the map: float64[B+1] ascending from 0 to 1, and float64[B] in [0, 1].
    left, right
        ends of the intervals, float64[m], 0 ≤ left < right ≤ 1.

    Returns
    -------
    float64[m]; exactly the value of the bin where an interval lies inside one bin.
    """
    last = len(values) - 1
    first_bin = np.minimum(np.searchsorted(edges, left, side="right") - 1, last)
    last_bin = np.maximum(np.searchsorted(edges, right, side="left") - 1, first_bin)
    bins = np.arange(len(edges), dtype=np.float64)
    sums = np.concatenate(([0.0], np.cumsum(values)))
    mass = np.interp(right, edges, bins) - np.interp(left, edges, bins)
    value = np.interp(right, edges, sums) - np.interp(left, edges, sums)
    means = values[first_bin]
    across = last_bin > first_bin
    means[across] = np.clip(value[across] / mass[across], 0.0, 1.0)
    return means
