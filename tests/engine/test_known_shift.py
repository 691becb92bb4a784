"""A shift of the classes that is known before the first label: ``prior`` a number, or ``sampling_rate``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, rel_entr

from streamcal import LabelEvent, PredictionEvent, Recalibrator

TRAINED, DEPLOYED = 0.3, 0.02
RATE = (DEPLOYED / (1.0 - DEPLOYED)) / (TRAINED / (1.0 - TRAINED))
LABELS = (0, 100, 300, 1_000, 5_000)


def drawn(n: int, seed: int, prior: float = DEPLOYED) -> tuple[Any, Any, Any]:
    """Return scores that are calibrated under TRAINED, labels, and the true rate under the prior."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < prior).astype(np.int8)
    log_ratio = 2.0 * rng.normal(2.0 * labels - 1.0)
    scores, rates = (expit(log_ratio + math.log(rate / (1.0 - rate))) for rate in (TRAINED, prior))
    return scores, labels, rates


def excess(engine: Recalibrator) -> float:
    """Return the expected log loss of what is served, less that of the truth, in nats."""
    scores, _, rates = drawn(20_000, 99)
    served = engine.predict_many(scores)
    return float((rel_entr(rates, served) + rel_entr(1.0 - rates, 1.0 - served)).mean())


@pytest.mark.parametrize("mode", ["auto", "composite", "label_shift"])
def test_a_known_shift_is_corrected_before_the_first_label(mode: Any) -> None:
    plain, by_prior, by_rate = (
        Recalibrator(mode=mode, **options) for options in ({}, {"prior": DEPLOYED}, {"sampling_rate": RATE})
    )
    for engine in (plain, by_prior, by_rate):
        engine.observe_many(drawn(2_000, 1)[0])
    assert excess(plain) > 0.1
    assert excess(by_prior) < 2e-3  # 2,000 scores leave the shift uncertain by a tenth
    assert excess(by_rate) < 1e-4
    assert by_prior.predict_many(drawn(2_000, 1)[0]).mean() == pytest.approx(DEPLOYED, rel=0.1)


def test_before_the_first_score_a_known_prior_is_served() -> None:
    engine = Recalibrator(prior=DEPLOYED)
    assert engine.predict_one(0.9) == engine.predict_one(0.1) == DEPLOYED
    (answer,) = engine.step(PredictionEvent("a", 0.9))[:1]
    assert answer.probability == DEPLOYED
    assert Recalibrator(sampling_rate=0.1).predict_one(0.5) == pytest.approx(0.1 / 1.1)


def test_labels_of_the_source_say_from_where_a_known_prior_shifts() -> None:
    scores, labels, _ = drawn(20_000, 2, TRAINED)
    for options in ({"prior": DEPLOYED}, {"sampling_rate": RATE}):
        for mode in ("auto", "composite"):
            engine = Recalibrator(mode=mode, **options)
            engine.learn_many(scores, labels, "source")
            assert excess(engine) < 1e-3, (mode, options)


def test_no_labels_of_the_source_are_missed_where_the_shift_is_known(
    recwarn: pytest.WarningsRecorder,
) -> None:
    engine = Recalibrator(mode="composite", prior=DEPLOYED)
    scores, labels, _ = drawn(200, 4)
    engine.learn_many(scores, labels)
    assert not recwarn.list


def test_labels_overrule_a_wrong_number_in_mode_auto() -> None:
    engine = Recalibrator(prior=0.4)
    scores, labels, _ = drawn(10_000, 3)
    for number, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
        engine.step(PredictionEvent(f"{number}", score))
        engine.step(LabelEvent(f"{number}", label))
    assert excess(engine) < 2e-3


@pytest.mark.nightly
def test_what_labels_are_worth() -> None:
    table = np.zeros((len(LABELS), 3))
    for seed in range(8):
        scores, labels, _ = drawn(LABELS[-1], 100 + seed)
        for column, options in enumerate(({}, {"prior": DEPLOYED}, {"sampling_rate": RATE})):
            engine, learned = Recalibrator(**options), 0
            engine.observe_many(scores[:500])
            for row, count in enumerate(LABELS):
                for start in range(learned, count, 50):
                    engine.learn_many(scores[start : start + 50], labels[start : start + 50])
                learned = count
                table[row, column] += excess(engine) / 8
    for count, row in zip(LABELS, table, strict=True):
        print(f"| {count:,} | " + " | ".join(f"{value:.4f}" for value in row) + " |")
    assert (table[:, 1:] < table[:, :1]).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prior": 0.02, "sampling_rate": 0.1}, "prior=0.02 and sampling_rate=0.1 both"),
        ({"prior": 1.0}, "less than 1"),
        ({"sampling_rate": 0.0}, "greater than 0"),
        ({"mode": "target", "prior": 0.1}, "mode='target' corrects no shift"),
        ({"classes": ("a", "b", "c"), "sampling_rate": 0.1}, "classes exclude sampling_rate"),
    ],
)
def test_what_cannot_be_known_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Recalibrator(**options)
