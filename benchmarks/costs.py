"""What does not show in one call: growth with n, re-forming, memory, merging."""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
from arrays import sample
from measure import Row, figure, seconds

from streamcal import Recalibrator, ScoreSketch

__all__ = ["rows"]

REPEATS = 9


# Growth of the schedule with which no version is due from n = 10⁵, 10⁶ and 10⁷ to 1.1 n, nor from 10⁵ to
# 1.1·10⁶: learning is timed alone there, re-forming has rows of its own.
_APART = 11.5


def rarely() -> Recalibrator:
    """Return an engine whose versions are that far apart."""
    engine = Recalibrator()
    engine._engine.reform_by(_APART)
    return engine


def rows() -> Iterator[Row]:
    scores, labels = sample(10**7, 4)
    yield from growth(scores, labels)
    yield from certificates(scores, labels)
    yield from reforming(scores, labels)
    yield from memory(scores, labels)
    yield from merging(scores, labels)


def growth(scores: np.ndarray, labels: np.ndarray) -> Iterator[Row]:
    """Time the next events after 10⁵ and after 10⁷."""
    states = []
    for n in (10**7, 10**5):
        engine = rarely()
        engine.learn_many(scores[:n], labels[:n], "source")
        states.append(engine.to_bytes())
    n = 10**6
    pairs = list(zip(scores[:n].tolist(), labels[:n].tolist(), strict=True))[: 10**5]
    fresh: list[Recalibrator] = []

    def restore() -> None:
        fresh[:] = [Recalibrator.from_bytes(state) for state in states]

    def many(engine: Recalibrator) -> None:
        for start in range(0, n, 10**5):
            engine.learn_many(scores[start : start + 10**5], labels[start : start + 10**5], "source")

    def one(engine: Recalibrator) -> None:
        for score, label in pairs:
            engine.learn_one(score, label, "source")

    for operation, work, events in (("learn_many by 10⁵", many, n), ("learn_one", one, len(pairs))):
        times = seconds(
            lambda w=work: w(fresh[0]), lambda w=work: w(fresh[1]), repeats=REPEATS, before=restore
        )
        late, soon = ([1e9 * taken / events for taken in each] for each in times)
        ratios = [a / b for a, b in zip(late, soon, strict=True)]
        yield Row(
            "cost", f"{operation}, after 10⁷", events, "ns/event", late, f"{operation}, after 10⁵", soon,
            "× the time", ratios, "≤ 1.1 ×", statistics.median(ratios) <= 1.1,
        )  # fmt: skip


def certificates(scores: np.ndarray, labels: np.ndarray) -> Iterator[Row]:
    """Time the certificate of a new version, of modes that have learned so many labels."""
    for mode in ("source", "target", "auto"):
        domain = "source" if mode == "source" else "target"
        for n in (10**3, 10**4, 10**5):
            engine = Recalibrator(mode=mode)
            engine.learn_many(scores[:n], labels[:n], domain)
            state, held = engine.to_bytes(), [engine]
            assert engine.certificate is not None

            def again(held: list[Recalibrator] = held, domain: str = domain) -> None:
                held[0].learn_one(0.5, 1, domain)
                held[0].refresh()  # a certificate is worked out once a version

            def restored(held: list[Recalibrator] = held, state: bytes = state) -> None:
                held[0] = Recalibrator.from_bytes(state)
                held[0].refresh()

            def certify(held: list[Recalibrator] = held) -> None:
                assert held[0].certificate is not None

            name = f"certificate of a version, mode {mode}"
            for before, when, at_most in ((again, "in service", 2.0), (restored, "after a restart", None)):
                (times,) = seconds(certify, repeats=REPEATS, before=before)
                taken = [1e3 * each for each in times]
                yield figure("cost", f"{name}, {when}", "ms", taken, n=n, at_most=at_most)


def reforming(scores: np.ndarray, labels: np.ndarray) -> Iterator[Row]:
    sample = spread_over_cells(4096, 10**7)
    sketch = ScoreSketch()
    sketch.add(*sample)
    cells = len(sketch.cells)
    full = Recalibrator()
    full.learn_many(*sample, "source")
    (times,) = seconds(full.refresh, repeats=REPEATS)
    yield figure(
        "cost", f"re-forming the map at {cells} cells", "ms", [1e3 * taken for taken in times], at_most=50,
    )  # fmt: skip

    whole, again = full.to_bytes(), [full]

    def forget() -> None:
        again[0] = Recalibrator.from_bytes(whole)  # a certificate is worked out once

    def certify() -> None:
        again[0].refresh()
        assert again[0].certificate is not None

    (times,) = seconds(certify, repeats=REPEATS, before=forget)
    milliseconds = [1e3 * taken for taken in times]
    yield figure("cost", f"re-forming map and certificate at {cells} cells", "ms", milliseconds, at_most=50)
    for n in (10**5, 10**6, 10**7):
        engine = rarely()
        engine.learn_many(scores[:n], labels[:n], "source")
        pairs = list(zip(scores[: n // 10].tolist(), labels[: n // 10].tolist(), strict=True))[: 10**5]
        state, copies = engine.to_bytes(), [engine]

        def restore(state: bytes = state, copies: list[Recalibrator] = copies) -> None:
            copies[:] = [Recalibrator.from_bytes(state)]

        def many(n: int = n, copies: list[Recalibrator] = copies) -> None:
            for start in range(0, n // 10, 10**4):  # as it comes from a stream, not all at once
                copies[0].learn_many(scores[start : start + 10**4], labels[start : start + 10**4], "source")

        def one(pairs: list[tuple[float, int]] = pairs, copies: list[Recalibrator] = copies) -> None:
            learn_one = copies[0].learn_one
            for score, label in pairs:
                learn_one(score, label, "source")

        form, by_many, by_one = seconds(lambda c=copies: c[0].refresh(), many, one, repeats=5, before=restore)
        for operation, learn in (
            ("learn_many by 10⁴", by_many),
            ("learn_one", [taken * (n / 10) / len(pairs) for taken in by_one]),
        ):
            share = [100.0 * f / (f + time_) for f, time_ in zip(form, learn, strict=True)]
            yield figure("cost", f"re-forming, share of {operation}, n to 1.1 n", "%", share, n=n, at_most=10)


def spread_over_cells(cells: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n labelled scores that fill exactly this many cells of an engine's sketch."""
    rng = np.random.default_rng(5)
    centres = np.linspace(0.05, 0.95, cells)
    scores = rng.permutation(np.resize(centres, n))
    return scores, (rng.random(n) < scores).astype(np.int8)


def memory(scores: np.ndarray, labels: np.ndarray) -> Iterator[Row]:
    full = spread_over_cells(4096, 10**5)
    for name, (z, y), mode, three, at_most in (
        ("4,096 cells", full, "auto", False, 256.0),
        ("4,096 cells in each of three sketches, mode composite", full, "composite", True, 256.0),
        ("4,096 cells in each of three sketches, mode auto", full, "auto", True, 400.0),
        ("50 cells", spread_over_cells(50, 10**5), "auto", False, None),
        ("D(0.5), n = 10⁶", (scores[: 10**6], labels[: 10**6]), "auto", False, 256.0),
    ):
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        engine = Recalibrator(mode=mode)

        def learn(
            more: int, engine: Recalibrator = engine, z: Any = z, y: Any = y, three: bool = three
        ) -> None:
            engine.learn_many(z[:more], y[:more], "source")
            if three:
                engine.learn_many(z[:more], y[:more], "target")
                engine.observe_many(z[:more])

        learn(len(z))
        learned = tracemalloc.get_traced_memory()[0] - before
        engine.predict_many(z)
        learn(4095)  # what waits for the sketch is at its most
        fullest = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        state = len(engine.to_bytes())
        for operation, size in (
            ("to_bytes", state),
            ("resident", learned),
            ("resident at its fullest", fullest),
        ):
            yield figure("memory", f"{operation}, {name}", "KiB", [size / 1024], at_most=at_most)


def merging(scores: np.ndarray, labels: np.ndarray) -> Iterator[Row]:
    shards = []
    for part in np.array_split(np.arange(10**7), 1000):
        sketch = ScoreSketch()
        sketch.add(scores[part], labels[part])
        shards.append(sketch)

    def sketches() -> None:
        whole = ScoreSketch()
        for shard in shards:
            whole.merge(shard)

    (times,) = seconds(sketches, repeats=5)
    yield figure("merge", "1,000 sketches of 10⁴ events", "s", times, at_most=1.0)
