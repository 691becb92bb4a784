"""The label-shift watch: runs the e-process along a stream, and decides when to read it."""

from __future__ import annotations

from typing import Annotated, Final, Self

import msgspec
import numpy as np

from streamcal.certificates.e_process import LabelShiftTest
from streamcal.maps.binning import uniform_mass
from streamcal.sketch.decoding import Count, ascending, require, within
from streamcal.sketch.grid import LAST_KEY, MIN_LEVEL, left_edges
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Cells, Counts, Floats, Labels

__all__ = ["LabelShiftWatch", "WatchState"]

_BINS: Final = 8
_FIRST_LOOK: Final = 256  # the first bins are chosen from this many target scores
_MIN_STRIDE: Final = 64  # labels between two looks
_STRIDE_GROWTH: Final = 1.05  # the stride is 5 % of the labels so far, between the minimum and the maximum
_MAX_STRIDE: Final = 4096  # late in a stream a drift must still be noticed soon


class _TestState(msgspec.Struct):
    """Fields of `LabelShiftTest.to_dict`."""

    alpha: float
    restarts: Annotated[int, msgspec.Meta(ge=0, le=64)]  # each after twice the labels of the one before
    source_negatives: list[Count]
    source_positives: list[Count]
    negatives: list[Count]
    positives: list[Count]


class WatchState(msgspec.Struct):
    """The state of a `LabelShiftWatch`."""

    refuted: bool
    labels: Count
    next_look: Count
    cells: Cells
    test: _TestState | None


class LabelShiftWatch:
    """Counter of target labels for the e-process against label shift, which reads it on a schedule.

    While label shift holds and the prior is constant between restarts, it alarms with probability at most α
    over the whole life of the stream (lemma 14 of docs/proofs/certificates.md). At a restart, the watch
    chooses bins from the target scores so far. They lie on a grid level that ``max_cells`` alone decides, so
    they depend neither on the source sample nor on the labels that will be counted in them.

    A source that was gathered from the target's labels is among the target's scores. Its watch therefore
    keeps the bins of the watch before, which were chosen before the alarm and so before that source.

    Memory: four integers per bin, for at most 8 bins. Labels are counted, not kept.

    Parameters
    ----------
    alpha
        α in (0, 1).
    max_cells
        the ``max_cells`` of the sketches that `look` receives.
    before
        the watch that refuted the source before this one; None: this is the first source. A watch that is
        restored takes over its bins from the state.
    """

    __slots__ = ("_alpha", "_cells", "_inherits", "_level", "_test", "labels", "next_look", "refuted")

    def __init__(self, alpha: float, max_cells: int, before: LabelShiftWatch | None = None) -> None:
        self._alpha = alpha
        self._inherits = before is not None
        self._level = MIN_LEVEL
        while LAST_KEY >> self._level >= max_cells:
            self._level += 1
        # The first cell of every bin but the first bin.
        self._cells: Cells = np.empty(0, np.int32) if before is None else before._cells
        self._test: LabelShiftTest | None = None
        self.labels = 0
        """Number of target labels counted so far."""
        self.next_look = _FIRST_LOOK
        """Number of labels at which the next look is due."""
        self.refuted = False
        """Whether label shift is refuted. Once True, it stays True."""

    @property
    def log_e(self) -> float | None:
        """Log of the e-value of the labels counted, up to the alarm if there was one; None before a test."""
        return None if self._test is None else self._test.log_e()

    @property
    def reads_sketches(self) -> bool:
        """Whether `look` would read the sketches that it is given: to begin a test, or to begin it anew."""
        return not self.refuted and (self._test is None or self._test.due)

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
        if self.refuted or self._test is None:
            return
        edges = left_edges(self._cells, self._level)
        bins = np.searchsorted(edges, scores, side="right")
        totals = np.bincount(bins, minlength=len(edges) + 1)
        positives = np.bincount(bins[labels == 1], minlength=len(edges) + 1)
        self._test.count(totals - positives, positives)

    def count_sketch(self, labelled: ScoreSketch) -> None:
        """Count the next target labels, which were counted elsewhere, as `count` does."""
        self.labels += labelled.n
        if not self.refuted and self._test is not None:
            self._test.count(*self._in_bins(labelled))

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
        if self._test is None:
            self._test = LabelShiftTest(*self._source_counts(source, target), self._alpha)
            return False
        self.refuted = self._test.alarm()
        if not self.refuted and self._test.due:
            self._test.restart(*self._source_counts(source, target))
        return self.refuted

    def pass_by(self) -> None:
        """Skip the look that is due: the counted labels say nothing about label shift."""
        self.next_look = self.labels + self._stride

    @property
    def _stride(self) -> int:
        return min(max(_MIN_STRIDE, int(self.labels * (_STRIDE_GROWTH - 1.0))), _MAX_STRIDE)

    def _source_counts(self, source: ScoreSketch, target: ScoreSketch) -> tuple[Counts, Counts]:
        """Choose new bins, unless they must stay; return the source's labels in them: int64[B] a class."""
        if not self._inherits:
            target = target.at_level(self._level)
            splits = uniform_mass(target.totals, _BINS)
            self._cells = target.cells[splits[1:-1] - 1] + np.int32(1)
        return self._in_bins(source)

    def _in_bins(self, labelled: ScoreSketch) -> tuple[Counts, Counts]:
        """Return the labels of a sketch in the bins: int64[B] a class."""
        labelled = labelled.at_level(self._level)
        bins = np.searchsorted(self._cells, labelled.cells, side="right")
        negatives, positives = labelled.counts @ (bins[:, None] == np.arange(len(self._cells) + 1))
        return negatives, positives

    @property
    def _last_edge(self) -> int:
        """Largest cell at which a bin may begin: the one after the last."""
        return (LAST_KEY >> self._level) + 1

    def to_state(self) -> WatchState:
        """Return the state."""
        test = None if self._test is None else _TestState(**self._test.to_dict())
        return WatchState(self.refuted, self.labels, self.next_look, self._cells, test)

    def restore(self, state: WatchState) -> Self:
        """Replace the state by another."""
        cells, test, due = ascending(state.cells, "bins of the watch"), state.test, state.next_look
        self._cells = within(cells, 1, self._last_edge, "bins of the watch")
        in_time = state.labels <= due <= state.labels + _MAX_STRIDE
        require(in_time, f"after {state.labels} labels, the next look is at {due}")
        if test is not None:
            counts = test.source_negatives, test.source_positives, test.negatives, test.positives
            own = test.alpha == self._alpha and all(len(each) == len(cells) + 1 for each in counts)
            require(own, "the test of label shift is another's")
            (source, target) = sum(map(sum, counts[:2])), sum(map(sum, counts[2:]))
            require(source and target <= state.labels, "the test of label shift counts other labels")
        self._test = None if test is None else LabelShiftTest.from_dict(msgspec.structs.asdict(test))
        self.refuted, self.labels, self.next_look = state.refuted, state.labels, state.next_look
        return self
