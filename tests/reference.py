"""The engine's arithmetic in its plainest form: what the fast paths must equal to the last bit.

One pass after the other, arrays of any length at once, a search for every bin: nothing here is tuned.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamcal import RecalibrationMap, ScoreSketch
from streamcal.maps.shift import shift_correction
from streamcal.sketch import grid
from streamcal.sketch.counts_c import pack_atoms

__all__ = ["cells_of", "predict", "sketch_of"]

Floats = npt.NDArray[np.float64]

_TAIL_BITS = (1023 - 40) << 52  # of 2⁻⁴⁰, whose key is 16·2⁵²


def cells_of(scores: Floats, level: int) -> npt.NDArray[np.int32]:
    """`streamcal.sketch.grid.cells_of` by its definition."""
    nearer = np.maximum(np.minimum(scores, 1.0 - scores), 2.0**-1022)
    above = nearer.view(np.int64) - _TAIL_BITS
    keys = (16 << 52) + np.where(above < 0, above // 64, above)
    keys = np.where(scores < 0.5, keys, (110 << 52) - keys)
    return (np.minimum(keys, grid.LAST_KEY) >> level).astype(np.int32)


def sketch_of(scores: Floats, labels: npt.NDArray[np.int8] | None, max_cells: int) -> ScoreSketch:
    """The sketch of these events: all counted on the finest grid, then collapsed level by level."""
    level = grid.MIN_LEVEL
    cells, places = np.unique(cells_of(scores, level), return_inverse=True)
    rows = [np.ones(len(scores), bool)] if labels is None else [labels == 0, labels == 1]
    counts = np.array([np.bincount(places[row], minlength=len(cells)) for row in rows], np.int64)
    while len(cells) > max_cells:
        level += 1
        cells, places = np.unique(cells >> 1, return_inverse=True)
        coarser = np.zeros((len(rows), len(cells)), np.int64)
        for old, new in zip(counts, coarser, strict=True):
            np.add.at(new, places, old)
        counts = coarser
    sketch = ScoreSketch(max_cells, labelled=labels is not None)
    sketch._level, sketch._cells, sketch._counts = level, cells, counts
    at = cells_of(scores, level)
    atoms = np.array([_atom(scores[at == cell]) for cell in cells], np.float64)
    sketch._packed_atoms = pack_atoms(atoms, level)
    return sketch


def _atom(scores: Floats) -> float:
    """The one score among these, if there is one and its key tells it from 0 and 1; else NaN."""
    score = float(scores[0]) + 0.0
    told = score == 1.0 or (
        score < 1.0 - 2.0**-53 and grid.left_edges(grid.keys_of(scores[:1]), 0)[0] == score
    )
    return score if told and (scores == score).all() else np.nan


def predict(recalibration: RecalibrationMap, scores: Floats) -> Floats:
    """`RecalibrationMap.predict_many` by its definition."""
    if recalibration.knots:
        inside = np.clip(scores, 2.0**-40, 1.0 - 2.0**-40)
        exponents = np.interp(np.log(inside / (1.0 - inside)), recalibration.knots, recalibration.log_odds)
        return shift_correction(1.0 / (1.0 + np.exp(-exponents)), recalibration.weights)
    if not recalibration.values:
        return shift_correction(scores, recalibration.weights)
    values = shift_correction(np.asarray(recalibration.values), recalibration.weights)
    return values[np.searchsorted(np.asarray(recalibration.edges[1:-1]), scores, side="right")]
