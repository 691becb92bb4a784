"""The dyadic grid: an exact, monotone integer key for each score in [0, 1], and cells of keys.

The key of a score ``z`` below ½ is its IEEE-754 bits, less those of 2⁻⁴⁰. From ½ up, the key mirrors that of
``1 − z``, which is exact there by Sterbenz' lemma. Scores within 2⁻⁴⁰ of 0 or of 1 share the key of that end.
The cell is ``key >> level``: cells get logarithmically finer towards 0 and towards 1. Each cell, and so each
bin made of cells, is closed on the left and open on the right; the last cell also contains 1.
"""

from __future__ import annotations

import struct
import threading
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.sketch.arrays import Cells, Scores

__all__ = [
    "CHUNK",
    "END",
    "LAST_KEY",
    "MAX_LEVEL",
    "MAX_STRIP_LEVEL",
    "MIN_LEVEL",
    "Strip",
    "cells_of",
    "keys_of",
    "left_edges",
]

MIN_LEVEL: Final = 32
"""The finest level: 2²⁰ cells for each halving of the distance to 0 or to 1."""

MAX_LEVEL: Final = 58
"""The coarsest level: two cells, one on each side of ½."""

MAX_STRIP_LEVEL: Final = 54
"""The coarsest level of a `Strip`: its gap is 2⁵⁴ keys wide and must consist of whole cells."""

CHUNK: Final = 32_768
"""Number of scores to process at a time: their buffers fit into the second-level cache of a core."""

_thread = threading.local()
_FLOAT64: Final = struct.Struct("d")
_INT64: Final = struct.Struct("q")
END: Final = 2.0**-40
"""Distance to 0 or to 1 up to which scores share the key of that end."""

_END_BITS: Final = (1023 - 40) << 52  # bits of 2⁻⁴⁰
_ORIGIN: Final = np.array(_END_BITS)  # the passes over a short array take less time than to convert an int
_HALF_KEY: Final = 39 << 52  # bits of ½, less _END_BITS
LAST_KEY: Final = 2 * _HALF_KEY
"""The key of score 1. Score 0 has key 0, and score ½ the key in the middle."""

# What separates the unrolled key of z above ½, 2⁶³ − bits(1 − z) − _END_BITS, from its key,
# LAST_KEY + _END_BITS − bits(1 − z).
_GAP: Final = (1 << 63) - 2 * _END_BITS - LAST_KEY


def keys_of(scores: Scores) -> npt.NDArray[np.int64]:
    """Return the key of each score.

    Parameters
    ----------
    scores
        float64[n], each in [0, 1], not checked here: see `checks.as_scores`.

    Returns
    -------
    int64[n], each in [0, `LAST_KEY`], non-decreasing in the score.
    """
    both = np.empty((2, len(scores)))
    keys = _unrolled(scores, both[0], both[1], (END, 1.0 - END), _ORIGIN)
    np.subtract(keys, _GAP, out=keys, where=keys > _HALF_KEY)
    return keys


def cells_of(scores: Scores, level: int) -> Cells:
    """Return the cell of each score, int32[n]; see `keys_of`, and levels from `MIN_LEVEL` to `MAX_LEVEL`."""
    cells: Cells = (keys_of(scores) >> level).astype(np.int32)
    return cells


class Strip:
    """A range of the grid as a table of `size` slots, with a fast way from a score to its slot.

    The keys are unrolled: between the cells below ½ and those above ½ is a gap of slots that no score has,
    because closing it would cost a pass over all scores. The cell that contains ½ has two slots, one on each
    side of the gap.

    Parameters
    ----------
    low, high
        scores in [0, 1]. Scores below ``low`` get its slot, scores above ``high`` the slot of that.
    level
        from `MIN_LEVEL` to `MAX_STRIP_LEVEL`.
    cells
        cells of that level, ascending: the strip is widened to include them.
    clips
        False if no score will lie outside [low, high]: this saves a pass.
    """

    __slots__ = ("_first", "_level", "_limits", "_origin", "_shift", "size")

    def __init__(
        self,
        low: float,
        high: float,
        level: int,
        cells: Cells | None = None,
        *,
        clips: bool = True,
    ) -> None:
        limits = _inside(low), _inside(high)
        self._limits = limits if clips or limits != (low, high) else None
        self._level = level
        first, last = _unrolled_one(low) >> level, _unrolled_one(high) >> level
        self._first = 0
        if cells is not None and len(cells):
            ends = self.slots_of(cells[[0, -1]])
            first, last = min(first, int(ends[0])), max(last, int(ends[1]))
        self._first = first
        # Kept as arrays: converting Python integers takes longer than the passes over a short array.
        self._origin = np.array(_END_BITS + (first << level))
        self._shift = np.array(level)
        self.size = last - first + 1
        """The number of slots."""

    def slots(self, scores: Scores) -> npt.NDArray[np.int64]:
        """Return the slot of each score.

        Parameters
        ----------
        scores
            float64[n], each in [0, 1], not checked here; n at most `CHUNK`.

        Returns
        -------
        int64[n] in [0, size), in this thread's buffer: valid until the next call in this thread.
        """
        n, both = len(scores), _buffers()
        keys = _unrolled(scores, both[0, :n], both[1, :n], self._limits, self._origin)
        np.right_shift(keys, self._shift, out=keys)
        return keys

    def slots_of(self, cells: Cells) -> npt.NDArray[np.int64]:
        """Return the slot of each cell, int64[m]; the lower slot of the cell that contains ½."""
        gap = np.where(cells > _HALF_KEY >> self._level, _GAP >> self._level, 0)
        slots: npt.NDArray[np.int64] = cells + (gap - self._first)
        return slots

    def cells(self, slots: npt.NDArray[np.int64]) -> Cells:
        """Return the cell of each slot that a score can have: int32[m], non-decreasing in the slot."""
        unrolled = slots + self._first
        gap = np.where(unrolled > _HALF_KEY >> self._level, _GAP >> self._level, 0)
        return (unrolled - gap).astype(np.int32)


def _buffers() -> Scores:
    """Return this thread's buffers for `Strip.slots`, float64[2, CHUNK]: 512 KiB, allocated once.

    Touching newly allocated memory would cost more than all passes over a small chunk.
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
    """Return the bits of each score less ``origin``, mirrored above ½, in the memory of ``signed``.

    With the origin `_END_BITS` these are the keys, raised by `_GAP` above ½.

    ``limits`` is where to clip; None if all scores lie in [2⁻⁴⁰, 1 − 2⁻⁴⁰], where each score has its own key.

    Each step is one pass without branches or temporary arrays. z − round(z) is z up to ½ and −(1 − z) above
    ½, both exact. The absolute value of its bits as a signed integer is then bits(z), or 2⁶³ − bits(1 − z),
    which ascends as 1 − z descends.
    """
    if limits is not None:
        scores = scores.clip(*limits, out=signed)
    np.rint(scores, out=rounded)  # rounds ½ to 0
    np.subtract(scores, rounded, out=signed)
    keys: npt.NDArray[np.int64] = signed.view(np.int64)
    np.absolute(keys, out=keys)
    np.subtract(keys, origin, out=keys)
    return keys


def _unrolled_one(score: float) -> int:
    """Return the key of one score, raised by `_GAP` above ½."""
    score = _inside(score)
    bits: int = _INT64.unpack(_FLOAT64.pack(min(score, 1.0 - score)))[0]
    return bits - _END_BITS if score <= 0.5 else LAST_KEY + _GAP + _END_BITS - bits


def _inside(score: float) -> float:
    """Return the score moved into [2⁻⁴⁰, 1 − 2⁻⁴⁰], which does not change its key."""
    return min(max(score, END), 1.0 - END)


def left_edges(cells: Cells | npt.NDArray[np.int64], level: int) -> Scores:
    """Return the smallest score of each cell: float64[m], 0 for cell 0, 1 for cells after the last.

    At level 0 the cells are keys, and this is the score of each.

    The edges are exact: ``cells_of(z) >= cell`` if and only if ``z >= left_edges(cell)``, for a float64 score
    z.
    """
    beyond = cells > LAST_KEY >> level
    keys = np.minimum(cells.astype(np.int64) << level, LAST_KEY)
    upper = keys > _HALF_KEY
    distance = np.minimum(keys, LAST_KEY - keys) + _END_BITS
    lower_edge = distance.view(np.float64)
    edges: Scores = np.where(upper, 1.0 - lower_edge, lower_edge)
    # 1 − v may round to below the true boundary: the smallest score of the cell is then the next float.
    np.nextafter(edges, 1.0, out=edges, where=upper & (1.0 - edges > lower_edge))
    edges[keys == 0] = 0.0
    edges[beyond] = 1.0
    return edges
