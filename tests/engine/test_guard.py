"""The guard: the score is served while it is sure that the map's forecasts are worse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from streamcal import LabelEvent, PredictionEvent, Recalibrator
from streamcal.certificates.record import Certificate
from streamcal.engine.emissions import Recalibrated
from streamcal.engine.guard_c import Guard
from tests.uncompiled import uncompiled


def changes(scores: Any, forecasts: Any, labels: Any, make: Any = Guard) -> list[int]:
    """Return the labels after which a guard changed sides."""
    guard, found = make(), []
    for number, each in enumerate(zip(scores.tolist(), forecasts.tolist(), labels.tolist(), strict=True)):
        before = guard.raw
        guard.take(*each, 1.0, number)
        if guard.raw != before:
            found.append(number)
    return found


def alike(seed: int, rate: float, make: Any = Guard) -> list[int]:
    """Return the changes on a stream whose forecasts err as much as its scores, at random.

    The labels' rates stay between the two, so no expected difference speaks for a side, but both vary.
    """
    rng = np.random.default_rng(seed)
    scores, forecasts = rate * rng.uniform(0.2, 1.8, (2, 2_000))
    labels = (rng.random(2_000) < (scores + forecasts) / 2.0).astype(int)
    return changes(scores, forecasts, labels, make)


@pytest.mark.parametrize("rate", [0.5, 0.02])
def test_it_hardly_ever_changes_sides_for_no_reason(rate: float) -> None:
    """At most 5% of all streams ever: more than 25 of 300 have probability 1e-2; 3 and 1 were seen."""
    assert sum(bool(alike(seed, rate)) for seed in range(300)) <= 25


def test_the_test_above_sees_shares_without_a_limit() -> None:
    """Shares of 1/n, whose sum grows for ever."""
    broken = uncompiled("streamcal.engine.guard_c")
    broken.math = SimpleNamespace(log=lambda _: 1.0)
    broken._STARTS = 0.1
    assert sum(bool(alike(seed, 0.5, broken.Guard)) for seed in range(50)) > 25


@pytest.mark.parametrize(("rate", "most"), [(0.5, 700), (0.02, 15_000)])
def test_forecasts_that_are_worse_are_left_until_they_are_better(rate: float, most: int) -> None:
    """Forecasts of half the rate, then scores of half the rate."""
    rng = np.random.default_rng(7)
    n = 2 * most
    right = rate * rng.uniform(0.5, 1.5, 4 * n)
    labels = (rng.random(4 * n) < right).astype(int)
    begins = np.arange(4 * n) < n
    found = changes(np.where(begins, right, right / 2), np.where(begins, right / 2, right), labels)
    assert len(found) == 2
    assert found[0] < most
    assert n < found[1] < n + 2 * most


def events(seed: int, late: int) -> list[PredictionEvent | LabelEvent]:
    """Return a stream whose scores are right from its third thousand to its sixth, else far too extreme."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.02, 0.98, 10_000)
    odds = scores / (1.0 - scores)
    rates = odds**0.3 / (1.0 + odds**0.3)
    rates[2_000:6_000] = scores[2_000:6_000]
    labels = (rng.random(10_000) < rates).astype(int)
    given: list[PredictionEvent | LabelEvent] = []
    for number in range(10_000 + late):
        if number < 10_000:
            given.append(PredictionEvent(f"p{number}", float(scores[number])))
        if number >= late:
            given.append(LabelEvent(f"p{number - late}", int(labels[number - late])))
    return given


def recalibrator(**options: Any) -> Recalibrator:
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.02, 0.98, 4_000)
    odds = scores / (1.0 - scores)
    made = Recalibrator(mode="source", **options)
    made.learn_many(scores, (rng.random(4_000) < odds**0.3 / (1.0 + odds**0.3)).astype(int), domain="source")
    return made


@pytest.mark.parametrize("late", [0, 500])
def test_the_score_is_served_while_the_map_is_worse(late: int) -> None:
    made, answers, certificates = recalibrator(guard="raw"), list[Recalibrated](), list[Certificate | None]()
    for event in events(0, late):
        for each in made.step(event):
            if isinstance(each, Recalibrated):
                answers.append(each)
                if len(answers) % 500 == 0:
                    certificates.append(made.certificate)
                    assert made.predict_one(each.score) == made.predict_many([each.score])[0]
                    assert made.version == made.map.version
    raw = np.array([each.map_version == 0 for each in answers])
    (begin, end) = np.flatnonzero(np.diff(raw))
    assert 2_000 + late < begin + 1 < 3_000 + late
    assert 6_000 + late < end + 1 < 8_000 + late
    same = [each.probability == each.score for each in answers if each.map_version == 0]
    assert all(same)
    assert all(each.weights == (1.0, 1.0) for each in answers if each.map_version == 0)
    assert not any(each.probability == each.score for each in answers if each.map_version)
    assert [each is None for each in certificates] == raw[499::500].tolist()


def test_without_a_guard_the_map_is_served() -> None:
    made = recalibrator()
    assert all(
        each.map_version
        for event in events(0, 0)
        for each in made.step(event)
        if isinstance(each, Recalibrated)
    )


def test_a_state_goes_on_where_it_was() -> None:
    """Stored every 1,000 events, also while the score is served."""
    made, again = recalibrator(guard="raw"), recalibrator(guard="raw")
    for number, event in enumerate(events(0, 500)):
        assert made.step(event) == again.step(event)
        if number % 1_000 == 0:
            again = Recalibrator.from_bytes(again.to_bytes())
            assert again.to_bytes() == made.to_bytes()


def test_damaged_states_are_refused() -> None:
    guard = Guard()
    state = guard.to_state()
    for damage in ({"changes": [3, 2]}, {"wealth": [-1.0] * len(state.wealth)}):
        with pytest.raises(ValueError, match="guard"):
            guard.restore(msgspec.structs.replace(state, **damage))


def test_it_takes_no_word_but_raw() -> None:
    with pytest.raises(ValueError, match="guard"):
        Recalibrator(guard="isotonic")  # type: ignore[arg-type]


def test_a_prediction_that_the_guard_answered_is_known_by_its_number() -> None:
    """After 2 changes, at 10 and at 20 observed scores."""
    guard = Guard()
    guard.restore(msgspec.structs.replace(guard.to_state(), changes=[10, 20]))
    assert [guard.was_raw(number) for number in (0, 9, 10, 19, 20, 21)] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
