"""Fields of events that hold scores and labels: one score and labels 0 and 1, or those of many classes.

The scores of classes are one field, an object ``{"cat": 0.7, "dog": 0.3}`` or an array in the order of the
classes; or a column a class, ``p_cat`` and ``p_dog``. They go with the event as the last of its `Kept`
values, and its ``score`` is the largest: that of the class that the model decides for. A label is the place
of its class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Final

import msgspec

from streamcal.base.values import class_name, shown
from streamcal.events import Kept
from streamcal.events.codes import FieldError
from streamcal.events.columns import Columns
from streamcal.sketch.checks import ROUNDING, check_score

Scores = tuple[float, ...]
_Score = Annotated[float, msgspec.Meta(ge=0, le=1)]  # checked where it is decoded
_Label = Annotated[int, msgspec.Meta(ge=0, le=1)]

_ROUNDING: Final = 0.999 * ROUNDING  # within what the engine allows, in whatever order it adds
_SURELY: Final = 0.998 * ROUNDING  # and so within that of an exact sum
_RENORMALISED: Final = 1e-2  # sums that are so far from 1 are of scores of two digits
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


class ScoreFields:
    """Reads one score, and labels 0 and 1, or one that is positive.

    Parameters
    ----------
    columns
        the names of the fields.
    """

    in_columns: ClassVar[bool] = True
    """Whether many events can be a block, in whose columns are scores and labels."""

    def __init__(self, columns: Columns) -> None:
        self._whole, self._label = columns.names["score"], columns.names["label"]
        self.wanted = "a score"
        """Name of the scores, for messages."""
        self.wire: tuple[Any, Any] = (_Score, _Label)
        """Types into which scores and labels in their usual forms are decoded."""
        self.numbers: tuple[str, ...] = (*columns.score_columns, self._label)
        """Columns of text that hold numbers."""
        self._positive = None if columns.positive is None else class_name(columns.positive)

    def are_in(self, fields: Mapping[str, Any]) -> bool:
        """Whether there is a score."""
        return self._whole in fields

    def read(self, fields: Mapping[str, Any], kept: Kept) -> tuple[float, Kept]:
        """Return the score of an event, and what passes through with the values given.

        Raises
        ------
        FieldError
            if it is no number in [0, 1]; of classes, if they are not one such number of each class and of no
            other, or do not sum to 1.
        """
        return self._checked(fields[self._whole]), kept

    def label(self, value: object) -> tuple[int, str | None]:
        """Return the class of a label; with ``positive``, of another label 0 and its name.

        Raises
        ------
        FieldError
            if it is none.
        """
        named = {"value": value, "column": self._label}
        positive = {} if self._positive is None else {"positive": self._positive}
        try:
            name = class_name(value)
        except ValueError:
            raise FieldError("bad_label", **positive, **named) from None
        if positive:
            return (1, None) if name == self._positive else (0, name)
        if name not in ("0", "1"):
            raise FieldError("bad_label", label=name, **named)
        return int(name), None

    def quickly(self, made: Callable[..., Any]) -> Callable[[Any], Any]:
        """Return what makes events of what is decoded into `wire`.

        ``made`` makes them if the score is a number, the label the place of a class, and if it is given what
        else passes through; it returns None where `read` and `label` must decide.
        """
        return made

    def _checked(self, score: Any) -> float:
        try:
            return check_score(score)
        except ValueError:
            raise self._refused(value=score) from None

    def _refused(self, **fields: object) -> FieldError:
        return FieldError("bad_score", column=self._whole, **fields)


class _ClassFields(ScoreFields):
    in_columns = False

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self.wanted = f"{shown(self._whole)} of all classes"
        self._renormalises = columns.class_sums == "renormalise"
        self.numbers = self._columns = columns.class_columns
        self.codes = {name: code for code, name in enumerate(columns.classes)}
        """Place of each class."""
        named, listed = by_class(columns.classes), tuple[(_Score,) * len(self.codes)]  # type: ignore[misc]
        self.wire = (listed if named is None else named | listed, str)
        self._known = {*self._columns, self._whole}
        more = f" and {len(self.codes) - _SHOWN:,} more" if len(self.codes) > _SHOWN else ""
        self._listed = ", ".join(map(shown, columns.classes[:_SHOWN])) + more

    def are_in(self, fields: Mapping[str, Any]) -> bool:
        return not self._known.isdisjoint(fields)

    def read(self, fields: Mapping[str, Any], kept: Kept) -> tuple[float, Kept]:
        given = fields.get(self._whole)
        if given is None:
            pairs = zip(self.codes, self._columns, strict=True)
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
        if self._renormalises and _ROUNDING < abs(total - 1.0) <= _RENORMALISED:
            scores, total = tuple([score / total for score in scores]), 1.0
        if abs(total - 1.0) > _ROUNDING:
            raise self._refused(total=total)
        return max(scores), (*kept, *scores)

    def label(self, value: object) -> tuple[int, str | None]:
        name = value
        if isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(ValueError):  # of NaN
                name = class_name(value)  # 3.0 is "3"
        code = self.codes.get(name.strip()) if isinstance(name, str) else None
        if code is None:
            label = str(value).strip()[:_LABEL] if isinstance(value, str | int | float) else None
            fields = {"classes": self._listed, "value": value, "column": self._label, "label": label or None}
            raise FieldError("bad_label", **fields)
        return code, None

    def quickly(self, made: Callable[..., Any]) -> Callable[[Any], Any]:
        def event(wire: Any) -> Any:
            scores: Scores = ()
            if isinstance(wire.label, str):
                wire.label = self.codes.get(wire.label)
            if isinstance(wire.score, ByClass | tuple):
                scores = wire.score.values() if isinstance(wire.score, ByClass) else wire.score
                if abs(sum(scores) - 1.0) > _SURELY:
                    return None  # an exact sum decides
                wire.score = max(scores)
            return made(wire, scores)

        return event


def score_fields(columns: Columns) -> ScoreFields:
    """Return what reads scores and labels of events with these columns."""
    return _ClassFields(columns) if columns.classes else ScoreFields(columns)
