"""What does the slowest event take? Processor time of single events: median, 99 %, 99.9 % and most.

    python -m benchmarks.tails [--events 100000] [--seeds 3]

A label comes 500 predictions after its own, one event at a time. Whatever an engine does now and then, such
as to form a map or to step its mixture, is in the time of the event that it falls on; the garbage collector
is off, as its pauses are those of the program around. Figures are the median of the seeds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.measuring import options, publish
from streamcal import LabelEvent, PredictionEvent, Recalibrator
from streamcal.testing import NormalPair

LATE: Final = 500
SHARES: Final = (50.0, 99.0, 99.9, 100.0)
CLASSES: Final = (3, 64)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="predictions of a stream")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.events, asked.seeds = 3_000, 1
    names = ("median", "99 %", "99.9 %", "most")
    publish("tails", ("event", "of them", *(f"{name}, µs" for name in names)), rows(asked), write=asked.write)


def rows(asked: Any) -> Iterator[list[str]]:
    """Yield the times of the first thousand labels of a stream, and of its last tenth."""
    for name, make in STREAMS.items():
        taken = np.array([make(asked.events, seed) for seed in range(asked.seeds)])
        n = taken.shape[2]
        last = f"last {n // 10:,} of {n:,}", slice(n - n // 10, n)
        first = "first 1,000", slice(0, 1_000)
        for kind, place, (what, part) in (("prediction", 0, last), ("label", 1, first), ("label", 1, last)):
            ends = np.percentile(taken[:, place, part], SHARES, axis=1)
            figures = [f"{each:,.1f}" if each < 100 else f"{each:,.0f}" for each in np.median(ends, axis=1)]
            yield [f"{kind}, {name}", what, *figures]


def sample(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and labels of the paper's D(0.5), in random order."""
    rng = np.random.default_rng(seed)
    scores, labels = NormalPair(0.5).sample(n, rng)
    order = rng.permutation(n)
    return scores[order], labels[order]


def timed(n: int, predict: Callable[[int], object], label: Callable[[int], object]) -> np.ndarray:
    """Return the microseconds of each prediction and of its label, float64[2, n], less those of the clock."""
    taken = np.zeros((2, n))
    gc.disable()
    empty = [(-time.thread_time_ns() + time.thread_time_ns()) / 1e3 for _ in range(1_000)]
    for number in range(n + LATE):
        for place, call, of in ((0, predict, number), (1, label, number - LATE)):
            if 0 <= of < n:
                start = time.thread_time_ns()
                call(of)
                taken[place, of] = (time.thread_time_ns() - start) / 1e3
    gc.enable()
    return np.maximum(taken - np.median(empty), 0.0)


def joined(mode: Any, n: int, seed: int) -> np.ndarray:
    """Time `step` of predictions and labels."""
    scores, labels = sample(n, seed)
    engine = Recalibrator(mode=mode)
    if mode == "composite":
        engine.learn_many(*sample(20_000, 9), "source")
    predictions = [PredictionEvent(f"{i}", score, float(i)) for i, score in enumerate(scores.tolist())]
    answers = [LabelEvent(f"{i}", label, float(i + LATE)) for i, label in enumerate(labels.tolist())]
    return timed(n, lambda i: engine.step(predictions[i]), lambda i: engine.step(answers[i]))


def segmented(n: int, seed: int, count: int = 100) -> np.ndarray:
    """Time an engine with so many segments."""
    scores, labels = sample(n, seed)
    names = [(f"{each}",) for each in np.random.default_rng(seed).integers(0, count, n).tolist()]
    engine = Recalibrator(segments=["segment"])
    events, answers = scores.tolist(), labels.tolist()

    def predict(i: int) -> None:
        engine.predict_one(events[i], names[i])
        engine.observe_one(events[i], names[i])

    return timed(n, predict, lambda i: engine.learn_one(events[i], answers[i], segments=names[i]))


def of_classes(count: int, n: int, seed: int) -> np.ndarray:
    """Time an engine of so many classes, on a tenth of the events."""
    rng = np.random.default_rng(seed)
    n //= 10
    logits = rng.normal(0.0, 1.5, (n, count))
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (scores.cumsum(axis=1) < rng.random(n)[:, np.newaxis]).sum(axis=1).clip(max=count - 1).tolist()
    names = [f"class {k}" for k in range(count)]
    engine, rows = Recalibrator(classes=names), list(scores)

    def predict(i: int) -> None:
        engine.predict_one(rows[i])
        engine.observe_one(rows[i])

    return timed(n, predict, lambda i: engine.learn_one(rows[i], labels[i]))


STREAMS: Final[dict[str, Callable[[int, int], np.ndarray]]] = {
    "auto": lambda n, seed: joined("auto", n, seed),
    "target": lambda n, seed: joined("target", n, seed),
    "composite": lambda n, seed: joined("composite", n, seed),
    "100 segments": segmented,
} | {f"{count} classes": lambda n, seed, count=count: of_classes(count, n, seed) for count in CLASSES}


if __name__ == "__main__":
    main()
