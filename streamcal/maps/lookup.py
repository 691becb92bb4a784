"""Lookup: the bin of each score as a table over the dyadic grid, so that large batches need no search.

A grid slot that contains an edge has no entry in the table: its scores are searched for. The engine's step
maps put their edges where cells end, so they have such slots only if they have too many edges, or edges too
close together, for the table. Memory: 2 bytes for each of at most about 2¹⁵ slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.sketch import grid
from streamcal.sketch.arrays import Scores

__all__ = ["Lookup"]

_SLOTS: Final = 1 << 14  # of the table; twice as many if then no edge lies inside a slot
_SMALL_BATCH: Final = 128  # scores; up to here a search is faster than the passes over the table
_WORTH_A_TABLE: Final = 4096  # scores in all; searching for them takes as long as making the table


class Lookup:
    """Bins of scores: the bin of a score is the number of edges that are at most it.

    Parameters
    ----------
    inner
        the edges between the bins, float64[B−1], ascending inside (0, 1).
    """

    __slots__ = ("_inner", "_searched", "_strip", "_table", "_without_table")

    def __init__(self, inner: Scores) -> None:
        self._inner = inner
        self._table: npt.NDArray[np.int16] | None = None
        self._without_table = 0  # scores in larger batches that were searched for so far

    def chunks(self, scores: Scores) -> Iterator[tuple[slice, npt.NDArray[np.integer]]]:
        """Yield the bins of checked scores, float64[n], chunk by chunk: each chunk, and its bins.

        The next chunk overwrites the bins of the one before.
        """
        table = self._table_for(len(scores))
        all_bins = np.empty(min(len(scores), grid.CHUNK), np.int16)
        for start in range(0, len(scores), grid.CHUNK):
            piece = slice(start, min(start + grid.CHUNK, len(scores)))
            chunk = scores[piece]
            if table is None:
                yield piece, np.searchsorted(self._inner, chunk, side="right")
                continue
            bins = all_bins[: len(chunk)]
            # mode="clip" clips nothing here; unlike "raise", it writes to ``out`` without a copy.
            table.take(self._strip.slots(chunk), out=bins, mode="clip")
            if self._searched:
                absent = np.flatnonzero(bins < 0)
                bins[absent] = np.searchsorted(self._inner, chunk[absent], side="right")
            yield piece, bins

    def _table_for(self, n: int) -> npt.NDArray[np.int16] | None:
        """Return the table if it is the faster way for n scores."""
        if n <= _SMALL_BATCH or not 0 < len(self._inner) < _SLOTS:
            return None
        if self._table is None:
            self._without_table += n
            if self._without_table >= _WORTH_A_TABLE:
                self._table = self._make_table()
        return self._table

    def _make_table(self) -> npt.NDArray[np.int16]:
        """Make the table at the finest level at which it is small enough; twice as large for close edges."""
        before = np.nextafter(self._inner, 0.0)
        # All scores below the first edge share a bin, and so do all scores from the last edge on.
        low, high = float(before[0]), float(self._inner[-1])
        finest = grid.Strip(low, high, grid.MIN_LEVEL).size
        for most in (_SLOTS, 2 * _SLOTS):
            level = grid.MIN_LEVEL + (finest // most).bit_length()
            at = grid.cells_of(self._inner, level)
            inside = grid.cells_of(before, level) == at
            if not inside.any():
                break
        strip = grid.Strip(low, high, level)
        cells = strip.cells(np.arange(strip.size))
        first = int(cells[0])
        at -= first
        # An edge starts a new bin at its own cell, or at the next cell if it lies inside its cell.
        bins = np.cumsum(np.bincount(at + inside, minlength=int(cells[-1]) - first + 2))
        bins[at[inside]] = -1
        self._strip, self._searched = strip, bool(inside.any())
        # No score has the slots of the gap in the middle, so any bin will do there.
        return bins.take(cells - first, mode="clip").astype(np.int16)
