"""Atoms: the cells of a sketch that hold one score only, however often.

A sketch keeps that score for each cell, NaN where a cell holds several that differ. What is kept depends only
on the scores that a cell holds, not on their order. Scores other than 0 and 1 that share the key of an end of
the grid, those within 2⁻⁴⁰ of it, count as several: an atom is stored by its key.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.sketch import grid
from streamcal.sketch.arrays import Cells, Counts, Scores
from streamcal.sketch.cells import run_starts, sum_runs
from streamcal.sketch.decoding import require

__all__ = ["EMPTY", "joined", "note", "pack_atoms", "unpack_atoms"]

EMPTY: Final = -1.0
"""In place of the score of a cell without scores, see `note`."""


def note(atoms: Scores, slots: npt.NDArray[np.int64], scores: Scores) -> npt.NDArray[np.int64]:
    """Enter more scores into a table of atoms.

    Parameters
    ----------
    atoms
        float64[s], the one score of each slot, `EMPTY` or NaN.
    slots, scores
        int64[k] in [0, s), and float64[k].

    Returns
    -------
    The slots that hold several scores now, some of them more than once.
    """
    empty = atoms[slots] == EMPTY
    atoms[slots[empty]] = scores[empty]  # the last of each slot; the others are compared with it
    mixed: npt.NDArray[np.int64] = slots[atoms[slots] != scores]
    atoms[mixed] = np.nan
    return mixed


def joined(cells: Cells, counts: Counts, atoms: Scores) -> tuple[Cells, Counts, Scores]:
    """Join equal cells: add up their counts; they hold one score if all of them hold that score.

    Parameters
    ----------
    cells
        int32[m], ascending.
    counts, atoms
        int64[..., m] and float64[m].
    """
    distinct, counts = sum_runs(cells, counts)
    if len(distinct) < len(cells):
        first = run_starts(cells)
        least, greatest = np.minimum.reduceat(atoms, first), np.maximum.reduceat(atoms, first)  # NaN wins
        atoms = np.where(least == greatest, least, np.nan)
    return distinct, counts, atoms


def pack_atoms(atoms: Scores, level: int) -> bytes:
    """Return them as bytes: a bit for each cell, and of each atom where in its cell it lies, 4 to 8 bytes.

    Those that their key does not tell are left out.
    """
    single = atoms == atoms  # not NaN
    if not single.any():  # as in most full sketches
        return bytes(-(-len(atoms) // 8))
    single = (np.abs(atoms - 0.5) < 0.5 - grid.END) | (atoms == 0.0) | (atoms == 1.0)
    offsets = grid.keys_of(atoms[single]) & ((1 << level) - 1)
    places = offsets.astype("<i8").view(np.uint8).reshape(-1, 8)[:, : _width(level)]
    return np.packbits(single).tobytes() + places.tobytes()


def unpack_atoms(data: bytes, cells: Cells, level: int) -> Scores:
    """Return the atoms of these cells, int32[m], from `pack_atoms`; −0.0 has become the 0.0 that it equals.

    Raises ValueError if the bytes do not hold them.
    """
    if data == bytes(-(-len(cells) // 8)):
        return np.full(len(cells), np.nan)
    flags, width = data[: -(-len(cells) // 8)], _width(level)
    single = np.unpackbits(np.frombuffer(flags, np.uint8), count=len(cells)).astype(bool)
    places = np.frombuffer(data[len(flags) :], np.uint8)
    whole = np.packbits(single).tobytes() == flags and len(places) == width * np.count_nonzero(single)
    require(whole, f"{len(data)} bytes do not hold the atoms of {len(cells)} cells")
    offsets = np.zeros((len(places) // width, 8), np.uint8)
    offsets[:, :width] = places.reshape(-1, width)
    keys = (cells[single].astype(np.int64) << level) + offsets.view("<i8").ravel().astype(np.int64)
    inside = (keys >> level == cells[single]) & (keys <= grid.LAST_KEY)
    require(inside.all(), "the atoms of a sketch lie outside their cells")
    atoms = np.full(len(cells), np.nan)
    atoms[single] = np.where(keys == grid.LAST_KEY, 1.0, grid.left_edges(keys, 0))
    return atoms


def _width(level: int) -> int:
    """Return how many bytes a place in a cell needs."""
    return -(-level // 8)
