"""Packing labels with their cells, and counting them in these, one label after the other."""

from __future__ import annotations

from streamcal.sketch.keys_c import key_of
from streamcal.values import Bytes, Cells, Counts, Floats

__all__ = ["count_sorted", "pack"]


def count_sorted(packed: Cells, cells: Cells, counts: Counts) -> int:
    """Count labels by cell and class; return how many cells there are.

    Parameters
    ----------
    packed
        int32[m], ascending: the cell of each label, with the label in the lowest bit.
    cells, counts
        int32[m] and int64[2, m], whose first columns get the cells, ascending, and their labels 0 and 1.
    """
    last = -1
    for i in range(len(packed)):
        cell, label = packed[i] >> 1, packed[i] & 1
        if last < 0 or cells[last] != cell:
            last += 1
            cells[last] = cell
            counts[0, last] = counts[1, last] = 0
        counts[label, last] += 1
    return last + 1


def pack(scores: Floats, labels: Bytes, out: Cells) -> None:
    """Put the cell of each score on the finest grid, with the label as the lowest bit, into ``out``.

    Scores, labels and ``out``: float64[n] in [0, 1], uint8[n] and int32[n].
    """
    for i in range(len(scores)):
        out[i] = ((key_of(scores[i]) >> 32) << 1) | (labels[i] != 0)
