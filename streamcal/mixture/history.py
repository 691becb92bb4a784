"""History: the latest scores of a stream, counted in panes.

A pane is a run of consecutive predictions. It holds how their scores spread over the cells of a dyadic grid.

Memory: 4 bytes per cell and pane, with at most `MAX_CELLS` cells; about 60 panes for a million predictions.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.base.values import NO_CELLS, Cells, Counts, Floats
from streamcal.mixture.adwin import change_point, grouped
from streamcal.sketch import grid
from streamcal.sketch.cells import coarsen
from streamcal.sketch.decoding import Count, Part

BLOCK: Final = 64
"""Number of scores in a block: a tracker takes scores by block, and tests for a change after each."""

MAX_CELLS: Final = 256
"""Number of cells that may be occupied before the grid is coarsened."""

_FINEST: Final = 16  # predictions in a new pane: the precision to which a recent change is located
_LONGEST: Final = 1 << 30  # predictions in a pane: counts per cell are int32
_DELTA: Final = 0.05  # nominal, see `adwin`; measured: less than one false alarm in ten million predictions


class History(Part):
    """Scores of the latest predictions, in panes at most a quarter as long as everything newer.

    So a change can be located. Its fields are its state.
    """

    observed: Count = 0
    """Number of scores observed, including forgotten ones."""
    level: grid.Level = grid.MIN_LEVEL
    """Level of the grid."""
    cells: Cells = NO_CELLS
    """Cells, int32[m], ascending; a new array whenever they change."""
    counts: Cells = NO_CELLS
    """Scores per pane, the oldest first, and cell, int32[J, m]."""

    def __post_init__(self) -> None:
        m = len(self.cells)  # one row in a state
        self.counts = self.counts.reshape(self.counts.size // max(m, 1), m)

    @property
    def sizes(self) -> Counts:
        """Number of scores in each pane, int64[J], oldest pane first."""
        sizes: Counts = self.counts.sum(axis=1, dtype=np.int64)
        return sizes

    @property
    def masses(self) -> Counts:
        """Number of scores in each cell, int64[m]."""
        masses: Counts = self.counts.sum(axis=0, dtype=np.int64)
        return masses

    @property
    def n(self) -> int:
        """Number of scores in the panes."""
        return int(self.counts.sum(dtype=np.int64))

    def observe(self, scores: Floats) -> None:
        """Add the scores of the next predictions, float64[n] in [0, 1]."""
        if not len(scores):
            return
        cells = grid.cells_of(scores, self.level)
        if not np.isin(cells, self.cells).all():
            self._add_cells(cells)
            cells = grid.cells_of(scores, self.level)
        m, panes = len(self.cells), np.arange(len(scores)) // _FINEST
        places = panes * m + self.cells.searchsorted(cells)
        spread = np.bincount(places, minlength=(int(panes[-1]) + 1) * m)
        self.counts = np.concatenate((self.counts, spread.reshape(-1, m).astype(np.int32)))
        self.observed += len(scores)

    def compact(self) -> None:
        """Merge neighbouring panes as far as allowed."""
        starts = grouped(self.sizes.tolist(), _FINEST, _LONGEST)
        if len(starts) < len(self.counts):
            self.counts = np.add.reduceat(self.counts, starts, axis=0, dtype=np.int32)

    def drop(self, panes: int) -> None:
        """Forget this many panes, the oldest."""
        self.counts = self.counts[panes:]

    def change(self, values: Floats) -> int:
        """Return the number of panes before the last change of the scores' mean value; 0 if there is none.

        Parameters
        ----------
        values
            float64[m] in [0, 1]: the value of a score in each cell.
        """
        sums = self.counts.astype(np.float64) @ np.stack((values, values * values), axis=1)
        return change_point(self.sizes, sums[:, 0], sums[:, 1], _DELTA)

    def _add_cells(self, cells: Cells) -> None:
        """Make a column for each of these cells of this level; coarsen the grid until all fit."""
        used = self.counts.any(axis=0)
        held = self.cells[used]
        both = np.union1d(held, cells)
        counts = np.zeros((len(self.counts), len(both)), np.int32)
        counts[:, both.searchsorted(held)] = self.counts[:, used]
        self.cells, self.counts = both, counts
        while len(self.cells) > MAX_CELLS:
            self._coarsen(self.level + 1)

    def _coarsen(self, level: int) -> None:
        self.cells, self.counts = coarsen(self.cells, self.counts, level - self.level)
        self.level = level
