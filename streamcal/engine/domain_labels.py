"""DomainLabels: the labels of one domain, counted at once and buffered once.

A label is kept, in the order of arrival, until every reader has read it: the log that it is sorted into, and
in the target also the mixture and the test of label shift, which read at times of their own. Readers name
labels by number: the first label ever appended is number 0.

Memory: the log, and 25 bytes for each of about `BUFFERED` labels, or of those of one call.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, NamedTuple

import numpy as np

from streamcal.base.values import NO_COUNTS, NO_FLOATS, NO_LABELS, Counts, Floats, Labels
from streamcal.engine.label_log import LabelLog
from streamcal.sketch import checks, counts_c
from streamcal.sketch.counts_c import AT_ONCE
from streamcal.sketch.decoding import Part
from streamcal.sketch.recent_labels import RecentLabels
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import NONE, Mass

BUFFERED: Final = 1024
"""Number of labels that may wait before they are sorted into the log: with more, one event takes longer."""

_SCORES: Final = 0
_LABELS: Final = 1
_WEIGHTS: Final = 2
_INDEX: Final = 3


class LabelRun(NamedTuple):
    """Consecutive labels."""

    scores: Floats
    """Scores, float64[k] in [0, 1]."""
    labels: Labels
    """Labels, int8[k], 0 or 1."""
    prediction_index: Counts
    """Numbers of target scores observed when each prediction was made, int64[k], or `AT_ONCE` or `IN_CALL`;
    empty if not kept."""
    weights: Floats | None = None
    """Weights, float64[k]; None: all are 1."""


class DomainState(Part):
    """The state of `DomainLabels`."""

    log: LabelLog
    scores: Floats = NO_FLOATS
    """Labels that not everybody has read: these, and the next three."""
    labels: Labels = NO_LABELS
    prediction_index: Counts = NO_COUNTS
    weights: Floats | None = None
    newest: RecentLabels | None = None
    mass: Mass = NONE


class DomainLabels(counts_c.LabelBuffer):
    """Running counts of a domain's labels, its log, and the buffer in front of all readers.

    Parameters
    ----------
    window
        length of the sliding window; see `LabelLog.begun`.
    state
        the state to start from; None: there is no label. ValueError if it is none of these options.
    keeps_index
        whether a reader asks how many scores had been observed at each prediction (of target labels).
    newest
        how many of the newest labels are kept in their order.
    """

    __slots__ = ("_flushed", "_keeps_newest", "_pane", "log", "newest")

    def __init__(
        self,
        window: int | timedelta | None = None,
        state: DomainState | None = None,
        *,
        keeps_index: bool = False,
        newest: int = 0,
    ) -> None:
        super().__init__(keeps_index)
        self.log = log = LabelLog.begun(window) if state is None else state.log
        """Log of the labels that have been sorted; buffered labels are not in it."""
        self.n, self.positives, self.windowed = log.n, log.positives, log.windowed
        self._keeps_newest = newest > 0
        self.newest = RecentLabels(newest) if newest else None
        """Newest labels that have been sorted, in their order; None: they are not kept, or no longer."""
        if state is not None:
            self.newest, self.mass = state.newest, state.mass
            scores, labels = checks.as_scores(state.scores), checks.as_labels(state.labels)
            self._put(scores, labels, 1.0 if state.weights is None else state.weights, state.prediction_index)
        self._flushed = self.end  # number of the first label that is not in the log
        self._pane = log.pane  # of the window, where the labels lie that are not in the log

    @property
    def mass(self) -> Mass:
        """Weight of all labels, including those that a window has dropped."""
        return Mass(self._ones, self._total, self._squares)

    @mass.setter
    def mass(self, mass: Mass) -> None:
        self._ones, self._total, self._squares = mass
        self.weighted = not self.n == mass.labels == mass.squares

    @property
    def remaining(self) -> int:
        """Number of labels that may be appended before `flush` is due."""
        return BUFFERED - (self.end - self._flushed)

    @property
    def remembered(self) -> tuple[float, float]:
        """(positives, labels) that count for the prior: all, or those of the window.

        With weights, the effective number of labels, at their weighted rate.
        """
        if not self.windowed:
            return self.mass.effective()
        first = self._flushed - self.start
        return self.log.mass.with_labels(self._part(_LABELS, first), self._part(_WEIGHTS, first)).effective()

    # Appending

    def extend(
        self, scores: Floats, labels: Labels, prediction_index: Counts | None, weights: Floats
    ) -> None:
        """Take checked labels, float64[k] and int8[k], with their weights, float64[k].

        ``prediction_index`` is int64[k]; None: the labels came at once.
        """
        index: Any = AT_ONCE if prediction_index is None else prediction_index
        self._put(scores, labels, weights, index)
        self.n += len(labels)
        self.positives += int(np.count_nonzero(labels))
        self.mass = self.mass.with_labels(labels, weights)

    def add_sketch(self, sketch: ScoreSketch) -> None:
        """Take labels that were counted elsewhere, past the empty buffer; not under a window."""
        self.log.add_sketch(sketch)
        self.n += sketch.n
        self.positives += sketch.n_positives
        self.mass = self.mass.plus(sketch.mass)
        self.start += sketch.n
        self._flushed = self.start

    # Windows

    def next_pane(self, time: float | None) -> int | None:
        """Return the pane of the next label if it differs from that of the buffered labels, else None.

        Raises
        ------
        ValueError
            if panes are of event time, and the label has none.
        """
        pane = self.log.pane_of(time, self.end - self._flushed)
        return None if not self.windowed or (pane == self._pane and self.log.n) else pane

    def pane_cuts(self, size: int, times: Floats | None) -> list[int]:
        """Cut the next ``size`` labels into runs of one pane; return the end of each run, ascending.

        Raises
        ------
        ValueError
            if `next_pane` raises it for one of them.
        """
        if not size or not self.windowed:
            return [size] if size else []
        step = self.log.pane_size
        if step is not None:
            return [*range(step - (self.log.n + self.end - self._flushed) % step, size, step), size]
        each = [None] * size if times is None else times.tolist()
        panes = [self.log.pane_of(time, 0) for time in each]
        return [i for i in range(1, size) if panes[i] != panes[i - 1]] + [size]

    def open_pane(self, pane: int) -> bool:
        """Open the pane of the next label; all labels before it must be flushed.

        Returns
        -------
        Whether the window slides by event time: a map version begins with the next label.
        """
        self._pane = pane
        return self.log.slide_to(pane)

    # Reading

    def since(self, number: int) -> LabelRun:
        """Return views of the labels from this number on: do not keep them."""
        first = number - self.start
        return LabelRun(
            self._part(_SCORES, first),
            self._part(_LABELS, first),
            self._part(_INDEX, first) if self._keeps_index else np.empty(0, np.int64),
            self._part(_WEIGHTS, first) if self.weighted else None,
        )

    def flush(self) -> None:
        """Sort the labels that wait into the log."""
        if self._flushed < self.end:
            scores, labels, _, weights = self.since(self._flushed)
            self.log.add(scores, labels, self._pane, weights)
            if self.newest is not None:
                self.newest.add(scores, labels, weights)
            self._flushed = self.end

    def drop(self, number: int) -> None:
        """Forget buffered labels before this number that are in the log: every reader has read them."""
        count = min(number, self._flushed) - self.start
        if count > 0:
            self._drop(count)
            self.start += count

    # State

    @property
    def state(self) -> DomainState | None:
        """The state, with the labels that not everybody has read, all flushed; None: as in a new one."""
        if not self.n and self._keeps_newest == (self.newest is not None):
            return None
        run = self.since(self.start)
        return DomainState(
            self.log, run.scores, run.labels, run.prediction_index, run.weights, self.newest, self.mass
        )
