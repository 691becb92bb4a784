"""Fields of events of many classes: the scores of all classes, and a label that names one.

The scores are one field, an object ``{"cat": 0.7, "dog": 0.3}`` or an array in the order of the classes; or a
column a class, ``p_cat`` and ``p_dog``. They go with the event as the last of its `Kept` values, and its
``score`` is the largest: that of the class that the model decides for. A label is the place of its class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec

from streamcal.events.codes import FieldError
from streamcal.events.columns import Columns
from streamcal.sketch.checks import check_score
from streamcal.values import class_name, shown

__all__ = ["ByClass", "ClassFields", "by_class"]

Scores = tuple[float, ...]
_Score = Annotated[float, msgspec.Meta(ge=0, le=1)]  # checked where it is decoded

_ROUNDING: Final = 0.999e-6  # within what the engine allows, in whatever order it adds
_SURELY: Final = 0.998e-6  # and so within that of an exact sum
_SHOWN: Final = 5  # names of classes in a message
_LABEL: Final = 100  # characters of a label that names none


class ByClass(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A number of each class, in their order; in JSON an object, read and written as fast as an array."""

    def values(self) -> Scores:
        """Return the numbers."""
        return msgspec.structs.astuple(self)


def by_class(classes: Sequence[str]) -> type[ByClass] | None:
    """Return what holds a number of each of these classes; None if no struct can have such names."""
    names = {f"class_{code}": name for code, name in enumerate(classes)}
    fields = [(field, _Score) for field in names]
    try:
        made: Any = msgspec.defstruct(
            "OfClasses", fields, bases=(ByClass,), rename=names, frozen=True, gc=False
        )
    except ValueError:  # a quote or a backslash
        return None
    return made  # type: ignore[no-any-return]


class ClassFields:
    """Reads scores and labels of the classes of a run.

    Parameters
    ----------
    columns
        the names of the fields, and the classes.
    """

    def __init__(self, columns: Columns) -> None:
        self._whole, self._label = columns.names["score"], columns.names["label"]
        self.columns = columns.score_columns
        """The column of each class, where each has its own."""
        self.codes = {name: code for code, name in enumerate(columns.classes)}
        """Place of each class."""
        self._known = {*self.columns, self._whole}
        more = f" and {len(self.codes) - _SHOWN:,} more" if len(self.codes) > _SHOWN else ""
        self._listed = ", ".join(map(shown, columns.classes[:_SHOWN])) + more

    def are_in(self, fields: Mapping[str, Any]) -> bool:
        """Whether there is a score."""
        return not self._known.isdisjoint(fields)

    def scores(self, fields: Mapping[str, Any]) -> tuple[float, ...]:
        """Return the scores in the order of the classes.

        Raises
        ------
        FieldError
            if they are not one number in [0, 1] of each class and of no other, or do not sum to 1.
        """
        given = fields.get(self._whole)
        if given is None:
            pairs = zip(self.codes, self.columns, strict=True)
            given = {name: fields[column] for name, column in pairs if column in fields}
        if isinstance(given, list | tuple):
            if len(given) != len(self.codes):
                raise self._refused(wanted=len(self.codes), classes=self._listed, count=len(given))
            scores = tuple(given)
        elif isinstance(given, Mapping):
            for name in given:
                if name not in self.codes:
                    raise self._refused(classes=self._listed, unknown=name)
            for name in self.codes:
                if name not in given:
                    raise self._refused(missing=name)
            scores = tuple([given[name] for name in self.codes])
        else:
            raise self._refused(scores=given)
        total = math.nan
        if {*map(type, scores)} == {float} and min(scores) >= 0.0 and max(scores) <= 1.0:
            total = math.fsum(scores)
        if math.isnan(total):
            scores = tuple([self._checked(score) for score in scores])
            total = math.fsum(scores)
        if abs(total - 1.0) > _ROUNDING:
            raise self._refused(total=total)
        return scores

    def _checked(self, score: Any) -> float:
        try:
            return check_score(score)
        except ValueError:
            raise self._refused(value=score) from None

    def _refused(self, **fields: object) -> FieldError:
        return FieldError("bad_score", column=self._whole, **fields)

    @property
    def wire(self) -> tuple[Any, Any] | None:
        """The types into which scores and labels in their usual forms are decoded; None: there are none."""
        named = by_class([*self.codes])
        return None if named is None else (named | tuple[(_Score,) * len(self.codes)], str)  # type: ignore[misc]

    def decoded(self, given: ByClass | Scores) -> Scores | None:
        """Return the scores of a wire; None if `scores` has to decide whether they sum to 1."""
        scores = given.values() if isinstance(given, ByClass) else given
        return scores if abs(sum(scores) - 1.0) <= _SURELY else None

    def code(self, value: object) -> int:
        """Return the place of the class that a label names; FieldError if it names none."""
        name = value
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(ValueError):  # of NaN
                name = class_name(value)  # 3.0 is "3"
        code = self.codes.get(name.strip()) if isinstance(name, str) else None
        if code is None:
            label = str(value).strip()[:_LABEL] if isinstance(value, str | int | float) else None
            fields = {"classes": self._listed, "value": value, "column": self._label, "label": label or None}
            raise FieldError("bad_label", **fields)
        return code
