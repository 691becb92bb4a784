"""The label-shift watch: runs the e-process along a stream, and decides when to read it."""

from __future__ import annotations

from typing import Final, Self

import numpy as np

from streamcal.base.values import NO_CELLS, Cells, Counts, Floats, Labels
from streamcal.certificates.e_process import LabelShiftTest
from streamcal.maps.binning import uniform_mass
from streamcal.sketch.decoding import Count, Part
from streamcal.sketch.grid import Level, lasting_level, left_edges
from streamcal.sketch.score_sketch import ScoreSketch

_BINS: Final = 8
_FIRST_LOOK: Final = 256  # the first bins are chosen from this many target scores
_MIN_STRIDE: Final = 64  # labels between two looks
_STRIDE_GROWTH: Final = 1.05  # the stride is 5 % of the labels so far, between the minimum and the maximum
_MAX_STRIDE: Final = 4096  # late in a stream a drift must still be noticed soon


class LabelShiftWatch(Part):
    """Counter of target labels for the e-process against label shift, which reads it on a schedule.

    While label shift holds and the prior is constant between restarts, it alarms with probability at most α
    over the whole life of the stream (lemma 14 of docs/proofs/certificates.md). At a restart, the watch
    chooses bins from the target scores so far. They lie on a grid level that ``max_cells`` alone decides, so
    they depend neither on the source sample nor on the labels that will be counted in them.

    Memory: four integers per bin, for at most 8 bins. Labels are counted, not kept.

    A watch is its own state.
    """

    alpha: float
    """α in (0, 1)."""
    level: Level
    """Level of the grid on which the bins lie."""
    cells: Cells = NO_CELLS
    """First cell of every bin but the first bin, ascending."""
    test: LabelShiftTest | None = None
    """Test that runs; None before the first look."""
    labels: Count = 0
    """Number of target labels counted so far."""
    next_look: Count = _FIRST_LOOK
    """Number of labels at which the next look is due."""
    refuted: bool = False
    """Whether label shift is refuted. Once True, it stays True."""

    @classmethod
    def begun(cls, alpha: float, max_cells: int) -> Self:
        """Return a new watch.

        Parameters
        ----------
        alpha
            α in (0, 1).
        max_cells
            the ``max_cells`` of the sketches that `look` receives.
        """
        return cls(alpha, lasting_level(max_cells))

    @property
    def log_e(self) -> float | None:
        """Log of the e-value of the labels counted, up to the alarm if there was one; None before a test."""
        return None if self.test is None else self.test.log_e()

    @property
    def reads_sketches(self) -> bool:
        """Whether `look` would read the sketches that it is given: to begin a test, or to begin it anew."""
        return not self.refuted and (self.test is None or self.test.due)

    def count(self, scores: Floats, labels: Labels) -> None:
        """Count the next target labels. However they are cut into calls, the state is the same.

        The labels before the first look are not tested: the bins are chosen from their scores.

        Parameters
        ----------
        scores
            float64[n], checked, each in [0, 1].
        labels
            int8[n], each 0 or 1.
        """
        self.labels += len(labels)
        if self.refuted or self.test is None:
            return
        many = len(self.cells) + 1
        bins = np.searchsorted(left_edges(self.cells, self.level), scores, side="right")
        self.test.count(np.bincount(bins + many * labels.astype(np.int64), minlength=2 * many).reshape(2, -1))

    def count_sketch(self, labelled: ScoreSketch) -> None:
        """Count the next target labels, which were counted elsewhere, as `count` does."""
        self.labels += labelled.n
        if not self.refuted and self.test is not None:
            self.test.count(self._in_bins(labelled))

    def look(self, source: ScoreSketch, target: ScoreSketch) -> bool:
        """Look at the e-value, and return whether this look raises the alarm.

        All target labels so far must have been counted. The first look begins the test; a later one restarts
        it if a restart is due.

        Parameters
        ----------
        source, target
            sketches of all labelled scores of each domain; they need not be up to date if not
            `reads_sketches`.
        """
        self.next_look = self.labels + self._stride
        if self.refuted or not source.n:
            return False
        if self.test is None:
            self.test = LabelShiftTest(self._source_counts(source, target), self.alpha)
            return False
        self.refuted = self.test.alarm()
        if not self.refuted and self.test.due:
            self.test.restart(self._source_counts(source, target))
        return self.refuted

    def pass_by(self) -> None:
        """Skip the look that is due: the counted labels say nothing about label shift."""
        self.next_look = self.labels + self._stride

    @property
    def _stride(self) -> int:
        return min(max(_MIN_STRIDE, int(self.labels * (_STRIDE_GROWTH - 1.0))), _MAX_STRIDE)

    def _source_counts(self, source: ScoreSketch, target: ScoreSketch) -> Counts:
        """Choose new bins; return the source's labels in them, int64[2, B]."""
        target = target.at_level(self.level)
        splits = uniform_mass(target.totals, _BINS)
        self.cells = target.cells[splits[1:-1] - 1] + np.int32(1)
        return self._in_bins(source)

    def _in_bins(self, labelled: ScoreSketch) -> Counts:
        """Return the labels of a sketch in the bins, int64[2, B]."""
        labelled = labelled.at_level(self.level)
        bins = np.searchsorted(self.cells, labelled.cells, side="right")
        counts: Counts = labelled.counts @ (bins[:, None] == np.arange(len(self.cells) + 1))
        return counts
