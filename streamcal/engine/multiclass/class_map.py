"""MulticlassMap: a frozen, portable map from K scores to K probabilities.

It is what a `Recalibrator` of many classes serves: a mixture of candidates, each made of maps of one score
(`RecalibrationMap`), of a scaling of log scores, or of eq. 13 for K classes. As JSON it is an object with
these fields (schema: docs/multiclass-map.schema.json).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Protocol, Self, TypeVar, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamcal.base.values import Floats
from streamcal.engine.multiclass.classes import MAX_CLASSES, Classes
from streamcal.engine.multiclass.simplex import ordered
from streamcal.engine.multiclass.softmax_c import logs, mix, normalise, scale
from streamcal.maps.recalibration_map import RecalibrationMap

Maps = Sequence[RecalibrationMap | None]
Rows = TypeVar("Rows")
_Kind = Literal["score", "maps", "scaling", "scaling of maps", "shift"]
KINDS: Final[tuple[str, ...]] = get_args(_Kind)
"""Kinds of candidates."""

_Parameter = Annotated[float, Field(ge=-1e15, le=1e15)]  # so that sums of exponents are finite
_Share = Annotated[float, Field(gt=0.0, le=1.0)]
_ROUNDING: Final = 1e-6  # of the weights' sum


class Candidate(BaseModel):
    """One forecast of K probabilities, and its weight."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    name: str
    weight: _Share
    """Weight in the mixture; all of them sum to 1."""
    kind: _Kind
    """``score``: the scores as they are. ``maps``: those of `MulticlassMap.maps`, divided by their sum.
    ``scaling``: p ∝ exp(a x + b), x the logarithms of the scores, of at least 1e-9 each; ``scaling of maps``:
    the same of the candidate ``maps``. ``shift``: `MulticlassMap.source_maps`, divided by their sum, times a
    factor each, divided by their sum."""
    parameters: tuple[_Parameter, ...] = ()
    """Numbers of a scaling: a, then b, one number a class. a is one number, or one a class, or a matrix by
    rows; this is for x less its mean. Of ``shift`` the factors w_k; none: all are 1."""


class MulticlassMap(BaseModel):
    """A map from the scores of K classes to their probabilities, frozen.

    Examples
    --------
    >>> halves = Candidate(name="biases", weight=1.0, kind="scaling", parameters=(1.0, 0.0, 0.0, 0.5))
    >>> m = MulticlassMap(version=0, classes=("cat", "dog", "fox"), candidates=(halves,))
    >>> m.predict_many([[0.5, 0.25, 0.25]]).round(3).tolist()
    [[0.43, 0.215, 0.355]]
    >>> MulticlassMap.model_validate_json(m.model_dump_json()) == m
    True
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", ignored_types=(cached_property,)
    )

    version: Annotated[int, Field(ge=0, lt=1 << 63)]
    """Number of target labels that it has learned from."""

    format: Literal[1] = 1
    """The format of these fields: a reader that does not know it must refuse the map."""

    classes: Annotated[tuple[str, ...], Field(min_length=2, max_length=MAX_CLASSES)]
    """Names of the classes, in the order of the scores."""

    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1)]
    """Forecasts that are mixed. Of two classes the only one is of kind ``maps``."""

    maps: tuple[RecalibrationMap | None, ...] = ()
    """Map of each class against all others; null: the class has the probability of ``shared``. Of two classes
    only the second has one."""

    shared: str | None = None
    """Name of the scaling by which classes without a map get their probability; null: it is the score."""

    source_maps: tuple[RecalibrationMap | None, ...] = ()
    """Map of each class against all others under the source; null, or none: it is the score."""

    keeps_order: bool = False
    """Whether the class with the highest score is the most probable one (docs/proofs/multiclass.md)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        count, kinds = len(self._names), {each.kind for each in self.candidates}
        for name, maps in (("maps", self.maps), ("source_maps", self.source_maps)):
            if maps and len(maps) != count:
                raise ValueError(f"{len(maps)} {name} for {count} classes")
        if {"maps", "scaling of maps"} & kinds and not self.maps:
            raise ValueError("there are no maps, of which a candidate is made")
        if count == 2 and (kinds != {"maps"} or self.maps[0] is not None or self.maps[1] is None):
            raise ValueError("of two classes, there is one candidate, of kind maps, and a map of the second")
        for each in self.candidates:
            sizes = {0}
            if each.kind.startswith("scaling"):
                sizes = {1 + count, 2 * count, count * count + count}
            elif each.kind == "shift":
                sizes = {0, count}
            if len(each.parameters) not in sizes or (
                each.kind == "shift" and min(each.parameters, default=0) < 0
            ):
                raise ValueError(
                    f"wrong parameters of {each.name!r}: {len(each.parameters)} for {count} classes"
                )
        total = sum(each.weight for each in self.candidates)
        if abs(total - 1.0) > _ROUNDING:
            raise ValueError(f"the weights of the candidates must sum to 1, got {total!r}")
        if len({each.name for each in self.candidates}) < len(self.candidates):
            raise ValueError("two candidates have one name")
        scalings = [each.name for each in self.candidates if each.kind == "scaling"]
        if self.shared is not None and self.shared not in scalings:
            raise ValueError(f"there is no scaling {self.shared!r}")
        return self

    @cached_property
    def _names(self) -> Classes:
        return Classes(self.classes)

    def __repr__(self) -> str:
        return f"MulticlassMap(version={self.version}, {len(self.classes):,} classes)"

    __str__ = __repr__

    def predict_many(self, scores: Any) -> Floats:
        """Return the probabilities of rows of scores, float64[n, K]; each row sums to 1.

        Raises
        ------
        ValueError
            as `Recalibrator.predict_many`.
        """
        rows: Floats = forecast(self, _OnArrays(), self._names.rows(scores))
        return rows


class ClassSteps(Protocol[Rows]):
    """Steps of a map of many classes, on rows of K numbers: arrays, or what an export has in their place."""

    def logs(self, rows: Rows) -> Rows:
        """Return logarithms of numbers, of at least `streamcal.engine.multiclass.softmax_c.END`."""

    def scaled(self, x: Rows, slopes: Floats, biases: Floats) -> Rows:
        """Return softmax(a·x + b), a and b as `streamcal.engine.multiclass.softmax_c.scale` takes them."""

    def mapped(self, maps: Maps, rows: Rows, instead: Rows) -> Rows:
        """Return what maps make of their columns; where there is none, the column of ``instead``."""

    def times(self, rows: Rows, factors: Floats) -> Rows:
        """Return columns times a factor each."""

    def shares(self, rows: Rows, instead: Rows) -> Rows:
        """Return rows divided by their sums; where that is 0, rows of ``instead``."""

    def mixed(self, made: Sequence[Rows], weights: Floats) -> Rows:
        """Return the mixture of forecasts, divided by its sum."""

    def with_rest(self, rows: Rows) -> Rows:
        """Return rows of two columns, whose first is 1 less the second."""

    def ordered(self, rows: Rows, scores: Rows) -> Rows:
        """Return rows as `streamcal.engine.multiclass.simplex.ordered`."""


def forecast(recalibration: MulticlassMap, steps: ClassSteps[Rows], scores: Rows) -> Rows:
    """Return the probabilities of checked scores, by steps on whatever rows are."""
    candidates, maps, sources = recalibration.candidates, recalibration.maps, recalibration.source_maps
    classes = len(recalibration.classes)

    def scaled(x: Rows, candidate: Candidate) -> Rows:
        numbers = np.array(candidate.parameters)
        return steps.scaled(x, numbers[:-classes], numbers[-classes:])

    if classes == 2:
        made = [steps.with_rest(steps.mapped(maps, scores, scores))]
    else:
        x = steps.logs(scores)
        scalings = {each.name: scaled(x, each) for each in candidates if each.kind == "scaling"}
        by_maps = by_source = scores
        if maps:
            shared = scores if recalibration.shared is None else scalings[recalibration.shared]
            by_maps = steps.shares(steps.mapped(maps, scores, shared), scores)
        if sources:
            by_source = steps.shares(steps.mapped(sources, scores, scores), scores)
        made = []
        for each in candidates:
            if each.kind == "scaling":
                made.append(scalings[each.name])
            elif each.kind == "scaling of maps":
                made.append(scaled(steps.logs(by_maps), each))
            elif each.kind == "shift" and each.parameters:
                weighed = steps.times(by_source, np.array(each.parameters))
                made.append(steps.shares(weighed, by_source))
            else:
                made.append({"score": scores, "maps": by_maps, "shift": by_source}[each.kind])
    mixed = made[0]
    if len(made) > 1:
        mixed = steps.mixed(made, np.array([each.weight for each in candidates]))
    return steps.ordered(mixed, scores) if recalibration.keeps_order else mixed


class _OnArrays:
    """Steps on float64[n, K]."""

    logs = staticmethod(logs)
    ordered = staticmethod(ordered)

    def scaled(self, x: Floats, slopes: Floats, biases: Floats) -> Floats:
        out: Floats = np.empty(x.shape)
        scale(x, np.concatenate((slopes, biases)), out)
        return out

    def mapped(self, maps: Maps, rows: Floats, instead: Floats) -> Floats:
        out = instead.copy()
        for code, each in enumerate(maps):
            if each is not None:
                out[:, code] = each.predict_many(rows[:, code])
        return out

    def times(self, rows: Floats, factors: Floats) -> Floats:
        return rows * factors

    def shares(self, rows: Floats, instead: Floats) -> Floats:
        normalise(rows, instead)
        return rows

    def mixed(self, made: Sequence[Floats], weights: Floats) -> Floats:
        out: Floats = np.empty(made[0].shape)
        mix(weights, np.array(made), out)
        return out

    def with_rest(self, rows: Floats) -> Floats:
        return np.stack((1.0 - rows[:, 1], rows[:, 1]), axis=1)
