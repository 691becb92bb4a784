"""Packing labels with their cells, and counting them in these, one label after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["count_sorted", "pack"]


def count_sorted(
    packed: npt.NDArray[np.int32], cells: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]
) -> int:
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


def pack(
    scores: npt.NDArray[np.float64],
    labels: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.float64],
    bits: npt.NDArray[np.int64],
    out: npt.NDArray[np.int32],
) -> None:
    """Put the cell of each score, with its label as the lowest bit, into ``out``, int32[n].

    Cells are those of the finest grid; their keys are those of `streamcal.sketch.grid`.

    Parameters
    ----------
    scores, labels
        float64[n] in [0, 1], and uint8[n].
    ends, bits
        float64[1] and int64[1], in the same memory.
    """
    end = 2.0**-40
    half, origin = 39 << 52, (1023 - 40) << 52
    for i in range(len(scores)):
        score = min(max(scores[i], end), 1.0 - end)
        ends[0] = min(score, 1.0 - score)
        key = bits[0] - origin if score <= 0.5 else 2 * half + origin - bits[0]
        out[i] = ((key >> 32) << 1) | labels[i]
