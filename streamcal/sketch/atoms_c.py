"""Atoms: the cells of a sketch that hold one score only, however often.

A sketch keeps that score for each cell, NaN where a cell holds several that differ. What is kept depends only
on the scores that a cell holds, not on their order. An atom is stored by its key. Below 2⁻⁴⁰, a score of more
than 47 binary digits is not the one that its key stands for, and counts as several; those of a float32 are.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.sketch.keys_c import LAST_KEY, key_of, score_of
from streamcal.values import Cells, Floats

__all__ = ["pack_atoms", "unpack_atoms"]

_LAST_KEY: Final = LAST_KEY


def pack_atoms(atoms: Floats, level: int) -> bytes:
    """Return them as bytes: a bit for each cell, and of each atom where in its cell it lies, 4 to 8 bytes.

    Those that their key does not tell are left out.
    """
    width, packed = _width(level), 0
    flags = np.zeros((len(atoms) + 7) // 8, np.uint8)
    places = np.empty(width * len(atoms), np.uint8)
    bits, offsets = flags, places
    for i in range(len(atoms)):
        atom = atoms[i]
        if atom == atom and _told(key_of(atom)) == atom:
            bits[i >> 3] |= 128 >> (i & 7)
            offset = key_of(atom)
            for _ in range(width):
                offsets[packed] = offset & 255
                offset >>= 8
                packed += 1
            offsets[packed - 1] &= 255 >> (8 * width - level)
    return flags.tobytes() + places[:packed].tobytes()


def unpack_atoms(data: bytes, cells: Cells, level: int) -> Floats:
    """Return the atoms of these cells, int32[m], from `pack_atoms`; −0.0 has become the 0.0 that it equals.

    Raises
    ------
    ValueError
        if the bytes do not hold them.
    """
    bits, width, size = data, _width(level), (len(cells) + 7) // 8
    atoms = np.full(len(cells), np.nan)
    first, out, end, inside = cells.astype(np.int64) << level, atoms, size, len(bits) >= size
    for i in range(len(cells) if inside else 0):
        if bits[i >> 3] & (128 >> (i & 7)):
            end += width
            inside = inside and end <= len(bits)
            offset = 0
            for k in range(width if inside else 0):
                offset = (offset << 8) | bits[end - 1 - k]
            key = first[i] | offset
            inside = inside and offset >> level == 0 and key <= _LAST_KEY
            out[i] = _told(key)
    if not inside or end != len(bits) or (len(cells) & 7 and bits[size - 1] & (255 >> (len(cells) & 7))):
        raise ValueError(f"{len(data)} bytes do not hold the atoms of {len(cells)} cells")
    return atoms


def _told(key: int) -> float:
    """Return the score that a key stands for."""
    return 1.0 if key >= _LAST_KEY else score_of(key)


def _width(level: int) -> int:
    """Return how many bytes a place in a cell needs."""
    return (level + 7) // 8
