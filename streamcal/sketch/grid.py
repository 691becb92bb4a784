"""The dyadic grid: scores in [0, 1] as integers that are monotone and exact.

A score ``z`` below ½ maps to its IEEE-754 bits, a score from ½ up to the mirrored bits of ``1 − z``
(exact there, by Sterbenz' lemma); scores within 2⁻⁴⁰ of either end share the end key. ``key >> level``
is then a grid of cells that is logarithmically fine near 0 and near 1. Every cell, and so every bin made
of cells, is closed on the left and open on the right; the last one also holds 1.
"""

from __future__ import annotations

import struct
import threading
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "CHUNK",
    "LAST_KEY",
    "MAX_LEVEL",
    "MAX_STRIP_LEVEL",
    "MIN_LEVEL",
    "Strip",
    "cells_of",
    "left_edges",
]

MIN_LEVEL: Final = 32
"""The finest level: 2²⁰ cells for every halving of the distance to 0 or to 1."""

MAX_LEVEL: Final = 58
"""The coarsest level: 2 cells in all, one on each side of ½."""

MAX_STRIP_LEVEL: Final = 54
"""The coarsest level of a `Strip`: the gap in its middle is 2⁵⁴ keys wide, and must be whole cells."""

CHUNK: Final = 32_768
"""How many scores to take at a time: their buffers fit into a core's second-level cache."""

Scores = npt.NDArray[np.float64]

_thread = threading.local()
_FLOAT64: Final = struct.Struct("d")
_INT64: Final = struct.Struct("q")
_END: Final = 2.0**-40
_END_BITS: Final = (1023 - 40) << 52  # bits of 2⁻⁴⁰
_HALF_KEY: Final = 39 << 52  # bits of ½, less the above
LAST_KEY: Final = 2 * _HALF_KEY
"""The key of score 1; score 0 has key 0 and score ½ the one in the middle."""

# 2⁶³ − bits(1 − z), less _END_BITS, is this much above the key LAST_KEY + _END_BITS − bits(1 − z)
_GAP: Final = (1 << 63) - 2 * _END_BITS - LAST_KEY


def cells_of(scores: Scores, level: int) -> npt.NDArray[np.int32]:
    """Return the cell of every score.

    Parameters
    ----------
    scores
        float64[n], each in [0, 1]; not checked here, see `checks.as_scores`.
    level
        from `MIN_LEVEL` to `MAX_LEVEL`.

    Returns
    -------
    int32[n], each in [0, LAST_KEY >> level], non-decreasing in the score.
    """
    both, limits = np.empty((2, len(scores))), (_inside(0.0), _inside(1.0))
    keys = _unrolled(scores, both[0], both[1], limits, np.array(_END_BITS))
    np.subtract(keys, _GAP, out=keys, where=keys > _HALF_KEY)
    cells: npt.NDArray[np.int32] = (keys >> level).astype(np.int32)
    return cells


class Strip:
    """A stretch of the grid as a table of `size` places, filled and read at full speed.

    Its cells are unrolled: between those below and those above ½ are places that no score ever has, since
    closing the gap would cost a pass over all scores. The cell across ½ has two places, one on each side.

    Parameters
    ----------
    low, high
        scores in [0, 1]: those beyond get the places of these.
    level
        from `MIN_LEVEL` to `MAX_STRIP_LEVEL`.
    cells
        of that level, ascending: the strip is made to hold them too.
    clips
        False if it is known that no score lies beyond low and high: saves a pass.
    """

    __slots__ = ("_first", "_level", "_limits", "_origin", "_shift", "size")

    def __init__(
        self,
        low: float,
        high: float,
        level: int,
        cells: npt.NDArray[np.int32] | None = None,
        *,
        clips: bool = True,
    ) -> None:
        limits = _inside(low), _inside(high)
        self._limits = limits if clips or limits != (low, high) else None
        self._level = level
        first, last = _unrolled_one(low) >> level, _unrolled_one(high) >> level
        self._first = 0
        if cells is not None and len(cells):
            ends = self.places_of(cells[[0, -1]])
            first, last = min(first, int(ends[0])), max(last, int(ends[1]))
        self._first = first
        # As arrays: to turn Python integers into them takes longer than the passes over a short array.
        self._origin = np.array(_END_BITS + (first << level))
        self._shift = np.array(level)
        self.size = last - first + 1
        """The number of places."""

    def places(self, scores: Scores) -> npt.NDArray[np.int64]:
        """Return the place of every score.

        Parameters
        ----------
        scores
            float64[n], each in [0, 1], not checked here; n at most `CHUNK`.

        Returns
        -------
        int64[n] in [0, size), in this thread's buffer: valid until its next call.
        """
        n, both = len(scores), buffers()
        keys = _unrolled(scores, both[0, :n], both[1, :n], self._limits, self._origin)
        np.right_shift(keys, self._shift, out=keys)
        return keys

    def places_of(self, cells: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the place of every cell, int64[m]; of the one across ½ the lower."""
        gap = np.where(cells > _HALF_KEY >> self._level, _GAP >> self._level, 0)
        places: npt.NDArray[np.int64] = cells + (gap - self._first)
        return places

    def cells(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the cell of every place that a score can have: int32[m], non-decreasing in the place."""
        unrolled = places + self._first
        gap = np.where(unrolled > _HALF_KEY >> self._level, _GAP >> self._level, 0)
        return (unrolled - gap).astype(np.int32)


def buffers() -> Scores:
    """Return this thread's buffers for `Strip.places`, float64[2, CHUNK]: 512 KiB, made once.

    Memory fresh from the system would cost more to touch than all the passes over a small chunk.
    """
    try:
        held: Scores = _thread.buffers
    except AttributeError:
        held = _thread.buffers = np.empty((2, CHUNK))
    return held


def _unrolled(
    scores: Scores,
    signed: Scores,
    rounded: Scores,
    limits: tuple[float, float] | None,
    origin: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return bits less ``origin``, those above ½ mirrored, in the memory of ``signed``.

    From an origin of `_END_BITS` they are the keys, of scores above ½ raised by `_GAP`.

    ``limits`` to clip at are None for scores that lie in [2⁻⁴⁰, 1 − 2⁻⁴⁰], where every score has its own key.

    Every step is one pass without branch or temporary. z − round(z) is z up to ½ and −(1 − z) above, both
    exact; the absolute value of its bits as a signed integer is then bits(z), or 2⁶³ − bits(1 − z), which
    ascends where 1 − z descends.
    """
    if limits is not None:
        scores = scores.clip(*limits, out=signed)
    np.rint(scores, out=rounded)  # ½ goes to 0
    np.subtract(scores, rounded, out=signed)
    keys: npt.NDArray[np.int64] = signed.view(np.int64)
    np.absolute(keys, out=keys)
    np.subtract(keys, origin, out=keys)
    return keys


def _unrolled_one(score: float) -> int:
    """Return the key of one score, above ½ raised by `_GAP`."""
    score = _inside(score)
    bits: int = _INT64.unpack(_FLOAT64.pack(min(score, 1.0 - score)))[0]
    return bits - _END_BITS if score <= 0.5 else LAST_KEY + _GAP + _END_BITS - bits


def _inside(score: float) -> float:
    """Return the score, or one that shares its key if it is nearer than 2⁻⁴⁰ to 0 or 1."""
    return min(max(score, _END), 1.0 - _END)


def left_edges(cells: npt.NDArray[np.int32], level: int) -> npt.NDArray[np.float64]:
    """Return the smallest score of every cell: float64[m], 0 for cell 0, 1 beyond the last cell.

    Exact in this sense: for a float64 score z, ``cells_of(z) >= cell`` if and only if
    ``z >= left_edges(cell)``.
    """
    beyond = cells > LAST_KEY >> level
    keys = np.minimum(cells.astype(np.int64) << level, LAST_KEY)
    upper = keys > _HALF_KEY
    distance = np.where(upper, LAST_KEY - keys, keys) + _END_BITS
    lower_edge = distance.view(np.float64)
    edges: npt.NDArray[np.float64] = np.where(upper, 1.0 - lower_edge, lower_edge)
    # 1 − v may round down, below the true boundary: the smallest score of the cell is then one ulp up.
    edges = np.where(upper & (1.0 - edges > lower_edge), np.nextafter(edges, 1.0), edges)
    edges[keys == 0] = 0.0
    edges[beyond] = 1.0
    return edges
