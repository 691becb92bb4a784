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

__all__ = ["LEVELS", "Prequential"]

Reals = npt.NDArray[np.float64]

LEVELS: Final = (36, 40, *range(44, 53))
"""The levels that forecasts are kept for. At the last, each halving of the distance to 0 or 1 is a cell."""

_ROWS: Final = len(LEVELS)

LogLikelihood = Annotated[float, msgspec.Meta(ge=-1e300, le=0.0)]


class _State(msgspec.Struct):
    cells: bytes | None
    opening: Annotated[list[LogLikelihood], msgspec.Meta(min_length=_ROWS, max_length=_ROWS)]
    sums: Annotated[
        list[LogLikelihood], msgspec.Meta(min_length=_ROWS * FORECASTERS, max_length=_ROWS * FORECASTERS)
    ]


class Prequential:
    """Log likelihoods of the forecasters, of all labels that were shown to `update`."""

    __slots__ = ("_cells", "_opening", "_sums")

    def __init__(self) -> None:
        self._cells: bytes | None = None  # the labels so far, as a sketch; None before there are any
        self._opening = np.zeros(_ROWS)  # of the labels at the first update, by level
        self._sums = np.zeros((_ROWS, FORECASTERS))  # of all later ones

    @property
    def log_likelihoods(self) -> Reals:
        """The log likelihood of the mixture of all forecasters, one for each of `LEVELS`.

        Only those of levels that are not finer than the sketch of the last update mean anything.
        """
        mixed = np.logaddexp.reduce(self._sums, axis=1) - np.log(FORECASTERS)
        return np.asarray(self._opening + np.minimum(mixed, 0.0))

    def update(self, sketch: ScoreSketch) -> None:
        """Score the labels that came since the last update; the sketch holds them and all before them."""
        before = None if self._cells is None else ScoreSketch.from_bytes(self._cells)
        new = sketch.at_level(sketch.level)
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
        self._cells = sketch.to_bytes()

    def merge(self, other: Self, sketch: ScoreSketch) -> None:
        """Add what another has scored of other labels; the sketch holds the labels of both, all scored."""
        self._opening += other._opening
        self._sums += other._sums
        self._cells = sketch.to_bytes() if sketch.n else None

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        return msgspec.msgpack.encode(
            _State(self._cells, self._opening.tolist(), self._sums.ravel().tolist())
        )

    def restore(self, data: bytes) -> Self:
        """Replace the state by what `to_bytes` gave.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        state = decoded(data, _State, "the forecasts of a certificate")
        if state.cells is not None and not ScoreSketch.from_bytes(state.cells).labelled:
            raise DamagedStateError("the forecasts of a certificate need labels in their cells")
        self._cells = state.cells
        self._opening = np.array(state.opening)
        self._sums = np.array(state.sums).reshape(_ROWS, FORECASTERS)
        return self
