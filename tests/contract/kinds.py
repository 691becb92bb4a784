"""Kinds of engine under one interface, by public names: two classes in every mode, segments, many classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from streamcal import MulticlassRecalibrator, Recalibrator, SegmentedRecalibrator

CLASSES = ("cat", "dog", "fox")
TARGET = "target"


@dataclass(frozen=True)
class Rows:
    """Events in columns: scores, labels and segments (of some kinds) of the same length."""

    scores: Any
    labels: Any
    segments: Any

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.scores[part], self.labels[part], self.segments[part])


@dataclass(frozen=True)
class Kind:
    """Two classes: a score is a number, the memo of a prediction the number of scores observed before."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    weighs = True
    """Whether labels may have weights."""
    rounding = 0.0
    """Distance of probabilities if labels come in other calls; 0: states are the same to the last byte."""

    def new(self) -> Any:
        return Recalibrator(**self.options)

    def rows(self, count: int, seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        scores, segments = rng.random(count), rng.integers(0, 4, count)
        scores[::7] = scores[::7].round(1)
        labels = (rng.random(count) < scores ** (1.0 + 0.5 * segments)).astype(int)
        return Rows(scores, labels, [None if at == 3 else f"s{at}" for at in segments.tolist()])

    def predict_one(self, engine: Any, rows: Rows) -> Any:
        return engine.predict_one(rows.scores[0].item())

    def predict_many(self, engine: Any, rows: Rows) -> Any:
        return engine.predict_many(rows.scores)

    def observe_one(self, engine: Any, rows: Rows) -> None:
        engine.observe_one(rows.scores[0].item())

    def observe_many(self, engine: Any, rows: Rows) -> None:
        engine.observe_many(rows.scores)

    def memo(self, engine: Any, rows: Rows) -> Any:
        """Return what the labels of these rows need when they come late."""
        return engine.prediction_count

    def learn_one(
        self, engine: Any, rows: Rows, domain: str = "target", memo: Any = None, **more: Any
    ) -> None:
        score, label = rows.scores[0].item(), rows.labels[0].item()
        engine.learn_one(score, label, domain, prediction_index=memo, **more)

    def learn_many(
        self, engine: Any, rows: Rows, domain: str = "target", memo: Any = None, **more: Any
    ) -> None:
        engine.learn_many(rows.scores, rows.labels, domain, prediction_index=memo, **more)

    def part(self, memo: Any, start: int, end: int) -> Any:
        """Return the memo of some of the rows."""
        return memo


class Segments(Kind):
    """Two classes with segments: the memo is the number of scores observed, and the forecasts."""

    weighs = False

    def new(self) -> Any:
        return SegmentedRecalibrator(("segment",), Recalibrator(**self.options), own_engines=0)

    def predict_one(self, engine: Any, rows: Rows) -> Any:
        return engine.predict_one(rows.scores[0].item(), rows.segments[0])

    def predict_many(self, engine: Any, rows: Rows) -> Any:
        return engine.predict_many(rows.scores, rows.segments)

    def observe_one(self, engine: Any, rows: Rows) -> None:
        engine.observe_many(rows.scores, rows.segments)

    def observe_many(self, engine: Any, rows: Rows) -> None:
        engine.observe_many(rows.scores, rows.segments)

    def memo(self, engine: Any, rows: Rows) -> Any:
        return engine.pooled.prediction_count, engine.forecast_many(rows.scores, rows.segments)

    def learn_one(
        self, engine: Any, rows: Rows, domain: str = "target", memo: Any = None, **more: Any
    ) -> None:
        index, forecasts = (None, [None]) if memo is None else memo
        score, label = rows.scores[0].item(), rows.labels[0].item()
        told = {"prediction_index": index, "forecast": forecasts[0], **more}
        engine.learn_one(score, label, rows.segments[0], domain, **told)

    def learn_many(
        self, engine: Any, rows: Rows, domain: str = "target", memo: Any = None, **more: Any
    ) -> None:
        index, forecasts = (None, None) if memo is None else memo
        told = {"prediction_index": index, "forecasts": forecasts, **more}
        engine.learn_many(rows.scores, rows.labels, rows.segments, domain, **told)

    def part(self, memo: Any, start: int, end: int) -> Any:
        return memo and (memo[0], memo[1][start:end])


class Classes(Kind):
    """Many classes: scores are rows of shares, the memo is what the engine carries."""

    @property
    def rounding(self) -> float:  # type: ignore[override]
        """Sums of a call's labels are rounded otherwise; a mixture takes its steps by call."""
        return 0.0 if self.count == 2 else 0.05 if self.options["mode"] == "auto" else 1e-9

    def new(self) -> Any:
        return MulticlassRecalibrator(CLASSES[: self.count], **self.options)

    @property
    def count(self) -> int:
        return 2 if self.name.startswith("two") else 3

    def rows(self, count: int, seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        scores = rng.dirichlet(np.full(self.count, 0.7), count)
        truth = np.sqrt(scores) / np.sqrt(scores).sum(axis=1, keepdims=True)
        codes = (truth.cumsum(axis=1) < rng.random((count, 1))).sum(axis=1)
        return Rows(scores, np.array(CLASSES)[np.minimum(codes, self.count - 1)], [None] * count)

    def predict_one(self, engine: Any, rows: Rows) -> Any:
        return engine.predict_one(rows.scores[0])

    def observe_one(self, engine: Any, rows: Rows) -> None:
        engine.observe_one(rows.scores[0])

    def memo(self, engine: Any, rows: Rows) -> Any:
        return engine.carry_many(rows.scores)

    def learn_one(
        self, engine: Any, rows: Rows, domain: str = "target", memo: Any = None, **more: Any
    ) -> None:
        carried = None if memo is None else memo[0]
        engine.learn_one(rows.scores[0], rows.labels[0].item(), domain, carried=carried, **more)

    def learn_many(
        self, engine: Any, rows: Rows, domain: str = "target", memo: Any = None, **more: Any
    ) -> None:
        engine.learn_many(rows.scores, rows.labels, domain, carried=memo, **more)

    def part(self, memo: Any, start: int, end: int) -> Any:
        return None if memo is None else memo[start:end]


Mode = Literal["auto", "source", "label_shift", "target", "composite"]
MODES: tuple[Mode, ...] = ("auto", "source", "label_shift", "target", "composite")
KINDS: list[Kind] = [
    *(Kind(f"two classes, {mode}", {"mode": mode}) for mode in MODES),
    Kind("two classes, prior of scores", {"mode": "composite", "prior": "scores"}),
    Kind("two classes, window", {"mode": "target", "window": 128}),
    Segments("segments, auto", {"mode": "auto"}),
    Segments("segments, target", {"mode": "target"}),
    Classes("two named classes", {"mode": "auto"}),
    Classes("three classes, auto", {"mode": "auto"}),
    Classes("three classes, composite", {"mode": "composite"}),
]
