"""ScoreTracker: a running estimate of the class prior of the target, Q[Y=1], from its scores alone.

Memory: that of a `History`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import numpy as np

from streamcal.base.values import Cells, Floats
from streamcal.maps.shift import shift_correction, shift_weights
from streamcal.mixture.history import BLOCK, History
from streamcal.mixture.likelihood import SourceMap, likeliest_prior
from streamcal.sketch.decoding import Count, Part, encoded

_STEP: Final = 32  # a prior is estimated again after so many new scores; at first more often,
_FEW: Final = 8  # when 1/8 of the predictions that count is new,
_NEWS: Final = 64  # and later when 1/64 of them is


class ScoreTracker(Part, dict=True):
    """Tracker of the likeliest prior given the scores since the last change of the class balance.

    A change shows in the scores at once: predictions before it stop counting. All scores would be too much
    evidence: what came before a change would outweigh, for long, what came after it.

    The caller buffers scores, and hands them over by blocks. The result depends on their order only, not on
    how the caller cuts them into calls. Its fields are its state.
    """

    history: History = msgspec.field(default_factory=History)
    source: SourceMap | None = None
    """Map of the source, through which scores are evidence."""
    prior: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] | None = None
    """Q̂[Y=1] in (0, 1); None while there is no evidence.

    The tracker estimates it again when enough is new, in the long run at most once per block of scores, and
    at every change.
    """
    news: Count = 0
    """Number of scores since the prior was estimated."""
    changes: Count = 0
    """Number of changes found so far."""

    def __post_init__(self) -> None:
        self._cells: Cells | None = None  # those that the means are of
        self._means: Floats = np.empty(0)

    @property
    def n(self) -> int:
        """Number of scores that count."""
        return self.history.n

    def take_scores(self, scores: Floats) -> None:
        """Take the target scores observed next, float64[n] in [0, 1], up to a multiple of `BLOCK` of them."""
        start = 0
        while start < len(scores):
            end = start + BLOCK - self.history.observed % BLOCK
            block = scores[start:end]
            self.history.observe(block)
            self.news += len(block)
            self._forget()
            n = self.n
            if self.news >= max(min(_STEP, 1 + n // _FEW), n // _NEWS):
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
        """
        source = None
        if len(values):
            source = SourceMap(np.array(edges, np.float64), np.array(values, np.float64), prior)
        if encoded(source) != encoded(self.source):
            self.source, self._cells = source, None
            self._estimate()

    def _forget(self) -> None:
        """Forget the predictions before a change."""
        self.history.compact()
        while cut := self._change():
            self.history.drop(cut)
            self.changes += 1
            self._estimate()

    def _change(self) -> int:
        """Return the number of panes before the last change; 0 if there is none."""
        q, source = self.prior, self.source
        if source is None or q is None:
            return 0
        # Σ(g(h(z)) − q) is q(1−q) times the slope of the likelihood of the scores: the mean of g(h(z)) moves
        # if and only if their prior does, and for small moves no statistic tells more.
        weights = shift_weights(source.prior, q)
        return self.history.change(shift_correction(self._means_of(source), weights))

    def _estimate(self) -> None:
        self.news, self.prior, source = 0, None, self.source
        if source is not None:
            self.prior = likeliest_prior(self.history.masses, self._means_of(source), source.prior)

    def _means_of(self, source: SourceMap) -> Floats:
        """Return the mean of the source's map in each cell of the history, float64[m]."""
        history = self.history
        if self._cells is not history.cells:
            self._means, self._cells = source.means(history.cells, history.level), history.cells
        return self._means
