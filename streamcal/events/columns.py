"""Which columns of the input hold what: the table ``[columns]`` of a run's options."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from streamcal.base.values import MAX_NAME_BYTES, check_name, class_name, shown

Role: TypeAlias = Literal["id", "score", "label", "time", "key", "domain", "weight", "propensity"]
"""Role of a column: what it holds."""

InputKind: TypeAlias = Literal["events", "labels", "calibration"]
"""Which input of a run: predictions, labels that come apart from them, or labelled events to begin with."""

ROLES: Final[tuple[Role, ...]] = ("id", "score", "label", "time", "key", "domain")
WEIGHTS: Final[tuple[Role, ...]] = ("weight", "propensity")
"""Roles that no column has unless it is named: a feature may well be called like that."""

MAX_KEPT_BYTES: Final = 4096
"""A text that is kept for the output has at most so many bytes."""

MAX_CLASSES: Final = 1_000
"""Largest number of classes."""

_HEADER_SHOWN: Final = 20  # columns
_MAX_KEPT: Final = 32  # fields: with texts of 4096 bytes, escaped, they fit into a record of 1 MiB
ANSWER_FIELDS: Final = ("id", "score", "probability", "map_version", "weights", "key", "time")
"""Every row of the output has these."""
_CLASS_FIELDS: Final = ("scores", "probabilities")  # … or, of many classes, these for two of them

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)]


class Columns(BaseModel):
    """The name of the column, or JSON field, of each role; which label is positive; what passes through.

    Parameters
    ----------
    id, score, label, time, key, domain
        the column of each; no two the same.
    weight, propensity
        the column that says for how many predictions a label stands, from 1e-9 to 10,000, or the chance that
        it is seen, from 0.0001 to 1, whose inverse is the weight. It may stand on the prediction, on the
        label, or on both in one; that of the label counts first. An event may have one of the two. None: no
        column is read.
    positive
        the label of class 1, a text or a number; the stream's one other label is class 0. None: labels are
        0 and 1, ``yes`` and ``no``, ``true`` and ``false``, as numbers or texts.
    classes
        names of all classes, if there are more than two, or if labels name them; empty: a score is that of
        class 1. The field ``score``, if not named otherwise ``scores``, then holds an object of all scores by
        class, or an array in the order of the classes; a table has a column for each.
    prefix
        with ``classes``: what the columns of the scores begin with, before the name of the class.
    class_sums
        with ``classes``: ``"renormalise"`` divides scores by their sum where that is from 0.99 to 1.01, as of
        scores of two digits; ``"exact"``: the sum must be 1, give or take 10⁻⁶.
    keep
        columns whose values go into the rows of ``--output`` as they are, at most 32.
    labels, calibration
        names for ``--labels`` and for ``--calibration`` only, where these differ.

    Raises
    ------
    pydantic.ValidationError
        if two roles have the same column, the output has a field of the name of one to keep, or ``classes``
        are given with ``positive``.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: _Name = "id"
    score: _Name = "score"
    label: _Name = "label"
    time: _Name = "time"
    key: _Name = "key"
    domain: _Name = "domain"
    weight: _Name | None = None
    propensity: _Name | None = None
    positive: str | int | float | bool | None = None
    classes: Annotated[tuple[_Name, ...], Field(max_length=MAX_CLASSES, strict=False)] = ()
    prefix: Annotated[str, Field(max_length=MAX_NAME_BYTES)] = "p_"
    class_sums: Literal["exact", "renormalise"] = "exact"
    keep: Annotated[tuple[_Name, ...], Field(max_length=_MAX_KEPT, strict=False)] = ()
    labels: dict[Role, _Name] = {}
    calibration: dict[Role, _Name] = {}
    _kind: InputKind = PrivateAttr("events")
    _segments: tuple[str, ...] = PrivateAttr(())

    @property
    def samples(self) -> bool:
        """Whether weights are one over the chance that a label is seen, of every event that has one."""
        return self.propensity is not None and self.weight is None

    @field_validator("positive")
    @classmethod
    def _names_a_class(cls, value: str | float | None) -> str | float | None:
        if value is not None:
            class_name(value)
        return value

    @field_validator("classes")
    @classmethod
    def _are_distinct(cls, classes: tuple[str, ...]) -> tuple[str, ...]:
        for name in classes:
            if check_name("a class", name) != name.strip():
                raise ValueError(f"the name of a class must not begin or end with a space, got {name!r}")
        if len(classes) == 1 or len(set(classes)) < len(classes):
            raise ValueError("there must be two classes at least, each named once")
        return classes

    @model_validator(mode="after")
    def _suits_classes(self) -> Self:
        if not self.classes:
            return self
        if self.positive is not None:
            raise ValueError("classes and positive exclude each other: leave out one of them")
        for name in {*self.keep} & {*_CLASS_FIELDS, *self.score_columns}:
            raise ValueError(f"every row of the output has the scores of all classes: do not keep {name!r}")
        return self

    @field_validator("keep")
    @classmethod
    def _is_free(cls, keep: tuple[str, ...]) -> tuple[str, ...]:
        for name in keep:
            check_name("a column", name)
            if name in ANSWER_FIELDS:
                raise ValueError(f"every row of the output has a field {name!r} of its own: do not keep it")
            if keep.count(name) > 1:
                raise ValueError(f"{name!r} is given twice")
        return keep

    @model_validator(mode="after")
    def _has_a_column_for_each(self) -> Self:
        for overrides in ({}, self.labels, self.calibration):
            names = self.names | overrides
            held: dict[str, str] = {}
            for role, name in names.items():
                if name in held:
                    raise ValueError(
                        f"{held[name]} and {role} have the same column, {name!r}: give one of them another"
                    )
                held[name] = role
        return self

    @property
    def names(self) -> dict[Role, str]:
        """The column of every role; of weights those that are named."""
        named = tuple(role for role in WEIGHTS if getattr(self, role) is not None)
        names: dict[Role, str] = {role: getattr(self, role) for role in (*ROLES, *named)}
        if self.classes and "score" not in self.model_fields_set:
            names["score"] = "scores"
        return names

    @property
    def score_columns(self) -> tuple[str, ...]:
        """The columns of a table that hold a score: one, or one for each class."""
        return self.class_columns or (self.score,)

    @property
    def class_columns(self) -> tuple[str, ...]:
        """The columns of a table that hold the scores of classes."""
        return tuple([f"{self.prefix}{name}" for name in self.classes])

    @property
    def label_values(self) -> tuple[str | int, ...]:
        """The labels in the order of their places: names of classes, or 0 and 1."""
        return self.classes or (0, 1)

    @property
    def is_default(self) -> bool:
        """Whether every role has the column that is named like it."""
        return all(role == name for role, name in self.names.items())

    def of(self, kind: InputKind) -> Columns:
        """Return the columns of one input."""
        overrides = {"events": {}, "labels": self.labels, "calibration": self.calibration}[kind]
        given = {role: name for role, name in self.names.items() if role in self.model_fields_set}
        found = Columns.model_validate(
            {
                **given,
                **overrides,
                "positive": self.positive,
                "classes": self.classes,
                "prefix": self.prefix,
                "class_sums": self.class_sums,
                "keep": () if kind == "calibration" else self.keep,
            }
        )
        found._kind = kind
        return found.with_segments(self._segments if kind == "events" else ())

    @property
    def passed(self) -> tuple[str, ...]:
        """Columns whose values go with a prediction as they are: those to keep, then those of segments."""
        return tuple(dict.fromkeys((*self.keep, *self._segments)))

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns of a table whose values go with a prediction: those passed, then the scores of classes."""
        return (*self.passed, *(() if self._kind == "labels" else self.class_columns))

    def with_segments(self, fields: Sequence[str]) -> Columns:
        """Return these columns, with others that make segments.

        Raises
        ------
        ValueError
            if one of them has a role.
        """
        for role, name in self.names.items():
            if name in fields:
                raise ValueError(f"{name!r} is the column of the {role}, and makes no segments")
        made = self.model_copy()
        made._segments = tuple(fields)
        return made

    @property
    def sought(self) -> str | None:
        """The column that one event of this input in many must have, at least; None: there is none."""
        return self.label if self._kind == "labels" else None

    def required(self, kind: InputKind, *, labels_apart: bool = False) -> frozenset[str]:
        """Return the columns that a CSV file must have, of those that were named.

        Parameters
        ----------
        kind
            which input it is.
        labels_apart
            whether labels come from another file than events.
        """
        roles: dict[InputKind, tuple[Role, ...]] = {
            "events": ("id", "score", "time", "key", *WEIGHTS) + (() if labels_apart else ("label",)),
            "labels": ("id", "label", "time"),
            "calibration": ("score", "label"),
        }
        own = self.of(kind)
        named = {own.names[role] for role in roles[kind] if role in own.model_fields_set}
        # Weights stand on predictions or on labels, so those of the table are for events alone.
        overrides: dict[InputKind, dict[Role, str]] = {"labels": self.labels, "calibration": self.calibration}
        named |= {name for role, name in overrides.get(kind, {}).items() if role in WEIGHTS}
        return frozenset(named if kind == "labels" else named.union(own.carried))


_ALIASES: Final = {
    alias: role
    for role, aliases in {
        "id": "identifier uuid request_id event_id row_id prediction_id transaction_id",
        "score": "probability prob proba p pred prediction predicted y_score y_prob y_pred y_hat yhat risk",
        "label": "target y y_true outcome class truth actual ground_truth is_positive",
        "time": "timestamp ts datetime date event_time created_at occurred_at at",
        "key": "segment group model model_id tenant",
        "weight": "sample_weight w importance_weight ipw",
        "propensity": "inclusion_probability sampling_probability",
    }.items()
    for alias in aliases.split()
}
_CLOSE: Final = 0.75
_ALL: Final = (*ROLES, *WEIGHTS)


def did_you_mean(name: str) -> str | None:
    """Return the field of an event that a field of this name may be meant for; None if it is none's.

    Examples
    --------
    >>> did_you_mean("timestamp"), did_you_mean("Lable"), did_you_mean("amount")
    ('time', 'label', None)
    """
    text = name[:MAX_NAME_BYTES].strip().casefold().replace("-", "_").replace(" ", "_")
    if text in _ALL or text in _ALIASES:
        return text if text in _ALL else _ALIASES[text]
    close = get_close_matches(text, [name for name in (*_ALL, *_ALIASES) if len(name) > 2], 1, _CLOSE)
    return None if not close else _ALIASES.get(close[0], close[0])


def check_header(what: str, found: Sequence[str], columns: Columns, required: Iterable[str]) -> None:
    """Check the names of the columns of a table.

    Raises
    ------
    ValueError
        if there is neither a score nor a label column, a column twice, or not all that are required; the
        message names the options that may help.
    """
    absent = sorted(set(required).difference(found))
    if absent:
        raise ValueError(f"the {what} has no column {', '.join(map(shown, absent))}; it has {_listed(found)}")
    scores = columns.score_columns
    if not {*scores, columns.label} & set(found) or len(set(found)) < len(found):
        named = "" if columns.is_default else f" (here {scores[0]!r} or {columns.label!r})"
        meant = {did_you_mean(name): name for name in reversed(found)}
        options = [
            f"--{role} {shlex.quote(meant[role])}"
            for role in ("id", "score", "label")
            if meant.get(role, role) != role
        ]
        hint = f"; perhaps {' '.join(options)}" if options else ""
        raise ValueError(
            f"a {what} must name score or label{named}, and each column once, got {_listed(found)}{hint}"
        )


def _listed(columns: Sequence[str]) -> str:
    more = len(columns) - _HEADER_SHOWN
    return ", ".join(map(shown, columns[:_HEADER_SHOWN])) + (f" and {more} more" if more > 0 else "")
