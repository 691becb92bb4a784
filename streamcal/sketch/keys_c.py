"""Keys of single scores on the grid, and checks of many scores or labels."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["first_bad_label", "first_bad_score", "key_of"]

_memory = np.zeros(1)
_REAL, _BITS = _memory, _memory.view(np.int64)  # a number, and its bits
_END: Final = 2.0**-40
_END_BITS: Final = (1023 - 40) << 52
_LAST_KEY: Final = 2 * (39 << 52)


def key_of(score: float) -> int:
    """Return the key of a checked score, as `streamcal.sketch.grid.keys_of`."""
    _REAL[0] = max(min(score, 1.0 - score), _END)
    key = _BITS[0] - _END_BITS
    # Not as a branch, which the processor would guess wrong for half of the scores.
    return key + (score > 0.5) * (_LAST_KEY - 2 * key)  # type: ignore[no-any-return]


def first_bad_score(scores: npt.NDArray[np.float64]) -> int:
    """Return the index of the first number outside [0, 1]; -1 if there is none."""
    inside = True
    for i in range(len(scores)):
        inside &= (scores[i] >= 0.0) & (scores[i] <= 1.0)
    if inside:
        return -1
    i = 0
    while 0.0 <= scores[i] <= 1.0:
        i += 1
    return i


def first_bad_label(labels: npt.NDArray[np.int8]) -> int:
    """Return the index of the first number that is neither 0 nor 1; -1 if there is none."""
    bits = 0
    for i in range(len(labels)):
        bits |= labels[i]
    if bits & ~1 == 0:
        return -1
    i = 0
    while labels[i] & ~1 == 0:
        i += 1
    return i
