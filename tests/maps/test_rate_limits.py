"""Intervals for the rate at a score: how often they hold it, by decile of score, and after a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from streamcal import Recalibrator
from streamcal.maps import rate_limits
from streamcal.maps.rate_limits import RateLimits
from streamcal.sketch.score_sketch import ScoreSketch

Law = Callable[[int, np.random.Generator], tuple[Any, Any]]
LEAST, MOST = 0.88, 0.97  # asked of intervals of 90 %


def normal(prior: float) -> Law:
    def drawn(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
        x = rng.normal(np.where(rng.random(n) < prior, 1.0, -1.0))
        return expit(x), expit(2.0 * x + np.log(prior / (1.0 - prior)))

    return drawn


def of_uniform(rate: Callable[[Any], Any]) -> Law:
    def drawn(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
        scores = rng.random(n)
        return scores, rate(scores)

    return drawn


def atoms(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    scores = (rng.integers(0, 10, n) + 0.5) / 10.0
    return scores, scores**1.5


def rare(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    scores = rng.beta(1.0, 30.0, n)
    return scores, 0.5 * scores


def saturated(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    x = rng.normal(0.0, 6.0, n)
    return expit(x), expit(0.4 * x - 1.0)


LAWS: dict[str, Law] = {
    "square": of_uniform(lambda z: z**2),
    "root": of_uniform(np.sqrt),
    "step": of_uniform(lambda z: np.where(z < 0.5, 0.2, 0.6)),
    "constant": of_uniform(lambda z: np.full(len(z), 0.3)),
    "normal, .5": normal(0.5),
    "normal, .02": normal(0.02),
    "rare": rare,
    "saturated": saturated,
    "ten values": atoms,
}


def by_decile(scores: Any, rates: Any, low: Any, high: Any) -> Any:
    """Return how often limits hold the rate in each tenth of the scores, float64[10]."""
    inside = (low <= rates + 1e-12) & (rates <= high + 1e-12)
    order = np.argsort(scores, kind="stable")
    return np.array([inside[part].mean() for part in np.array_split(order, 10)])


def limits_of(law: Law, n: int, rng: np.random.Generator, probability: float = 0.9) -> RateLimits:
    scores, rates = law(n, rng)
    sketch = ScoreSketch()
    sketch.add(scores, (rng.random(n) < rates).astype(np.int8))
    return RateLimits.of(sketch.cells, sketch.level, sketch.weighed, probability)


def covered(law: Law, n: int, streams: int, probability: float = 0.9) -> Any:
    total = np.zeros(10)
    for seed in range(streams):
        rng = np.random.default_rng([7, seed])
        limits = limits_of(law, n, rng, probability)
        scores, rates = law(1_000, rng)
        steps = limits.edges.searchsorted(scores, side="right")
        total += by_decile(scores, rates, limits.low[steps], limits.high[steps]) / streams
    return total


@pytest.mark.parametrize("name", LAWS)
def test_intervals_hold_the_rate_in_each_decile(name: str) -> None:
    # A decile of 200 streams has a standard error of .02 at most: one of 90 is 3 of it too low with 12 %, if
    # all cover .88; they cover .93 in the mean. At the ends, limits of rates near 0 always hold.
    found = covered(LAWS[name], 1_000, 200)
    assert found.min() > LEAST - 0.06, found
    assert LEAST < found[2:8].mean() < MOST + 0.02, found


def test_they_would_not_with_narrower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "_WIDER", 0.9)
    assert all(covered(LAWS[name], 1_000, 100)[2:8].mean() < LEAST for name in ("square", "root"))


def test_they_hold_with_other_probabilities() -> None:
    for probability in (0.5, 0.8, 0.95, 0.99):
        mean = np.mean([covered(LAWS[name], 1_000, 40, probability).mean() for name in ("square", "step")])
        assert probability - 0.02 < mean < probability + 0.5 * (1.0 - probability) + 0.02, (probability, mean)


def test_without_labels_nothing_is_known_and_what_is_served_lies_inside() -> None:
    engine = Recalibrator()
    assert [*map(float, engine.predict_many([0.3], interval=0.9).low)] == [0.0]
    rng = np.random.default_rng(3)
    scores, rates = LAWS["square"](3_000, rng)
    engine.learn_many(scores, (rng.random(3_000) < rates).astype(int))
    probabilities, low, high = engine.predict_many(scores, interval=0.9)
    assert (low <= probabilities).all()
    assert (probabilities <= high).all()
    assert np.array_equal(probabilities, engine.predict_many(scores))
    again = Recalibrator.from_bytes(engine.to_bytes()).predict_many(scores, interval=0.9)
    assert np.array_equal(low, again.low)


def test_of_weighted_labels_the_effective_number_counts() -> None:
    rng = np.random.default_rng(4)
    one, weighted = ScoreSketch(), ScoreSketch()
    scores, rates = LAWS["square"](2_000, rng)
    labels = (rng.random(2_000) < rates).astype(np.int8)
    one.add(scores, labels)
    weighted.add(scores, labels, np.full(2_000, 7.0))
    both = [RateLimits.of(made.cells, made.level, made.weighed, 0.9) for made in (one, weighted)]
    assert np.allclose(both[0].low, both[1].low)
    assert np.allclose(both[0].high, both[1].high)


@pytest.mark.parametrize("options", [{"classes": ("a", "b", "c")}, {"segments": ("country",)}])
def test_it_is_refused_where_it_is_not_had(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="leave it out"):
        Recalibrator(**options).predict_many([0.5], interval=0.9)
    with pytest.raises(ValueError, match=r"from 0\.5 to 0\.99"):
        Recalibrator().predict_many([0.5], interval=90)


def learned(engine: Recalibrator, law: Law, n: int, rng: np.random.Generator) -> None:
    scores, rates = law(n, rng)
    labels = (rng.random(n) < rates).astype(np.int8)
    for start in range(0, n, 16):
        engine.learn_many(scores[start : start + 16], labels[start : start + 16])


@pytest.mark.nightly
def test_table_of_an_engine() -> None:
    """Print how often intervals of mode ``auto`` hold the rate, by decile of score."""
    changes = {"square": LAWS["root"], "root": LAWS["rare"], "normal, .5": LAWS["normal, .02"]}
    jobs = [(name, n, 0) for n in (1_000, 10_000, 100_000) for name in LAWS]
    jobs += [(name, 8_000, after) for name in changes for after in (1_000, 2_000, 4_000)]
    for name, n, after in jobs:
        streams, total = max(3, min(40, 200_000 // n)), np.zeros(10)
        law = changes[name] if after else LAWS[name]
        for seed in range(streams):
            rng, engine = np.random.default_rng([9, seed]), Recalibrator()
            learned(engine, LAWS[name], n, rng)
            learned(engine, law, after, rng)
            scores, rates = law(1_000, rng)
            _, low, high = engine.predict_many(scores, interval=0.9)
            total += by_decile(scores, rates, low, high) / streams
        print(f"| {name} | {n:,} | {after:,} | " + " | ".join(f"{value:.2f}" for value in total) + " |")
        # Soon after a change the map itself is wrong; docs/recalibration.md claims nothing of that time.
        assert total.mean() > (LEAST - 0.03 if after != 1_000 else 0.5), (name, n, after, total)
