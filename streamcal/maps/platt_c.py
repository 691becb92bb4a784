"""Logits of cells, one after the other."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["cell_logits"]


def cell_logits(cells: npt.NDArray[np.int32], level: int, out: npt.NDArray[np.float64]) -> None:
    """Put the logit of the middle of every cell of the grid, int32[m], into ``out``, float64[m].

    The score of a key and the limits are those of `streamcal.sketch.grid`.
    """
    end = 2.0**-40
    half, origin = 39 << 52, (1023 - 40) << 52
    for i in range(len(cells)):
        # The numbers are made in place: an int of Python would be no int64.
        key = cells[i]
        key = ((2 * key + 1) << (level - 1)) if level > 0 else key
        below = key if key < half else 2 * half - key
        if below <= 0:
            score = end
        else:
            bits = below + origin
            score = math.ldexp(1.0 + (bits & ((1 << 52) - 1)) * 2.0**-52, (bits >> 52) - 1023)
        rest = 1.0 - score
        if key > half:
            # 1 − v may round to below the true boundary: the smallest score is then the next float.
            if 1.0 - rest > score:
                rest = math.nextafter(rest, 1.0)
            score = min(rest, 1.0 - end)
            rest = 1.0 - score
        out[i] = math.log(score / rest)
