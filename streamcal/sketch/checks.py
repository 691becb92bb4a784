"""Input validation: what counts as a score or a label. Times: `streamcal.times`.

Every public entry point uses these functions, so a bad value gets the same error message everywhere.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.sketch.arrays import Labels, Scores
from streamcal.sketch.grid import CHUNK

__all__ = ["as_labels", "as_scores", "check_label", "check_score", "clip_many", "clip_one"]

_ROUNDING: Final = 1e-9  # models that work with logarithms move a probability so far outside [0, 1]


def check_score(score: object) -> float:
    """Return the score as a float.

    Raises
    ------
    ValueError
        if it is not a number in [0, 1]. Booleans and strings are not numbers here.
    """
    if isinstance(score, (bool, np.bool_, str, bytes)):
        raise ValueError(_bad_score(score))  # noqa: TRY004  # the same error type for every bad value
    try:
        value = float(score)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(_bad_score(score)) from None
    if not 0.0 <= value <= 1.0:
        raise ValueError(_bad_score(score))
    return value


def check_label(label: object) -> int:
    """Return the label as the integer 0 or 1.

    Raises
    ------
    ValueError
        if it is not an integer, boolean or float that equals 0 or 1.
    """
    if isinstance(label, (int, float, np.integer, np.floating, np.bool_)) and label in (0, 1):
        return int(label)
    raise ValueError(_bad_label(label))


def as_scores(scores: Any) -> Scores:
    """Return an array-like of scores as float64[n], checked.

    Accepts what `numpy.asarray` accepts: numpy arrays, lists, and pandas, polars and Arrow columns. float32
    and integers convert exactly.

    Raises
    ------
    ValueError
        if it is not one-dimensional and numeric, or if a value is not in [0, 1]; the message then names the
        first such index and its value.
    """
    given = np.asarray(scores)
    if given.dtype.kind == "O":
        return _object_array(given, check_score, np.float64)
    _check_column(given, "scores", "fui")
    values = np.ascontiguousarray(given, dtype=np.float64)
    for start in range(0, len(values), CHUNK):
        chunk = values[start : start + CHUNK]
        if not (chunk.min() >= 0.0 and chunk.max() <= 1.0):
            index = start + int(np.flatnonzero(~((chunk >= 0.0) & (chunk <= 1.0)))[0])
            raise ValueError(f"index {index}: {_bad_score(given[index].item())}")
    return values


def as_labels(labels: Any) -> Labels:
    """Return an array-like of labels as int8[n] of 0 and 1, checked.

    Raises
    ------
    ValueError
        if it is not one-dimensional, or if a value does not equal 0 or 1; the message then names the first
        such index and its value.
    """
    given = np.asarray(labels)
    if given.dtype.kind == "O":
        return _object_array(given, check_label, np.int8)
    _check_column(given, "labels", "fuib")
    for start in range(0, len(given), CHUNK):
        chunk = given[start : start + CHUNK]
        if not _binary(chunk):
            index = start + int(np.flatnonzero((chunk != 0) & (chunk != 1))[0])
            raise ValueError(f"index {index}: {_bad_label(given[index].item())}")
    return np.ascontiguousarray(given, dtype=np.int8)


def clip_one(probability: float) -> float:
    """Return 0 or 1 for a probability that rounding moved outside [0, 1], any other number as it is."""
    inside = -_ROUNDING <= probability <= 1.0 + _ROUNDING
    return min(max(probability, 0.0), 1.0) if inside else probability


def clip_many(probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Do the same for an array, float64[n]."""
    inside = np.abs(probabilities - 0.5) <= 0.5 + _ROUNDING
    return np.where(inside, np.clip(probabilities, 0.0, 1.0), probabilities)


def _binary(labels: npt.NDArray[Any]) -> bool:
    """Return whether all labels, at least one, equal 0 or 1. NaN does not."""
    kind = labels.dtype.kind
    inside = kind == "b" or bool(labels.min() >= 0 and labels.max() <= 1)
    return inside and (kind != "f" or bool((labels.astype(np.int8) == labels).all()))


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
