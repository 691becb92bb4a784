"""The prequential log likelihood of a stream's labels, at every level of the grid (lemma 15).

Each label is forecast from the labels up to the last scheduled count before it. Whatever h* is, its own
likelihood seldom falls far below that of such forecasts. Nothing is done per label: at a scheduled count, the
cells are added up in which labels came since the one before. Memory: a sketch as bytes, and 40 bytes for each
level.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.certificates.forecasters import FORECASTERS, Forecasters, log_likelihoods, log_marginal
from streamcal.errors import DamagedStateError
from streamcal.sketch.cells import coarsen
from streamcal.sketch.decoding import decoded
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["LEVELS", "MOST_CELLS", "LogLikelihood", "Prequential"]

Reals = npt.NDArray[np.float64]

LEVELS: Final = (36, 40, *range(44, 53))
"""The levels that forecasts are kept for. At the last, each halving of the distance to 0 or 1 is a cell."""

MOST_CELLS: Final = 2048
"""At most so many cells are needed for a certificate, and kept: there are never fewer later."""

_ROWS: Final = len(LEVELS)

LogLikelihood = Annotated[float, msgspec.Meta(ge=-1e300, le=0.0)]


class _State(msgspec.Struct):
    cells: bytes | None
    known: bool
    opening: Annotated[list[LogLikelihood], msgspec.Meta(min_length=_ROWS, max_length=_ROWS)]
    sums: Annotated[
        list[LogLikelihood], msgspec.Meta(min_length=_ROWS * FORECASTERS, max_length=_ROWS * FORECASTERS)
    ]


class Prequential:
    """Log likelihoods of the forecasters, of all labels that were shown to `update`."""

    __slots__ = ("_labels", "_opening", "_sums", "cells")

    def __init__(self) -> None:
        self._labels = 0
        self.cells: bytes | None = None
        """The labels so far, as a sketch in bytes; None before there are any."""
        self._opening = np.zeros(_ROWS)  # of the labels at the first update, by level
        self._sums = np.zeros((_ROWS, FORECASTERS))  # of all later ones

    @property
    def labels(self) -> int:
        """How many labels were scored."""
        return self._labels

    @property
    def due(self) -> int:
        """The number of labels from which on forecasters should be fitted anew: half more than before."""
        return max(1, self._labels + self._labels // 2)

    @property
    def log_likelihoods(self) -> Reals:
        """The log likelihood of the mixture of all forecasters, one for each of `LEVELS`.

        Only those of levels that are not finer than the sketch of the last update mean anything.
        """
        mixed = np.logaddexp.reduce(self._sums, axis=1) - np.log(FORECASTERS)
        return np.asarray(self._opening + np.minimum(mixed, 0.0))

    def update(self, sketch: ScoreSketch) -> None:
        """Score the labels that came since the last update; the sketch holds them and all before them.

        Later labels are forecast from all of these.
        """
        if sketch.n == self._labels:
            return
        before = None if self.cells is None else ScoreSketch.from_bytes(self.cells)
        new = sketch.at_level(sketch.level if before is None else max(sketch.level, before.level))
        if before is not None:
            new.subtract(before)
            forecasters = Forecasters(before)
        level, cells, counts = new.level, new.cells, new.counts
        for row, at in enumerate(LEVELS):
            if at >= level:
                cells, counts = coarsen(cells, counts, at - level)
                level = at
                if before is None:
                    self._opening[row] += log_marginal(cells, level, counts)
                else:
                    self._sums[row] += log_likelihoods(forecasters.at(cells, level), counts)
        while len(sketch.cells) > MOST_CELLS:
            sketch = sketch.at_level(sketch.level + 1)
        self.cells, self._labels = sketch.to_bytes(), sketch.n

    def check(self, sketch: ScoreSketch) -> None:
        """Check that a sketch holds all labels that were scored.

        Raises
        ------
        DamagedStateError
            if it does not.
        """
        if self.cells is not None:
            try:
                scored = ScoreSketch.from_bytes(self.cells)
                sketch.at_level(max(sketch.level, scored.level)).subtract(scored)
            except ValueError as error:
                raise DamagedStateError(f"forecasts of labels that there are not: {error}") from None

    def merge(self, other: Self) -> None:
        """Add what another has scored of other labels."""
        self._opening += other._opening
        self._sums += other._sums
        if self.cells is not None and other.cells is not None:
            both = ScoreSketch.from_bytes(self.cells)
            both.merge(ScoreSketch.from_bytes(other.cells))
            self.cells = both.to_bytes()
        else:
            self.cells = self.cells or other.cells
        self._labels += other._labels

    def copy(self) -> Self:
        """Return a copy."""
        copy = type(self)()
        copy.cells, copy._opening, copy._sums = self.cells, self._opening.copy(), self._sums.copy()
        copy._labels = self._labels
        return copy

    def to_bytes(self, known: bytes | None = None) -> bytes:
        """Return the state; equal states give equal bytes. If ``known`` are its cells, they are left out."""
        same = self.cells is not None and self.cells == known
        sums = self._sums.ravel().tolist()
        return msgspec.msgpack.encode(
            _State(None if same else self.cells, same, self._opening.tolist(), sums)
        )

    def restore(self, data: bytes, known: bytes | None = None) -> Self:
        """Replace the state by what `to_bytes` gave with the same ``known``.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        state = decoded(data, _State, "the forecasts of a certificate")
        if state.known and known is None:
            raise DamagedStateError("the forecasts of a certificate lack their cells")
        self.cells = known if state.known else state.cells
        if self.cells is not None:
            scored = ScoreSketch.from_bytes(self.cells)
            if not scored.labelled:
                raise DamagedStateError("the forecasts of a certificate need labels in their cells")
            self._labels = scored.n
        self._opening = np.array(state.opening)
        self._sums = np.array(state.sums).reshape(_ROWS, FORECASTERS)
        return self
