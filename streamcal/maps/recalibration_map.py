"""RecalibrationMap: a frozen, portable map from score to probability, h or g∘h.

The base h is a step function on bins (eq. 10, uniform-mass binning) or the identity; g is the label-shift
correction (eq. 13). A map travels as JSON: ``version``, ``edges``, ``values``, ``weights``
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
from streamcal.sketch import checks, grid

__all__ = ["RecalibrationMap"]

_PLACES: Final = 1 << 14  # of a table of bins; twice as many where that leaves no edge inside a place
_FEW: Final = 128  # scores at once, up to which a search is faster than the passes over the table
_WORTH_A_TABLE: Final = 4096  # scores in all, whose search takes as long as making the table

Scores = npt.NDArray[np.float64]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class _Steps:
    """The bins of a map by place on the grid, so that scores find theirs without a search.

    A place inside which two bins meet has none in the table: its scores are searched for. Maps of the
    engine end their bins where cells end, and have such places only if their edges are too many or too
    close together for the table. Memory: 8 bytes a bin and 2 a place, of which there are about 2¹⁴ at most.

    Parameters
    ----------
    inner
        the edges between the bins, strictly ascending inside (0, 1).
    values
        one value for every bin.
    """

    __slots__ = ("_inner", "_searched", "_sought", "_strip", "_table", "_values")

    def __init__(self, inner: tuple[float, ...], values: tuple[float, ...]) -> None:
        self._inner, self._values = np.array(inner), np.array(values)
        self._table: npt.NDArray[np.int16] | None = None
        self._sought = 0

    def apply(self, scores: Scores, weights: tuple[float, float], out: Scores) -> None:
        """Write g of the value of every score's bin to ``out``; scores are checked, float64[n]."""
        values = shift_correction(self._values, weights)
        table = self._table_for(len(scores))
        if table is None:
            np.take(values, np.searchsorted(self._inner, scores, side="right"), out=out, mode="clip")
            return
        all_bins = np.empty(min(len(scores), grid.CHUNK), np.int16)
        for start in range(0, len(scores), grid.CHUNK):
            chunk = scores[start : start + grid.CHUNK]
            bins = all_bins[: len(chunk)]
            # mode="clip" clips nothing here, but unlike "raise" it writes to ``out`` without a copy.
            table.take(self._strip.places(chunk), out=bins, mode="clip")
            if self._searched:
                absent = np.flatnonzero(bins < 0)
                bins[absent] = np.searchsorted(self._inner, chunk[absent], side="right")
            values.take(bins, out=out[start : start + grid.CHUNK], mode="clip")

    def _table_for(self, n: int) -> npt.NDArray[np.int16] | None:
        """Return the table if n scores are better looked up in it than searched for."""
        if n <= _FEW or not 0 < len(self._inner) < _PLACES:
            return None
        if self._table is None:
            self._sought += n
            if self._sought >= _WORTH_A_TABLE:
                self._table = self._make()
        return self._table

    def _make(self) -> npt.NDArray[np.int16]:
        """Make the table on the finest level on which it is small enough, or if edges need it, the next."""
        before = np.nextafter(self._inner, 0.0)
        # All scores below the first edge are alike, and all from the last edge on.
        low, high = float(before[0]), float(self._inner[-1])
        finest = grid.Strip(low, high, grid.MIN_LEVEL).size
        for most in (_PLACES, 2 * _PLACES):
            level = grid.MIN_LEVEL + (finest // most).bit_length()
            at = grid.cells_of(self._inner, level)
            inside = grid.cells_of(before, level) == at
            if not inside.any():
                break
        strip = grid.Strip(low, high, level)
        cells = strip.cells(np.arange(strip.size))
        first = int(cells[0])
        at -= first
        # Each edge adds one to the bins of the cells from its own on, or from the next if it lies inside.
        bins = np.cumsum(np.bincount(at + inside, minlength=int(cells[-1]) - first + 2))
        bins[at[inside]] = -1
        self._strip, self._searched = strip, bool(inside.any())
        # The places in the middle that no score has may get any bin.
        return bins.take(cells - first, mode="clip").astype(np.int16)


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
    def _steps(self) -> _Steps:
        return _Steps(self.edges[1:-1], self.values)

    def __copy__(self) -> Self:
        """Copy without what was worked out from the fields: `model_copy` may give the copy others."""
        copy = super().__copy__()
        copy.__dict__.pop("_steps", None)
        return copy

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
        return self._apply(checks.as_scores(scores), self.weights)

    def _apply(self, scores: Scores, weights: tuple[float, float]) -> Scores:
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
        """Return the probability of one score.

        Raises
        ------
        ValueError
            if it is no number in [0, 1].
        """
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = checks.check_score(score)
        return shift_correction_one(self.base_one(score), self.weights)
