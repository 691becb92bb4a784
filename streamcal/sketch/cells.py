"""Counts per cell of the dyadic grid: coarsening, and the byte format in which they are stored.

The score sketch, the newest labels and the history of the prior use these functions.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.sketch import grid
from streamcal.sketch.decoding import ascending, require, within
from streamcal.values import Cells, Counts

__all__ = [
    "check_cells",
    "coarsen",
    "count_width",
    "pack_numbers",
    "sum_runs",
    "unpack_numbers",
]

_NUMBERS: Final = struct.Struct("<IB")  # how many, width
_FULL: Final = {1: (1 << 8) - 1, 2: (1 << 16) - 1}  # the largest value, by width


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


def check_cells(cells: Cells, level: int, most: int) -> None:
    """Check cells that were read from bytes.

    Raises
    ------
    ValueError
        if the level does not exist, there are more than ``most`` cells, or the cells are not strictly
        ascending cells of that level.
    """
    require(
        len(cells) <= most and grid.MIN_LEVEL <= level <= grid.MAX_LEVEL,
        f"{len(cells)} cells at level {level}, but at most {most} are allowed, "
        f"at levels {grid.MIN_LEVEL} to {grid.MAX_LEVEL}",
    )
    within(ascending(cells, "cells"), 0, grid.LAST_KEY >> level, "cells")


def count_width(largest: int) -> int:
    """Return the number of bytes, 1, 2, 4 or 8, that a count up to ``largest`` needs."""
    return next(width for width in (1, 2, 4, 8) if largest < 1 << (8 * width - 1))


def pack_numbers(numbers: npt.NDArray[Any]) -> bytes:
    """Return numbers, int[k] and not negative, as bytes: small ones take one or two bytes each.

    Format: how many numbers, and the width of small ones; all numbers in this width, its largest value in
    place of each number too large for it; then the large numbers, in 8 bytes each.
    """
    numbers = numbers.astype(np.int64)
    sizes = [(width * len(numbers) + 8 * int((numbers >= _FULL[width]).sum()), width) for width in _FULL]
    width = min(sizes)[1]
    small: bytes = np.minimum(numbers, _FULL[width]).astype(f"<u{width}").tobytes()
    large = numbers[numbers >= _FULL[width]].astype("<i8")
    return _NUMBERS.pack(len(numbers), width) + small + large.tobytes()


def unpack_numbers(data: bytes) -> tuple[Counts, bytes]:
    """Return the numbers of `pack_numbers`, int64[k], none of them negative; and the bytes behind them.

    Raises ValueError if the bytes do not begin with such numbers.
    """
    count, width = _NUMBERS.unpack_from(data) if len(data) >= _NUMBERS.size else (0, 0)
    end = _NUMBERS.size + count * width
    held = len(data)
    require(width in _FULL and held >= end, f"{held} bytes do not hold {count} numbers of {width} bytes")
    numbers = np.frombuffer(data, f"<u{width}", count, _NUMBERS.size).astype(np.int64)
    places = np.flatnonzero(numbers == _FULL[width])
    rest = end + 8 * len(places)
    require(held >= rest, f"{held} bytes do not hold {len(places)} large numbers of {count}")
    large = np.frombuffer(data, "<i8", len(places), end)
    numbers[places] = within(large, _FULL[width], np.inf, "numbers marked as large")
    return numbers, data[rest:]
