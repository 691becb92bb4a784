"""RecalibrationMap: a frozen, portable map from score to probability, h or g∘h.

The base h is a step function on bins (eq. 9, uniform-mass binning) or the identity; g is the label-shift
correction (eq. 13). As JSON, a map is an object with ``version``, ``edges``, ``values`` and ``weights``
(schema: docs/recalibration-map.schema.json).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Annotated, Any, Final, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamcal.maps.shift import shift_correction, shift_correction_one
from streamcal.maps.step_function import StepFunction
from streamcal.sketch import checks, grid
from streamcal.sketch.arrays import Scores

__all__ = ["RecalibrationMap"]

_ROWS: Final = 10  # at most, of the table that a notebook shows

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class RecalibrationMap(BaseModel):
    """A recalibration map h_Q = g ∘ h_P, frozen.

    ``edges`` cut [0, 1] into B bins [e_0, e_1), [e_1, e_2), …, [e_{B−1}, 1]: each bin is closed on the left,
    the last one also on the right. (The paper closes bins on the right; under its assumption A1 the two
    differ on a null set.) Without bins, h is the identity.

    Examples
    --------
    >>> m = RecalibrationMap(version=1, edges=(0.0, 0.5, 1.0), values=(0.1, 0.8), weights=(1.0, 0.5))
    >>> round(m.predict_one(0.5), 4)
    0.6667
    >>> RecalibrationMap.model_validate_json(m.model_dump_json()) == m
    True
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    version: Annotated[int, Field(ge=0, lt=1 << 63)]
    """Number of the map version; version 0 is the identity, served before the first map."""

    edges: tuple[Probability, ...] = ()
    """B+1 bin edges, strictly ascending from 0 to 1; none for the identity."""

    values: tuple[Probability, ...] = ()
    """B probabilities under the source, one for each bin; none for the identity."""

    weights: tuple[Weight, Weight] = (1.0, 1.0)
    """(w₀, w₁) of the shift correction g, which is applied after h; (1, 1) leaves h unchanged."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.edges or self.values:
            if len(self.edges) != len(self.values) + 1 or not self.values:
                raise ValueError(
                    f"{len(self.values)} values need {len(self.values) + 1} edges, got {len(self.edges)}"
                )
            if self.edges[0] != 0.0 or self.edges[-1] != 1.0:
                raise ValueError(f"edges must go from 0 to 1, got {self.edges[0]} to {self.edges[-1]}")
            if any(left >= right for left, right in zip(self.edges, self.edges[1:], strict=False)):
                raise ValueError("edges must be strictly ascending")
        if self.weights == (0.0, 0.0):
            raise ValueError("weights must not both be 0")
        return self

    @property
    def bins(self) -> int:
        """B, the number of bins; 0 for the identity."""
        return len(self.values)

    @cached_property
    def _steps(self) -> StepFunction:
        return StepFunction(self.edges[1:-1], self.values)

    def __copy__(self) -> Self:
        """Copy without cached values: `model_copy` may give the copy other fields."""
        copy = super().__copy__()
        copy.__dict__.pop("_steps", None)
        return copy

    def __repr__(self) -> str:
        bins, weights = "identity", f"({self.weights[0]:.4g}, {self.weights[1]:.4g})"
        if self.values:
            bins = f"bins={self.bins}, values={min(self.values):.4g} to {max(self.values):.4g}"
        return f"RecalibrationMap(version={self.version}, {bins}, weights={weights})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return a table for notebooks: at most 10 bins, evenly chosen, and their probabilities."""
        from html import escape  # only notebooks need it

        shown = np.unique(np.linspace(0, self.bins - 1, _ROWS).round().astype(int)) if self.bins else ()
        rows = "".join(
            f"<tr><td>{b + 1}</td><td>{self.edges[b]:.6g}</td><td>{self.edges[b + 1]:.6g}</td>"
            f"<td>{shift_correction_one(self.values[b], self.weights):.4g}</td></tr>"
            for b in shown
        )
        head = "<tr><th>bin</th><th>from score</th><th>to score</th><th>probability</th></tr>"
        table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>" if rows else ""
        return f"<p>{escape(repr(self))}</p>{table}"

    def base_one(self, score: float) -> float:
        """Return h of one score in [0, 1], without the shift correction. The score is not checked."""
        if not self.values:
            return score
        return self.values[bisect_right(self.edges, score, 1, len(self.values)) - 1]

    def predict_many(self, scores: Any) -> npt.NDArray[np.float64]:
        """Return the probability for each score: float[n] in [0, 1] to float64[n] in [0, 1].

        Raises
        ------
        ValueError
            if a value is not a number in [0, 1]; the message names its index.
        """
        return self.apply_checked(checks.as_scores(scores), self.weights)

    def apply_checked(self, scores: Scores, weights: tuple[float, float]) -> Scores:
        """Return g∘h of checked scores under these weights: a new array, float64[n]."""
        out = np.empty(len(scores))
        if self.values:
            self._steps.apply(scores, weights, out)
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
