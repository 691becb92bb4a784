"""Keys of scores on the grid and back, one after the other; and checks of many scores and labels."""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.values import Counts, Floats, Labels

__all__ = [
    "END",
    "LAST_KEY",
    "first_bad_label",
    "first_bad_score",
    "key_of",
    "keys_of",
    "left_edges_of",
    "score_of",
]

_memory = np.zeros(1)
_REAL, _BITS = _memory, _memory.view(np.int64)  # a number, and its bits
_END_BITS: Final = (1023 - 40) << 52  # bits of 2⁻⁴⁰
_HALF_KEY: Final = 39 << 52  # bits of ½, less _END_BITS
_END: Final = 2.0**-40
_LAST_KEY: Final = 2 * _HALF_KEY
END: Final = _END
"""Distance to 0 or to 1 up to which scores share the key of that end."""

LAST_KEY: Final = _LAST_KEY
"""The key of score 1. Score 0 has key 0, and score ½ the key in the middle."""


def key_of(score: float) -> int:
    """Return the key of a checked score, as `streamcal.sketch.grid` has it."""
    _REAL[0] = max(min(score, 1.0 - score), _END)
    key = _BITS[0] - _END_BITS
    # Not as a branch, which the processor would guess wrong for half of the scores.
    return key + (_LAST_KEY - 2 * key) * (score > 0.5)  # type: ignore[no-any-return]


def score_of(key: int) -> float:
    """Return the smallest score that has this key, from 0 to `LAST_KEY`."""
    if key == 0:
        return 0.0
    _BITS[0] = min(key, _LAST_KEY - key) + _END_BITS
    distance = _REAL[0]
    if key <= _HALF_KEY:
        return distance  # type: ignore[no-any-return]
    # 1 − distance may round to below the true boundary: the smallest score is then the next float.
    _REAL[0] = 1.0 - distance
    if 1.0 - _REAL[0] > distance:
        _BITS[0] += 1
    return _REAL[0]  # type: ignore[no-any-return]


def left_edges_of(cells: Counts, level: int, edges: Floats) -> None:
    """Put the smallest score of each cell, int64[n], into ``edges``, float64[n]; 1 for those beyond."""
    for i in range(len(cells)):
        edges[i] = score_of(cells[i] << level) if cells[i] <= _LAST_KEY >> level else 1.0


def keys_of(scores: Floats, keys: Counts) -> None:
    """Put the key of each checked score, float64[n], into ``keys``, int64[n]."""
    for i in range(len(scores)):
        keys[i] = key_of(scores[i])


def first_bad_score(scores: Floats) -> int:
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


def first_bad_label(labels: Labels) -> int:
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
