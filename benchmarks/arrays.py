"""Whole arrays: learning against a histogram, predicting against a binary search, and the batch peers."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
from measure import Row, compare, figure
from numpy.typing import NDArray
from scipy.special import expit

from streamcal import Recalibrator
from streamcal.maps.uniform_mass import uniform_mass_binning
from streamcal.testing import NormalPair

__all__ = ["rows", "sample"]

SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
EVENTS = 10**6  # what one timing goes through at least, in calls of n events

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]


def sample(n: int, seed: int = 1) -> tuple[Floats, Labels]:
    """Return scores and labels of the paper's D(0.5), in random order."""
    scores, labels = NormalPair(0.5).sample(n, np.random.default_rng(seed))
    order = np.random.default_rng(seed).permutation(n)
    return scores[order], labels[order].astype(np.int8)


def rows() -> Iterator[Row]:
    scores, labels = sample(max(SIZES))
    yield from learning(scores, labels)
    yield from predicting(scores, labels)
    yield from isotonic(scores, labels)
    yield kll(scores, labels)


def in_calls(call: Callable[[slice], object], n: int) -> tuple[Callable[[], None], int]:
    """Return work that makes calls of n events, each on scores not seen before, and its events.

    A stream does not repeat itself. On the same 1,000 scores over and over, the processor learns the path
    of a binary search by heart, and the search looks many times as fast as it is.
    """
    calls = max(1, EVENTS // n)

    def work() -> None:
        for start in range(0, calls * n, n):
            call(slice(start, start + n))

    return work, calls * n


def learning(scores: Floats, labels: Labels) -> Iterator[Row]:
    for n in SIZES:
        engine = Recalibrator()
        engine.learn_many(scores, labels, "source")
        ours, events = in_calls(lambda part, e=engine: e.learn_many(scores[part], labels[part], "source"), n)
        theirs, _ = in_calls(lambda part: np.histogram(scores[part], 4096), n)
        yield compare(
            "learn", "learn_many, engine in service", ours, "numpy.histogram(z, 4096)", theirs,
            n=n, events=events, repeats=5 if n == max(SIZES) else 9, at_least=None if n < 10**4 else 1.0,
            note="10⁷ labels learned before; every re-forming that falls due is in the time",
        )  # fmt: skip
    for n in SIZES:
        part = slice(0, n)
        yield compare(
            "learn", "learn_many, new engine",
            lambda p=part: Recalibrator().learn_many(scores[p], labels[p], "source"),
            "numpy.histogram(z, 4096)", lambda p=part: np.histogram(scores[p], 4096),
            n=n, repeats=5 if n == max(SIZES) else 9, note="construction and the first map are in the time",
        )  # fmt: skip


def predicting(scores: Floats, labels: Labels) -> Iterator[Row]:
    engine = Recalibrator(bins=256)
    engine.learn_many(scores[: 10**6], labels[: 10**6], "source")
    mixed = copy.deepcopy(engine)
    shifted = Recalibrator(bins=256, mode="composite")
    shifted.learn_many(scores[: 10**6], labels[: 10**6], "source")
    for each in (shifted, mixed):
        each.learn_many(scores[:1000], labels[:1000] & (scores[:1000] > 0.7), "target")
    line = Recalibrator(mode="source")
    line.learn_many(scores[: 10**6], labels[: 10**6], "source")
    batch = uniform_mass_binning(scores[: 10**5], labels[: 10**5], 256)
    edges, values = np.array(engine.map.edges[1:-1]), np.array(engine.map.values)
    name = f"values[numpy.searchsorted(edges, z)], {len(edges)} edges"
    for n in SIZES:
        ours, events = in_calls(lambda part: engine.predict_many(scores[part]), n)
        theirs, _ = in_calls(lambda part: values[np.searchsorted(edges, scores[part])], n)
        yield compare(
            "predict", "predict_many, h", ours, name, theirs, n=n, events=events,
            repeats=3 if n == max(SIZES) else 7, at_least=5.0,
        )  # fmt: skip
    part = scores[: 10**6]
    for operation, predict, at_least in (
        ("predict_many, g∘h", shifted.predict_many, 5.0),
        ("predict_many, a map with edges inside cells", batch.predict_many, None),
        ("predict_many, identity", Recalibrator().predict_many, None),
    ):
        yield compare(
            "predict", operation, lambda f=predict: f(part), name,
            lambda: values[np.searchsorted(edges, part)], n=len(part), at_least=at_least,
        )  # fmt: skip
    knots, log_odds = np.array(line.map.knots), np.array(line.map.log_odds)
    bends = expit(knots[1:-1])
    yield compare(
        "predict", "predict_many, a line", lambda: line.predict_many(part),
        f"log_odds[numpy.searchsorted(knots, z)], {len(bends)} knots",
        lambda: log_odds[np.searchsorted(bends, part)], n=len(part), at_least=3.0,
    )  # fmt: skip
    steps, heights = np.array(mixed.map.edges[1:-1]), np.array(mixed.map.values)
    yield compare(
        "predict", "predict_many, a mixture", lambda: mixed.predict_many(part),
        f"values[numpy.searchsorted(edges, z)], {len(steps)} edges",
        lambda: heights[np.searchsorted(steps, part)], n=len(part), at_least=5.0,
    )  # fmt: skip


def isotonic(scores: Floats, labels: Labels) -> Iterator[Row]:
    from sklearn.isotonic import IsotonicRegression

    for n in (10**4, 10**6):
        z, y = scores[:n], labels[:n].astype(np.float64)
        engine, regression = Recalibrator(), IsotonicRegression(out_of_bounds="clip").fit(z, y)
        engine.learn_many(z, labels[:n], "source")
        yield compare(
            "peers", "learn_many, new engine",
            lambda z=z, n=n: Recalibrator().learn_many(z, labels[:n], "source"),
            "IsotonicRegression.fit", lambda z=z, y=y: IsotonicRegression(out_of_bounds="clip").fit(z, y),
            n=n, repeats=3,
        )  # fmt: skip
        yield compare(
            "peers", "predict_many", lambda e=engine, z=z: e.predict_many(z),
            "IsotonicRegression.predict", lambda r=regression, z=z: r.predict(z), n=n, repeats=3,
        )  # fmt: skip


def kll(scores: Floats, labels: Labels) -> Row:
    z, y = scores[: 10**6], labels[: 10**6]
    if importlib.util.find_spec("datasketches") is None:
        return figure("peers", "learn_many", "ns/event", [], n=len(z), note="datasketches is not installed")
    from datasketches import kll_doubles_sketch

    engine, peer = Recalibrator(), kll_doubles_sketch(1024)
    return compare(
        "peers", "learn_many", lambda: engine.learn_many(z, y, "source"),
        "DataSketches KLL k=1024, update(array)", lambda: peer.update(z), n=len(z),
        note="KLL takes no labels",
    )  # fmt: skip
