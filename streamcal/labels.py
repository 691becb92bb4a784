"""LabelLog: the labelled scores of one domain, a sketch with a buffer in front."""

from __future__ import annotations

from array import array
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.priors import LabelWindow, class_prior
from streamcal.sketch import ScoreSketch

__all__ = ["BLOCK", "DomainSummary", "LabelLog"]

BLOCK: Final = 8192
"""How many single values are gathered before they are sorted into a sketch."""


class DomainSummary(msgspec.Struct, frozen=True):
    """What is known of one domain."""

    labels: int
    """Number of labelled scores."""
    positives: int
    """Those of them with label 1."""
    prior: float | None
    """Smoothed estimate of the probability of class 1 (the target's from its ``prior_window``), None
    before the first label."""
    scores: int
    """Number of scores observed without regard to their label (target only)."""


class LabelLog:
    """A labelled sketch with a buffer in front; counts are always up to date."""

    __slots__ = ("labels", "n", "positives", "recent", "scores", "sketch")

    def __init__(self, sketch: ScoreSketch, recent: LabelWindow | None = None) -> None:
        self.sketch = sketch
        self.n = sketch.n
        self.positives = sketch.n_positives
        self.recent = recent
        self.scores = array("d")
        self.labels = bytearray()

    @property
    def prior_counts(self) -> tuple[int, int]:
        """(positives, labels) that the prior is estimated from."""
        counted = self if self.recent is None else self.recent
        return counted.positives, counted.n

    def summary(self, smoothing: float, scores: int) -> DomainSummary:
        """Return what is known of the domain, with so many scores observed without their label."""
        prior = class_prior(*self.prior_counts, smoothing) if self.n else None
        return DomainSummary(self.n, self.positives, prior, scores)

    def append(self, score: float, label: int) -> None:
        """Take one checked score with its label."""
        self.scores.append(score)
        self.labels.append(label)
        self.n += 1
        if label:
            self.positives += 1
        if self.recent is not None:
            self.recent.append(label)
        if len(self.labels) >= BLOCK:
            self.flush()

    def extend(self, scores: npt.NDArray[np.float64], labels: npt.NDArray[np.int8]) -> None:
        """Take checked scores with their labels: float64[n], int8[n]."""
        if len(self.labels) + len(labels) <= BLOCK:
            self.scores.frombytes(scores.tobytes())
            self.labels += labels.tobytes()
        else:
            self.flush()
            self.sketch._add(scores, labels)
        self.n += len(labels)
        self.positives += int(np.count_nonzero(labels))
        if self.recent is not None:
            self.recent.extend(labels.tolist())

    def merge(self, other: LabelLog) -> None:
        """Add what the other holds, as later labels; both must be flushed."""
        self.sketch.merge(other.sketch)
        self.n += other.n
        self.positives += other.positives
        if self.recent is not None and other.recent is not None:
            self.recent.extend(other.recent.labels)

    def flush(self) -> None:
        """Sort the buffer into the sketch."""
        if self.labels:
            self.sketch._add(np.frombuffer(self.scores), np.frombuffer(self.labels, np.int8))
            self.scores, self.labels = array("d"), bytearray()
