"""RecalibrationMap: a frozen, portable map from score to probability, h or g∘h.

The base h is a step function on bins (eq. 10, uniform-mass binning) or the identity; g is the label-shift
correction (eq. 13). A map travels as JSON: ``version``, ``edges``, ``values``, ``weights``
(schema: docs/recalibration-map.schema.json).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamcal import grid

__all__ = ["RecalibrationMap", "shift_correction", "shift_correction_one"]

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


def shift_correction(
    probabilities: npt.NDArray[np.float64], weights: tuple[float, float]
) -> npt.NDArray[np.float64]:
    """Apply the label-shift correction g(p) = w₁p / (w₁p + w₀(1−p)) (eq. 13).

    Parameters
    ----------
    probabilities
        float64[n] in [0, 1], probabilities under the source.
    weights
        (w₀, w₁), w_k = Q[Y=k] / P[Y=k], not negative, not both 0.

    Returns
    -------
    float64[n] in [0, 1]; g(0) = 0 and g(1) = 1 whatever the weights (as in the proof of Theorem 2).
    """
    if weights[0] == weights[1]:
        return probabilities
    positive = weights[1] * probabilities
    total = positive + weights[0] * (1.0 - probabilities)
    # total is 0 only where p is 0 or 1 and the other class has all the weight: g(p) = p there.
    return np.divide(positive, total, out=probabilities.copy(), where=total > 0.0)


def shift_correction_one(probability: float, weights: tuple[float, float]) -> float:
    """Apply `shift_correction` to one probability, to the same bit."""
    if weights[0] == weights[1]:
        return probability
    positive = weights[1] * probability
    total = positive + weights[0] * (1.0 - probability)
    return positive / total if total > 0.0 else probability


class RecalibrationMap(BaseModel):
    """A recalibration map h_Q = g ∘ h_P, frozen.

    ``edges`` cut [0, 1] into B bins [e_0, e_1), [e_1, e_2), …, [e_{B−1}, 1]: every bin is closed on the
    left, and the last one also on the right. (The paper closes bins on the right; the two differ on a
    null set under its assumption A1.) Without bins, h is the identity.

    Examples
    --------
    >>> m = RecalibrationMap(version=1, edges=(0.0, 0.5, 1.0), values=(0.1, 0.8), weights=(1.0, 0.5))
    >>> round(m.predict_one(0.5), 4)
    0.6667
    >>> RecalibrationMap.model_validate_json(m.model_dump_json()) == m
    True
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    version: Annotated[int, Field(ge=0)]
    """Number of the map version; 0 is the identity, before the first."""

    edges: tuple[Probability, ...] = ()
    """B+1 bin edges, strictly ascending from 0 to 1, or none for the identity."""

    values: tuple[Probability, ...] = ()
    """B probabilities under the source, one for every bin, or none for the identity."""

    weights: tuple[Weight, Weight] = (1.0, 1.0)
    """(w₀, w₁) of the shift correction g, applied after h; (1, 1) leaves h as it is."""

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
    def _inner_edges(self) -> npt.NDArray[np.float64]:
        return np.asarray(self.edges[1:-1])

    @cached_property
    def _bin_probabilities(self) -> npt.NDArray[np.float64]:
        return shift_correction(np.asarray(self.values), self.weights)

    def base_one(self, score: float) -> float:
        """Return h of one score in [0, 1], not checked, without the shift correction."""
        if not self.values:
            return score
        return self.values[bisect_right(self.edges, score, 1, len(self.values)) - 1]

    def predict_many(self, scores: Any) -> npt.NDArray[np.float64]:
        """Return the probability of every score: float[n] in [0, 1] to float64[n] in [0, 1].

        Raises
        ------
        ValueError
            on a value that is no score, with its index.
        """
        values = grid.as_scores(scores)
        if not self.values:
            return shift_correction(values, self.weights)
        return self._bin_probabilities[np.searchsorted(self._inner_edges, values, side="right")]

    def predict_one(self, score: float) -> float:
        """Return the probability of one score.

        Raises
        ------
        ValueError
            if it is no number in [0, 1].
        """
        return shift_correction_one(self.base_one(grid.check_score(score)), self.weights)
