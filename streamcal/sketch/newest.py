"""Newest: the latest labelled scores in their order.

Memory: 4 bytes each, and 9 bytes for each of at most 512 that wait to be packed: that takes as long for
hundreds as for one.
"""

from __future__ import annotations

from array import array
from typing import Final, Self

import numpy as np

from streamcal.errors import DamagedStateError
from streamcal.sketch import grid
from streamcal.sketch.arrays import Cells, Counts, Labels, Scores
from streamcal.sketch.cells import run_starts

__all__ = ["Newest"]

_WAITING: Final = 512


class Newest:
    """The latest labels, with the cells of their scores on the finest grid.

    Parameters
    ----------
    size
        how many labels are kept.
    """

    __slots__ = ("_labels", "_packed", "_scores", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._packed: Cells = np.empty(0, np.int32)  # the cell, and the label as the lowest bit
        self._scores = array("d")  # of the labels that wait to be packed
        self._labels = bytearray()

    def __len__(self) -> int:
        return len(self._pack())

    def counts(self, length: int) -> tuple[Cells, Counts]:
        """Return the occupied cells of the latest so many labels, and their labels per class and cell.

        Returns
        -------
        int32[m], ascending; int64[2, m].
        """
        latest = np.sort(self._pack()[-length:])
        cells = latest >> np.int32(1)
        labels = latest & np.int32(1)
        first = run_starts(cells)
        counts = np.empty((2, len(first)), np.int64)
        counts[1] = labels if len(first) == len(cells) else np.add.reduceat(labels, first)
        counts[0, :-1] = first[1:]
        counts[0, -1] = len(cells)
        counts[0] -= first
        counts[0] -= counts[1]
        return cells[first], counts

    def latest(self, length: int) -> tuple[Scores, Labels]:
        """Return the latest so many labels, float64[m] and int8[m]; scores are the middles of their cells."""
        packed = self._pack()
        latest = packed[len(packed) - length :]
        middles = grid.left_edges(latest | np.int32(1), grid.MIN_LEVEL - 1)
        return middles, (latest & np.int32(1)).astype(np.int8)

    def add(self, scores: Scores, labels: Labels) -> None:
        """Add checked labels as the latest, float64[k] and int8[k]."""
        self._scores.frombytes(scores[-self._size :].tobytes())
        self._labels += labels[-self._size :].tobytes()
        if len(self._labels) >= _WAITING:
            self._pack()

    def merge(self, other: Self) -> None:
        """Add the labels of the other as later ones."""
        self._keep(self._pack(), other._pack())

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        return self._pack().astype("<i4").tobytes()

    def restore(self, data: bytes) -> Self:
        """Replace the contents by what `to_bytes` gave.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        if len(data) % 4 or len(data) > 4 * self._size:
            raise DamagedStateError(f"the newest labels, at most {self._size}, in {len(data)} bytes")
        packed = np.frombuffer(data, "<i4").astype(np.int32)
        if ((packed < 0) | (packed >> 1 > grid.LAST_KEY >> grid.MIN_LEVEL)).any():
            raise DamagedStateError("the newest labels have cells that do not exist")
        self._packed, self._scores, self._labels = packed, array("d"), bytearray()
        return self

    def _pack(self) -> Cells:
        """Pack the labels that wait; return all."""
        if self._labels:
            packed = grid.cells_of(np.array(self._scores), grid.MIN_LEVEL)
            packed <<= np.int32(1)
            packed |= np.array(self._labels)
            self._scores, self._labels = array("d"), bytearray()
            self._keep(self._packed, packed)
        return self._packed

    def _keep(self, earlier: Cells, later: Cells) -> None:
        self._packed = np.concatenate((earlier, later))[-self._size :]
