"""Counts per cell of the dyadic grid, and their coarsening."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal.base.values import Cells


def sum_runs(cells: Cells, counts: npt.NDArray[Any]) -> tuple[Cells, npt.NDArray[Any]]:
    """Add up the counts of equal cells.

    Parameters
    ----------
    cells
        int32[m], ascending.
    counts
        counts of each cell, [..., m], of any integer type.

    Returns
    -------
    The distinct cells, and their counts in the same type; the given arrays if all cells are distinct.
    """
    first = np.flatnonzero(np.diff(cells, prepend=np.int32(-1)))
    if len(first) == len(cells):
        return cells, counts
    return cells[first], np.add.reduceat(counts, first, axis=-1, dtype=counts.dtype)


def coarsen(cells: Cells, counts: npt.NDArray[Any], levels: int) -> tuple[Cells, npt.NDArray[Any]]:
    """Return cells and counts this many levels up; at each level, cells 2k and 2k+1 become cell k.

    Parameters and results are those of `sum_runs`.
    """
    return sum_runs(cells >> np.int32(levels), counts) if levels else (cells, counts)


def count_width(largest: int) -> int:
    """Return the number of bytes, 1, 2, 4 or 8, that a count up to ``largest`` needs."""
    return next(width for width in (1, 2, 4, 8) if largest < 1 << (8 * width - 1))
