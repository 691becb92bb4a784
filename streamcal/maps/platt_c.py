"""Logits of cells, one after the other."""

from __future__ import annotations

import math

from streamcal.values import Cells, Counts, Floats

__all__ = ["cell_logits"]


def cell_logits(cells: Cells, level: int, out: Floats, bits: Counts) -> None:
    """Put the logit of the middle of every cell of the grid into ``out``, float64[m].

    Keys, and the limits to logits, are those of `streamcal.sketch.grid`.

    Parameters
    ----------
    cells, level
        int32[m], of a level from 1 on.
    bits
        int64[m], the same memory as ``out``.
    """
    end = 2.0**-40
    half, origin = 39 << 52, (1023 - 40) << 52
    for i in range(len(cells)):
        bits[i] = 2 * cells[i] + 1
        bits[i] = bits[i] << (level - 1)
        above = bits[i] > half
        if above:
            bits[i] = max(2 * half - bits[i], 0)
        bits[i] = bits[i] + origin
        score = out[i]
        rest = 1.0 - score
        if above:
            # 1 − v may round to below the true boundary: the smallest score is then the next float.
            if 1.0 - rest > score:
                rest = math.nextafter(rest, 1.0)
            score = min(rest, 1.0 - end)
            rest = 1.0 - score
        out[i] = math.log(score / rest)
