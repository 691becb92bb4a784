"""Counts of labels by cell, sums of them, keys of scores and back, checks, and buffers in front of readers.

An *atom* is a cell of a sketch that holds one score only, however often. A sketch keeps that score for each
cell, NaN where a cell holds several that differ. What is kept depends only on the scores that a cell holds,
not on their order. An atom is stored by its key. Below 2⁻⁴⁰, a score of more than 47 binary digits is not the
one that its key stands for, and counts as several; those of a float32 are.

Compiled where there is a C compiler; `counts_c.pxd` has the types.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from streamcal.base.values import Cells, Counts, Floats, Labels

_memory = np.zeros(1)
_REAL, _BITS = _memory, _memory.view(np.int64)  # a number, and its bits
_LEAST: Final = 2.0**-1022
_TAIL_BITS: Final = (1023 - 40) << 52  # bits of 2⁻⁴⁰
# A multiple of 2⁵², as are then the keys of all powers of 2 from 2⁻⁴⁰ to ½: they are edges of cells.
_TAIL_KEY: Final = 16 << 52
_HALF_KEY: Final = 55 << 52  # as ½ is 39 octaves above 2⁻⁴⁰
_FIRST_KEY: Final = _TAIL_KEY - (982 << 46)  # as _LEAST is so many octaves below 2⁻⁴⁰
_LAST_KEY: Final = 2 * _HALF_KEY - (_TAIL_KEY - (13 << 46))
FIRST_KEY: Final = _FIRST_KEY
"""The key of score 0, and of all below 2⁻¹⁰²², where doubles begin to have fewer digits."""

LAST_KEY: Final = _LAST_KEY
"""The key of score 1, and of 1 − 2⁻⁵³, the double below."""


def key_of(score: float) -> int:
    """Return the key of a checked score, as `streamcal.sketch.grid` has it."""
    _REAL[0] = max(min(score, 1.0 - score), _LEAST)
    key = _BITS[0] - _TAIL_BITS
    key = max(key, key >> 6) + _TAIL_KEY  # below 2⁻⁴⁰, 64 doubles share a key
    # Not as a branch, which the processor would guess wrong for half of the scores.
    return min(key + 2 * (_HALF_KEY - key) * (score > 0.5), _LAST_KEY)  # type: ignore[no-any-return]


def score_of(key: int) -> float:
    """Return the smallest score that has this key, from 0 to `LAST_KEY`, or a larger one."""
    if key <= _FIRST_KEY:
        return 0.0
    above = min(key, 2 * _HALF_KEY - key) - _TAIL_KEY
    _BITS[0] = (above if above >= 0 else 64 * above) + _TAIL_BITS
    distance = _REAL[0]
    if key <= _HALF_KEY:
        return distance  # type: ignore[no-any-return]
    # 1 − distance may round to below the true boundary: the smallest score is then the next float.
    _REAL[0] = 1.0 - distance
    if 1.0 - _REAL[0] > distance:
        _BITS[0] += 1
    return _REAL[0]  # type: ignore[no-any-return]


def left_edges_of(cells: Counts, level: int, edges: Floats) -> None:
    """Put the smallest score of each cell, int64[n], into ``edges``, float64[n]; 1 for those beyond."""
    for i in range(len(cells)):
        edges[i] = score_of(cells[i] << level) if cells[i] <= _LAST_KEY >> level else 1.0


def middle_of(first: int, end: int) -> float:
    """Return a score with a key from ``first`` to below ``end``: in the middle, if there is one.

    There must be a score with such a key. Close to 1 there are fewer scores than keys.
    """
    score = score_of(min((first + end) >> 1, _LAST_KEY))
    if _HALF_KEY < end <= _LAST_KEY and score >= score_of(end):
        return score_of(first)
    return score


def middles_of(cells: Counts, ends: Counts, level: int, middles: Floats) -> None:
    """Put the `middle_of` cells from each of ``cells`` to below ``ends`` into ``middles``; int64[n] each."""
    for i in range(len(cells)):
        middles[i] = middle_of(cells[i] << level, ends[i] << level)


def keys_of(scores: Floats, keys: Counts) -> None:
    """Put the key of each checked score, float64[n], into ``keys``, int64[n]."""
    for i in range(len(scores)):
        keys[i] = key_of(scores[i])


def first_bad_score(scores: Floats) -> int:
    """Return the index of the first number outside [0, 1]; -1 if there is none."""
    inside = True
    for i in range(len(scores)):
        inside &= (scores[i] >= 0.0) & (scores[i] <= 1.0)
    if inside:
        return -1
    i = 0
    while 0.0 <= scores[i] <= 1.0:
        i += 1
    return i


def first_bad_label(labels: Labels) -> int:
    """Return the index of the first number that is neither 0 nor 1; -1 if there is none."""
    bits = 0
    for i in range(len(labels)):
        bits |= labels[i]
    if bits & ~1 == 0:
        return -1
    i = 0
    while labels[i] & ~1 == 0:
        i += 1
    return i


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
        if atom != atom:
            continue
        offset = key_of(atom)
        if _told(offset) == atom:
            bits[i >> 3] |= 128 >> (i & 7)
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
    atoms = np.empty(len(cells))
    first, out, end, inside = cells.astype(np.int64) << level, atoms, size, len(bits) >= size
    for i in range(len(cells) if inside else 0):
        out[i] = _SEVERAL
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


_CLASSES: Final = 2
_EMPTY: Final = -1.0  # in place of the atom of a cell without scores
_SEVERAL: Final = float("nan")
_MULTIPLIER: Final = 0x9E3779B1  # 2³² over the golden ratio, which spreads the cells (Knuth, volume 3, 6.4)
_WORD: Final = 0xFFFFFFFF


class Tally:
    """Cells with their counts and atoms, at most ``max_cells`` of them: one more coarsens the grid first.

    What it holds in the end depends only on what was added, not on the order: a coarser level is taken only
    where the cells so far do not fit, and then all of them do not fit either.

    Parameters
    ----------
    cells, counts, atoms, level
        what it begins with: int32[m] that differ, float64[rows, m], float64[m] and their level. Rows are the
        labels by class; with weights also Σw by class, and Σw².
    max_cells
        how many cells may be occupied, at least 64 and m.
    more
        how many scores or cells are to be added at the most.
    """

    def __init__(
        self, cells: Cells, counts: Floats, atoms: Floats, level: int, max_cells: int, more: int
    ) -> None:
        room = min(max_cells, len(cells) + more)
        self.level = level
        """The level of the cells."""
        self._size, self._room = 0, room
        self._cells, self._counts = np.empty(room, np.int64), np.empty((room, len(counts)))
        self._atoms = np.empty(room)
        bits, every = max(4, (4 * room - 1).bit_length()), (LAST_KEY >> level) + 1
        self._shift = 32 - bits
        # Most often the level is so coarse that each cell can have a slot of its own.
        self._direct = every <= 8 * room
        self._slots = np.empty(every if self._direct else 1 << bits, np.int32)
        self._slots[:] = -1
        self.merge(cells, counts, atoms, level)
        self.appended = False
        """Whether the order of the cells has changed: they are not in that of the beginning any more."""

    def contents(self) -> tuple[Cells, Floats, Floats]:
        """Return the cells, ascending, with their counts, float64[rows, m], and their atoms."""
        size, rows = self._size, self._counts.shape[1]
        order = np.arange(size)
        if self.appended:
            order = np.argsort(np.asarray(self._cells)[:size], kind="stable")
        all_cells, all_counts, all_atoms = np.empty(size, np.int32), np.empty((rows, size)), np.empty(size)
        places, cells, counts, atoms = order, all_cells, all_counts, all_atoms
        for i in range(size):
            place = places[i]
            cells[i], atoms[i] = self._cells[place], self._atoms[place]
            for row in range(rows):
                counts[row, i] = self._counts[place, row]
        return all_cells, all_counts, all_atoms

    def add(self, scores: Floats, labels: Labels, weights: Floats | None = None) -> None:
        """Add checked scores, float64[n], with their labels, int8[n]; without labels, all count as 0.

        ``weights``, float64[n], are added up where there are rows for them; None: all are 1.
        """
        labelled, size, weighted = len(labels) > 0, len(scores), self._counts.shape[1] > _CLASSES
        slots, counts, atoms = self._slots, self._counts, self._atoms
        direct, level = self._direct, self.level
        for i in range(size):
            score = scores[i]
            key = key_of(score)
            place = slots[key >> level] if direct else -1
            if place < 0:
                place = self._place(key)
                while place < 0:
                    self._make_room(scores, i)
                    place = self._place(key)
                direct, level = self._direct, self.level
            label = labels[i] if labelled else 0
            counts[place, label] += 1.0
            if weighted:
                weight = 1.0 if weights is None else weights[i]
                counts[place, _CLASSES + label] += weight
                counts[place, 2 * _CLASSES] += weight * weight
            atom = atoms[place]
            if atom == atom and atom != score:
                atoms[place] = score if atom == _EMPTY else _SEVERAL

    def merge(self, cells: Cells, counts: Floats, atoms: Floats, level: int) -> None:
        """Add cells of any level, int32[m], with their counts, float64[rows, m], and atoms."""
        if level > self.level:
            self.coarsen(level)
        keys = cells.astype(np.int64) << level
        for i in range(len(keys)):
            place = self._place(keys[i])
            while place < 0:
                self.coarsen(self.level + 1)
                place = self._place(keys[i])
            self._join(place, atoms[i])
            for row in range(len(counts)):
                self._counts[place, row] += counts[row, i]

    def coarsen(self, level: int) -> None:
        """Raise the level: cells that become equal are joined."""
        size, up = self._size, level - self.level
        self.level, self._size = level, 0
        self._direct = LAST_KEY >> level < len(self._slots)
        self._slots[:] = -1
        for i in range(size):
            cell = self._cells[i] >> up
            slot = self._slot(cell)
            place = self._slots[slot]
            if place < 0:  # places are taken in turn, so that none is overwritten before it was read
                place = self._take(slot, cell)
                self._atoms[place] = self._atoms[i]
                for row in range(self._counts.shape[1]):
                    self._counts[place, row] = self._counts[i, row]
            else:
                self._join(place, self._atoms[i])
                for row in range(self._counts.shape[1]):
                    self._counts[place, row] += self._counts[i, row]

    def _place(self, key: int) -> int:
        """Return the place of a key's cell, which becomes occupied; −1 if there is no room for it."""
        slot = self._slot(key >> self.level)
        place = self._slots[slot]
        if place < 0 and self._size < self._room:
            place = self._take(slot, key >> self.level)
            self.appended = True
            self._atoms[place] = _EMPTY
            for row in range(self._counts.shape[1]):
                self._counts[place, row] = 0.0
        return place  # type: ignore[no-any-return]

    def _make_room(self, scores: Floats, first: int) -> None:
        """Coarsen to the level at which scores from this index on fit, as many as there are cells."""
        size, end = self._size, min(first + self._room, len(scores))
        keys = np.empty(size + end - first, np.int64)
        own = keys
        for i in range(size):
            own[i] = self._cells[i] << self.level
        for i in range(first, end):
            own[size + i - first] = key_of(scores[i])
        keys.sort()
        apart = keys[1:] ^ keys[:-1]  # the highest bit is the level below that at which both are one cell
        apart.sort()
        self.coarsen(max(self.level + 1, int(apart[-self._room]).bit_length()))

    def _slot(self, cell: int) -> int:
        """Return the slot of a cell in the hash table: the one that has it, or the one to put it into."""
        last = len(self._slots) - 1
        slot = cell if self._direct else ((cell * _MULTIPLIER) & _WORD) >> self._shift
        while self._slots[slot] >= 0 and self._cells[self._slots[slot]] != cell:
            slot = (slot + 1) & last
        return slot

    def _take(self, slot: int, cell: int) -> int:
        """Put a cell into an empty slot; return its place."""
        place = self._size
        self._slots[slot] = place
        self._cells[place] = cell
        self._size += 1
        return place

    def _join(self, place: int, atom: float) -> None:
        """Add the atom of more scores to a cell."""
        own = self._atoms[place]
        if own == _EMPTY:
            self._atoms[place] = atom
        elif own != atom:
            self._atoms[place] = _SEVERAL


def pack_labels(scores: Floats, labels: Labels, level: int, packed: Cells) -> None:
    """Put the cell of each checked score, with its label as the lowest bit, into ``packed``, int32[n]."""
    for i in range(len(scores)):
        packed[i] = 2 * (key_of(scores[i]) >> level) + labels[i]


def count_sorted(packed: Cells) -> tuple[Cells, Floats]:
    """Return the cells of labels, int32[m], ascending, and the labels 0 and 1 in each, float64[2, m].

    ``packed`` has the cell of each label, with the label in the lowest bit, int32[n], ascending.
    """
    n, m = len(packed), 0
    for i in range(n):
        m += i == 0 or packed[i] >> 1 != packed[i - 1] >> 1
    cells, masses = np.empty(m, np.int32), np.zeros((2, m))
    occupied, counts, last = cells, masses, -1
    for i in range(n):
        if i == 0 or packed[i] >> 1 != packed[i - 1] >> 1:
            last += 1
            occupied[last] = packed[i] >> 1
        counts[packed[i] & 1, last] += 1.0
    return cells, masses


AT_ONCE: Final = -1
"""Stand-in for the number of scores observed before a prediction: its label came together with it."""

IN_CALL: Final = -2
"""Stand-in like `AT_ONCE` for a label that came in one call with the label before it: both were predicted
before the call."""

_FEWEST: Final = 16  # that there is memory for at first: of many keys most have few labels
_HEAVY: Final = 64  # memory that is let go when nothing is buffered


class Buffer:
    """Columns of one length that grow at the end and are dropped at the front.

    Parameters
    ----------
    *types
        type of the numbers of each column.
    """

    def __init__(self, *types: Any) -> None:
        self.n = 0
        """Number of rows that came, in the buffer or not."""
        self._types, self._held = types, 0
        self._clear()

    def _part(self, column: int, first: int) -> Any:
        """Return a view of the rows of a column from this place on: do not keep it."""
        return self._columns[column][first : self._held]

    def _put(self, *parts: Any) -> None:
        """Append rows that `n` already counts; values for a column that there is not are left out."""
        end = self._held + len(parts[0])
        if end > self._limit:
            self._widen(end)
        for column, part in zip(self._columns, parts, strict=False):
            column[self._held : end] = part
        self._held = end

    def _drop(self, count: int) -> None:
        """Forget this many rows at the front."""
        kept = [column[count : self._held].copy() for column in self._columns]
        self._held = 0
        if not len(kept[0]) and self._limit > _HEAVY:
            self._clear()
        self._put(*kept)

    def _clear(self) -> None:
        """Forget all rows, and their memory."""
        self._held = self._limit = 0
        self._columns, none = _no_rows(self._types), None  # type: Any, Any
        self._scores = self._labels = self._weights = self._index = none

    def _widen(self, length: int) -> None:
        """Make memory for so many rows, and some more."""
        limit = max(_FEWEST, self._limit + (self._limit >> 1), length)
        longer = [np.empty(limit, kind) for kind in self._types]
        for column, before in zip(longer, self._columns, strict=True):
            column[: self._held] = before[: self._held]
        self._hold(longer)

    def _hold(self, columns: Any) -> None:
        """Take columns as memory: as arrays, and for single rows as views, which are not made anew."""
        self._columns, self._limit = columns, len(columns[0])
        self._scores = columns[0]
        if len(columns) > 1:
            self._labels, self._weights = columns[1:3]
        if len(columns) > 3:
            self._index = columns[3]


_no_rows = cache(lambda types: [np.empty(0, kind) for kind in types])  # columns, which all buffers share


class ScoreBuffer(Buffer):
    """Scores in order of arrival, and their number."""

    def __init__(self, remaining: int) -> None:
        super().__init__(np.float64)
        self.remaining = remaining
        """Number of scores that may still be appended before a reader must read, at least 1."""

    def append(self, score: float) -> bool:
        """Take one checked score; return whether none remains to be appended."""
        if self._held == self._limit:
            self._widen(self._held + 1)
        self._scores[self._held] = score
        self._held += 1
        self.n += 1
        self.remaining -= 1
        return self.remaining == 0

    def extend(self, scores: Floats) -> bool:
        """Take at most `remaining` checked scores, float64[k]; return whether none remains."""
        self._put(scores)
        self.n += len(scores)
        self.remaining -= len(scores)
        return self.remaining == 0

    def _since(self, first: int) -> Any:
        """Return a copy of the buffered scores from this place on."""
        return self._part(0, first).copy()


class LabelBuffer(Buffer):
    """Labels with their scores and weights in order of arrival, by number.

    The columns are scores, labels, weights, and the numbers of the predictions if a reader asks for them.

    Parameters
    ----------
    keeps_index
        whether a reader asks how many scores had been observed at each prediction.
    """

    def __init__(self, keeps_index: bool) -> None:
        super().__init__(np.float64, np.int8, np.float64, *((np.int64,) if keeps_index else ()))
        self.positives = 0
        """Number of labels 1."""
        self._ones = self._total = self._squares = 0.0  # Σw of labels 1 and of all, and Σw²
        self.windowed = False
        """Whether the log is a sliding window: the pane is then checked before every label."""
        self.weighted = False
        """Whether a label had a weight other than 1: labels without a weight are then no fair sample
        either."""
        self.start = 0
        """Number of the first label that is still buffered; `end` if none is."""
        self._keeps_index = keeps_index

    @property
    def end(self) -> int:
        """Number of the next label."""
        return self.start + self._held

    def append(self, score: float, label: int, prediction_index: int, weight: float) -> int:
        """Take one checked label with its weight; return the number of labels."""
        if self._held == self._limit:
            self._widen(self._held + 1)
        self._scores[self._held] = score
        self._labels[self._held] = label
        self._weights[self._held] = weight
        self._ones += label * weight
        self._total += weight
        self._squares += weight * weight
        if weight != 1.0:
            self.weighted = True
        if self._keeps_index:
            self._index[self._held] = prediction_index
        self._held += 1
        self.positives += label
        self.n += 1
        return self.n


def add_sums(
    sums: Floats, bands: Floats, ranges: Floats, forecasts: Floats, labels: Floats, begin: int, end: int
) -> None:
    """Add labels one by one, so that it makes no difference how they come in parts.

    Parameters
    ----------
    sums
        float64[8 (m + 1) + 6 (r + 1) + 1], which are added to. For each band of
        scores: number of labels 0, sum of their scores, number of labels 1, sum of their scores. The same for
        each band of served probabilities. Of half the squared error of the score minus that of the served
        probability, for each range of the most that it could lose: their sum, that of their squares, and that
        of the most. The same by the most that it could gain. Last, the squared errors of the scores.
    bands
        between the bands of forecasts, ascending: float64[m].
    ranges
        between the ranges of what could be lost or gained, ascending: float64[r].
    forecasts, labels
        scores and served probabilities in [0, 1], float64[2, n]; labels, each 0 or 1, float64[n].
    begin, end
        index of the first label and behind the last, 0 ≤ begin ≤ end ≤ n.
    """
    differences = 8 * (len(bands) + 1)
    squares = differences + 6 * (len(ranges) + 1)
    for i in range(begin, end):
        before, after, label = forecasts[0, i], forecasts[1, i], labels[i]
        for side in range(2):
            value = after if side else before
            at = 4 * (side * (len(bands) + 1) + _place(bands, value)) + (2 if label else 0)
            sums[at] += 1.0
            sums[at + 1] += value
        # The label decides which of two values the difference has.
        of_zero = (before - after) * (before + after) / 2.0
        of_one = (after - before) * (2.0 - before - after) / 2.0
        gain = of_one if label else of_zero
        for side in range(2):
            extreme = max(of_zero, of_one) if side else -min(of_zero, of_one)
            at = differences + 3 * (side * (len(ranges) + 1) + _place(ranges, extreme))
            sums[at] += gain
            sums[at + 1] += gain * gain
            sums[at + 2] += extreme
        sums[squares] += (before - label) * (before - label)


def add_labels(sums: Floats, at: Counts, forecasts: Floats, labels: Floats) -> None:
    """Add labels one by one, so that it makes no difference how they come in parts.

    Parameters
    ----------
    sums
        float64[groups, 6], which are added to. For each group: number of labels, sum of the served
        probabilities, sum of the labels, sum of the squares of label − probability about their mean so far,
        and squared errors of scores and of served probabilities.
    at
        group of each label, int64[n].
    forecasts, labels
        scores and served probabilities in [0, 1], float64[2, n]; labels, each 0 or 1, float64[n].
    """
    for i in range(len(at)):
        row, score, forecast, label = at[i], forecasts[0, i], forecasts[1, i], labels[i]
        count = sums[row, 0]
        expected = (sums[row, 2] - sums[row, 1]) / count if count > 0.0 else 0.0
        error = label - forecast
        sums[row, 0] = count + 1.0
        sums[row, 1] += forecast
        sums[row, 2] += label
        sums[row, 3] += (error - expected) * (error - expected)
        sums[row, 4] += (score - label) * (score - label)
        sums[row, 5] += error * error


def _place(edges: Floats, value: float) -> int:
    """Return the number of edges that a value reaches."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if value < edges[middle]:
            high = middle
        else:
            low = middle + 1
    return low
