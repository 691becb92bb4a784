"""The test of identical distribution: an e-process against exchangeability of a domain's labelled scores.

A predictor that knows of a change at some earlier look competes with the one law that fits all labels best
(lemma 21 of docs/proofs/certificates.md; Ramdas, Ruf, Larsson and Koolen 2022). It reads counts at looks
only, so labels between them cost nothing. Memory: two integers per bin and snapshot, at most 2.4 kB.
"""

from __future__ import annotations

import math
from typing import Final, Self

import numpy as np

from streamcal.base.values import NO_CELLS, NO_COUNTS, Cells, Counts
from streamcal.certificates.likelihoods_c import log_likelihoods
from streamcal.maps.binning import uniform_mass
from streamcal.sketch.decoding import Part
from streamcal.sketch.grid import Level, lasting_level
from streamcal.sketch.score_sketch import ScoreSketch

BINS: Final = 6
"""Number of bins of scores, fewer if many scores are equal. Each costs the predictor about log n."""

MOST_SNAPSHOTS: Final = 24
"""Number of looks that are remembered. When there are more, every second one of the older half is dropped."""

_FIRST_LOOK: Final = 64  # labels, from whose scores the bins are chosen
_STRIDE: Final = 16  # the labels grow by a 16th of them, at least, from one look to the next
_NO_SNAPSHOTS: Final = np.empty((0, 2, 1), np.int64)
_HEAD_START: Final = 32  # a of the weights a/((k+a−1)(k+a)) of the looks k = 1, 2, 3, …


class ExchangeabilityTest(Part):
    """An e-process against identically distributed pairs of score and label, read at looks.

    The e-value is the mean of three: of the labels by bins of scores, of the labels alone, and of the bins of
    the scores. Each is a mixture over the looks k at which a change may have been, Σ π_k KT(up to k)
    KT(since k), divided by the largest likelihood of one law. While the pairs are independent and identically
    distributed, it ever reaches 1/α with probability at most α, however often it is read.

    The bins are chosen from the scores at the first look; labels before it are not tested. They lie on a grid
    level that ``max_cells`` alone decides, so that no sketch ever becomes coarser.

    A test is its own state. Once refuted, it keeps no counts.
    """

    alpha: float
    """α in (0, 1), the probability of a false alarm over the whole life."""
    level: Level
    """Level of the grid on which the bins lie."""
    cells: Cells = NO_CELLS
    """First cell of every bin but the first bin, int32[B−1], ascending."""
    snapshots: Counts = _NO_SNAPSHOTS
    """Labels of the domain by label and bin at looks, int64[S, 2, B]; at the first and the last look, and at
    some between."""
    looks: Counts = NO_COUNTS
    """Numbers of these looks, int64[S], from 0."""
    refuted: bool = False
    """Whether identical distribution is refuted. Once True, it stays True."""

    def __post_init__(self) -> None:
        if self.snapshots is not _NO_SNAPSHOTS:  # one row in a state
            self.snapshots = self.snapshots.reshape(-1, 2, len(self.cells) + 1)

    @classmethod
    def begun(cls, alpha: float, max_cells: int) -> Self:
        """Return a new test of sketches with this ``max_cells``, for α in (0, 1)."""
        return cls(alpha, lasting_level(max_cells))

    @property
    def due(self) -> int:
        """Number of labels from which on `look` should be called."""
        if not len(self.looks):
            return _FIRST_LOOK
        labels = int(self.snapshots[-1].sum())
        return labels + max(1, labels // _STRIDE)

    def look(self, sketch: ScoreSketch) -> float | None:
        """Look at all labels of the domain so far.

        Parameters
        ----------
        sketch
            sketch of them, at most as coarse as ``level``.

        Returns
        -------
        Log of the e-value if this look refutes identical distribution; None if not.
        """
        if self.refuted:
            return None
        if not len(self.looks):
            first = sketch.at_level(self.level)
            splits = uniform_mass(first.totals, BINS)
            self.cells = first.cells[splits[1:-1] - 1] + np.int32(1)
            self.snapshots = np.empty((0, 2, len(self.cells) + 1), np.int64)
        counts = self._in_bins(sketch)
        log_e = self._log_e(counts)
        if log_e >= -math.log(self.alpha):
            self.cells, self.looks, self.refuted = self.cells[:0], self.looks[:0], True
            self.snapshots = self.snapshots[:0, :, :1]
            return log_e
        number = self.looks[-1] + 1 if len(self.looks) else 0
        self.looks = np.append(self.looks, number)
        self.snapshots = np.concatenate((self.snapshots, counts[np.newaxis]))
        if len(self.looks) > MOST_SNAPSHOTS:
            dropped = np.s_[1 : len(self.looks) // 2 : 2]
            self.looks = np.delete(self.looks, dropped)
            self.snapshots = np.delete(self.snapshots, dropped, axis=0)
        return None

    def _in_bins(self, sketch: ScoreSketch) -> Counts:
        """Return the labels of a sketch by label and bin, int64[2, B]."""
        first = self.cells.astype(np.int64) << (self.level - sketch.level)
        starts = np.concatenate(([0], np.searchsorted(sketch.cells, first)))
        ends = np.append(starts[1:], len(sketch.cells))
        sums = np.add.reduceat(sketch.counts, np.minimum(starts, ends[-1] - 1), axis=1)
        return np.asarray(sums * (starts < ends))  # of an empty bin it sums no cell but the next

    def _log_e(self, counts: Counts) -> float:
        """Return the log of the e-value at these counts, int64[2, B], rounded down; −inf at first."""
        if len(self.looks) < 2:
            return -math.inf
        later = self.looks[1:] + _HEAD_START
        weights = np.log(_HEAD_START / ((later - 1.0) * later))
        before, whole = self.snapshots[1:] - self.snapshots[0], (counts - self.snapshots[0])[np.newaxis]
        parts = log_likelihoods(np.concatenate((before, whole - before)), True)
        largest = log_likelihoods(whole, False)
        rounding = 1e-6 + 1e-13 * np.abs(largest)
        logs = weights[:, np.newaxis] + parts[: len(later)] + parts[len(later) :] - largest - rounding
        top = float(logs.max())
        return top + math.log(float(np.exp(logs - top).sum()) / logs.shape[1])
