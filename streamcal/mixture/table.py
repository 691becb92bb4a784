"""Tabulating functions of the score as one step map, on places that fit the grid and the scores seen.

The places are the union of fixed ones, an eighth of an octave wide or less from 2⁻¹² to 1 − 2⁻¹², of
quantiles of the scores, and of the edges of the uniform-mass maps that are to be exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.maps import binning
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.fits import Floats, Points, Snapshot, forecasts
from streamcal.sketch import grid

__all__ = ["Table", "choose_places", "quantile_edges"]

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]

QUANTILES: Final = 128
"""How many places of equal mass there are."""

_OCTAVE: Final = 1 << (52 - grid.MIN_LEVEL)  # cells of the finest grid
_OCTAVES: Final = 39  # from 2⁻⁴⁰ to ½
_LAST: Final = 2 * _OCTAVES * _OCTAVE  # the cell of score 1
_MOST_EDGES: Final = 256  # of one map


def _fixed_places() -> Cells:
    """Return 2 to 16 places an octave near ½, 8 down to 2⁻¹², and one an octave beyond."""
    below = [
        octave * _OCTAVE + part * _OCTAVE // parts
        for octave in range(_OCTAVES)
        for parts in [16 if octave >= _OCTAVES - 3 else 8 if octave >= _OCTAVES - 11 else 1]
        for part in range(parts)
    ]
    lower = np.array(below[1:])
    return np.concatenate((lower, [_LAST // 2], _LAST - lower[::-1])).astype(np.int32)


_FIXED: Final = _fixed_places()


def quantile_edges(cells: Cells, level: int, totals: Counts) -> Cells:
    """Return edges of places of near-equal mass, in cells of the finest grid, for counts, int64[m]."""
    occupied = np.flatnonzero(totals)
    splits = binning.uniform_mass(totals[occupied], QUANTILES)
    ends = cells[occupied[splits[1:-1] - 1]] + np.int32(1)
    return ends << np.int32(level - grid.MIN_LEVEL)


def choose_places(edges: Sequence[Cells]) -> Cells:
    """Return the left ends of the places, int32[p] in cells of the finest grid, ascending from 0.

    Parameters
    ----------
    edges
        what the fixed places are to be cut by, in cells of the finest grid; of more than 256 every second one
        is left out until there are no more.
    """
    kept = [part[:: 1 + (len(part) - 1) // _MOST_EDGES] if len(part) else part for part in edges]
    places = np.unique(np.concatenate((np.zeros(1, np.int32), _FIXED, *kept)))
    # Close to 1 there are more cells than scores.
    left = grid.left_edges(places, grid.MIN_LEVEL)
    return places[np.concatenate(([True], left[1:] > left[:-1]))]


class Table:
    """What every candidate says at every place, kept up to date by parts.

    Parameters
    ----------
    places
        their left ends, int32[p] in cells of the finest grid, strictly ascending from 0.
    """

    __slots__ = ("_edges", "_filled", "_points", "places", "values")

    def __init__(self, places: Cells) -> None:
        self.places = places
        """The left ends of the places."""
        middles = places + np.append(places[1:], np.int32(_LAST))  # in halves of cells
        self._points = Points.of(grid.left_edges(middles, grid.MIN_LEVEL - 1))
        self._edges = (*grid.left_edges(places, grid.MIN_LEVEL).tolist(), 1.0)
        self._filled: Snapshot | None = None
        self.values: Floats = np.empty((0, len(places)))
        """float64[K, p], as of the last `fill`, in the middle of every place."""

    def fill(self, snapshot: Snapshot) -> None:
        """Take on the candidates of a snapshot."""
        before = None if self._filled is None else (self._filled, self.values)
        self.values, self._filled = forecasts(snapshot, self._points, before), snapshot

    def at(self, cells: Cells) -> Floats:
        """Return the values in the places of cells of the finest grid, int32[n]: float64[K, n]."""
        return self.values.take(np.searchsorted(self.places, cells, side="right") - 1, axis=1)

    def map(self, weights: Floats) -> RecalibrationMap:
        """Return the candidates mixed with weights, float64[K] with sum 1, as one map of version 0."""
        mixed = np.einsum("k,kp->p", weights[: len(self.values)], self.values)
        # Rounding may lead out of [0, 1] by an ulp; otherwise all that the constructor checks holds.
        values = tuple(np.clip(mixed, 0.0, 1.0).tolist())
        return RecalibrationMap.model_construct(
            version=0, edges=self._edges, values=values, weights=(1.0, 1.0)
        )
