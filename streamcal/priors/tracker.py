"""PriorTracker: a running estimate of the class prior of the target, Q[Y=1].

This module defines the interface of every tracker. `label_trackers` and `score_trackers` hold the trackers,
one class per strategy, and `make_tracker` of `factory` chooses one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, Literal, Self

import msgspec

from streamcal.values import Counts, Floats, Labels

__all__ = ["BLOCK", "NO_LIMIT", "PriorEvidence", "PriorKind", "PriorTracker", "PriorWindow"]

PriorKind = Literal["labels", "scores", "both"]
"""Evidence that the target's prior is estimated from."""

PriorWindow = int | Literal["adwin"] | None
"""Predictions that an estimate counts: this many of the latest, those since the last change, or all."""

BLOCK: Final = 64
"""Number of scores in a block: trackers take scores by block, and test for a change after each."""

NO_LIMIT: Final = 1 << 62
"""Value of `PriorTracker.room` for a tracker that takes labels at any time."""


class PriorEvidence(msgspec.Struct, frozen=True):
    """Numbers of labels and scores that a prior is estimated from."""

    labels: int
    """Number of labels that count. With ``"both"``, up to 31 of the latest are not included yet."""
    positives: int
    """Number of these labels that are 1."""
    scores: int
    """Number of scores that count. With ``"both"``, only scores of predictions without a label."""
    changes: int
    """Number of changes found so far. At each change, the tracker drops the older predictions."""


class PriorTracker(ABC):
    """A running estimate of Q[Y=1].

    The caller buffers labels and scores, and hands them over in the order in which they came. The result
    depends on that order only, not on how the caller cuts it into calls:

    1. Hand over labels when `room` of them have gathered, at the latest.
    2. Hand over a block of scores when it is full.
    3. Before `take_scores`, `set_source`, `merge` and `to_state`, hand over all labels that have gathered. If
       `takes_scores` is False, do so before you read `prior` or `evidence` as well.

    Whether a label comes, and when, must not depend on its class. If ones come sooner than zeros, the latest
    labels hold too many of them.

    Parameters
    ----------
    window
        predictions that count, see `make_tracker`.
    smoothing
        s ≥ 0: the tracker adds s labels of each class to those that count, see `class_prior`.
    """

    kind: ClassVar[PriorKind]
    """Evidence that the tracker estimates the prior from."""

    takes_scores: ClassVar[bool]
    """Whether scores are used. If not, `take_scores` and `set_source` do nothing."""

    __slots__ = ("_smoothing", "_window")

    def __init__(self, window: PriorWindow, smoothing: float) -> None:
        self._window = window
        self._smoothing = smoothing

    @property
    @abstractmethod
    def prior(self) -> float | None:
        """Q̂[Y=1] in [0, 1]; None while there is no evidence."""

    @property
    @abstractmethod
    def evidence(self) -> PriorEvidence:
        """Numbers of labels and scores that `prior` is estimated from."""

    @property
    def room(self) -> int:
        """Number of labels, at least 1, that the caller may gather before it calls `take_labels`.

        `take_labels`, `take_scores`, `set_source`, `merge` and `restore` may change it.
        """
        return NO_LIMIT

    @abstractmethod
    def take_labels(self, labels: Labels, scores: Floats, seen: Counts, units: Counts | None = None) -> None:
        """Take the next target labels. More than `room` are allowed: the tracker cuts them itself.

        Parameters
        ----------
        labels
            int8[n] of 0 and 1.
        scores
            float64[n] in [0, 1]: the scores of their predictions.
        seen
            int64[n]: the number of target scores observed when each prediction was made, its own score
            excluded. −1 if the label came at once: then its score is the latest observed, or never observed.
        units
            int64[n]: the labels' weights in units of 1/256; None: all are 1.

        Raises
        ------
        ValueError
            if labels have weights, and the tracker counts them as one each.
        """

    @abstractmethod
    def take_scores(self, scores: Floats) -> None:
        """Take the target scores observed next.

        Parameters
        ----------
        scores
            float64[n] in [0, 1], up to a multiple of `BLOCK` observed scores. Only before `merge` may the
            last block be incomplete: it is then taken as a block of its own.
        """

    @abstractmethod
    def set_source(self, edges: Any, values: Any, prior: float) -> None:
        """Replace the map of the source, through which scores are evidence of the target's prior.

        Parameters
        ----------
        edges, values
            edges and values of the map: [B+1] ascending from 0 to 1, and [B] in [0, 1]. Both empty for the
            identity; scores
            then do not count.
        prior
            P[Y=1], in [0, 1].

        Raises
        ------
        ValueError
            if shapes or ranges are wrong; the tracker is then unchanged.
        """

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add the predictions of a tracker with the same options as later ones.

        First, hand over everything gathered for this tracker, scores of an incomplete block included, and the
        labels gathered for the other. The other's incomplete block of scores stays with the caller.

        Labels of predictions made here before the merge keep their ``seen``.
        """

    @abstractmethod
    def to_state(self) -> Any:
        """Return the state; its type tells the strategies apart."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Replace the state by one of a tracker with the same options.

        Raises
        ------
        ValueError, AttributeError
            if it is none.
        """
