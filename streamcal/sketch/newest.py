"""Newest: the latest labelled scores in their order. Memory: 4 bytes each."""

from __future__ import annotations

from typing import Self

import numpy as np

from streamcal.errors import DamagedStateError
from streamcal.sketch import grid
from streamcal.sketch.arrays import Cells, Counts, Labels, Scores
from streamcal.sketch.cells import run_starts

__all__ = ["Newest"]


class Newest:
    """The latest labels, with the cells of their scores on the finest grid.

    Parameters
    ----------
    size
        how many labels are kept.
    """

    __slots__ = ("_packed", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._packed: Cells = np.empty(0, np.int32)  # the cell, and the label as the lowest bit

    def __len__(self) -> int:
        return len(self._packed)

    def counts(self, length: int) -> tuple[Cells, Counts]:
        """Return the occupied cells of the latest so many labels, and their labels per class and cell.

        Returns
        -------
        int32[m], ascending; int64[2, m].
        """
        latest = np.sort(self._packed[-length:])
        cells = latest >> np.int32(1)
        labels = latest & np.int32(1)
        first = run_starts(cells)
        counts = np.empty((2, len(first)), np.int64)
        np.add.reduceat(1 - labels, first, dtype=np.int64, out=counts[0])
        np.add.reduceat(labels, first, dtype=np.int64, out=counts[1])
        return cells[first], counts

    def latest(self, length: int) -> tuple[Scores, Labels]:
        """Return the latest so many labels, float64[m] and int8[m]; scores are the middles of their cells."""
        latest = self._packed[len(self._packed) - length :]
        middles = grid.left_edges(latest | np.int32(1), grid.MIN_LEVEL - 1)
        return middles, (latest & np.int32(1)).astype(np.int8)

    def add(self, scores: Scores, labels: Labels) -> None:
        """Add checked labels as the latest, float64[k] and int8[k]."""
        scores, labels = scores[-self._size :], labels[-self._size :]
        packed = grid.cells_of(scores, grid.MIN_LEVEL)
        packed <<= np.int32(1)
        packed |= labels
        self._keep(packed)

    def merge(self, other: Self) -> None:
        """Add the labels of the other as later ones."""
        self._keep(other._packed)

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        return self._packed.astype("<i4").tobytes()

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
        self._packed = packed
        return self

    def _keep(self, packed: Cells) -> None:
        self._packed = np.concatenate((self._packed, packed))[-self._size :]
