"""Trackers of the prior from scores alone, and from scores and labels together.

With both, every prediction counts once, in the order in which predictions were made: by its label if that has
come, and by its score otherwise. A change of the class balance shows in the scores at once. Predictions made
before the change then stop counting, even if their labels come later.

Memory: a `PredictionHistory`, and a few hundred labels that wait for their scores.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Self

import msgspec
import numpy as np

from streamcal.maps.shift import class_prior, shift_correction, shift_weights
from streamcal.priors.history import HistoryState, PredictionHistory
from streamcal.priors.late_labels import WaitingLabels, WaitingState
from streamcal.priors.likelihood import fused_prior
from streamcal.priors.source_map import SourceMap, SourceState
from streamcal.priors.tracker import BLOCK, PriorEvidence, PriorKind, PriorTracker, PriorWindow
from streamcal.sketch.decoding import Count, Probability, encoded, require
from streamcal.values import Counts, Floats, Labels

__all__ = ["FusedState", "FusedTracker", "ScoreState", "ScoreTracker"]

_STEP: Final = 32  # labels are settled this many at a time; at first more often,
_FEW: Final = 8  # when 1/8 of the predictions that count is new
_NEWS: Final = 64  # the prior is estimated again when 1/64 of the predictions that count is new
_PATIENCE: Final = 4 * BLOCK  # labels that may wait for their scores


class ScoreState(msgspec.Struct, tag="scores"):
    """The state of a `ScoreTracker`."""

    history: HistoryState
    source: SourceState | None
    prior: Probability | None
    news: Count
    changes: Count


class ScoreTracker(PriorTracker):
    """Tracker of the likeliest prior given the scores alone.

    Parameters
    ----------
    window, smoothing
        see `PriorTracker`.
    """

    kind: ClassVar[PriorKind] = "scores"
    takes_scores: ClassVar[bool] = True

    __slots__ = ("_changes", "_history", "_news", "_prior", "_source")

    def __init__(self, window: PriorWindow, smoothing: float) -> None:
        super().__init__(window, smoothing)
        self._history = PredictionHistory(window)
        self._source: SourceMap | None = None
        self._prior: float | None = None
        self._news = 0  # scores and labels since the prior was estimated
        self._changes = 0

    @property
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None while there is no evidence.

        The tracker estimates it again when enough is new: in the long run at most once per block of scores
        and once per 32 labels, and at every change.
        """
        return self._prior

    @property
    def evidence(self) -> PriorEvidence:
        """Numbers of labels and scores that `prior` is estimated from."""
        negatives, positives = self._label_counts
        scores = int(self._history.unlabelled.sum())
        return PriorEvidence(negatives + positives, positives, scores, self._changes)

    def take_labels(self, labels: Labels, scores: Floats, seen: Counts, units: Counts | None = None) -> None:
        """Do nothing: labels are not used."""

    def take_scores(self, scores: Floats) -> None:
        """Take the target scores observed next, see `PriorTracker.take_scores`."""
        start = 0
        while start < len(scores):
            end = start + BLOCK - self._history.observed % BLOCK
            self._take_block(scores[start:end])
            start = end

    def set_source(self, edges: Any, values: Any, prior: float) -> None:
        """Replace the map of the source, see `PriorTracker.set_source`."""
        source = SourceMap(edges, values, prior) if len(values) else None
        known = self._source
        if encoded(source and source.to_state()) != encoded(known and known.to_state()):
            self._source = source
            self._settle()
            self._estimate()

    def merge(self, other: Self) -> None:
        """Add the predictions of the other as later ones, see `PriorTracker.merge`."""
        self._take_waiting()
        self._add(other)
        self._take_waiting()

    # Inside: what `FusedTracker` extends

    @property
    def _label_counts(self) -> tuple[int, int]:
        """Labels of each class that count: negatives, positives."""
        return self._history.label_counts

    def _take_block(self, scores: Floats) -> None:
        """Take at most one block of scores."""
        self._history.observe(scores)
        self._news += len(scores)
        self._settle()
        self._forget()
        self._estimate_if_due()

    def _settle(self) -> None:
        """Count predictions by their labels where both the label and the score have come."""

    def _take_waiting(self) -> None:
        """Count all buffered scores and labels."""
        self._settle()
        self._forget()
        self._estimate()

    def _add(self, other: Self) -> None:
        """Add the other's history."""
        self._history.merge(other._history)
        self._changes += other._changes

    # Inside: forgetting and estimating

    def _forget(self) -> None:
        """Forget the predictions outside the window."""
        self._history.compact()
        while cut := self._change():
            self._history.drop(cut)
            self._changes += 1
            self._estimate()

    def _change(self) -> int:
        """Return the number of panes before the last change; 0 if there is none, or changes are not tested.

        Scores and labels are tested apart. Together they would tell more if label shift held exactly. Where
        it holds only nearly, labelled and unlabelled predictions differ, and the boundary between them would
        look like a change.
        """
        history, q, source = self._history, self._prior, self._source
        if not history.adaptive:
            return 0
        cut = history.label_change()
        if source is None or q is None or not 0.0 < q < 1.0 or not source.informs:
            return cut
        # Σ(g(h(z)) − q) is q(1−q) times the slope of the likelihood of the scores: the mean of g(h(z)) moves
        # if and only if their prior does, and for small moves no statistic tells more.
        means = source.means(history.cells, history.level)
        return max(cut, history.score_change(shift_correction(means, shift_weights(source.prior, q))))

    @property
    def _few(self) -> int:
        """Number of new predictions after which the prior is estimated again."""
        return min(_STEP, 1 + self._history.predictions // _FEW)

    def _estimate_if_due(self) -> None:
        if self._news >= max(self._few, self._history.predictions // _NEWS):
            self._estimate()

    def _estimate(self) -> None:
        self._news = 0
        negatives, positives = self._label_counts
        labels, s, source, scores = (
            negatives + positives,
            self._smoothing,
            self._source,
            self._history.unlabelled,
        )
        if source is None or not source.informs or not scores.any():
            self._prior = class_prior(positives, labels, s) if labels else None
            return
        means = source.means(self._history.cells, self._history.level)
        self._prior = fused_prior(scores, means, source.prior, positives + s, labels + 2.0 * s)

    # Inside: state

    def to_state(self) -> Any:
        """Return the state."""
        source = None if self._source is None else self._source.to_state()
        return ScoreState(self._history.to_state(), source, self._prior, self._news, self._changes)

    def restore(self, state: Any) -> None:
        """Replace the state by another."""
        self._history.restore(state.history)
        self._source = None if state.source is None else SourceMap(*msgspec.structs.astuple(state.source))
        self._prior, self._news, self._changes = state.prior, state.news, state.changes


class FusedState(msgspec.Struct, tag="both"):
    """The state of a `FusedTracker`."""

    scores: ScoreState
    waiting: WaitingState
    unsettled: Annotated[int, msgspec.Meta(ge=0)]
    settle_at: Annotated[int, msgspec.Meta(le=_STEP)]


class FusedTracker(ScoreTracker):
    """Tracker of the likeliest prior given the labels so far and the scores of the other predictions.

    Parameters
    ----------
    window, smoothing
        see `PriorTracker`.
    """

    kind: ClassVar[PriorKind] = "both"

    __slots__ = ("_settle_at", "_unsettled", "_waiting")

    def __init__(self, window: PriorWindow, smoothing: float) -> None:
        super().__init__(window, smoothing)
        self._waiting = WaitingLabels()
        self._unsettled = 0  # labels since the last attempt to settle those that wait
        self._settle_at = 1

    @property
    def room(self) -> int:
        """Number of labels until they are counted."""
        return self._settle_at - self._unsettled

    def take_labels(self, labels: Labels, scores: Floats, seen: Counts, units: Counts | None = None) -> None:
        """Take the next target labels, see `PriorTracker.take_labels`: without weights."""
        if units is not None:
            raise ValueError("labels with weights for a prior from labels and scores")
        start = 0
        while start < len(labels):
            end = min(start + self.room, len(labels))
            self._waiting.append(labels[start:end], scores[start:end], seen[start:end])
            self._unsettled += end - start
            start = end
            if not self.room:
                self._settle()
                if len(self._waiting) >= _PATIENCE:
                    self._take_unobserved(self._waiting.take_all())
                self._estimate_if_due()

    @property
    def _label_counts(self) -> tuple[int, int]:
        """Labels of each class that count, including labels that came at once, before their scores."""
        negatives, positives = super()._label_counts
        waiting = self._waiting.at_once
        ones = int(np.count_nonzero(waiting))
        return negatives + len(waiting) - ones, positives + ones

    def _take_block(self, scores: Floats) -> None:
        self._waiting.match(scores, self._history.observed)
        super()._take_block(scores)

    def _settle(self) -> None:
        self._news += self._unsettled
        self._unsettled = 0
        if len(self._waiting):
            self._history.settle(*self._waiting.take_ready(self._history.observed))
            unobserved = self._waiting.take_unobserved()
            if len(unobserved):
                self._take_unobserved(unobserved)
        self._settle_at = self._few

    def _take_unobserved(self, labels: Labels) -> None:
        """Take labels of predictions whose scores are not observed."""
        self._history.add_labels(labels)
        self._forget()

    def _take_waiting(self) -> None:
        self._settle()
        self._take_unobserved(self._waiting.take_all())
        self._estimate()

    def _add(self, other: Self) -> None:
        self._waiting.merge(other._waiting, self._history.observed)
        super()._add(other)

    def to_state(self) -> Any:
        """Return the state."""
        scores, waiting = super().to_state(), self._waiting.to_state()
        return FusedState(scores, waiting, self._unsettled, self._settle_at)

    def restore(self, state: Any) -> None:
        """Replace the state by another."""
        unsettled, settle_at, waiting = state.unsettled, state.settle_at, state.waiting
        require(unsettled < settle_at, f"{unsettled} labels are unsettled, where {settle_at} are settled")
        require(len(waiting.labels) < _PATIENCE + _STEP, f"{len(waiting.labels)} labels wait for scores")
        super().restore(state.scores)
        self._waiting, self._unsettled, self._settle_at = WaitingLabels(waiting), unsettled, settle_at
