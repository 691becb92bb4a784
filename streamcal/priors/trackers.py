"""PriorTracker: a running estimate of the class prior of the target, Q[Y=1]; one class per strategy.

`RecentShare` and `ShareSinceChange` estimate it from labels, `ScoreTracker` from scores alone. `make_tracker`
chooses one.

Memory: one byte per label of a window; a `History` with ADWIN or scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import numpy as np

from streamcal.maps.shift import class_prior, shift_correction, shift_weights
from streamcal.priors.history import BLOCK, History, HistoryState
from streamcal.priors.likelihood import SourceMap, likeliest_prior
from streamcal.sketch import checks
from streamcal.sketch.decoding import Count, Probability, encoded, require
from streamcal.sketch.grid import left_edges
from streamcal.sketch.label_window import LabelWindow, LabelWindowState
from streamcal.values import Cells, Counts, Flags, Floats, Labels

__all__ = [
    "NO_LIMIT",
    "PriorKind",
    "PriorTracker",
    "PriorWindow",
    "RecentShare",
    "ScoreTracker",
    "ShareSinceChange",
    "TrackerState",
    "make_tracker",
]

PriorKind = Literal["labels", "scores"]
"""Evidence that the target's prior is estimated from."""

PriorWindow = int | Literal["adwin"]
"""Labels or predictions that an estimate counts: this many of the latest, or those since the last change."""

NO_LIMIT: Final = 1 << 62
"""Value of `PriorTracker.labels_until_due` for a tracker that takes labels at any time."""

_STEP: Final = 32  # a prior is estimated again after so many new scores; at first more often,
_FEW: Final = 8  # when 1/8 of the predictions that count is new,
_NEWS: Final = 64  # and later when 1/64 of them is


class PriorTracker(ABC):
    """A running estimate of Q[Y=1].

    The caller buffers labels and scores, and hands them over in the order in which they came. The result
    depends on that order only, not on how the caller cuts it into calls:

    1. Hand over labels when `labels_until_due` of them have gathered, at the latest.
    2. Hand over a block of scores when it is full.
    3. Before `to_state` and a look at `prior`, hand over all labels that have gathered.

    Whether a label comes, and when, must not depend on its class. If ones come sooner than zeros, the latest
    labels hold too many of them.

    Parameters
    ----------
    smoothing
        s ≥ 0: the tracker adds s labels of each class to those that count, see `class_prior`.
    """

    takes_scores: ClassVar[bool] = False
    """Whether scores are used, and not labels."""

    __slots__ = ("_smoothing",)

    def __init__(self, smoothing: float) -> None:
        self._smoothing = smoothing

    @property
    @abstractmethod
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None while there is no evidence."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of labels or scores that count."""

    @property
    def labels_until_due(self) -> int:
        """Number of labels, at least 1, that the caller may gather before it calls `take_labels`.

        `take_labels` and `restore` may change it.
        """
        return NO_LIMIT

    def take_labels(self, labels: Labels, units: Counts | None = None) -> None:  # noqa: B027
        """Take the next target labels; any number is allowed. Trackers of scores ignore them.

        Parameters
        ----------
        labels
            int8[n] of 0 and 1.
        units
            int64[n]: the labels' weights in units of 1/256; None: all are 1.

        Raises
        ------
        ValueError
            if labels have weights, and the tracker counts them as one each.
        """

    def take_scores(self, scores: Floats) -> None:  # noqa: B027
        """Take the target scores observed next. Trackers of labels ignore them.

        Parameters
        ----------
        scores
            float64[n] in [0, 1], up to a multiple of `BLOCK` observed scores.
        """

    def set_source(self, edges: Any, values: Any, prior: float) -> None:  # noqa: B027
        """Replace the map of the source, through which scores are evidence. Trackers of labels ignore it.

        Parameters
        ----------
        edges, values
            edges and values of the map: [B+1] ascending from 0 to 1, and [B] in [0, 1]. Both empty for the
            identity; scores then do not count.
        prior
            P[Y=1], in [0, 1].

        Raises
        ------
        ValueError
            if shapes or ranges are wrong; the tracker is then unchanged.
        """

    @abstractmethod
    def to_state(self) -> Any:
        """Return the state; its type tells the strategies apart."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Replace the state by one of a tracker with the same options.

        Raises
        ------
        ValueError
            if it is none.
        """


class RecentShare(PriorTracker):
    """Tracker of the share of ones among the latest labels.

    Parameters
    ----------
    window
        number of labels that count, at least 1.
    smoothing
        see `PriorTracker`.

    Examples
    --------
    >>> tracker = RecentShare(1000, smoothing=0.5)
    >>> tracker.take_labels(np.array([0, 0, 1], np.int8))
    >>> tracker.prior
    0.375
    """

    __slots__ = ("_labels",)

    def __init__(self, window: int, smoothing: float) -> None:
        super().__init__(smoothing)
        self._labels = LabelWindow(window)

    @property
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None before the first label."""
        return class_prior(*self._labels.effective(), self._smoothing) if self.n else None

    @property
    def n(self) -> int:
        """Number of labels that count."""
        return len(self._labels)

    def take_labels(self, labels: Labels, units: Counts | None = None) -> None:
        """Take the next target labels, see `PriorTracker.take_labels`."""
        self._labels.add(labels, units)

    def to_state(self) -> LabelWindowState:
        """Return the state."""
        return self._labels.to_state()

    def restore(self, state: LabelWindowState) -> None:
        """Replace the state by another."""
        require(isinstance(state, LabelWindowState), "the state of another prior")
        self._labels.restore(state)


class ChangeState(msgspec.Struct, tag="change"):
    """The state of `ShareSinceChange`."""

    changes: Count
    history: HistoryState
    gathered: Annotated[bytes, msgspec.Meta(max_length=BLOCK - 1)]


class ShareSinceChange(PriorTracker):
    """Tracker of the share of ones since the last change, for which it tests at every 64th label.

    Parameters
    ----------
    smoothing
        see `PriorTracker`.
    """

    __slots__ = ("_gathered", "_history", "_n", "_positives", "changes")

    def __init__(self, smoothing: float) -> None:
        super().__init__(smoothing)
        self.changes = 0
        """Number of changes found so far."""
        self._history = History(None)
        self._gathered = bytearray()  # labels since the last test: they count, but are not in the history yet
        self._n = self._positives = 0

    @property
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None before the first label."""
        return class_prior(self._positives, self._n, self._smoothing) if self._n else None

    @property
    def n(self) -> int:
        """Number of labels that count."""
        return self._n

    @property
    def labels_until_due(self) -> int:
        """Number of labels until the next test for a change."""
        return BLOCK - len(self._gathered)

    def take_labels(self, labels: Labels, units: Counts | None = None) -> None:
        """Take the next target labels, see `PriorTracker.take_labels`: without weights."""
        if units is not None:
            raise ValueError("labels with weights for a prior that looks for changes")
        start, later = 0, labels.tobytes()
        while start < len(later):
            part = later[start : start + self.labels_until_due]
            start += len(part)
            self._gathered += part
            self._n += len(part)
            self._positives += part.count(1)
            if len(self._gathered) == BLOCK:
                self._forget()

    def _forget(self) -> None:
        """Test for a change, and forget the labels before it."""
        history = self._history
        history.observe(np.frombuffer(bytes(self._gathered), np.int8).astype(np.float64))
        self._gathered.clear()
        history.compact()
        while cut := history.change(self._ones.astype(np.float64)):
            history.drop(cut)
            self.changes += 1
        self._count()

    def _count(self) -> None:
        self._n = self._history.n + len(self._gathered)
        self._positives = int(self._history.masses @ self._ones) + self._gathered.count(1)

    @property
    def _ones(self) -> Flags:
        """Whether each cell of the history is that of label 1, bool[m]."""
        return left_edges(self._history.cells, self._history.level) > 0.0

    def to_state(self) -> ChangeState:
        """Return the state."""
        return ChangeState(self.changes, self._history.to_state(), bytes(self._gathered))

    def restore(self, state: ChangeState) -> None:
        """Replace the state by another."""
        require(isinstance(state, ChangeState), "the state of another prior")
        checks.as_labels(np.frombuffer(state.gathered, np.int8))
        self._history.restore(state.history)
        self.changes, self._gathered = state.changes, bytearray(state.gathered)
        self._count()


class ScoreState(msgspec.Struct, tag="scores"):
    """The state of a `ScoreTracker`."""

    history: HistoryState
    source: SourceMap | None
    prior: Probability | None
    news: Count
    changes: Count


class ScoreTracker(PriorTracker):
    """Tracker of the likeliest prior given the scores.

    A change of the class balance shows in the scores at once: predictions before it stop counting.

    Parameters
    ----------
    window, smoothing
        see `make_tracker`.
    """

    takes_scores: ClassVar[bool] = True

    __slots__ = ("_adaptive", "_cells", "_history", "_means", "_news", "_prior", "_source", "changes")

    def __init__(self, window: PriorWindow, smoothing: float) -> None:
        super().__init__(smoothing)
        self._adaptive = window == "adwin"
        self._history = History(window if isinstance(window, int) else None)
        self._source: SourceMap | None = None
        self._cells: Cells | None = None  # those that the means are of
        self._means: Floats = np.empty(0)
        self._prior: float | None = None
        self._news = 0  # scores since the prior was estimated
        self.changes = 0
        """Number of changes found so far."""

    @property
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None while there is no evidence.

        The tracker estimates it again when enough is new, in the long run at most once per block of scores,
        and at every change.
        """
        return self._prior

    @property
    def n(self) -> int:
        """Number of scores that count."""
        return self._history.n

    def take_scores(self, scores: Floats) -> None:
        """Take the target scores observed next, see `PriorTracker.take_scores`."""
        start = 0
        while start < len(scores):
            end = start + BLOCK - self._history.observed % BLOCK
            block = scores[start:end]
            self._history.observe(block)
            self._news += len(block)
            self._forget()
            n = self.n
            if self._news >= max(min(_STEP, 1 + n // _FEW), n // _NEWS):
                self._estimate()
            start = end

    def set_source(self, edges: Any, values: Any, prior: float) -> None:
        """Replace the map of the source, see `PriorTracker.set_source`."""
        source = None
        if len(values):
            source = SourceMap(checks.as_scores(edges), checks.as_scores(values), prior)
        if encoded(source) != encoded(self._source):
            self._source, self._cells = source, None
            self._estimate()

    def _forget(self) -> None:
        """Forget the predictions outside the window, and those before a change."""
        self._history.compact()
        while cut := self._change():
            self._history.drop(cut)
            self.changes += 1
            self._estimate()

    def _change(self) -> int:
        """Return the number of panes before the last change; 0 if there is none."""
        q, source = self._prior, self._source
        if not self._adaptive or source is None or q is None or not 0.0 < q < 1.0:
            return 0
        # Σ(g(h(z)) − q) is q(1−q) times the slope of the likelihood of the scores: the mean of g(h(z)) moves
        # if and only if their prior does, and for small moves no statistic tells more.
        weights = shift_weights(source.prior, q)
        return self._history.change(shift_correction(self._means_of(source), weights))

    def _estimate(self) -> None:
        self._news, self._prior, source = 0, None, self._source
        if source is not None:
            means = self._means_of(source)
            self._prior = likeliest_prior(self._history.masses, means, source.prior, self._smoothing)

    def _means_of(self, source: SourceMap) -> Floats:
        """Return the mean of the source's map in each cell of the history, float64[m]."""
        history = self._history
        if self._cells is not history.cells:
            self._means, self._cells = source.means(history.cells, history.level), history.cells
        return self._means

    def to_state(self) -> ScoreState:
        """Return the state."""
        return ScoreState(self._history.to_state(), self._source, self._prior, self._news, self.changes)

    def restore(self, state: ScoreState) -> None:
        """Replace the state by another."""
        require(isinstance(state, ScoreState), "the state of another prior")
        self._history.restore(state.history)
        self._source, self._cells = state.source, None
        self._prior, self._news, self.changes = state.prior, state.news, state.changes


TrackerState = LabelWindowState | ChangeState | ScoreState
"""The state of any tracker."""


def make_tracker(kind: PriorKind, window: PriorWindow, smoothing: float = 0.5) -> PriorTracker:
    """Return a new tracker of the target's prior.

    Parameters
    ----------
    kind
        evidence that the prior is estimated from. ``"labels"``: the share of ones among labels. ``"scores"``:
        the likeliest prior given the scores.
    window
        number of the latest labels or scores that count, at least 1. ``"adwin"``: those since the last
        change. With scores, a window slides by a sixteenth of itself.
    smoothing
        s ≥ 0: the tracker adds s labels of each class to those that count, see `class_prior`.
    """
    if kind == "scores":
        return ScoreTracker(window, smoothing)
    return ShareSinceChange(smoothing) if window == "adwin" else RecentShare(window, smoothing)
