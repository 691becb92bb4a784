"""The dyadic grid: scores in [0, 1] as integers that are monotone and exact.

A score ``z`` below ½ maps to its IEEE-754 bits, a score from ½ up to the mirrored bits of ``1 − z``
(exact there, by Sterbenz' lemma); scores within 2⁻⁴⁰ of either end share the end key. ``key >> level``
is then a grid of cells that is logarithmically fine near 0 and near 1. Every cell, and so every bin made
of cells, is closed on the left and open on the right; the last one also holds 1.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "LAST_KEY",
    "MAX_LEVEL",
    "MIN_LEVEL",
    "as_labels",
    "as_scores",
    "cells_of",
    "check_label",
    "check_score",
    "left_edges",
]

MIN_LEVEL: Final = 32
"""The finest level: 2²⁰ cells for every halving of the distance to 0 or to 1."""

MAX_LEVEL: Final = 58
"""The coarsest level: 2 cells in all, one on each side of ½."""

_END_BITS: Final = (1023 - 40) << 52  # bits of 2⁻⁴⁰
_HALF_KEY: Final = 39 << 52  # bits of ½, less the above
LAST_KEY: Final = 2 * _HALF_KEY
"""The key of score 1; score 0 has key 0 and score ½ the one in the middle."""

_CHUNK: Final = 32_768


def cells_of(scores: npt.NDArray[np.float64], level: int) -> npt.NDArray[np.int32]:
    """Return the cell of every score.

    Parameters
    ----------
    scores
        float64[n], each in [0, 1]; not checked here, see `as_scores`.
    level
        from `MIN_LEVEL` to `MAX_LEVEL`.

    Returns
    -------
    int32[n], each in [0, LAST_KEY >> level], non-decreasing in the score.
    """
    nearer = np.minimum(scores, 1.0 - scores)
    keys: npt.NDArray[np.int64] = np.maximum(nearer.view(np.int64), _END_BITS)
    keys -= _END_BITS + _HALF_KEY  # minus the distance in keys to ½
    np.negative(keys, out=keys, where=scores >= 0.5)
    keys += _HALF_KEY
    cells: npt.NDArray[np.int32] = (keys >> level).astype(np.int32)
    return cells


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


def check_score(score: object) -> float:
    """Return the score as a float, or say why it is none.

    Raises
    ------
    ValueError
        if it is no number in [0, 1]; booleans and strings are no numbers here.
    """
    if isinstance(score, (bool, np.bool_, str, bytes)):
        raise ValueError(_bad_score(score))  # noqa: TRY004  # one kind of error for every bad value
    try:
        value = float(score)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(_bad_score(score)) from None
    if not 0.0 <= value <= 1.0:
        raise ValueError(_bad_score(score))
    return value


def check_label(label: object) -> int:
    """Return the label as 0 or 1, or say why it is neither.

    Raises
    ------
    ValueError
        unless it is an integer, a boolean or a float that equals 0 or 1.
    """
    if isinstance(label, (int, float, np.integer, np.floating, np.bool_)) and label in (0, 1):
        return int(label)
    raise ValueError(_bad_label(label))


def as_scores(scores: Any) -> npt.NDArray[np.float64]:
    """Return an array-like of scores as float64[n], checked.

    Takes whatever `numpy.asarray` takes: numpy arrays, lists, pandas, polars and Arrow columns. float32
    and integers widen exactly.

    Raises
    ------
    ValueError
        if it is not one-dimensional and numeric, or a value is not in [0, 1]: the message names the
        first such index and its value.
    """
    given = np.asarray(scores)
    if given.dtype.kind == "O":
        return _object_array(given, check_score, np.float64)
    _check_column(given, "scores", "fui")
    values = np.ascontiguousarray(given, dtype=np.float64)
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        if not (chunk.min() >= 0.0 and chunk.max() <= 1.0):
            index = start + int(np.flatnonzero(~((chunk >= 0.0) & (chunk <= 1.0)))[0])
            raise ValueError(f"index {index}: {_bad_score(given[index].item())}")
    return values


def as_labels(labels: Any) -> npt.NDArray[np.int8]:
    """Return an array-like of labels as int8[n] of 0 and 1, checked.

    Raises
    ------
    ValueError
        if it is not one-dimensional, or a value does not equal 0 or 1: the message names the first
        such index and its value.
    """
    given = np.asarray(labels)
    if given.dtype.kind == "O":
        return _object_array(given, check_label, np.int8)
    _check_column(given, "labels", "fuib")
    if given.dtype.kind != "b":
        wrong = np.flatnonzero((given != 0) & (given != 1))
        if len(wrong):
            index = int(wrong[0])
            raise ValueError(f"index {index}: {_bad_label(given[index].item())}")
    return np.ascontiguousarray(given, dtype=np.int8)


def _object_array(given: npt.NDArray[Any], check: Any, dtype: Any) -> npt.NDArray[Any]:
    _check_column(given, "values", "O")
    out = np.empty(len(given), dtype)
    for index, value in enumerate(given):
        try:
            out[index] = check(value)
        except ValueError as error:
            raise ValueError(f"index {index}: {error}") from None
    return out


def _check_column(given: npt.NDArray[Any], what: str, kinds: str) -> None:
    if given.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, got an array of shape {given.shape}")
    if given.dtype.kind not in kinds and len(given):
        raise ValueError(f"index 0: {what} must be numbers, got {given[0]!r} ({given.dtype})")


def _bad_score(score: object) -> str:
    return f"a score must be a number in [0, 1], got {score!r}"


def _bad_label(label: object) -> str:
    return f"a label must equal 0 or 1, got {label!r}"
