"""RecentLabels: the latest labelled scores in their order.

Memory: 4 bytes each, twice as many once one of them has a weight, room for up to 2,048 more, and 13 bytes for
each of at most 512 that wait to be packed: that takes as long for hundreds as for one.
"""

from __future__ import annotations

from array import array
from typing import Final, Self

import msgspec
import numpy as np

from streamcal.sketch import grid
from streamcal.sketch.decoding import require, within
from streamcal.sketch.tally_c import count_sorted
from streamcal.sketch.weighing import ONE, Weighed, check_units, heavy, squares, unit_weights, weighed
from streamcal.values import Cells, Counts, Floats, Labels

__all__ = ["RecentLabels", "RecentLabelsState"]

_WAITING: Final = 512
_LAST: Final = 2 * (grid.LAST_KEY >> grid.MIN_LEVEL) + 1  # the largest cell with its label
_SPARE: Final = 2048  # labels for which there is room behind the packed ones, at most


class RecentLabelsState(msgspec.Struct, omit_defaults=True):
    """The state of `RecentLabels`."""

    packed: Cells
    units: Cells | None = None


class RecentLabels:
    """The latest labels, with the cells of their scores on the finest grid.

    Parameters
    ----------
    size
        number of labels to keep.
    """

    __slots__ = ("_buffer", "_end", "_heavy", "_labels", "_packed", "_scores", "_size", "_units")

    def __init__(self, size: int) -> None:
        self._size = size
        # The cell of each label, with the label as the lowest bit, and room for more behind them.
        self._buffer: Cells = np.empty(0, np.int32)
        self._packed, self._end = self._buffer, 0
        self._scores = array("d")  # of the labels that wait to be packed
        self._labels = bytearray()
        self._heavy: Cells | None = None  # the units of the packed labels, int32; None: all have weight 1
        self._units = array("i")  # of those that wait

    def __len__(self) -> int:
        return len(self._pack())

    def counts(self, length: int) -> tuple[Cells, Counts]:
        """Return the occupied cells of the latest ``length`` labels, and their labels per class and cell.

        Returns
        -------
        int32[m], ascending; int64[2, m].
        """
        latest = np.sort(self._pack()[-length:])
        cells, counts = np.empty(len(latest), np.int32), np.empty((2, len(latest)), np.int64)
        occupied = count_sorted(latest, cells, counts)
        return cells[:occupied], counts[:, :occupied]

    def weighed(self, length: int) -> tuple[Cells, Weighed]:
        """Return the occupied cells of the latest ``length`` labels, and their weighted counts."""
        cells, counts = self.counts(length)
        if self._heavy is None:
            return cells, weighed(counts, None)
        latest, units = self._packed[-length:], self._heavy[-length:].astype(np.int64)
        columns, extra = np.searchsorted(cells, latest >> np.int32(1)), np.zeros((3, len(cells)), np.int64)
        np.add.at(extra, (latest & np.int32(1), columns), units - ONE)
        np.add.at(extra[2], columns, squares(units) - ONE)
        return cells, weighed(counts, extra if extra.any() else None)

    def latest(self, length: int) -> tuple[Floats, Labels, Counts | None]:
        """Return the latest ``length`` labels: scores, float64[m], labels, int8[m], and units of weights.

        The scores are the middles of their cells; the units int64[m], or None if all weights are 1.
        """
        packed = self._pack()
        latest = packed[len(packed) - length :]
        middles = grid.middles(latest >> np.int32(1), grid.MIN_LEVEL)
        units = None
        if self._heavy is not None:
            units = self._heavy[len(packed) - length :].astype(np.int64)
            units = None if (units == ONE).all() else units
        return middles, (latest & np.int32(1)).astype(np.int8), units

    def add(self, scores: Floats, labels: Labels, units: Counts | None = None) -> None:
        """Add checked labels as the latest, float64[k] and int8[k].

        ``units`` are those of their weights, int64[k]; None: all are 1.
        """
        units = unit_weights(len(labels)) if units is None else units
        self._units.frombytes(units[-self._size :].astype(np.int32).tobytes())
        if len(labels) > self._size:
            scores, labels = scores[-self._size :], labels[-self._size :]
        self._scores.frombytes(scores.tobytes())
        self._labels += labels.tobytes()
        if len(self._labels) >= _WAITING:
            self._pack()

    def to_state(self) -> RecentLabelsState:
        """Return the state."""
        return RecentLabelsState(self._pack(), self._heavy)

    def restore(self, state: RecentLabelsState) -> Self:
        """Replace the contents by a state."""
        require(len(state.packed) <= self._size, f"{len(state.packed)} newest labels, at most {self._size}")
        if state.units is not None:
            check_units(state.units.astype(np.int64), len(state.packed))
        self._set(within(state.packed, 0, _LAST, "cells of the newest labels"))
        self._scores, self._labels = array("d"), bytearray()
        self._heavy, self._units = state.units, array("i")
        return self

    def _pack(self) -> Cells:
        """Pack the labels that wait; return all."""
        if self._labels:
            cells = grid.cells_of(np.frombuffer(self._scores), grid.MIN_LEVEL)
            packed = 2 * cells + np.frombuffer(self._labels, np.int8)
            units = np.array(self._units, np.int32)
            self._scores, self._labels, self._units = array("d"), bytearray(), array("i")
            self._keep(packed, units if len(heavy(units)) else None)
        return self._packed

    def _keep(self, later: Cells, units: Cells | None) -> None:
        """Add packed labels with the units of their weights; drop the oldest."""
        if units is not None or self._heavy is not None:
            parts = (self._packed, self._heavy), (later, units)
            columns = [np.full(len(packed), ONE, np.int32) if own is None else own for packed, own in parts]
            both = np.concatenate(columns)[-self._size :]
            self._heavy = None if (both == ONE).all() else both
        end = self._end + len(later)
        if end > len(self._buffer):
            self._set(np.concatenate((self._packed, later))[-self._size :])
            return
        self._buffer[self._end : end] = later
        self._end = end
        self._packed = self._buffer[end - min(len(self._packed) + len(later), self._size) : end]

    def _set(self, packed: Cells) -> None:
        """Set the packed labels, and make room behind them: to move all takes longer than to add a few."""
        self._end = len(packed)
        self._buffer = np.empty(self._end + min(self._end // 4, _SPARE), np.int32)
        self._buffer[: self._end] = packed
        self._packed = self._buffer[: self._end]
