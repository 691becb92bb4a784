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
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from streamcal.sketch import checks, grid, weighing
from streamcal.sketch.cells import (
    check_cells,
    count_width,
    pack_numbers,
    sum_runs,
    unpack_numbers,
)
from streamcal.sketch.counts_c import Tally, pack_atoms, unpack_atoms
from streamcal.sketch.decoding import MOST, require, restoring
from streamcal.sketch.weighing import Mass, Weighed
from streamcal.values import Cells, Counts, Floats, Labels

__all__ = ["MAX_CELLS", "MIN_MAX_CELLS", "ScoreSketch"]

MAX_CELLS: Final = 4096
"""``max_cells`` of the sketches of an engine: enough for 10⁷ labels."""

MIN_MAX_CELLS: Final = 64
"""The smallest ``max_cells``: below it the grid would be coarser than a reliability diagram."""

_MAGIC: Final = b"SCSK"
_FORMAT: Final = 3
_WEIGHTED: Final = 4  # the format where a label has a weight
_HEADER: Final = struct.Struct("<4sBBBIIq")  # magic, format, rows, level, max, cells, n
_CRC: Final = struct.Struct("<I")
_BEYOND: Final = 1 << 31  # a step beyond every cell; so many cells of such steps add up within int64

_Extra: TypeAlias = tuple[Cells, int, Counts | None]  # cells, their level, and what `_extra` is of these


class ScoreSketch:
    """A mergeable, subtractable summary of scores with or without labels.

    Parameters
    ----------
    max_cells
        number of cells that may be occupied before the grid is coarsened, at least 64.
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

    def __init__(self, max_cells: int = MAX_CELLS, *, labelled: bool = True) -> None:
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
        """Number of cells that may be occupied before the grid is coarsened."""
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
    def atoms(self) -> Floats:
        """The one score that each cell holds, float64[m]; NaN where it holds several that differ.

        Below 2⁻⁴⁰, a score of more than 47 binary digits counts as several.
        """
        return unpack_atoms(self._packed_atoms, self._cells, self._level)

    @property
    def n(self) -> int:
        """Number of scores."""
        return int(self._counts.sum())

    @property
    def n_positives(self) -> int:
        """Number of scores with label 1; 0 without labels."""
        return int(self._counts[1].sum()) if self.labelled else 0

    @property
    def weighted(self) -> bool:
        """Whether a label has a weight other than 1."""
        return self._extra is not None

    @property
    def weighed(self) -> Weighed:
        """Weighted labels of each cell; equal to `counts` if no label has a weight."""
        return weighing.weighed(self.counts, self._extra)

    @property
    def mass(self) -> Mass:
        """Weight of all labels together beyond one each."""
        return weighing.mass_of(self._extra)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreSketch):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # mutable

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

    def add_checked(self, scores: Floats, labels: Labels | None, units: Counts | None = None) -> None:
        """Add scores and labels that are checked already: float64[n], and int8[n] if it is labelled.

        ``units`` are the labels' weights in units of 1/256, int64[n]; None: all weights are 1.
        """
        parts = [(self._cells, self._level, self._extra)]
        tally = self._tally(len(scores))
        tally.add(scores, np.empty(0, np.int8) if labels is None else labels)
        self._take(tally)
        if labels is not None and units is not None and len(at := weighing.heavy(units)):
            own, extra = units[at], np.zeros((3, len(at)), np.int64)
            extra[labels[at], np.arange(len(at))] = own - weighing.ONE
            extra[2] = weighing.squares(own) - weighing.ONE
            parts.append((grid.cells_of(scores[at], self._level), self._level, extra))
        self._spread(*parts)

    def merge(self, other: ScoreSketch) -> None:
        """Add the contents of the other sketch, as if its events had been added here.

        Raises
        ------
        ValueError
            if only one of the two is labelled, or if they differ in ``max_cells``.
        """
        self._check_alike(other)
        parts = (self._cells, self._level, self._extra), (other._cells, other._level, other._extra)
        tally = self._tally(len(other._cells))
        tally.merge(other._cells, other.counts, other.atoms, other._level)
        self._take(tally)
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
            if their shape is wrong, or one is negative.
        """
        if counts.shape != self._counts.shape or (counts < 0).any():
            raise ValueError(f"need counts of shape {self._counts.shape}, none negative, got {counts!r}")
        other, occupied = self.at_level(self._level), counts.any(axis=0)
        other._keep(other._cells[occupied], counts[:, occupied], other.atoms[occupied])
        other._extra = None
        return other

    def copy(self) -> ScoreSketch:
        """Return a copy. It shares the arrays, which a change replaces and never writes to."""
        copied = ScoreSketch(self._max_cells, labelled=self.labelled)
        for name in self.__slots__:
            setattr(copied, name, getattr(self, name))
        return copied

    def at_level(self, level: int) -> ScoreSketch:
        """Return a copy at this level, or at the sketch's own level if that is coarser."""
        copy = ScoreSketch(self._max_cells, labelled=self.labelled)
        tally = self._tally(0)
        if level > self._level:
            tally.coarsen(min(level, grid.MAX_LEVEL))
        copy._take(tally)
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

    def _tally(self, more: int) -> Tally:
        """Return the contents as a tally, to which so many scores or cells are to be added."""
        return Tally(self._cells, self.counts, self.atoms, self._level, self._max_cells, more)

    def _take(self, tally: Tally) -> None:
        """Replace the contents by those of a tally; what labels count for beyond one each stays."""
        self._level = tally.level
        self._keep(*tally.contents)

    def _spread(self, *parts: _Extra) -> None:
        """Set the weights of labels beyond one each from these parts; the cells must be final."""
        self._extra = self._spread_over(self._cells, parts)

    def _spread_over(self, cells: Cells, parts: Iterable[_Extra]) -> Counts | None:
        """Return the sum of parts over these cells; the cells of each part are as fine, or finer."""
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

    def _keep(self, cells: Cells, counts: npt.NDArray[Any], atoms: Floats) -> None:
        """Replace the contents by these cells; their counts in as few bytes as the largest needs."""
        self._cells = cells
        self._counts = counts.astype(f"i{count_width(int(counts.max(initial=0)))}")
        self._packed_atoms = pack_atoms(atoms, self._level)
