"""Keys of scores on the grid and back, one after the other; and checks of many scores and labels."""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.values import Counts, Floats, Labels

__all__ = [
    "FIRST_KEY",
    "LAST_KEY",
    "first_bad_label",
    "first_bad_score",
    "key_of",
    "keys_of",
    "left_edges_of",
    "middle_of",
    "middles_of",
    "score_of",
]

_memory = np.zeros(1)
_REAL, _BITS = _memory, _memory.view(np.int64)  # a number, and its bits
_LEAST: Final = 2.0**-1022
_TAIL_BITS: Final = (1023 - 40) << 52  # bits of 2⁻⁴⁰
# A multiple of 2⁵², as are then the keys of all powers of 2 from 2⁻⁴⁰ to ½: they are edges of cells.
_TAIL_KEY: Final = 16 << 52
_HALF_KEY: Final = 55 << 52  # as ½ is 39 octaves above 2⁻⁴⁰
_FIRST_KEY: Final = _TAIL_KEY - (982 << 46)  # as _LEAST is so many octaves below 2⁻⁴⁰
_LAST_KEY: Final = 2 * _HALF_KEY - (_TAIL_KEY - (13 << 46))
FIRST_KEY: Final = _FIRST_KEY
"""The key of score 0, and of all below 2⁻¹⁰²², where doubles begin to have fewer digits."""

LAST_KEY: Final = _LAST_KEY
"""The key of score 1, and of 1 − 2⁻⁵³, the double below."""


def key_of(score: float) -> int:
    """Return the key of a checked score, as `streamcal.sketch.grid` has it."""
    _REAL[0] = max(min(score, 1.0 - score), _LEAST)
    key = _BITS[0] - _TAIL_BITS
    key = max(key, key >> 6) + _TAIL_KEY  # below 2⁻⁴⁰, 64 doubles share a key
    # Not as a branch, which the processor would guess wrong for half of the scores.
    return min(key + 2 * (_HALF_KEY - key) * (score > 0.5), _LAST_KEY)  # type: ignore[no-any-return]


def score_of(key: int) -> float:
    """Return the smallest score that has this key, from 0 to `LAST_KEY`, or a larger one."""
    if key <= _FIRST_KEY:
        return 0.0
    above = min(key, 2 * _HALF_KEY - key) - _TAIL_KEY
    _BITS[0] = (above if above >= 0 else 64 * above) + _TAIL_BITS
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


def middle_of(first: int, end: int) -> float:
    """Return a score with a key from ``first`` to below ``end``: in the middle, if there is one.

    There must be a score with such a key. Close to 1 there are fewer scores than keys.
    """
    score = score_of(min((first + end) >> 1, _LAST_KEY))
    if end <= _LAST_KEY and score >= score_of(end):
        return score_of(first)
    return score


def middles_of(cells: Counts, ends: Counts, level: int, middles: Floats) -> None:
    """Put the `middle_of` cells from each of ``cells`` to below ``ends`` into ``middles``; int64[n] each."""
    for i in range(len(cells)):
        middles[i] = middle_of(cells[i] << level, ends[i] << level)


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
