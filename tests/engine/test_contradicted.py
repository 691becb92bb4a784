"""Positives that come after their predictions counted as 0: they refute that no label means 0 (lemma 20)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from streamcal import LabelEvent, PredictionEvent, Recalibrator
from streamcal.certificates.record import implied_zeros
from streamcal.events import Event
from streamcal.join.config import JoinConfig
from streamcal.run.rows import alarm_rows
from streamcal.testing import NormalPair

TRUTH = NormalPair(0.5)
AFTER = 100.0  # seconds
JOIN: dict[str, Any] = {"missing_labels": "negative", "label_delay_limit": AFTER}
ZEROS = implied_zeros(AFTER)


def events(
    count: int, late: Callable[[int], bool], truth: NormalPair = TRUTH, tellings: int = 1
) -> Iterator[Event]:
    """Yield a prediction each second; positives after 10 s or, where they are late, 150 s; no negatives."""
    scores, labels = truth.sample(count, np.random.default_rng(12))
    waiting: list[tuple[float, int]] = []
    for number, score in enumerate(scores.tolist()):
        time = float(number)
        while waiting and waiting[0][0] <= time:
            due, which = heapq.heappop(waiting)
            yield LabelEvent(f"p{which}", 1, due)
        yield PredictionEvent(f"p{number}", score, time)
        if labels[number]:
            for again in range(tellings):
                heapq.heappush(waiting, (time + (150.5 if late(number) else 10.5) + again, number))


@pytest.mark.slow
def test_contradicted_labels_refute_within_a_hundred() -> None:
    """Half of the positives come 150 s late, where 100 s count: certified .0097, true .125, without this."""
    engine = Recalibrator(mode="auto", join=JoinConfig(**JOIN))
    rng = np.random.default_rng(13)
    coins = rng.random(20_000) < 0.5
    for event in events(20_000, lambda number: bool(coins[number])):
        engine.step(event)
        if engine.join.counts.contradicted == 100:
            break
    certificate = engine.certificate
    assert ZEROS in certificate.assumptions
    assert certificate.refuted == (ZEROS,)
    assert certificate.target_risk == certificate.risk == 1.0
    assert "no claim: an assumption is refuted" in repr(certificate)
    asked = [alarm for alarm in engine.alarms if alarm.assumption == ZEROS]
    assert len(asked) == 1
    assert "came after their predictions had been learned as 0" in asked[0].reason
    restored = Recalibrator.from_bytes(engine.to_bytes())
    assert restored.certificate == certificate
    assert restored.alarms == engine.alarms
    assert "Raise label_delay_limit" in alarm_rows(None, asked)[0].advice


@pytest.mark.slow
def test_a_few_stray_labels_refute_nothing() -> None:
    engine = Recalibrator(mode="target", join=JoinConfig(**JOIN))
    for event in events(4_000, lambda number: number < 12):
        engine.step(event)
    assert engine.join.counts.contradicted >= 3
    assert engine.alarms == ()
    certificate = engine.certificate
    assert certificate.refuted == ()
    assert TRUTH.risk(engine.map).total <= certificate.risk < 0.05


@pytest.mark.slow
def test_a_label_told_many_times_contradicts_once() -> None:
    """By 5 predictions, each told to be 1 forty times over, as by a source that delivers at least once."""
    engine = Recalibrator(mode="target", join=JoinConfig(**JOIN))
    for event in events(3_000, lambda number: number < 12, tellings=40):
        engine.step(event)
    assert engine.join.counts.contradicted > 100
    assert engine._engine._versions._ledger.contradicted < 12
    assert engine.alarms == ()


@pytest.mark.statistical
def test_wrong_zeros_cost_at_most_what_the_lemma_says() -> None:
    """R ≤ (√R̃ + √ε)², whatever part of the positives is late; without √ε it fails."""
    rng, fails = np.random.default_rng(15), 0
    for _ in range(200):
        mass, h = rng.dirichlet(np.ones(8)), np.sort(rng.random(8))
        wrong = h * rng.random(8) ** rng.choice([0.2, 1.0, 5.0])  # ρ: 1, and learned as 0
        served = np.clip(h - wrong + rng.normal(0, 0.05, 8), 0.0, 1.0)
        risk, counted = (float(mass @ (served - rate) ** 2) for rate in (h, h - wrong))
        assert risk <= (math.sqrt(counted) + math.sqrt(float(mass @ wrong))) ** 2 + 1e-12
        fails += risk > counted
    assert fails > 100
