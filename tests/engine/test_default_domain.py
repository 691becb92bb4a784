"""Labels without a domain are those of the deployment, as events without one are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcal import LabelledEvent, Recalibrator
from streamcal.testing import NormalPair

HALF = 2000
NEED_SOURCE = ("composite",)


def flipped() -> tuple[list[float], list[int]]:
    """Return D(0.5), whose scores fall with the label from the middle on."""
    scores, labels = NormalPair(0.5).sample(2 * HALF, np.random.default_rng(1))
    scores[HALF:] = 1.0 - scores[HALF:]
    return scores.tolist(), labels.tolist()


def brier(**domain: Any) -> float:
    """Predict and learn one by one; return the mean loss of the predictions."""
    engine, squares = Recalibrator(), 0.0
    for score, label in zip(*flipped(), strict=True):
        squares += (engine.predict_one(score) - label) ** 2
        engine.learn_one(score, label, **domain)
    return squares / (2 * HALF)


def test_the_natural_loop_follows_a_drift() -> None:
    """A source does not: what was learned before the drift counts for ever."""
    natural = brier()
    assert natural == brier(domain="target")
    assert natural < 0.5 * brier(domain="source")


@pytest.mark.parametrize("way", ["many", "step"])
@pytest.mark.parametrize("mode", NEED_SOURCE)
def test_a_mode_without_its_source_serves_the_score_and_warns_once(mode: Any, way: str) -> None:
    def learn(engine: Recalibrator, scores: list[float], labels: list[int]) -> None:
        if way == "many":
            engine.learn_many(scores, labels)
            return
        for score, label in zip(scores, labels, strict=True):
            if way == "one":
                engine.learn_one(score, label)
            else:
                engine.step(LabelledEvent(score, label))

    scores, labels = flipped()
    engine = Recalibrator(mode=mode)
    learn(engine, scores[:63], labels[:63])
    with pytest.warns(UserWarning, match=f"mode '{mode}' has learned 64 .* domain='source'") as said:
        learn(engine, scores[63:64], labels[63:64])
    assert [each.filename for each in said] == [__file__]
    learn(engine, scores[64:200], labels[64:200])
    assert engine.predict_many([0.2, 0.7]).tolist() == [0.2, 0.7]
    engine.learn_many(scores[:64], labels[:64], "source")
    assert engine.predict_many([0.2, 0.7]).tolist() != [0.2, 0.7]


@pytest.mark.parametrize("mode", NEED_SOURCE)
def test_a_mode_with_its_source_does_not_warn(mode: Any) -> None:
    scores, labels = flipped()
    engine = Recalibrator(mode=mode)
    engine.learn_one(0.5, 1, "source")
    engine.learn_many(scores, labels)
    again = Recalibrator.from_bytes(engine.to_bytes())
    again.learn_one(0.5, 1)
