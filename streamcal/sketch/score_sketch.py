"""ScoreSketch: exact label counts on the finest dyadic grid that fits into a bounded number of cells.

It is the uniform collapse of UDDSketch (Epicoco et al. 2020) with labels in its cells, on a grid that is
logarithmically fine near both ends of [0, 1]. It yields uniform-mass edges for any number of bins, the exact
label mean of each bin between such edges, class priors, and score histograms. It also knows which cells hold
one score only, however often: atoms, on which the map varies no further. Its state depends only on the
multiset of events, not on their order, batches or shards; with weights of labels
(`streamcal.sketch.weighing`), but for the rounding of their sums.

Memory: at most ``max_cells`` cells of 6 to 28 bytes (5 to 20 without labels), by the largest count and by how
many cells hold one score only; and 24 bytes more where a label has a weight.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.values import NO_CELLS, Cells, Counts, Floats, Labels
from streamcal.sketch import checks, grid, weighing
from streamcal.sketch.cells import count_width
from streamcal.sketch.counts_c import Tally, pack_atoms, unpack_atoms
from streamcal.sketch.decoding import Part, decoded, encoded, require, restoring, sealed, unsealed, within
from streamcal.sketch.weighing import Mass, Weighed

MAX_CELLS: Final = 4096
"""``max_cells`` of the sketches of an engine: enough for 10⁷ labels."""

MIN_MAX_CELLS: Final = 64
"""The smallest ``max_cells``: below it the grid would be coarser than a reliability diagram."""

_KIND: Final = b"SCSK\x04"
_WIDTHS: Final = (1, 2, 4, 8)  # bytes of a count
_SUMS: Final = 3  # rows of weights
_NO_COUNTS: Final = np.empty((1, 0), np.int8), np.empty((2, 0), np.int8)


class _State(Part, array_like=True):
    """State of a `ScoreSketch`."""

    level: grid.Level
    max_cells: Annotated[int, msgspec.Meta(ge=MIN_MAX_CELLS, lt=1 << 31)]
    labelled: bool
    steps: Cells
    """Differences of the cells."""
    counts: bytes
    """Counts by label and cell, each in as few bytes as the largest needs."""
    sums: Floats | None
    atoms: bytes


class ScoreSketch:
    """A mergeable summary of scores with or without labels.

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

    __slots__ = ("_cells", "_counts", "_level", "_max_cells", "_packed_atoms", "_sums")

    def __init__(self, max_cells: int = MAX_CELLS, *, labelled: bool = True) -> None:
        if max_cells < MIN_MAX_CELLS:
            raise ValueError(f"max_cells must be at least {MIN_MAX_CELLS}, got {max_cells!r}")
        self._max_cells = int(max_cells)
        self._level = grid.MIN_LEVEL
        self._cells: Cells = NO_CELLS
        self._counts: npt.NDArray[Any] = _NO_COUNTS[labelled]
        self._packed_atoms = b""  # they are asked for seldom
        # By cell, Σw of labels 0, of labels 1, and Σw² of both, float64[3, m]. None: all weights are 1.
        self._sums: Floats | None = None

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
        totals: Counts = self.counts.sum(axis=0)  # numpy adds up faster what it need not convert
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
        return self._sums is not None

    @property
    def weighed(self) -> Weighed:
        """Weighted labels of each cell; equal to `counts` if no label has a weight."""
        if self._sums is None:
            counts = self.counts
            return Weighed(counts, counts.sum(axis=0).astype(np.float64))
        return Weighed(self._sums[:2], self._sums[2])

    @property
    def mass(self) -> Mass:
        """Weight of all labels together."""
        if self._sums is None:
            return Mass(float(self.n_positives), float(self.n), float(self.n))
        negatives, positives, squares = self._sums.sum(axis=1).tolist()
        return Mass(positives, negatives + positives, squares)

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

        Labels may have weights, [n] from 1e-9 to 10,000; None: all are 1.

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
        self.add_checked(
            values, classes, None if weights is None else weighing.as_weights(weights, len(classes))
        )

    def add_checked(self, scores: Floats, labels: Labels | None, weights: Floats | None = None) -> None:
        """Add scores and labels that are checked already: float64[n], and int8[n] if it is labelled.

        ``weights`` are those of the labels, float64[n]; None: all are 1.
        """
        lengths = len(scores if labels is None else labels), len(scores if weights is None else weights)
        if (labels is not None) != self.labelled or lengths != (len(scores), len(scores)):
            raise ValueError(f"{len(scores)} scores with other labels or weights for {self!r}")
        weights = weighing.other_than_one(weights)
        tally = self._tally(len(scores), weighted=weights is not None)
        tally.add(scores, np.empty(0, np.int8) if labels is None else labels, weights)
        self._take(tally)

    def merge(self, other: ScoreSketch) -> None:
        """Add the contents of the other sketch, as if its events had been added here.

        Raises
        ------
        ValueError
            if only one of the two is labelled, or if they differ in ``max_cells``.
        """
        self._check_alike(other)
        weighted = self.weighted or other.weighted
        tally = self._tally(len(other._cells), weighted=weighted)
        tally.merge(other._cells, other._rows(weighted=weighted), other.atoms, other._level)
        self._take(tally)

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
        other._sums = None
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
        return copy

    def to_bytes(self) -> bytes:
        """Return the state as bytes. Equal states give equal bytes, on every machine."""
        steps = np.diff(self._cells, prepend=np.int32(0))
        counts = self._counts.astype(self._counts.dtype.newbyteorder("<")).tobytes()
        options = self._level, self._max_cells, self.labelled
        return sealed(_KIND, encoded(_State(*options, steps, counts, self._sums, self._packed_atoms)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore a sketch from `to_bytes`.

        Raises
        ------
        DamagedStateError
            if the bytes are not a valid state; the message says what is wrong.
        """
        state = decoded(unsealed(data, _KIND, "a sketch"), _State, "a sketch")
        with restoring("not the state of a sketch"):
            sketch = cls(state.max_cells, labelled=state.labelled)
            m, rows = len(state.steps), 1 + state.labelled
            require(m <= state.max_cells, f"{m} cells, at most {state.max_cells}")
            require(state.labelled or state.sums is None, "weights without labels")
            places = within(state.steps.cumsum(dtype=np.int64), 0, grid.LAST_KEY >> state.level, "cells")
            cells, width = places.astype(np.int32), len(state.counts) // max(rows * m, 1)
            require(width in _WIDTHS or not state.counts, f"counts of {width} bytes")
            counts = np.frombuffer(state.counts, f"<i{width or 1}").reshape(rows, m)
            sketch._level = state.level
            sketch._keep(cells, counts, unpack_atoms(state.atoms, cells, state.level))
            sketch._sums = None if state.sums is None else state.sums.reshape(_SUMS, m)
        return sketch

    def _check_alike(self, other: ScoreSketch) -> None:
        if (self._max_cells, self.labelled) != (other._max_cells, other.labelled):
            raise ValueError(f"sketches differ in max_cells or labels: {self!r} and {other!r}")

    def _rows(self, *, weighted: bool) -> Floats:
        """Return the counts as rows of a tally, float64; with weights, and below them their sums."""
        rows = np.vstack((self._counts, *self.weighed)) if weighted else self._counts
        return rows.astype(np.float64)

    def _tally(self, more: int, *, weighted: bool = False) -> Tally:
        """Return the contents as a tally, to which so many scores or cells are to be added."""
        rows = self._rows(weighted=weighted or self.weighted)
        return Tally(self._cells, rows, self.atoms, self._level, self._max_cells, more)

    def _take(self, tally: Tally) -> None:
        """Replace the contents by those of a tally."""
        self._level = tally.level
        cells, rows, atoms = tally.contents()
        counted = len(self._counts)
        self._keep(cells, rows[:counted], atoms)
        self._sums = np.ascontiguousarray(rows[counted:]) if len(rows) > counted else None

    def _keep(self, cells: Cells, counts: npt.NDArray[Any], atoms: Floats) -> None:
        """Replace the contents by these cells; their counts in as few bytes as the largest needs."""
        self._cells = cells
        self._counts = counts.astype(f"i{count_width(int(counts.max(initial=0)))}")
        self._packed_atoms = pack_atoms(atoms, self._level)
