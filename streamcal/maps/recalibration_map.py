"""RecalibrationMap: a frozen, portable map from score to probability, h or g∘h.

The base h is a step function on bins (eq. 9, uniform-mass binning), a line between knots in log-odds, or the
identity; g is the label-shift correction (eq. 13). As JSON, a map is an object with these fields (schema:
docs/recalibration-map.schema.json).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamcal.base.values import Floats
from streamcal.maps.fits_c import APART, LinearFunction, StepFunction
from streamcal.maps.platt import expit
from streamcal.maps.shift import NO_SHIFT, shift_correction, shift_correction_one
from streamcal.sketch import checks, grid

_ROWS: Final = 10  # at most, of the table that a notebook shows

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
# A linear map takes scores for at least 2⁻⁴⁰ away from 0 and 1.
Knot = Annotated[float, Field(ge=-27.73, le=27.73)]
LogOdds = Annotated[float, Field(ge=-700.0, le=700.0)]


def why_not_whole(segments: Sequence[str]) -> str:
    """Return why the map of all of a run with segments by these fields is refused, and what to do."""
    return (
        f"the run has segments by {', '.join(map(str, segments))}, and serves other probabilities than its"
        " map of all: let streamcal run or serve answer, or take Recalibrator.by_segment.map_for."
        " If the map of all is meant, take the field segments out of the JSON"
    )


class RecalibrationMap(BaseModel):
    """A recalibration map h_Q = g ∘ h_P, frozen.

    Of kind ``"step"``: ``edges`` cut [0, 1] into B bins [e_0, e_1), [e_1, e_2), …, [e_{B−1}, 1], each with
    one of ``values``. Each bin is closed on the left, the last one also on the right. (The paper closes bins
    on the right; under its assumption A1 the two differ on a null set.) Without bins, h is the identity.

    Of kind ``"linear"``: the log-odds of h is linear in the log-odds of the score between ``knots``, has the
    values ``log_odds`` there, and is constant below the first knot and above the last one.

    Examples
    --------
    >>> m = RecalibrationMap(version=1, edges=(0.0, 0.5, 1.0), values=(0.1, 0.8), weights=(1.0, 0.5))
    >>> round(m.predict_one(0.5), 4)
    0.6667
    >>> RecalibrationMap.model_validate_json(m.model_dump_json()) == m
    True
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", ignored_types=(cached_property,)
    )

    version: Annotated[int, Field(ge=0, lt=1 << 63)]
    """Number of the map version. Version 0 is served before the first map: the identity, or in mode ``auto``
    the score kept within 0.0001 and 0.9999."""

    format: Literal[2] = 2
    """The format of these fields: a reader that does not know it must refuse the map."""

    kind: Literal["step", "linear"] = "step"
    """Whether h is a step function (or the identity), or linear in log-odds."""

    edges: tuple[Probability, ...] = ()
    """B+1 bin edges, strictly ascending from 0 to 1; none for the identity and a linear map."""

    values: tuple[Probability, ...] = ()
    """B probabilities under the source, one for each bin; none for the identity and a linear map."""

    knots: tuple[Knot, ...] = ()
    """log(z/(1−z)) of the scores z at which a linear map bends, ascending by at least 1e-9 each.

    None for a step map.
    """

    log_odds: tuple[LogOdds, ...] = ()
    """log(p/(1−p)) of the probability p under the source, one for each knot; none for a step map."""

    weights: tuple[Weight, Weight] = NO_SHIFT
    """(w₀, w₁) of the shift correction g, which is applied after h; (1, 1) leaves h unchanged."""

    @model_validator(mode="before")
    @classmethod
    def _is_whole(cls, given: Any) -> Any:
        """Refuse the map of all of a run with segments: it does not give what that run serves."""
        if isinstance(given, dict) and given.get("segments"):
            raise ValueError(why_not_whole(given["segments"]))
        return given

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "linear":
            if len(self.knots) != len(self.log_odds) or not self.knots:
                raise ValueError(
                    f"a linear map has as many log_odds as knots, at least 1 of each; "
                    f"got {len(self.log_odds)} log_odds and {len(self.knots)} knots"
                )
            if any(right - left < APART for left, right in pairwise(self.knots)):
                raise ValueError(f"knots must ascend, by at least {APART} each")
        elif self.knots or self.log_odds:
            raise ValueError('knots and log_odds are for a map of kind "linear", this one is of kind "step"')
        if self.edges or self.values:
            if self.kind == "linear":
                raise ValueError(
                    'edges and values are for a map of kind "step", this one is of kind "linear"'
                )
            if len(self.edges) != len(self.values) + 1 or not self.values:
                raise ValueError(
                    f"{len(self.values)} values need {len(self.values) + 1} edges, got {len(self.edges)}"
                )
            if self.edges[0] != 0.0 or self.edges[-1] != 1.0:
                raise ValueError(f"edges must go from 0 to 1, got {self.edges[0]} to {self.edges[-1]}")
            if any(left >= right for left, right in pairwise(self.edges)):
                raise ValueError("edges must be strictly ascending")
        if self.weights == (0.0, 0.0):
            raise ValueError("weights must not both be 0")
        return self

    @property
    def bins(self) -> int:
        """B, the number of bins of a step map, or of knots of a linear one; 0 for the identity."""
        return len(self.values) or len(self.knots)

    def __copy__(self) -> Self:
        """Copy without the cached function: `model_copy` may give the copy other fields."""
        copy = super().__copy__()
        copy.__dict__.pop("function", None)
        return copy

    def __repr__(self) -> str:
        bins, weights = "identity", f"({self.weights[0]:.4g}, {self.weights[1]:.4g})"
        if self.values:
            bins = f"bins={self.bins}, values={min(self.values):.4g} to {max(self.values):.4g}"
        if self.knots:
            values = expit(np.array([min(self.log_odds), max(self.log_odds)])).tolist()
            bins = f"linear, knots={self.bins}, values={values[0]:.4g} to {values[1]:.4g}"
        return f"RecalibrationMap(version={self.version}, {bins}, weights={weights})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return a table for notebooks: at most 10 bins or knots, evenly chosen, and their probabilities."""
        from html import escape  # only notebooks need it

        shown = np.unique(np.linspace(0, self.bins - 1, _ROWS).round().astype(int)) if self.bins else ()
        if self.knots:
            columns: tuple[str, ...] = ("knot", "score", "probability")
            scores = expit(np.array(self.knots))
            values = expit(np.array(self.log_odds)).tolist()
            cells = [(f"{score:.6g}", value) for score, value in zip(scores, values, strict=True)]
        else:
            columns = ("bin", "from score", "to score", "probability")
            ends = zip(self.edges, self.edges[1:], self.values, strict=False)
            cells = [(f"{left:.6g}</td><td>{right:.6g}", value) for left, right, value in ends]
        rows = "".join(
            f"<tr><td>{b + 1}</td><td>{cells[b][0]}</td>"
            f"<td>{shift_correction_one(cells[b][1], self.weights):.4g}</td></tr>"
            for b in shown
        )
        head = f"<tr>{''.join(f'<th>{column}</th>' for column in columns)}</tr>"
        table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>" if rows else ""
        return f"<p>{escape(repr(self))}</p>{table}"

    @cached_property
    def function(self) -> StepFunction | LinearFunction | None:
        """Function that computes h; None if h is the identity."""
        if self.knots:
            return LinearFunction(self.knots, self.log_odds)
        return StepFunction(self.edges[1:-1], self.values) if self.values else None

    def base_one(self, score: float) -> float:
        """Return h of one score in [0, 1], without the shift correction. The score is not checked."""
        function = self.function
        return score if function is None else function.one(score)

    def predict_many(self, scores: Any) -> Floats:
        """Return the probability for each score: float[n] in [0, 1] to float64[n] in [0, 1].

        Raises
        ------
        ValueError
            if a value is not a number in [0, 1]; the message names its index.
        """
        return self.apply_checked(checks.as_scores(scores), self.weights)

    def apply_checked(self, scores: Floats, weights: tuple[float, float]) -> Floats:
        """Return g∘h of checked scores under these weights: a new array, float64[n]."""
        out, function = np.empty(len(scores)), self.function
        if isinstance(function, StepFunction):
            function.apply(np.ascontiguousarray(scores), shift_correction(function.values, weights), out)
        elif function is not None:
            function.apply(np.ascontiguousarray(scores), out)
            if weights[0] != weights[1]:
                out = shift_correction(out, weights)
        else:
            for start in range(0, len(scores), grid.CHUNK):
                chunk = slice(start, start + grid.CHUNK)
                out[chunk] = shift_correction(scores[chunk], weights)
        return out

    def predict_one(self, score: float) -> float:
        """Return the probability for one score.

        Raises
        ------
        ValueError
            if the score is not a number in [0, 1].
        """
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = checks.check_score(score)
        return shift_correction_one(self.base_one(score), self.weights)
