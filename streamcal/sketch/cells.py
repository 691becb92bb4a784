"""Counts per cell of the dyadic grid: coarsening, and the byte format in which they are stored.

The score sketch, the newest labels and the history of the prior use these functions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.sketch import grid
from streamcal.sketch.arrays import Cells, Counts

__all__ = [
    "check_cells",
    "coarsen",
    "count_width",
    "pack_counts",
    "pack_numbers",
    "run_starts",
    "sum_runs",
    "unpack_counts",
    "unpack_numbers",
]

_NUMBERS: Final = struct.Struct("<IB")  # how many, width
_FULL: Final = {1: (1 << 8) - 1, 2: (1 << 16) - 1}  # the largest value, by width


def run_starts(cells: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the index at which each run of equal cells begins, int64[k], for ascending cells[m], m ≥ 1."""
    return np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))


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
    if not len(cells):
        return cells, counts
    first = run_starts(cells)
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
    DamagedStateError
        if the level does not exist, there are more than ``most`` cells, or the cells are not strictly
        ascending cells of that level.
    """
    m = len(cells)
    if m > most or not grid.MIN_LEVEL <= level <= grid.MAX_LEVEL:
        raise DamagedStateError(
            f"{m} cells at level {level}, but at most {most} are allowed, "
            f"at levels {grid.MIN_LEVEL} to {grid.MAX_LEVEL}"
        )
    if (np.diff(cells) <= 0).any() or (m and not 0 <= cells[0] <= cells[-1] <= grid.LAST_KEY >> level):
        raise DamagedStateError("cells are out of order or out of range")


def count_width(largest: int) -> int:
    """Return the number of bytes, 1, 2, 4 or 8, that a count up to ``largest`` needs."""
    return next(width for width in (1, 2, 4, 8) if largest < 1 << (8 * width - 1))


def pack_counts(counts: npt.NDArray[Any]) -> bytes:
    """Return counts of any shape as bytes: the width of a count in one byte, then the counts."""
    width = count_width(int(counts.max(initial=0)))
    return bytes([width]) + counts.astype(f"<i{width}").tobytes()


def unpack_counts(data: bytes, shape: Sequence[int]) -> Counts:
    """Return counts from `pack_counts` as int64 of this shape.

    Raises
    ------
    DamagedStateError
        if the bytes do not hold that many counts.
    """
    size, width = prod(shape), data[0] if data else 0
    if width not in (1, 2, 4, 8) or len(data) != 1 + size * width:
        raise DamagedStateError(f"{len(data)} bytes do not hold counts of shape {tuple(shape)}")
    return np.frombuffer(data, f"<i{width}", size, 1).astype(np.int64).reshape(shape)


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

    Raises
    ------
    DamagedStateError
        if the bytes do not begin with such numbers.
    """
    count, width = _NUMBERS.unpack_from(data) if len(data) >= _NUMBERS.size else (0, 0)
    end = _NUMBERS.size + count * width
    if width not in _FULL or len(data) < end:
        raise DamagedStateError(f"{len(data)} bytes do not hold {count} numbers of {width} bytes or more")
    numbers = np.frombuffer(data, f"<u{width}", count, _NUMBERS.size).astype(np.int64)
    places = np.flatnonzero(numbers == _FULL[width])
    rest = end + 8 * len(places)
    if len(data) < rest:
        raise DamagedStateError(f"{len(data)} bytes do not hold {len(places)} large numbers of {count}")
    large = np.frombuffer(data, "<i8", len(places), end)
    if (large < _FULL[width]).any():
        raise DamagedStateError(f"a number marked as large, at least {_FULL[width]}, is {large.min()}")
    numbers[places] = large
    return numbers, data[rest:]
