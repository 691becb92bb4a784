"""Checks of scores and labels; `streamcal.base.times` checks times.

Every public entry point uses these functions, so a bad value gets the same error message everywhere.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.base.values import Floats, Labels, class_name, is_missing, shown, unmasked
from streamcal.sketch.counts_c import first_bad_label, first_bad_score

ROUNDING: Final = 1e-6
"""A number so far outside [0, 1] is a rounded probability; scores of classes may sum to 1 ± this."""
NO_LABEL: Final = ": leave out rows without a label"
_ANY_TWO: Final = "; positive= names the one that counts as 1"


def check_score(score: object) -> float:
    """Return the score as a float.

    Raises
    ------
    ValueError
        if it is not a number in [0, 1], give or take `ROUNDING`. Booleans and strings are not numbers here.
    """
    if isinstance(score, (bool, np.bool_, str, bytes)):
        raise ValueError(_bad_score(score))  # noqa: TRY004  # the same error type for every bad value
    try:
        value = float(score)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(_bad_score(score)) from None
    if not -ROUNDING <= value <= 1.0 + ROUNDING:
        raise ValueError(_bad_score(score))
    return min(max(value, 0.0), 1.0)


def check_label(label: object, positive: object = None) -> int:
    """Return the label as the integer 0 or 1.

    Parameters
    ----------
    label
        an integer, boolean or float that equals 0 or 1.
    positive
        if given, the label that counts as 1, a number or a text; any other counts as 0. ``1``, ``1.0`` and
        ``"1"`` are the same label (`streamcal.base.values.class_name`).

    Raises
    ------
    ValueError
        if it is not such a label.
    """
    if positive is not None:
        return int(class_name(_plain(label)) == class_name(_plain(positive)))
    if isinstance(label, (int, float, np.integer, np.floating, np.bool_)) and label in (0, 1):
        return int(label)
    raise ValueError(_bad_label(label))


def as_scores(scores: Any) -> Floats:
    """Return an array-like of scores as float64[n], checked.

    Accepts what `numpy.asarray` accepts: numpy arrays, lists, and pandas, polars and Arrow columns. float32
    and integers convert exactly.

    Raises
    ------
    ValueError
        if it is not one-dimensional and numeric, or if a value is not in [0, 1], give or take rounding; the
        message then names the first such index and its value.
    """
    array = unmasked("scores", scores)
    if array.ndim == 2 and array.shape[1] == 2:
        raise ValueError(
            f"scores must be one-dimensional, got an array of shape {array.shape}: of predict_proba, take the"
            " column of class 1, predict_proba(X)[:, 1]"
        )
    if array.dtype.kind == "O":
        return _object_array(array, check_score, np.float64)
    _check_column(array, "scores", "fui")
    values = np.ascontiguousarray(array, dtype=np.float64)
    index = first_bad_score(values)
    if index >= 0:
        values = clipped(values, rounding_of(array.dtype))
        index = first_bad_score(values)
    if index >= 0:
        raise ValueError(f"index {index}: {_bad_score(array[index].item())}")
    return values


def as_labels(labels: Any, positive: object = None) -> Labels:
    """Return an array-like of labels as int8[n] of 0 and 1, checked.

    Parameters
    ----------
    labels
        each equal to 0 or 1; or, with ``positive``, of any two values.
    positive
        the label of class 1; see `check_label`.

    Raises
    ------
    ValueError
        if it is not one-dimensional, or if a value does not equal 0 or 1, or is the third one; the message
        then names the first such index and its value.
    """
    array = unmasked("labels", labels)
    if positive is not None:
        return _named_labels(array, positive)
    if array.dtype.kind == "O":
        return _object_array(array, check_label, np.int8)
    _check_column(array, "labels", "fuib")
    if array.dtype == np.int8:
        classes = np.ascontiguousarray(array)
        index = first_bad_label(classes)
    else:
        ones = np.ascontiguousarray(array == 1)
        bad, classes = np.flatnonzero((array != 0) & ~ones), ones.view(np.int8)
        index = int(bad[0]) if len(bad) else -1
    if index >= 0:
        raise ValueError(f"index {index}: {_bad_label(array[index].item())}")
    return classes


def rounding_of(dtype: np.dtype[Any]) -> float:
    """Return how far numbers of a type may lie outside [0, 1] by rounding: two steps of the type or more."""
    return max(ROUNDING, 2.0 * float(np.finfo(dtype).eps)) if dtype.kind == "f" else ROUNDING


def clipped(values: Floats, rounding: float = ROUNDING) -> Floats:
    """Return numbers, float64[n], those that lie outside [0, 1] by rounding as 0 or 1."""
    inside = np.abs(values - 0.5) <= 0.5 + rounding
    return np.where(inside, np.clip(values, 0.0, 1.0), values)


def _object_array(array: npt.NDArray[Any], check: Any, dtype: Any) -> npt.NDArray[Any]:
    _check_column(array, "values", "O")
    out = np.empty(len(array), dtype)
    for index, value in enumerate(array):
        try:
            out[index] = check(value)
        except ValueError as error:
            raise ValueError(f"index {index}: {error}") from None
    return out


def _check_column(array: npt.NDArray[Any], what: str, kinds: str) -> None:
    if array.ndim != 1:
        hint = ": give one column" if array.ndim == 2 else ""
        raise ValueError(f"{what} must be one-dimensional, got an array of shape {array.shape}{hint}")
    if array.dtype.kind not in kinds and len(array):
        hint = _ANY_TWO if what == "labels" else ""
        raise ValueError(f"index 0: {what} must be numbers, got {shown(array[0])} ({array.dtype}){hint}")


def _named_labels(array: npt.NDArray[Any], positive: object) -> Labels:
    if array.ndim != 1:
        raise ValueError(f"labels must be one-dimensional, got an array of shape {array.shape}")
    wanted, other = class_name(_plain(positive)), None
    out = np.empty(len(array), np.int8)
    for index, label in enumerate(array.tolist()):
        try:
            name = class_name(label)
        except ValueError as error:
            raise ValueError(f"index {index}: {error}") from None
        out[index] = name == wanted
        if name != wanted:
            if other is None:
                other = label
            if name != class_name(other):
                raise ValueError(
                    f"index {index}: a label must be {shown(positive)}, which is the positive one, or"
                    f" {shown(other)}, the other one so far, got {shown(label)}"
                )
    return out


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _bad_score(score: object) -> str:
    return f"a score must be a number in [0, 1], got {shown(score)}"


def _bad_label(label: object) -> str:
    return f"a label must equal 0 or 1, got {shown(label)}{NO_LABEL if is_missing(label) else _ANY_TWO}"
