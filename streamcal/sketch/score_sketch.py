"""ScoreSketch: exact label counts on the finest dyadic grid that fits into a bounded number of cells.

It is the uniform collapse of UDDSketch (Epicoco et al. 2020) with labels in its cells, on a grid that is
logarithmically fine near both ends of [0, 1]. It yields uniform-mass edges for any number of bins, the exact
label mean of each bin between such edges, class priors, and score histograms. It also knows which cells hold
one score only, however often: atoms, on which the map varies no further. Its state depends only on the
multiset of events, not on their order, batches or shards. Labels may have weights
(`streamcal.sketch.weighing`). Memory: at most ``max_cells`` cells of 6 to 28 bytes (5 to 20 without labels),
by the largest count and by how many cells hold one score only; and 24 bytes more where a label has a weight.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal.sketch import checks, grid, weighing
from streamcal.sketch.arrays import Cells, Counts, Labels, Scores, Units
from streamcal.sketch.atoms import EMPTY, joined, note, pack_atoms, unpack_atoms
from streamcal.sketch.cells import (
    check_cells,
    count_width,
    pack_numbers,
    run_starts,
    sum_runs,
    unpack_numbers,
)
from streamcal.sketch.decoding import MOST, require, restoring
from streamcal.sketch.weighing import Mass, Weighed

__all__ = ["MIN_MAX_CELLS", "ScoreSketch"]

MIN_MAX_CELLS: Final = 64
"""The smallest ``max_cells``: below it the grid would be coarser than a reliability diagram."""

_MAGIC: Final = b"SCSK"
_FORMAT: Final = 3
_WEIGHTED: Final = 4  # the format where a label has a weight
_HEADER: Final = struct.Struct("<4sBBBIIq")  # magic, format, rows, level, max, cells, n
_CRC: Final = struct.Struct("<I")
_BEYOND: Final = 1 << 31  # a step beyond every cell; so many cells of such steps add up within int64
_WIDEST_TALLY: Final = 1 << 17  # slots; the counters and scores take 3 MiB


_Extra: TypeAlias = tuple[Cells, int, Counts | None]  # cells, their level, and what `_extra` is of these


class ScoreSketch:
    """A mergeable, subtractable summary of scores with or without labels.

    Parameters
    ----------
    max_cells
        how many cells may be occupied before the grid is coarsened, at least 64.
    labelled
        True: each score has a label, and `counts` has two rows (label 0, label 1). False: scores have no
        labels, and `counts` has one row.

    Examples
    --------
    >>> sketch = ScoreSketch()
    >>> sketch.add([0.1, 0.1, 0.9], [0, 1, 1])
    >>> sketch.n, sketch.n_positives, sketch.counts.tolist()
    (3, 2, [[1, 0], [1, 1]])
    """

    __slots__ = ("_cells", "_counts", "_extra", "_level", "_max_cells", "_packed_atoms")

    def __init__(self, max_cells: int = 4096, *, labelled: bool = True) -> None:
        if max_cells < MIN_MAX_CELLS:
            raise ValueError(f"max_cells must be at least {MIN_MAX_CELLS}, got {max_cells!r}")
        self._max_cells = int(max_cells)
        self._level = grid.MIN_LEVEL
        self._cells: Cells = np.empty(0, np.int32)
        self._counts: npt.NDArray[Any] = np.empty((2 if labelled else 1, 0), np.int8)
        self._packed_atoms = b""  # they are asked for seldom
        # What the labels of each cell count for beyond one each, as in `weighing.Mass`: those of labels 0,
        # of labels 1, and the squares of both, int64[3, m]. None: all weights are 1.
        self._extra: Counts | None = None

    @property
    def max_cells(self) -> int:
        """How many cells may be occupied before the grid is coarsened."""
        return self._max_cells

    @property
    def labelled(self) -> bool:
        """Whether each score has a label."""
        return len(self._counts) == 2

    @property
    def level(self) -> int:
        """The level of the grid, from `grid.MIN_LEVEL`; each collapse adds one."""
        return self._level

    @property
    def cells(self) -> Cells:
        """A copy of the occupied cells, int32[m], ascending."""
        return self._cells.copy()

    @property
    def counts(self) -> Counts:
        """A copy of the exact counts per occupied cell, int64[2, m] by label or int64[1, m]."""
        return self._counts.astype(np.int64)

    @property
    def totals(self) -> Counts:
        """Exact number of scores per occupied cell, int64[m]."""
        totals: Counts = self._counts.sum(axis=0, dtype=np.int64)
        return totals

    @property
    def atoms(self) -> Scores:
        """The one score that each cell holds, float64[m]; NaN where it holds several that differ.

        Of scores within 2⁻⁴⁰ of an end that are not 0 or 1, even one counts as several.
        """
        return unpack_atoms(self._packed_atoms, self._cells, self._level)

    @property
    def n(self) -> int:
        """How many scores it holds."""
        return int(self._counts.sum())

    @property
    def n_positives(self) -> int:
        """How many of these scores have label 1; 0 without labels."""
        return int(self._counts[1].sum()) if self.labelled else 0

    @property
    def weighted(self) -> bool:
        """Whether a label has a weight other than 1."""
        return self._extra is not None

    @property
    def weighed(self) -> Weighed:
        """What the labels of each cell count for; their `counts` where no label has a weight."""
        return weighing.weighed(self.counts, self._extra)

    @property
    def mass(self) -> Mass:
        """What all labels together count for beyond one each."""
        return weighing.mass_of(self._extra)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreSketch):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return (
            f"ScoreSketch(n={self.n}, cells={len(self._cells)}/{self._max_cells}, "
            f"level={self._level}, labelled={self.labelled})"
        )

    def add(self, scores: Any, labels: Any = None, weights: Any = None) -> None:
        """Add scores, float[n] in [0, 1]; in a labelled sketch with their labels, [n] of 0 or 1.

        Labels may have weights, [n] from 1/256 to 10,000, which are rounded to units of 1/256; None: all 1.

        Raises
        ------
        ValueError
            if a value is out of range, with its index, if the lengths differ, if labels are missing or not
            expected, or if there are weights without labels; nothing is added then.
        """
        values = checks.as_scores(scores)
        if (labels is not None) != self.labelled:
            raise ValueError(
                "a labelled sketch needs labels" if self.labelled else "this sketch has no labels"
            )
        if labels is None:
            if weights is not None:
                raise ValueError("weights are those of labels, and this sketch has none")
            self.add_checked(values, None)
            return
        classes = checks.as_labels(labels)
        if len(classes) != len(values):
            raise ValueError(f"{len(values)} scores but {len(classes)} labels")
        units = None if weights is None else weighing.as_units(weights, len(classes))
        self.add_checked(values, classes, units)

    def add_checked(self, scores: Scores, labels: Labels | None, units: Units | None = None) -> None:
        """Add scores and labels that are checked already: float64[n], and int8[n] if it is labelled.

        ``units`` are those of the labels' weights, int64[n]; None: all are 1.
        """
        if units is not None or self._extra is not None:
            self._add_weighted(scores, labels, units)
        else:
            self._add(scores, labels)

    def _add_weighted(self, scores: Scores, labels: Labels | None, units: Units | None) -> None:
        before = self._cells, self._level, self._extra
        self._extra = None
        self._add(scores, labels)
        parts = [before]
        if units is not None and labels is not None:
            heavy = units != weighing.ONE
            own, extra = units[heavy], np.zeros((3, int(np.count_nonzero(heavy))), np.int64)
            extra[labels[heavy], np.arange(len(own))] = own - weighing.ONE
            extra[2] = weighing.squares(own) - weighing.ONE
            parts.append((grid.cells_of(scores[heavy], self._level), self._level, extra))
        self._spread(*parts)

    def _add(self, scores: Scores, labels: Labels | None) -> None:
        if self._level > grid.MAX_STRIP_LEVEL:  # only after `at_level`: 64 cells fit at a finer level
            finer = ScoreSketch(self._max_cells, labelled=self.labelled)
            finer._level = grid.MAX_STRIP_LEVEL
            finer._add(scores, labels)
            self.merge(finer)
            return
        if len(scores):
            low, high = float(scores.min()), float(scores.max())
        start = 0
        while start < len(scores):
            strip = grid.Strip(low, high, self._level, self._cells, clips=False)
            # A tally costs a pass over the strip. It pays once the strip is narrow, which it soon is.
            narrow = strip.size <= min(_WIDEST_TALLY, 2 * (len(scores) - start))
            part = slice(start, None if narrow else start + grid.CHUNK)
            add = self._add_by_tally if narrow else self._add_by_sorting
            add(strip, scores[part], None if labels is None else labels[part])
            start = len(scores) if narrow else start + grid.CHUNK

    def _add_by_tally(self, strip: grid.Strip, scores: Scores, labels: Labels | None) -> None:
        """Add checked scores to one counter for each slot and label."""
        rows = len(self._counts)
        counters = np.zeros(rows * strip.size, np.int64)
        by_label = [counters[row::rows] for row in range(rows)]
        held = strip.slots_of(self._cells)
        for counter, count in zip(by_label, self._counts, strict=True):
            counter[held] = count
        atoms = np.full(strip.size, EMPTY)
        atoms[held] = self.atoms
        several = np.isnan(atoms).repeat(rows)  # of these slots, which soon are most, no score is looked at
        for start in range(0, len(scores), grid.CHUNK):
            part = slice(start, start + grid.CHUNK)
            slots = _slots(strip, scores[part], None if labels is None else labels[part])
            np.add.at(counters, slots, 1)  # unlike bincount, needs no second array of counters
            news = np.flatnonzero(~several[slots])
            if len(news):
                mixed = note(atoms, slots[news] // rows, scores[part][news])
                for row in range(rows):
                    several[mixed * rows + row] = True
        occupied = np.flatnonzero(sum(by_label) > 0)
        counts = np.array([counter[occupied] for counter in by_label])
        self._hold(strip.cells(occupied), counts, atoms[occupied])

    def _add_by_sorting(self, strip: grid.Strip, scores: Scores, labels: Labels | None) -> None:
        """Add at most `grid.CHUNK` checked scores on a strip of any size."""
        values = np.sort(scores)
        slots = strip.slots(values)  # ascending, as the scores are
        first = run_starts(slots)
        least, greatest = values[first], values[np.append(first[1:], len(values)) - 1]
        counts = np.diff(first, append=len(values))[np.newaxis]
        if labels is not None:
            positives = np.sort(scores[labels == 1])
            ones = np.diff(np.searchsorted(positives, least), append=len(positives))
            counts = np.stack((counts[0] - ones, ones))
        self._absorb(strip.cells(slots[first]), counts, np.where(least == greatest, least, np.nan))

    def merge(self, other: ScoreSketch) -> None:
        """Add the contents of the other sketch, as if its events had been added here.

        Raises
        ------
        ValueError
            if only one of the two is labelled, or if they differ in ``max_cells``.
        """
        self._check_alike(other)
        parts = (self._cells, self._level, self._extra), (other._cells, other._level, other._extra)
        level = max(self._level, other._level)
        self._coarsen(level)
        self._absorb(other._cells >> np.int32(level - other._level), other._counts, other.atoms)
        self._spread(*parts)

    def subtract(self, other: ScoreSketch) -> None:
        """Remove the contents of a sketch that was merged before.

        The level does not change, and a cell that held several scores counts as holding several.

        Raises
        ------
        ValueError
            if the other sketch is coarser than this one, or holds a score that this one does not; nothing is
            removed then.
        """
        self._check_alike(other)
        if other._level > self._level:
            raise ValueError(
                f"cannot subtract a sketch of level {other._level} from a finer one of level {self._level}"
            )
        cells, counts = sum_runs(other._cells >> np.int32(self._level - other._level), other.counts)
        columns = np.searchsorted(self._cells, cells)
        held = np.append(self._cells, np.int32(-1))[columns] == cells
        if not held.all() or (self._counts[:, columns] < counts).any():
            raise ValueError("cannot subtract scores that were never added")
        left = self.counts
        left[:, columns] -= counts
        occupied = left.any(axis=0)
        parts = [(self._cells, self._level, self._extra)]
        if other._extra is not None:
            parts.append((other._cells, other._level, -other._extra))
        extra = self._spread_over(self._cells, parts)
        if extra is not None and not weighing.fits(left, extra):
            raise ValueError("cannot subtract labels of weights that were never added")
        self._keep(self._cells[occupied], left[:, occupied], self.atoms[occupied])
        self._extra = None if extra is None else extra[:, occupied]

    def with_counts(self, counts: Counts) -> ScoreSketch:
        """Return a sketch whose cells hold other counts, int64[2, m] by label or int64[1, m], of weight 1.

        Raises
        ------
        ValueError
            if they are not so many, or if a cell would be empty.
        """
        if counts.shape != self._counts.shape or (counts < 0).any() or not counts.any(axis=0).all():
            raise ValueError(f"need counts of shape {self._counts.shape}, in no cell 0, got {counts!r}")
        other = self.at_level(self._level)
        other._keep(other._cells, counts, other.atoms)
        other._extra = None
        return other

    def relabel(self, score: float, label: int) -> bool:
        """Put another label, 0 or 1, in the place of one of a score: as if only this one had been added.

        Returns
        -------
        Whether the score's cell has a score with the other label; nothing changes if not.
        """
        cell = grid.cells_of(np.array([score]), self._level)[0]
        at = int(np.searchsorted(self._cells, cell))
        if at == len(self._cells) or self._cells[at] != cell or not self._counts[1 - label, at]:
            return False
        counts = self.counts
        counts[1 - label, at] -= 1
        counts[label, at] += 1
        self._keep(self._cells, counts, self.atoms)
        return True

    def at_level(self, level: int) -> ScoreSketch:
        """Return a copy at this level, or at the sketch's own level if that is coarser."""
        copy = ScoreSketch(self._max_cells, labelled=self.labelled)
        copy._level = self._level
        copy._cells, copy._counts = self._cells.copy(), self._counts.copy()
        copy._packed_atoms = self._packed_atoms
        copy._coarsen(min(max(level, self._level), grid.MAX_LEVEL))
        copy._spread((self._cells, self._level, self._extra))
        return copy

    def to_bytes(self) -> bytes:
        """Return the state as bytes. Equal states give equal bytes, on every machine."""
        header = _HEADER.pack(
            _MAGIC,
            _FORMAT if self._extra is None else _WEIGHTED,
            len(self._counts),
            self._level,
            self._max_cells,
            len(self._cells),
            self.n,
        )
        steps = np.diff(self._cells, prepend=np.int32(0))
        masses = b"" if self._extra is None else weighing.pack_extra(self.counts, self._extra)
        body = header + pack_numbers(steps) + pack_numbers(self._counts.ravel()) + masses + self._packed_atoms
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore a sketch from `to_bytes`. Untrusted bytes are safe.

        Raises
        ------
        DamagedStateError
            if the bytes are not a valid state; the message says what is wrong.
        """
        with restoring("not a sketch"):
            return cls._restored(data)

    @classmethod
    def _restored(cls, data: bytes) -> Self:
        least = _HEADER.size + _CRC.size
        require(len(data) >= least, f"it has at least {least} bytes, got {len(data)}")
        magic, version, rows, level, max_cells, m, n = _HEADER.unpack_from(data)
        require(magic == _MAGIC, f"the bytes begin with {magic!r}, not {_MAGIC!r}")
        formats = _FORMAT, _WEIGHTED
        require(version in formats, f"format {version} is not supported, only {formats[0]} and {formats[1]}")
        checksum = _CRC.unpack_from(data, len(data) - _CRC.size)[0]
        require(
            zlib.crc32(data[: -_CRC.size]) == checksum, "the checksum does not match: its bytes were altered"
        )
        require(rows in (1, 2), f"it counts 1 or 2 kinds of scores, got {rows}")
        sketch = cls(max_cells, labelled=rows == 2)
        steps, rest = unpack_numbers(data[_HEADER.size : -_CRC.size])
        counts, rest = unpack_numbers(rest)
        cells_and_counts = len(steps), len(counts)
        require(cells_and_counts == (m, rows * m), f"{m} cells, with {cells_and_counts} cells and counts")
        places, counts = np.minimum(steps, _BEYOND).cumsum(), counts.reshape(rows, m)
        check_cells(places, level, max_cells)
        cells = places.astype(np.int32)
        # A float: the sum of counts of any size, exact up to `MOST`.
        whole = counts.any(axis=0).all() and counts.sum(dtype=np.float64) == n
        require(whole, "its counts are empty or do not add up")
        require(n <= MOST, f"it holds at most {MOST:,} scores, got {n:,}")
        if version == _WEIGHTED:
            sketch._extra, rest = weighing.unpack_extra(counts, rest)
        sketch._level = level
        sketch._keep(cells, counts, unpack_atoms(rest, cells, level))
        return sketch

    def checked_as(self, like: ScoreSketch) -> Self:
        """Return this sketch, of a state; raise ValueError if it differs from the other in its options."""
        self._check_alike(like)
        return self

    def _check_alike(self, other: ScoreSketch) -> None:
        if (self._max_cells, self.labelled) != (other._max_cells, other.labelled):
            raise ValueError(f"sketches differ in max_cells or labels: {self!r} and {other!r}")

    def _absorb(self, cells: Cells, counts: npt.NDArray[Any], atoms: Scores) -> None:
        """Add counts and the atoms of cells of the sketch's level, in ascending runs."""
        both = np.concatenate((self._cells, cells))
        order = np.argsort(both, kind="stable")  # merges ascending runs
        counts = np.concatenate((self._counts, counts), axis=1, dtype=np.int64)
        self._hold(both[order], counts[:, order], np.concatenate((self.atoms, atoms))[order])

    def _hold(self, cells: Cells, counts: Counts, atoms: Scores) -> None:
        """Replace the contents by these cells, ascending with repetitions; collapse until they fit."""
        self._keep(*joined(cells, counts, atoms))
        if len(self._cells) > self._max_cells:
            self._coarsen(self._level + _levels_to_fit(self._cells, self._max_cells))

    def _coarsen(self, level: int) -> None:
        if level != self._level:
            cells = self._cells >> np.int32(level - self._level)
            atoms, self._level = self.atoms, level
            self._keep(*joined(cells, self.counts, atoms))

    def _spread(self, *parts: _Extra) -> None:
        """Set what labels count for beyond one each, from those parts; the cells must be final."""
        self._extra = self._spread_over(self._cells, parts)

    def _spread_over(self, cells: Cells, parts: Iterable[_Extra]) -> Counts | None:
        """Return the sum of parts over these cells; each part has cells of a level as fine, or finer."""
        total = None
        for own, level, extra in parts:
            if extra is None:
                continue
            if total is None:
                total = np.zeros((3, len(cells)), np.int64)
            columns = np.searchsorted(cells, own >> np.int32(self._level - level))
            for row, more in zip(total, extra, strict=True):
                np.add.at(row, columns, more)
        return total if total is not None and total.any() else None

    def _keep(self, cells: Cells, counts: npt.NDArray[Any], atoms: Scores) -> None:
        """Replace the contents by these cells; their counts in as few bytes as the largest needs."""
        self._cells = cells
        self._counts = counts.astype(f"i{count_width(int(counts.max(initial=0)))}")
        self._packed_atoms = pack_atoms(atoms, self._level)


def _slots(strip: grid.Strip, scores: Scores, labels: Labels | None) -> npt.NDArray[np.int64]:
    """Return the slot of each score; with labels, twice the slot plus the label."""
    slots = strip.slots(scores)
    if labels is not None:
        np.left_shift(slots, 1, out=slots)
        np.add(slots, labels, out=slots)
    return slots


def _levels_to_fit(cells: Cells, max_cells: int) -> int:
    """Return the fewest levels after which at most ``max_cells`` of the ascending cells differ."""
    # Neighbours become equal once all bits in which they differ are shifted out.
    apart = np.frexp((cells[1:] ^ cells[:-1]).astype(np.float64))[1]
    distinct_after = len(cells) - np.cumsum(np.bincount(apart))
    return int(np.flatnonzero(distinct_after <= max_cells)[0])
