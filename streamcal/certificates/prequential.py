"""The prequential log likelihood of a stream's labels, at every level of the grid (lemma 15).

Each label is forecast from the labels up to the last scheduled count before it. For any h*, its own
likelihood seldom falls far below that of such forecasts. Nothing is done per label: at a scheduled count, the
likelihood of the labels that came since the one before is that of all labels, less that of the earlier ones.
Memory: 72 bytes for each level, and 32 bytes for each of n^(1/3) bins of n labels.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, Self

import msgspec
import numpy as np

from streamcal.certificates.forecasters import (
    FORECASTERS,
    Forecasters,
    ForecastersState,
    Levels,
    log_likelihoods,
    log_marginal,
)
from streamcal.sketch.decoding import Count, require, within
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Floats

__all__ = ["LEVELS", "MOST_CELLS", "LogLikelihood", "Prequential", "PrequentialState"]

LEVELS: Final = (36, 40, *range(44, 53))
"""Levels that forecasts are kept for. At the last, each halving of the distance to 0 or 1 is a cell."""

MOST_CELLS: Final = 2048
"""Largest number of cells that a certificate needs; a sketch never has fewer later."""

_ROWS: Final = len(LEVELS)
_LEVELS: Final = np.array(LEVELS, np.int32)

_LEAST: Final = -1e300

LogLikelihood = Annotated[float, msgspec.Meta(ge=_LEAST, le=0.0)]


class PrequentialState(msgspec.Struct):
    """The state of a `Prequential`."""

    labels: Count
    opening: Floats
    sums: Floats
    earlier: Floats
    forecasters: ForecastersState | None


class _Known(NamedTuple):
    """Labels so far, at the levels that are needed."""

    sketch: ScoreSketch
    """Sketch of the labels, of at most `MOST_CELLS` cells."""
    rows: slice
    """Slice of `LEVELS` that are not finer than the sketch."""
    labels: Levels
    """Labels at these levels."""

    @classmethod
    def of(cls, sketch: ScoreSketch) -> Self:
        while len(sketch.cells) > MOST_CELLS:
            sketch = sketch.at_level(sketch.level + 1)
        first = int(np.searchsorted(_LEVELS, sketch.level))
        return cls(sketch, slice(first, _ROWS), Levels.of(sketch, _LEVELS[first:]))


class Prequential:
    """Log likelihoods of the forecasters on all labels that were passed to `update`."""

    __slots__ = ("_earlier", "_forecasters", "_opening", "_sums", "labels")

    def __init__(self) -> None:
        self.labels = 0
        """Number of labels scored."""
        self._opening = np.zeros(_ROWS)  # of the labels at the first update, by level
        self._sums = np.zeros((_ROWS, FORECASTERS))  # of all later ones
        self._forecasters: Forecasters | None = None  # fitted to all labels that were scored
        self._earlier = np.zeros((_ROWS, FORECASTERS))  # the log likelihood that they give these labels

    @property
    def due(self) -> int:
        """Number of labels from which on forecasters should be fitted anew: half more than before."""
        return max(1, self.labels + self.labels // 2)

    @property
    def log_likelihoods(self) -> Floats:
        """Log likelihood of the mixture of all forecasters, one for each of `LEVELS`.

        Only values of levels that are not finer than the sketch of the last update are meaningful.
        """
        mixed = np.logaddexp.reduce(self._sums, axis=1) - np.log(FORECASTERS)
        return np.asarray(self._opening + np.minimum(mixed, 0.0))

    def update(self, sketch: ScoreSketch) -> None:
        """Score the labels that came since the last update; the sketch holds them and all before them.

        Later labels are forecast from all of these.
        """
        if sketch.n > self.labels:
            known = _Known.of(sketch)
            self._score(known)
            self._fit(known)

    def score(self, sketch: ScoreSketch) -> None:
        """Score the labels that came since the last update, see `update`; after the first, `fit` follows."""
        if sketch.n > self.labels:
            self._score(_Known.of(sketch))

    def fit(self, sketch: ScoreSketch) -> None:
        """Fit the forecasters of later labels to all scored labels, which the sketch holds."""
        self._fit(_Known.of(sketch))

    def _score(self, known: _Known) -> None:
        sketch, rows, labels = known
        if self._forecasters is None:
            self._opening[rows] = log_marginal(labels)
        else:
            now = log_likelihoods(self._forecasters.at(labels), labels)
            self._sums[rows] += np.minimum(now - self._earlier[rows], 0.0)  # only rounding leads above
            self._earlier[rows] = now
        self.labels = sketch.n

    def _fit(self, known: _Known) -> None:
        sketch, rows, labels = known
        self._forecasters = Forecasters(sketch)
        self._earlier[rows] = log_likelihoods(self._forecasters.at(labels), labels)

    def check(self, sketch: ScoreSketch) -> None:
        """Raise ValueError if a sketch has too few labels to hold all that were scored."""
        known = self.labels <= sketch.n
        require(known, f"forecasts of {self.labels} labels, of which there are {sketch.n}")

    def merge(self, other: Self) -> None:
        """Add the scored labels of another; `fit` must follow."""
        self._opening += other._opening
        self._sums += other._sums
        self.labels += other.labels

    def copy(self) -> Self:
        """Return a copy."""
        copy = type(self)()
        copy.labels, copy._forecasters = self.labels, self._forecasters  # which never change
        copy._opening, copy._sums, copy._earlier = (
            self._opening.copy(),
            self._sums.copy(),
            self._earlier.copy(),
        )
        return copy

    def to_state(self) -> PrequentialState:
        """Return the state."""
        forecasters = None if self._forecasters is None else self._forecasters.to_state()
        return PrequentialState(self.labels, self._opening, self._sums, self._earlier, forecasters)

    def restore(self, state: PrequentialState) -> Self:
        """Replace the state by another."""
        fitted = state.forecasters is not None
        require(fitted == (state.labels > 0), f"forecasts after {state.labels} labels, or none")
        self.labels = state.labels
        self._forecasters = None
        if state.forecasters is not None:
            self._forecasters = Forecasters.from_state(state.forecasters, state.labels)
        opening, sums, earlier = (
            within(values, _LEAST, 0.0, "log likelihoods", _ROWS * columns)
            for values, columns in (
                (state.opening, 1),
                (state.sums, FORECASTERS),
                (state.earlier, FORECASTERS),
            )
        )
        self._opening = opening
        self._sums, self._earlier = (each.reshape(_ROWS, FORECASTERS) for each in (sums, earlier))
        return self
