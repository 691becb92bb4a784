"""One event at a time: single calls, a river pipeline, decoding, the join."""

from __future__ import annotations

import gc
import importlib.util
import statistics
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from arrays import sample
from measure import Row, compare, figure, seconds

from streamcal import LabelEvent, PredictionEvent, Recalibrator
from streamcal.events.codec import JsonDecoder

__all__ = ["rows"]

N = 10**5


def rows() -> Iterator[Row]:
    scores, labels = sample(10**6, 2)
    engine = Recalibrator(mode="composite", bins="cube_root")
    engine.learn_many(scores, labels, "source")
    pairs = list(zip(scores[:N].tolist(), labels[:N].tolist(), strict=True))
    yield from calls(engine, pairs)
    yield from river()
    yield from decoding(pairs)
    yield join(engine, pairs)
    yield from tails()


def calls(engine: Recalibrator, pairs: list[tuple[float, int]]) -> Iterator[Row]:
    served = engine.map
    edges, values = list(served.edges[1:-1]), list(served.values)
    shifted = Recalibrator.from_bytes(engine.to_bytes())
    shifted.learn_many(*zip(*pairs[:50], strict=True), "target")
    line = Recalibrator(mode="source")
    line.learn_many(*zip(*pairs, strict=True), "source")

    def learn() -> None:
        learn_one = engine.learn_one
        for score, label in pairs:
            learn_one(score, label, "source")

    def append() -> None:
        kept: list[tuple[float, int]] = []
        add = kept.append
        for score, label in pairs:
            add((score, label))

    def observe() -> None:
        observe_one = engine.observe_one
        for score, _ in pairs:
            observe_one(score)

    def predict(of: Recalibrator) -> None:
        predict_one = of.predict_one
        for score, _ in pairs:
            predict_one(score)

    def bisect() -> None:
        for score, _ in pairs:
            values[bisect_right(edges, score)]

    only, search = "a loop that only appends", f"values[bisect_right(edges, z)], {len(edges)} edges"
    yield compare("one", "learn_one", learn, only, append, n=N, repeats=15, at_most_ns=250)
    yield compare("one", "observe_one", observe, only, append, n=N, repeats=15)
    yield compare(
        "one", "predict_one, h", lambda: predict(engine), search, bisect, n=N, repeats=15, at_most_ns=200
    )
    yield compare(
        "one", "predict_one, g∘h", lambda: predict(shifted), search, bisect, n=N, repeats=15, at_most_ns=200
    )
    mixed = Recalibrator()
    mixed.learn_many(*zip(*pairs, strict=True))
    for name, of in (("a line", line), ("a mixture", mixed)):
        yield compare(
            "one", f"predict_one, {name}", lambda of=of: predict(of), search, bisect,
            n=N, repeats=15, at_most_ns=300,
        )  # fmt: skip


def river() -> Iterator[Row]:
    """Time river models on ten features, with and without a Recalibrator behind them."""
    if importlib.util.find_spec("river") is None:
        yield figure("one", "Recalibrator behind river", "µs/event", [], note="river is not installed")
        return
    from river import linear_model, preprocessing

    from streamcal.river import RecalibratedClassifier

    rng = np.random.default_rng(3)
    names = [f"x{place}" for place in range(10)]
    table = rng.standard_normal((N, 10))
    outcomes = (rng.random(N) < 1.0 / (1.0 + np.exp(-table @ rng.standard_normal(10)))).tolist()
    features = [dict(zip(names, row, strict=True)) for row in table.tolist()]

    def alone(model: Any) -> None:
        for x, y in zip(features, outcomes, strict=True):
            model.predict_proba_one(x)[True]
            model.learn_one(x, y)

    def behind(model: Any, engine: Recalibrator) -> None:
        for x, y in zip(features, outcomes, strict=True):
            score = model.predict_proba_one(x)[True]
            engine.predict_one(score)
            model.learn_one(x, y)
            engine.learn_one(score, int(y), "target")

    in_service = Recalibrator(mode="target")
    in_service.learn_many(*sample(10**6, 2), "target")
    state = in_service.to_bytes()
    regression = linear_model.LogisticRegression
    for name, model, engine, after, at_most in (
        ("StandardScaler | LogisticRegression", lambda: preprocessing.StandardScaler() | regression(),
         lambda: Recalibrator.from_bytes(state), "in service", 15.0),
        ("StandardScaler | LogisticRegression", lambda: preprocessing.StandardScaler() | regression(),
         lambda: Recalibrator(mode="target"), "new", 15.0),
        ("LogisticRegression", regression, lambda: Recalibrator.from_bytes(state), "in service", 15.0),
    ):  # fmt: skip
        times = seconds(lambda m=model, e=engine: behind(m(), e()), lambda m=model: alone(m()), repeats=5)
        mine, theirs = ([1e6 * taken / N for taken in each] for each in times)
        added = [100.0 * (a - b) / b for a, b in zip(mine, theirs, strict=True)]
        yield Row(
            "one", f"river {name}, then a Recalibrator, {after}", N, "µs/event", mine,
            f"{name} alone", theirs, "% added", added,
            f"≤ {at_most:g} % added", statistics.median(added) <= at_most,
        )  # fmt: skip
    pipeline = preprocessing.StandardScaler() | regression()
    for mode, at_most in (("target", 15.0), ("auto", 20.0)):
        engine = Recalibrator(mode=mode)
        engine.learn_many(*sample(10**6, 2), "target")

        def stage(mode: str = mode, state: bytes = engine.to_bytes()) -> RecalibratedClassifier:
            made = RecalibratedClassifier(pipeline.clone(), mode=mode)
            made._engine = Recalibrator.from_bytes(state)
            return made

        times = seconds(lambda s=stage: alone(s()), lambda: alone(pipeline.clone()), repeats=5)
        mine, theirs = ([1e6 * taken / N for taken in each] for each in times)
        added = [100.0 * (a - b) / b for a, b in zip(mine, theirs, strict=True)]
        yield Row(
            "one", f"RecalibratedClassifier(StandardScaler | LogisticRegression), mode {mode}, in service", N,
            "µs/event", mine, "StandardScaler | LogisticRegression alone", theirs, "% added", added,
            f"≤ {at_most:g} % added", statistics.median(added) <= at_most,
        )  # fmt: skip


def decoding(pairs: list[tuple[float, int]]) -> Iterator[Row]:
    predictions = [
        msgspec.json.encode({"id": str(place), "score": score, "time": place + 0.5})
        for place, (score, _) in enumerate(pairs)
    ]
    labels = [
        msgspec.json.encode({"id": str(place), "label": label}) for place, (_, label) in enumerate(pairs)
    ]
    for name, lines in (("predictions", predictions), ("labels", labels)):

        def ours(lines: list[bytes] = lines) -> None:
            decode = JsonDecoder().decode
            for line in lines:
                decode(line)

        def theirs(lines: list[bytes] = lines) -> None:
            decode = msgspec.json.decode
            for line in lines:
                decode(line)

        yield compare("one", f"JsonDecoder.decode, {name}", ours, "msgspec.json.decode", theirs, n=N)


def join(engine: Recalibrator, pairs: list[tuple[float, int]]) -> Row:
    """Time a prediction and its label 1,000 events later against the calls that a caller could make."""
    delay = 1000
    predictions = [PredictionEvent(str(place), score, float(place)) for place, (score, _) in enumerate(pairs)]
    labels = [LabelEvent(str(place), label, place + 0.5) for place, (_, label) in enumerate(pairs)]
    state = engine.to_bytes()

    def stream() -> None:
        step = Recalibrator.from_bytes(state).step
        for prediction in predictions[:delay]:
            step(prediction)
        for prediction, label in zip(predictions[delay:], labels, strict=False):
            step(prediction)
            step(label)

    def direct() -> None:
        twin = Recalibrator.from_bytes(state)
        for score, label in pairs:
            twin.predict_one(score)
            twin.observe_one(score)
            twin.learn_one(score, label, "target")

    return compare(
        "one", "step(prediction) + step(label)", stream, "predict_one + observe_one + learn_one", direct, n=N,
        at_most_ns=4000, note="ns per joined label; target re-weighted at every label",
    )  # fmt: skip


def tails() -> Iterator[Row]:
    """Time single labels, 500 late, behind 10³ and 10⁵ labels: the median, one in a thousand, the longest."""
    budgets = ("p50", 50.0, 4.0), ("p99.9", 99.9, 500.0), ("max", 100.0, 3000.0)
    for mode in ("auto", "target", "composite"):
        taken = [labels_of(mode, seed) for seed in range(3)]
        for first, end in ((1_000, 10_000), (90_000, 100_000)):
            for name, share, at_most in budgets:
                values = [float(np.percentile(each[first:end], share)) for each in taken]
                operation = f"step(label), {mode}, labels {first:,} to {end:,}: {name}"
                yield figure("one", operation, "µs", values, at_most=at_most)


def labels_of(mode: Any, seed: int) -> Any:
    """Return the processor time of each label of a stream in microseconds, float64[10⁵]."""
    scores, labels = sample(N, seed)
    engine = Recalibrator(mode=mode)
    if mode == "composite":
        engine.learn_many(*sample(20_000, 9), "source")
    taken, late = np.zeros(N), 500
    gc.disable()  # the collector's pauses are those of this loop's events
    for number in range(N + late):
        if number < N:
            engine.step(PredictionEvent(f"{number}", float(scores[number]), float(number)))
        if number >= late:
            label = LabelEvent(f"{number - late}", int(labels[number - late]), float(number))
            start = time.thread_time_ns()
            engine.step(label)
            taken[number - late] = (time.thread_time_ns() - start) / 1e3
    gc.enable()
    return taken
