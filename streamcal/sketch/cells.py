"""Counts per cell of the dyadic grid: coarsening, and the bytes they are kept in.

Everything that counts scores by cell uses these functions: the score sketch, the nested windows of the
mixture, and the history of the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.sketch import grid

__all__ = ["check_cells", "coarsen", "count_width", "pack_counts", "run_starts", "sum_runs", "unpack_counts"]

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[Any]


def run_starts(cells: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return where each run of equal cells begins, int64[k], for cells[m ≥ 1] in ascending order."""
    return np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))


def sum_runs(cells: Cells, counts: Counts) -> tuple[Cells, Counts]:
    """Add up the counts of equal neighbours.

    Parameters
    ----------
    cells
        int32[m], ascending.
    counts
        [..., m], of any integer type, which is kept.

    Returns
    -------
    The distinct cells and their counts; the arrays given, where all cells are distinct already.
    """
    if not len(cells):
        return cells, counts
    first = run_starts(cells)
    if len(first) == len(cells):
        return cells, counts
    return cells[first], np.add.reduceat(counts, first, axis=-1, dtype=counts.dtype)


def coarsen(cells: Cells, counts: Counts, levels: int) -> tuple[Cells, Counts]:
    """Return cells and counts so many levels up: neighbours 2k and 2k+1 add up. Arguments as `sum_runs`."""
    return sum_runs(cells >> np.int32(levels), counts) if levels else (cells, counts)


def check_cells(cells: Cells, level: int, most: int) -> None:
    """Check cells that were read from bytes.

    Raises
    ------
    DamagedStateError
        unless the level exists, and the cells are at most ``most``, strictly ascending, and of that level.
    """
    m = len(cells)
    if m > most or not grid.MIN_LEVEL <= level <= grid.MAX_LEVEL:
        raise DamagedStateError(f"{m} cells at level {level}, where at most {most} are kept")
    if (np.diff(cells) <= 0).any() or (m and not 0 <= cells[0] <= cells[-1] <= grid.LAST_KEY >> level):
        raise DamagedStateError("cells are out of order or out of range")


def count_width(largest: int) -> int:
    """Return the fewest bytes, 1, 2, 4 or 8, that hold a count."""
    return next(width for width in (1, 2, 4, 8) if largest < 1 << (8 * width - 1))


def pack_counts(counts: Counts) -> bytes:
    """Return counts, of any shape, in the fewest bytes each, behind one byte that says how many."""
    width = count_width(int(counts.max(initial=0)))
    return bytes([width]) + counts.astype(f"<i{width}").tobytes()


def unpack_counts(data: bytes, shape: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return counts from `pack_counts`, int64 of this shape.

    Raises
    ------
    DamagedStateError
        if the bytes do not hold so many.
    """
    size, width = prod(shape), data[0] if data else 0
    if width not in (1, 2, 4, 8) or len(data) != 1 + size * width:
        raise DamagedStateError(f"{len(data)} bytes do not hold counts of shape {tuple(shape)}")
    return np.frombuffer(data, f"<i{width}", size, 1).astype(np.int64).reshape(shape)
