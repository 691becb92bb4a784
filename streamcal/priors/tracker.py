"""PriorTracker: the class prior of the target as it moves, from labels, from scores, or from both.

From both, every prediction counts once, in the order in which predictions were made: by its label if that has
come, and else by its score. A change of the class balance shows in the scores at once; what was predicted
before it counts no longer, whenever its labels come. That a label comes, and when, must not depend on its
class: if ones come sooner, the latest labels are too many of them.

Memory: that of `PriorPanes`; from labels alone one byte a label of the window, or none without a window.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.maps.shift import class_prior, shift_correction
from streamcal.priors.adwin import change_point
from streamcal.priors.history import PanesState, PriorPanes
from streamcal.priors.late_labels import WaitingLabels, WaitingState
from streamcal.priors.likelihood import fused_prior
from streamcal.priors.source_map import SourceMap, SourceState
from streamcal.sketch import checks

__all__ = ["BLOCK", "PriorEvidence", "PriorKind", "PriorTracker", "PriorWindow"]

PriorKind = Literal["labels", "scores", "both"]
"""What the target's prior is estimated from."""

PriorWindow = int | Literal["adwin"] | None
"""How much of it counts: so many of the latest, what came since the last change, or all."""

BLOCK: Final = 64
"""Scores are taken in so many at a time; it is then that a change can be found."""

_PANE: Final = 16  # predictions in the finest pane: how exactly the place of a recent change is known
_PANES: Final = 16  # a window slides by this part of itself
_SETTLE: Final = 32  # labels at a time, at first fewer:
_FEW: Final = 8  # this part of the predictions that count
_PATIENCE: Final = 4 * BLOCK  # labels that may wait for the scores they belong to
_NEWS: Final = 64  # the prior is estimated anew when what is new is this part of all
_DELTA: Final = 0.05  # nominal, see `adwin`; less often than once in ten million predictions

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


class PriorEvidence(msgspec.Struct, frozen=True):
    """What a prior is estimated from."""

    labels: int
    """Labels that count; with ``"both"``, but for some of the latest 31."""
    positives: int
    """Those of them that are 1."""
    scores: int
    """Scores that count; with ``"both"``, those of predictions that have no label."""
    changes: int
    """How often a change was found so far, and what came before it dropped."""


class _State(msgspec.Struct):
    kind: str
    window: int | str | None
    n: int
    positives: int
    recent: bytes | None
    panes: PanesState | None
    waiting: WaitingState
    unsettled: int
    settle_at: int
    scores: bytes
    source: SourceState | None
    prior: float | None
    news: int
    changes: int


class PriorTracker:
    """A running estimate of Q[Y=1].

    Parameters
    ----------
    kind
        ``"labels"``, their share of ones; ``"scores"``, the likeliest prior given the scores alone; or
        ``"both"``, given the labels that have come and the scores of the other predictions.
    window
        how many of the latest predictions count (with ``"labels"``: labels); None: all; ``"adwin"``: those
        since the last change that was found. With scores, the window slides by a sixteenth of itself.
    smoothing
        s ≥ 0: so many labels of each class are added to those that count, see `class_prior`.

    Raises
    ------
    ValueError
        on another kind, window or smoothing.

    Examples
    --------
    >>> tracker = PriorTracker("labels")
    >>> for label in (0, 0, 1):
    ...     tracker.learn(label)
    >>> tracker.prior
    0.375
    """

    __slots__ = (
        "_changes",
        "_kind",
        "_n",
        "_news",
        "_panes",
        "_positives",
        "_prior",
        "_recent",
        "_scores",
        "_settle_at",
        "_smoothing",
        "_source",
        "_unsettled",
        "_waiting",
        "_window",
    )

    def __init__(
        self, kind: PriorKind = "labels", window: PriorWindow = None, smoothing: float = 0.5
    ) -> None:
        if kind not in ("labels", "scores", "both"):
            raise ValueError(f"kind must be 'labels', 'scores' or 'both', got {kind!r}")
        given: Any = window
        if given not in (None, "adwin") and (not isinstance(given, int) or given < 1):
            raise ValueError(f"window must be None, 'adwin' or an integer of at least 1, got {window!r}")
        if not 0.0 <= smoothing < np.inf:
            raise ValueError(f"smoothing must be a number of at least 0, got {smoothing!r}")
        self._kind, self._window, self._smoothing = kind, window, smoothing
        self._n = self._positives = 0  # labels that count, of kind "labels"
        self._recent: deque[int] | None = None
        self._panes: PriorPanes | None = None
        if window == "adwin":
            self._panes = PriorPanes(_PANE, None)
        elif kind == "labels":
            self._recent = None if window is None else deque(maxlen=window)
        elif window is None:
            self._panes = PriorPanes(BLOCK, 1 << 62)
        else:
            longest = max(1, window // _PANES)
            self._panes = PriorPanes(min(BLOCK, longest), longest)
        self._waiting = WaitingLabels()
        self._unsettled = 0  # labels since it was last tried to settle those that wait
        self._settle_at = 1
        self._scores = array("d")  # not taken in yet
        self._source: SourceMap | None = None
        self._prior: float | None = None
        self._news = 0  # predictions and labels since it was estimated
        self._changes = 0

    @property
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None before there is anything to estimate it from.

        From labels alone it is always up to date. With scores it is estimated anew when enough is new: in the
        long run at most once in 32 labels and once in `BLOCK` scores, and when a change was found.
        """
        if self._kind != "labels":
            return self._prior
        return class_prior(self._positives, self._n, self._smoothing) if self._n else None

    @property
    def evidence(self) -> PriorEvidence:
        """What `prior` is estimated from."""
        if self._kind == "labels" or self._panes is None:
            return PriorEvidence(self._n, self._positives, 0, self._changes)
        negatives, positives = self._counted_labels(self._panes)
        scores = int(self._counted_scores(self._panes).sum())
        return PriorEvidence(negatives + positives, positives, scores, self._changes)

    # Learning

    def learn(self, label: int, seen: int | None = None, score: float | None = None) -> None:
        """Take one target label.

        Parameters
        ----------
        label
            0 or 1; not checked here.
        seen
            how many target scores had been observed when its prediction was made, its own not among them.
            None: the label came at once, and its score is the latest observed, or was not observed.
        score
            of its prediction, in [0, 1]. With ``"both"`` it is needed with ``seen``; of a label that came at
            once it tells whether it was observed. With ``"labels"`` neither matters.

        Raises
        ------
        ValueError
            if the score is needed and missing; nothing is taken then.
        """
        if self._panes is None:
            recent = self._recent
            if recent is None:
                self._n += 1
            elif self._n == self._window:
                self._positives -= recent[0]
                recent.append(label)
            else:
                self._n += 1
                recent.append(label)
            self._positives += label
        elif self._kind == "labels":
            self._n += 1
            self._positives += label
            self._waiting.append(label, None, None)
            if len(self._waiting) >= BLOCK:
                self._take_labels(self._panes)
        elif self._kind == "both":
            if seen is not None and score is None:
                raise ValueError(f"the label of a prediction made at {seen!r} scores needs its score")
            self._waiting.append(label, seen, score)
            self._unsettled += 1
            if self._unsettled >= self._settle_at:
                self._settle(self._panes)
                if len(self._waiting) >= _PATIENCE:
                    self._take_unobserved(self._panes, self._waiting.take_all())
                self._estimate_if_due(self._panes)

    def learn_many(self, labels: Labels, seen: Any = None, scores: Scores | None = None) -> None:
        """Take n target labels, as n calls of `learn` would.

        Parameters
        ----------
        labels
            int8[n] of 0 and 1.
        seen
            int[n]; or one for all, of predictions made together before their scores were observed.
        scores
            float64[n].

        Raises
        ------
        ValueError
            as `learn`, or if the lengths differ.
        """
        if self._panes is None:
            if self._recent is None:
                self._n += len(labels)
                self._positives += int(np.count_nonzero(labels))
            else:
                self._extend(labels.tolist())
            return
        n = len(labels)
        when = [seen] * n if seen is None or np.ndim(seen) == 0 else np.asarray(seen).tolist()
        where = [None] * n if scores is None else scores.tolist()
        if not n == len(when) == len(where):
            raise ValueError(f"{n} labels of {len(when)} predictions with {len(where)} scores")
        for label, position, score in zip(labels.tolist(), when, where, strict=True):
            self.learn(label, position, score)

    def observe_many(self, scores: Scores) -> None:
        """Take the target scores of the next predictions, float64[n] in [0, 1]; not checked here.

        However they are cut into calls, the outcome is the same, provided that the scores up to each multiple
        of `BLOCK` are given before any label that comes after them.
        """
        panes, start = self._panes, 0
        if panes is None or self._kind == "labels":
            return
        while start < len(scores):
            end = start + BLOCK - (panes.end + len(self._scores)) % BLOCK
            self._scores.frombytes(scores[start:end].tobytes())
            if (panes.end + len(self._scores)) % BLOCK == 0:
                self._take_scores(panes)
            start = end

    def set_source(self, edges: Any, values: Any, prior: float) -> None:
        """Take over the source map, formed anew: scores speak of the target's prior by way of it.

        Parameters
        ----------
        edges, values
            of the map, [B+1] ascending from 0 to 1 and [B] in [0, 1]; none for the identity, by which scores
            do not count.
        prior
            P[Y=1], in [0, 1].

        Raises
        ------
        ValueError
            if they are not of these shapes and ranges; nothing has changed then.
        """
        if self._panes is None or self._kind == "labels":
            return
        source = SourceMap(edges, values, prior) if len(values) else None
        known = self._source
        if (source and source.to_state()) != (known and known.to_state()):
            self._source = source
            self._settle(self._panes)
            self._estimate(self._panes)

    def merge(self, other: Self) -> None:
        """Take what another of the same kind and window knows as later than all that is known here.

        Its scores count as observed after those here. Where predictions wait for their labels, ``seen`` of
        those made here stays what it is.
        """
        if self._panes is None or other._panes is None:
            if self._recent is not None and other._recent is not None:
                self._extend(list(other._recent))
            else:
                self._n += other._n
                self._positives += other._positives
            return
        self._flush(self._panes)
        end = self._panes.end
        self._panes.merge(other._panes)
        self._scores.extend(other._scores)
        self._waiting.merge(other._waiting, end)
        self._n += other._n
        self._positives += other._positives
        self._changes += other._changes
        self._flush(self._panes)

    # State

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        state = _State(
            self._kind,
            self._window,
            self._n,
            self._positives,
            None if self._recent is None else bytes(self._recent),
            None if self._panes is None else self._panes.to_state(),
            self._waiting.to_state(),
            self._unsettled,
            self._settle_at,
            np.array(self._scores, "<f8").tobytes(),
            None if self._source is None else self._source.to_state(),
            self._prior,
            self._news,
            self._changes,
        )
        return msgspec.msgpack.encode(state)

    def restore(self, data: bytes) -> Self:
        """Take on the state that `to_bytes` of a tracker with the same options gave; safe on any bytes.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; nothing has changed then.
        """
        restored = type(self)(self._kind, self._window, self._smoothing)
        try:
            restored._take_on(msgspec.msgpack.decode(data, type=_State))
        except (msgspec.DecodeError, ValueError, OverflowError) as error:
            raise DamagedStateError(f"not the state of this prior: {error}") from None
        for name in self.__slots__:
            setattr(self, name, getattr(restored, name))
        return self

    def _take_on(self, state: _State) -> None:
        """Take on a state, checked on the way; a ValueError says what is wrong."""
        if (state.kind, state.window) != (self._kind, self._window):
            raise ValueError(f"it is from {state.kind!r} with window {state.window!r}")
        if (state.recent is None, state.panes is None) != (self._recent is None, self._panes is None):
            raise ValueError("it lacks what its window holds")
        counts = (state.n, state.positives, state.news, state.unsettled, state.settle_at, state.changes)
        if min(counts) < 0 or max(counts) >= 1 << 62 or state.positives > state.n:
            raise ValueError(f"counts {counts} are out of range")
        self._n, self._positives, self._news, self._unsettled, self._settle_at, self._changes = counts
        self._prior = None if state.prior is None else checks.check_score(state.prior)
        if self._recent is not None and state.recent is not None:
            if len(state.recent) > (self._recent.maxlen or 0):
                raise ValueError(f"{len(state.recent)} labels in a window of {self._window}")
            self._extend(checks.as_labels(np.frombuffer(state.recent, np.int8)).tolist())
        if self._panes is not None and state.panes is not None:
            self._panes.restore(state.panes)
        self._source = None if state.source is None else SourceMap.from_state(state.source)
        self._waiting.restore(state.waiting)
        self._scores.extend(checks.as_scores(np.frombuffer(state.scores, "<f8")))
        if len(self._scores) >= BLOCK or len(self._waiting) > _PATIENCE + BLOCK:
            raise ValueError(f"{len(self._scores)} scores and {len(self._waiting)} labels wait")

    # Inside

    def _extend(self, labels: list[int]) -> None:
        if self._recent is not None:
            self._recent.extend(labels)
            self._n, self._positives = len(self._recent), sum(self._recent)

    def _take_labels(self, panes: PriorPanes) -> None:
        """Take in labels of kind ``"labels"``, and look for a change."""
        panes.take(self._waiting.take_all())
        changes = self._changes
        self._look(panes)
        if self._changes > changes:
            negatives, self._positives = panes.labels.sum(axis=1).tolist()
            self._n = negatives + self._positives

    def _take_scores(self, panes: PriorPanes) -> None:
        """Take in the scores that have come since the last block, and the labels that belong to them."""
        scores, self._scores = self._scores, array("d")
        self._waiting.match(scores, panes.end)
        panes.observe(np.array(scores))
        self._news += len(scores)
        self._settle(panes)
        self._look(panes)
        self._estimate_if_due(panes)

    def _settle(self, panes: PriorPanes) -> None:
        """Count predictions by their labels where those have come, and the scores have been taken in."""
        self._news += self._unsettled
        self._unsettled = 0
        if len(self._waiting):
            panes.settle(*self._waiting.take_ready(panes.end))
            unobserved = self._waiting.take_unobserved()
            if len(unobserved):
                self._take_unobserved(panes, unobserved)
        self._settle_at = self._few(panes)

    def _take_unobserved(self, panes: PriorPanes, labels: Labels) -> None:
        """Take labels of predictions whose scores are not observed."""
        panes.take(labels)
        self._look(panes)

    def _few(self, panes: PriorPanes) -> int:
        """Return how much may be new before it matters: at first, little."""
        return min(_SETTLE, 1 + panes.predictions // _FEW)

    def _flush(self, panes: PriorPanes) -> None:
        """Take in all that waits."""
        if self._kind == "labels":
            self._take_labels(panes)
            return
        if self._scores:
            self._take_scores(panes)
        self._settle(panes)
        self._take_unobserved(panes, self._waiting.take_all())
        self._estimate(panes)

    def _look(self, panes: PriorPanes) -> None:
        """Let go of what the window no longer holds."""
        panes.thin()
        if isinstance(self._window, int):
            panes.keep(self._window)
        elif self._window == "adwin":
            while cut := self._change(panes):
                panes.drop(cut)
                self._changes += 1
                if self._kind != "labels":
                    self._estimate(panes)

    def _change(self, panes: PriorPanes) -> int:
        """Return the pane that the last change came before; 0: there was none.

        Scores and labels are looked at apart. Together they would tell more under label shift; but where it
        holds only nearly, labelled and unlabelled predictions differ, and where the labels end is no change.
        """
        positives = panes.labels[1].astype(np.float64)
        cut = change_point(panes.labels.sum(axis=0), positives, positives, _DELTA)
        q, source = self._prior, self._source
        if source is None or q is None or not 0.0 < q < 1.0 or not source.informs:
            return cut
        # Σ(g(h(z)) − q) is q(1−q) times the slope of the likelihood of the scores: the mean of g(h(z)) moves
        # if and only if their prior does, and for small moves no statistic tells more.
        weights = ((1.0 - q) / (1.0 - source.prior), q / source.prior)
        posteriors = shift_correction(source.means(panes.cells, panes.level), weights)
        sums = panes.spread.astype(np.float64) @ np.stack((posteriors, posteriors * posteriors), axis=1)
        return max(cut, change_point(panes.scores, sums[:, 0], sums[:, 1], _DELTA))

    def _estimate_if_due(self, panes: PriorPanes) -> None:
        if self._news >= max(self._few(panes), panes.predictions // _NEWS):
            self._estimate(panes)

    def _estimate(self, panes: PriorPanes) -> None:
        self._news = 0
        negatives, positives = self._counted_labels(panes)
        labels, s, source = negatives + positives, self._smoothing, self._source
        scores = self._counted_scores(panes)
        if source is None or not source.informs or not scores.any():
            self._prior = class_prior(positives, labels, s) if labels else None
            return
        means = source.means(panes.cells, panes.level)
        self._prior = fused_prior(scores, means, source.prior, positives + s, labels + 2.0 * s)

    def _counted_labels(self, panes: PriorPanes) -> tuple[int, int]:
        """Return how many labels of each class count: also those that came at once, before their scores."""
        waiting = self._waiting.at_once
        negatives, positives = panes.labels.sum(axis=1).tolist()
        ones = int(np.count_nonzero(waiting))
        return negatives + len(waiting) - ones, positives + ones

    def _counted_scores(self, panes: PriorPanes) -> npt.NDArray[np.int64]:
        """Return the scores that count, per cell: int64[m]."""
        counted = panes.unlabelled if self._kind == "both" else panes.spread
        total: npt.NDArray[np.int64] = counted.sum(axis=0, dtype=np.int64)
        return total
