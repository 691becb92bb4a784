"""Names of the classes, and the checks of score rows and labels that speak of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from streamcal.base.values import Counts, Floats, check_name, is_missing, shown, unmasked
from streamcal.engine.multiclass.softmax_c import are_shares, shares_of
from streamcal.sketch.checks import NO_LABEL, ROUNDING, rounding_of

MAX_CLASSES: Final = 1000
"""Largest number of classes."""

_SHOWN: Final = 5  # names of classes in a message
_INTEGERS: Final = (int, np.integer)
_FLOAT64: Final = np.dtype(np.float64)


class Classes:
    """The classes in their order.

    Parameters
    ----------
    names
        2 to 1,000 distinct texts of 1 to 512 bytes, or whole numbers. If all are numbers, but not 0, 1, …, a
        label that is a number is a name, and no place.

    Raises
    ------
    ValueError
        if they are not.
    """

    __slots__ = ("_are_numbers", "_codes", "_doubtful", "_shape", "names", "places")

    def __init__(self, names: Sequence[str | int]) -> None:
        if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
            raise ValueError(  # noqa: TRY004  # one error for all
                f"classes must be a sequence of names, such as ['cat', 'dog'], got {shown(names)}"
            )
        self.names = tuple(
            check_name(
                "a class", str(name) if type(name) is not bool and isinstance(name, _INTEGERS) else name
            )
            for name in names
        )
        """Names, in their order."""
        if not 2 <= len(self.names) <= MAX_CLASSES:
            raise ValueError(f"there must be 2 to {MAX_CLASSES:,} classes, got {len(self.names):,}")
        self._shape = (len(self.names),)
        self.places: Counts = np.arange(len(self.names))
        """Their places, from 0 on."""
        self._codes = {name: code for code, name in enumerate(self.names)}
        if len(self._codes) < len(self.names):
            twice = next(name for code, name in enumerate(self.names) if self._codes[name] != code)
            raise ValueError(f"classes must be distinct, got {shown(twice)} twice")
        self._are_numbers = self.names != tuple(map(str, range(len(self)))) and all(
            name.removeprefix("-").isdecimal() for name in self.names
        )
        # Places of classes that are names of other classes.
        self._doubtful = [place for place in range(len(self)) if self._codes.get(str(place), place) != place]

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        more = f", … ({len(self.names):,} classes)" if len(self.names) > _SHOWN else ""
        return ", ".join(map(repr, self.names[:_SHOWN])) + more

    def row(self, scores: Any) -> Floats:
        """Return one score of each class, float64[1, K], as an array-like or by name, as of a series."""
        if type(scores) is not np.ndarray:
            if isinstance(scores, Mapping):
                if scores.keys() != self._codes.keys():
                    self._refuse_names(scores)
                scores = [scores[name] for name in self.names]
            names = getattr(scores, "index", None)  # a list has a method of this name
            if names is not None and not callable(names) and list(names) != list(range(len(self))):
                scores = scores[self._ordered(list(names))]
            scores = unmasked("scores", scores)
        if scores.dtype is _FLOAT64 and scores.shape == self._shape:  # as usual
            row = shares_of(scores, ROUNDING)
            if row is not None:
                return row
        return self.rows(scores[np.newaxis])

    def rows(self, scores: Any) -> Floats:
        """Return rows of scores, float64[n, K], checked.

        Columns of a data frame go by their names, in any order, unless these are 0, 1, … as of an array.

        Raises
        ------
        ValueError
            if they have another shape, or a row is not of numbers in [0, 1] that sum to 1; the message names
            the first such index and its value.
        """
        names = getattr(scores, "columns", None)
        if names is not None and list(names) != list(range(len(self))):
            scores = scores[self._ordered(list(names))]
        array = unmasked("scores", scores)
        if 1 <= array.ndim <= 2 and not len(array):
            return np.empty((0, len(self)))
        if array.ndim != 2 or array.shape[1] != len(self):
            raise ValueError(
                f"scores must be rows of {len(self):,} numbers, one for each of the classes {self},"
                f" got an array of shape {array.shape}"
            )
        if array.dtype.kind not in "fiu":
            self._refuse_kinds(array)
        values, rounding = array.astype(np.float64), rounding_of(array.dtype)
        if are_shares(values, rounding):
            return values if rounding == ROUNDING else values / values.sum(axis=1, keepdims=True)
        bad = ~(np.abs(values - 0.5) <= 0.5 + rounding)
        if bad.any():
            row, code = np.argwhere(bad)[0].tolist()
            raise ValueError(
                f"index {row}: the score of class {shown(self.names[code])} must be a number in [0, 1],"
                f" got {values[row, code].item()!r}"
            )
        totals = values.sum(axis=1)
        row = int(np.argmax(np.abs(totals - 1.0) > rounding))
        raise ValueError(
            f"index {row}: the scores of all classes must sum to 1 (give or take {rounding:g}),"
            f" got {totals[row].item()!r}: divide them by their sum, or give the missing classes"
        )

    def codes(self, labels: Any) -> Counts:
        """Return labels as places of their classes, int64[n].

        Raises
        ------
        ValueError
            if one is neither a place from 0 on nor the name of a class; the message names the first such
            index and its value.
        """
        array = unmasked("labels", labels)
        if array.ndim != 1:
            raise ValueError(f"labels must be one-dimensional, got an array of shape {array.shape}")
        if array.dtype.kind in "iu" and not self._are_numbers:
            codes = array.astype(np.int64)
            bad = (codes < 0) | (codes >= len(self))
            if bad.any():
                index = int(np.argmax(bad))
                raise ValueError(f"index {index}: {self._refused(array[index].item())}")
            if self._doubtful and (twofold := np.isin(codes, self._doubtful)).any():
                index = int(np.argmax(twofold))
                raise ValueError(f"index {index}: {self._twofold(array[index].item())}")
            return codes
        found = np.empty(len(array), np.int64)
        for index, label in enumerate(array.tolist()):
            try:
                found[index] = self.code(label)
            except ValueError as error:
                raise ValueError(f"index {index}: {error}") from None
        return found

    def code(self, label: object) -> int:
        """Return the place of a label's class.

        Raises
        ------
        ValueError
            as `codes`.
        """
        if isinstance(label, str):
            code = self._codes.get(label, -1)
        elif type(label) is int or (isinstance(label, _INTEGERS) and not isinstance(label, bool)):
            code = self._codes.get(str(int(label)), -1) if self._are_numbers else int(label)
            if code in self._doubtful and not self._are_numbers:
                raise ValueError(self._twofold(code))
        else:
            code = -1
        if not 0 <= code < len(self.names):
            raise ValueError(self._refused(label))
        return code

    def _ordered(self, columns: list[Any]) -> list[str]:
        """Return the columns of a data frame, or names of a series, in the order of the classes."""
        if sorted(map(str, columns)) != sorted(self.names) or len(set(columns)) < len(columns):
            raise ValueError(
                f"the names of scores in a data frame must be the classes {self}, in any order, got"
                f" {', '.join(map(shown, columns[:_SHOWN]))}: rename or select them, or give an array"
            )
        by_name = {str(name): name for name in columns}
        return [by_name[name] for name in self.names]

    def _twofold(self, label: int) -> str:
        return (
            f"the label {label} may be the class {str(label)!r}, or {self.names[label]!r}, which has place"
            f" {label}: give the name as text, such as {str(label)!r}"
        )

    def _refused(self, label: object) -> str:
        place = "" if self._are_numbers else f", or its place from 0 to {len(self) - 1:,}"
        more = NO_LABEL if is_missing(label) else f"; the classes are {self}"
        return f"a label must be the name of a class{place}, got {shown(label)}{more}"

    def _refuse_names(self, scores: Mapping[Any, Any]) -> None:
        unknown = [name for name in scores if name not in self._codes]
        if unknown:
            raise ValueError(
                f"scores must be of the classes {self}, got one of the unknown {shown(unknown[0])}"
            )
        missing = next(name for name in self.names if name not in scores)
        raise ValueError(
            f"scores must have all {len(self):,} classes, {shown(missing)} is missing; a class that cannot be"
            " has the score 0"
        )

    def _refuse_kinds(self, array: Any) -> None:
        for row, code in np.ndindex(array.shape):
            value = array[row, code]
            if isinstance(value, bool | np.bool_ | str | bytes) or not isinstance(
                value, int | float | np.integer | np.floating
            ):
                raise ValueError(  # noqa: TRY004
                    f"index {row}: the score of class {shown(self.names[code])} must be a number in [0, 1],"
                    f" got {shown(value)}"
                )
