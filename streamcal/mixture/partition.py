"""The partition of [0, 1] into the intervals on which the served map is constant.

Its edges are fixed edges, an eighth of an octave apart or less from 2⁻¹² to 1 − 2⁻¹², and quantiles of the
scores.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.maps import binning
from streamcal.sketch import grid
from streamcal.values import Cells, Counts

__all__ = ["LAST", "choose_partition", "quantile_edges"]

LAST: Final = grid.LAST_KEY >> grid.MIN_LEVEL
"""Cell of score 1 on the finest grid."""

_QUANTILES: Final = 128
_OCTAVE: Final = 1 << (52 - grid.MIN_LEVEL)  # cells of the finest grid
_OCTAVES: Final = 39  # from 2⁻⁴⁰ to ½


def _fixed_edges() -> Cells:
    """Return 48 edges an octave next to ½, 8 an octave down to 2⁻¹², and one an octave beyond.

    The first and the last cell are intervals of their own: many scores may be 0 or 1.
    """
    below = [
        octave * _OCTAVE + part * _OCTAVE // parts
        for octave in range(_OCTAVES)
        for parts in [48 if octave >= _OCTAVES - 3 else 8 if octave >= _OCTAVES - 11 else 1]
        for part in range(parts)
    ]
    lower = np.array([1, *below[1:]])
    return np.concatenate((lower, [LAST // 2], LAST - lower[::-1])).astype(np.int32)


_FIXED: Final = _fixed_edges()


def quantile_edges(cells: Cells, level: int, totals: Counts) -> Cells:
    """Return the edges between at most 128 intervals of near-equal mass, in cells of the finest grid.

    Parameters
    ----------
    cells, level
        The grid, int32[m].
    totals
        Labels per cell, int64[m].
    """
    occupied = np.flatnonzero(totals)
    splits = binning.uniform_mass(totals[occupied], _QUANTILES)
    ends = cells[occupied[splits[1:-1] - 1]] + np.int32(1)
    return ends << np.int32(level - grid.MIN_LEVEL)


def choose_partition(edges: Cells) -> Cells:
    """Return the left ends of the intervals, int32[p] in cells of the finest grid, ascending from 0.

    Parameters
    ----------
    edges
        Edges to cut the fixed intervals by, in cells of the finest grid.
    """
    starts = np.unique(np.concatenate((np.zeros(1, np.int32), _FIXED, edges)))
    # Close to 1 there are more cells than float64 scores.
    left = grid.left_edges(starts, grid.MIN_LEVEL)
    return starts[np.concatenate(([True], left[1:] > left[:-1]))]
