"""ScoreTracker: a running estimate of the class prior of the target, Q[Y=1], from its scores alone.

Memory: that of a `History`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import numpy as np

from streamcal.maps.shift import shift_correction, shift_weights
from streamcal.priors.history import BLOCK, History, HistoryState
from streamcal.priors.likelihood import SourceMap, likeliest_prior
from streamcal.sketch import checks
from streamcal.sketch.decoding import Count, encoded
from streamcal.values import Cells, Floats

__all__ = ["ScoreState", "ScoreTracker"]

_STEP: Final = 32  # a prior is estimated again after so many new scores; at first more often,
_FEW: Final = 8  # when 1/8 of the predictions that count is new,
_NEWS: Final = 64  # and later when 1/64 of them is


class ScoreState(msgspec.Struct):
    """The state of a `ScoreTracker`."""

    history: HistoryState
    source: SourceMap | None
    prior: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] | None
    news: Count
    changes: Count


class ScoreTracker:
    """Tracker of the likeliest prior given the scores since the last change of the class balance.

    A change shows in the scores at once: predictions before it stop counting. All scores would be too much
    evidence: what came before a change would outweigh, for long, what came after it.

    The caller buffers scores, and hands them over by blocks. The result depends on their order only, not on
    how the caller cuts them into calls.
    """

    __slots__ = ("_cells", "_history", "_means", "_news", "_source", "changes", "prior")

    def __init__(self) -> None:
        self._history = History()
        self._source: SourceMap | None = None
        self._cells: Cells | None = None  # those that the means are of
        self._means: Floats = np.empty(0)
        self._news = 0  # scores since the prior was estimated
        self.prior: float | None = None
        """Q̂[Y=1] in (0, 1); None while there is no evidence.

        The tracker estimates it again when enough is new, in the long run at most once per block of scores,
        and at every change.
        """
        self.changes = 0
        """Number of changes found so far."""

    @property
    def n(self) -> int:
        """Number of scores that count."""
        return self._history.n

    def take_scores(self, scores: Floats) -> None:
        """Take the target scores observed next, float64[n] in [0, 1], up to a multiple of `BLOCK` of them."""
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
        """Replace the map of the source, through which scores are evidence.

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
        source = None
        if len(values):
            source = SourceMap(checks.as_scores(edges), checks.as_scores(values), prior)
        if encoded(source) != encoded(self._source):
            self._source, self._cells = source, None
            self._estimate()

    def _forget(self) -> None:
        """Forget the predictions before a change."""
        self._history.compact()
        while cut := self._change():
            self._history.drop(cut)
            self.changes += 1
            self._estimate()

    def _change(self) -> int:
        """Return the number of panes before the last change; 0 if there is none."""
        q, source = self.prior, self._source
        if source is None or q is None:
            return 0
        # Σ(g(h(z)) − q) is q(1−q) times the slope of the likelihood of the scores: the mean of g(h(z)) moves
        # if and only if their prior does, and for small moves no statistic tells more.
        weights = shift_weights(source.prior, q)
        return self._history.change(shift_correction(self._means_of(source), weights))

    def _estimate(self) -> None:
        self._news, self.prior, source = 0, None, self._source
        if source is not None:
            self.prior = likeliest_prior(self._history.masses, self._means_of(source), source.prior)

    def _means_of(self, source: SourceMap) -> Floats:
        """Return the mean of the source's map in each cell of the history, float64[m]."""
        history = self._history
        if self._cells is not history.cells:
            self._means, self._cells = source.means(history.cells, history.level), history.cells
        return self._means

    def to_state(self) -> ScoreState:
        """Return the state."""
        return ScoreState(self._history.to_state(), self._source, self.prior, self._news, self.changes)

    def restore(self, state: ScoreState) -> None:
        """Replace the state by another.

        Raises
        ------
        ValueError
            if it is none.
        """
        self._history.restore(state.history)
        self._source, self._cells = state.source, None
        self.prior, self._news, self.changes = state.prior, state.news, state.changes
