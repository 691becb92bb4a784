"""Kinds of engine under one interface, by public names: two classes in every mode, segments, many classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from streamcal import Recalibrator

CLASSES = ("cat", "dog", "fox")


@dataclass(frozen=True)
class Rows:
    """Events in columns: scores, labels and segments (None: none have any) of the same length."""

    scores: Any
    labels: Any
    segments: Any

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.scores[part], self.labels[part], self.segments and self.segments[part])

    @property
    def segment(self) -> Any:
        """Segments of the first event, a tuple."""
        return self.segments and (self.segments[0],)


@dataclass(frozen=True)
class Kind:
    """Two classes: a score is a number."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    rounding = 0.0
    """Distance of probabilities if labels come in other calls; 0: states are the same to the last byte."""

    @property
    def weighs(self) -> bool:
        """Whether labels may have weights."""
        return "segments" not in self.options

    def new(self) -> Recalibrator:
        return Recalibrator(**self.options)

    def rows(self, count: int, seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        scores, segments = rng.random(count), rng.integers(0, 4, count)
        scores[::7] = scores[::7].round(1)
        labels = (rng.random(count) < scores ** (1.0 + 0.5 * segments)).astype(int)
        named = [None if at == 3 else f"s{at}" for at in segments.tolist()]
        return Rows(scores, labels, named if "segments" in self.options else None)


class Classes(Kind):
    """Many classes: scores are rows of shares."""

    @property
    def rounding(self) -> float:
        """Sums of a call's labels are rounded otherwise; a mixture takes its steps by call."""
        return 0.0 if self.count == 2 else 0.05 if self.options["mode"] == "auto" else 1e-9

    @property
    def count(self) -> int:
        return len(self.options["classes"])

    def rows(self, count: int, seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        scores = rng.dirichlet(np.full(self.count, 0.7), count)
        truth = np.sqrt(scores) / np.sqrt(scores).sum(axis=1, keepdims=True)
        codes = (truth.cumsum(axis=1) < rng.random((count, 1))).sum(axis=1)
        return Rows(scores, np.array(CLASSES)[np.minimum(codes, self.count - 1)], None)


Mode = Literal["auto", "source", "label_shift", "target", "composite"]
MODES: tuple[Mode, ...] = ("auto", "source", "label_shift", "target", "composite")
KINDS: list[Kind] = [
    *(Kind(f"two classes, {mode}", {"mode": mode}) for mode in MODES),
    Kind("two classes, prior of scores", {"mode": "composite", "prior": "scores"}),
    Kind("two classes, a known prior", {"mode": "auto", "prior": 0.1}),
    Kind("two classes, negatives sampled", {"mode": "composite", "sampling_rate": 0.1}),
    Kind("two classes, window", {"mode": "target", "window": 128}),
    Kind("segments, auto", {"mode": "auto", "segments": "segment", "own_engines": 0}),
    Kind("segments, target", {"mode": "target", "segments": "segment", "own_engines": 0}),
    Kind("segments, own engines", {"mode": "auto", "segments": "segment", "own_engines": 2}),
    Classes("two named classes", {"mode": "auto", "classes": CLASSES[:2]}),
    Classes("three classes, auto", {"mode": "auto", "classes": CLASSES}),
    Classes("three classes, composite", {"mode": "composite", "classes": CLASSES}),
]
