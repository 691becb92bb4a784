"""MulticlassMap: a frozen, portable map from K scores to K probabilities.

It is what a `Recalibrator` of many classes serves: a mixture of candidates, each made of maps of one score
(`RecalibrationMap`), of a scaling of log scores, or of eq. 13 for K classes. As JSON it is an object with
these fields (schema: docs/multiclass-map.schema.json).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.multiclass.classes import MAX_CLASSES, Classes
from streamcal.multiclass.simplex import ordered, reweighed
from streamcal.multiclass.softmax_c import logs, mix, normalise, scale
from streamcal.values import Floats

__all__ = ["KINDS", "Candidate", "MulticlassMap"]

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
        rows = self._names.rows(scores)
        made = self._forecast(rows)
        return ordered(made, rows) if self.keeps_order else made

    def _forecast(self, rows: Floats) -> Floats:
        if rows.shape[1] == 2:
            ones = _mapped(self.maps, rows, rows)[:, 1]
            return np.stack((1.0 - ones, ones), axis=1)
        x, made, by_maps = logs(rows), np.empty((len(self.candidates), *rows.shape)), rows
        for out, each in zip(made, self.candidates, strict=True):
            if each.kind == "scaling":
                scale(x, np.array(each.parameters), out)
        if self.maps:
            names = [each.name for each in self.candidates]
            shared = rows if self.shared is None else made[names.index(self.shared)]
            by_maps = _mapped(self.maps, rows, shared)
            normalise(by_maps, rows)
        for out, each in zip(made, self.candidates, strict=True):
            if each.kind == "scaling of maps":
                scale(logs(by_maps), np.array(each.parameters), out)
            elif each.kind == "shift":
                by_source = rows
                if self.source_maps:
                    by_source = _mapped(self.source_maps, rows, rows)
                    normalise(by_source, rows)
                out[:] = reweighed(by_source, np.array(each.parameters)) if each.parameters else by_source
            elif each.kind != "scaling":
                out[:] = rows if each.kind == "score" else by_maps
        if len(made) == 1:
            alone: Floats = made[0]
            return alone
        mixed: Floats = np.empty(rows.shape)
        mix(np.array([each.weight for each in self.candidates]), made, mixed)
        return mixed


def _mapped(maps: Sequence[RecalibrationMap | None], rows: Floats, instead: Floats) -> Floats:
    """Return the probabilities of maps of each class; where there is none, those of ``instead``."""
    out = instead.copy()
    for code, each in enumerate(maps):
        if each is not None:
            out[:, code] = each.predict_many(rows[:, code])
    return out
