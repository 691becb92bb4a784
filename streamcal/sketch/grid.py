"""The dyadic grid: an exact, monotone integer key for each score in [0, 1], and cells of keys.

The key of a score ``z`` from 2⁻⁴⁰ to ½ is its IEEE-754 bits, up to a constant. Below 2⁻⁴⁰, 64 neighbours
share a key, so that a thousand octaves, down to where doubles end, take the room of 16. From ½ up, the key
mirrors that of ``1 − z``, which is exact there by Sterbenz' lemma; doubles end at 2⁻⁵³ there.
The cell is ``key >> level``: cells get logarithmically finer towards 0 and towards 1. Each cell, and so each
bin made of cells, is closed on the left and open on the right; the last cell also contains 1. No score is in
the cells before that of 0.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
import numpy as np

from streamcal.base.values import Cells, Counts, Floats
from streamcal.sketch import counts_c
from streamcal.sketch.counts_c import FIRST_KEY, LAST_KEY

__all__ = [
    "CHUNK",
    "FIRST_KEY",
    "LAST_KEY",
    "MAX_LEVEL",
    "MIN_LEVEL",
    "Level",
    "cells_of",
    "keys_of",
    "lasting_level",
    "left_edges",
    "middles",
]

MIN_LEVEL: Final = 32
"""The finest level: 2²⁰ cells for each halving of the distance to 0 or to 1, and 2¹⁴ below 2⁻⁴⁰."""

MAX_LEVEL: Final = 58
"""The coarsest level: two cells."""

Level: TypeAlias = Annotated[int, msgspec.Meta(ge=MIN_LEVEL, le=MAX_LEVEL)]

CHUNK: Final = 32_768
"""Number of scores to process at a time: their buffers fit into the second-level cache of a core."""


def keys_of(scores: Floats) -> Counts:
    """Return the key of each score.

    Parameters
    ----------
    scores
        float64[n], each in [0, 1], not checked here: see `checks.as_scores`.

    Returns
    -------
    int64[n], each in [`FIRST_KEY`, `LAST_KEY`], non-decreasing in the score.
    """
    keys = np.empty(len(scores), np.int64)
    counts_c.keys_of(scores, keys)
    return keys


def cells_of(scores: Floats, level: int) -> Cells:
    """Return the cell of each score, int32[n]; see `keys_of`, and levels from `MIN_LEVEL` to `MAX_LEVEL`."""
    cells: Cells = (keys_of(scores) >> level).astype(np.int32)
    return cells


def lasting_level(max_cells: int) -> int:
    """Return the finest level with fewer cells than ``max_cells``: added scores make no sketch coarser."""
    level = MIN_LEVEL
    while LAST_KEY >> level >= max_cells:
        level += 1
    return level


def left_edges(cells: Cells | Counts, level: int) -> Floats:
    """Return the smallest score of each cell: float64[m], 0 up to that of 0, 1 for cells after the last.

    Of a cell without scores, it is the next score.

    At level 0 the cells are keys, and this is the score of each.

    The edges are exact: ``cells_of(z) >= cell`` if and only if ``z >= left_edges(cell)``, for a float64 score
    z.
    """
    edges = np.empty(len(cells))
    counts_c.left_edges_of(cells.astype(np.int64), level, edges)
    return edges


def middles(cells: Cells | Counts, level: int, ends: Cells | Counts | None = None) -> Floats:
    """Return a score in the middle of each cell, float64[m]; the cell must have scores.

    ``ends`` are the cells before which others end that begin with ``cells``, int[m]; None: each is one cell.
    """
    out, first = np.empty(len(cells)), cells.astype(np.int64)
    counts_c.middles_of(first, first + 1 if ends is None else ends.astype(np.int64), level, out)
    return out
