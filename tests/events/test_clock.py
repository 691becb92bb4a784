"""A clock that one wrong time does not move, however the events are cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import JoinConfig, LabelEvent, PredictionEvent, Recalibrator
from streamcal.events import Event
from streamcal.join.rules_c import FEWEST, SURE, Clock
from tests.command_line import streamcal

DAY = 86_400.0


def test_one_event_far_ahead_does_not_move_it() -> None:
    clock = Clock(900.0)
    assert clock.believed(np.arange(100.0)).tolist() == list(range(100))
    assert not clock.move(DAY)
    assert clock.now == 99.0
    assert clock.move(100.0)
    assert clock.now == 100.0
    clock.believed(np.arange(101.0, 200.0))
    assert clock.wrong == 1
    assert clock.doubt == (DAY, 99.0)


def test_after_a_pause_it_goes_on_with_the_first_of_the_events_that_agree() -> None:
    clock = Clock(900.0)
    clock.believed(np.arange(100.0))
    moved = [clock.move(DAY + second) for second in range(SURE)]
    assert moved.index(True) == SURE - FEWEST + 1
    assert clock.now == DAY + SURE - 1
    assert clock.doubted == SURE - FEWEST + 1
    clock.believed(DAY + np.arange(32.0, 100.0))
    assert clock.wrong == 0


def test_a_third_of_the_events_may_be_a_day_ahead() -> None:
    clock = Clock(900.0)
    times = np.arange(3000.0)
    times[100::3] += DAY
    assert clock.believed(times).max() < DAY
    assert clock.now == 2999.0


def test_events_a_day_apart_are_believed() -> None:
    clock = Clock(900.0)
    assert [clock.move(number * DAY) for number in range(50)] == [True] * 50


def test_distances_that_are_usual_are_no_jumps() -> None:
    """Of 10,000 exponential distances, one is longer than 16 means of 32 with a probability of about .01."""
    clock = Clock(900.0)
    times = np.random.default_rng(1).exponential(600.0, 10_000).cumsum()
    np.testing.assert_array_equal(clock.believed(times), times)


@given(
    st.lists(st.sampled_from([1.0, 5.0, DAY, np.nan]) | st.floats(0.0, 50.0), max_size=120),
    st.integers(0, 120),
)
def test_a_cut_changes_nothing(times: list[float], cut: int) -> None:
    whole, first = Clock(10.0), Clock(10.0)
    believed = whole.believed(np.array(times))
    before = first.believed(np.array(times[:cut]))
    then = Clock(10.0, first.state)
    np.testing.assert_array_equal(believed, [*before, *then.believed(np.array(times[cut:]))])
    assert then.state == whole.state


@pytest.mark.parametrize("ahead", [DAY, 1e9])
def test_a_label_from_the_future_turns_no_positive_into_a_negative(ahead: float) -> None:
    """The stream of issue 49: every second of the predictions has label 1 after half an hour."""
    join = JoinConfig(missing_labels="negative", label_delay_limit=3600.0, max_jump=None)
    engine = Recalibrator(join=join)
    events: list[tuple[float, Event]] = []
    for number in range(2000):
        time = 1.7e9 + 2.0 * number
        events.append((time, PredictionEvent(str(number), 0.5, time)))
        if number % 2:
            events.append((time + 1800.0, LabelEvent(str(number), 1, time + 1800.0)))
    events.sort(key=lambda pair: pair[0])
    wrong = next(index for index, (time, _) in enumerate(events) if time > 1.7e9 + 3000.0)
    events.insert(wrong, (0.0, LabelEvent("1", 1, 1.7e9 + ahead)))
    for _, event in events:
        engine.step(event)
    counts = engine.join.counts
    assert counts.contradicted == 0
    assert engine.join.time == events[-1][0]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_an_event_far_ahead_among_the_first_moves_the_clock_for_these_alone(place: int) -> None:
    join = JoinConfig(missing_labels="negative", label_delay_limit=3600.0)
    engine = Recalibrator(join=join)
    for number in range(4000):
        time = 1.7e9 + 2.0 * number
        engine.step(PredictionEvent(str(number), 0.5, time + DAY * (number == place)))
        if number % 2 and number > 900:
            engine.step(LabelEvent(str(number - 900), 1, time))
    assert engine.join.time == time
    counts = engine.join.counts
    assert counts.contradicted <= place  # those before it may count as final
    assert counts.implied == pytest.approx(counts.joined, abs=100)
    assert engine.join.pending == pytest.approx(1800, abs=2)


def test_a_remark_names_the_event_that_was_not_believed(tmp_path: Path) -> None:
    rows = [{"id": f"i{number}", "score": 0.5, "label": number % 2, "time": number} for number in range(200)]
    rows[120]["time"] = 900_000
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = streamcal("run", "--events", tmp_path / "events.jsonl", "--output", tmp_path / "out.jsonl")
    assert "once, an event had a time far ahead of the others, the latest of them 'i120'" in done.stdout
    assert "10.42 days ahead (" in done.stdout
    assert "events.jsonl, line 121)" in done.stdout


def test_predictions_after_a_pause_mature_by_their_own_times() -> None:
    join = JoinConfig(missing_labels="negative", label_delay_limit=3600.0)
    engine = Recalibrator(join=join)
    for number in range(100):
        engine.step(PredictionEvent(f"before {number}", 0.5, 1.7e9 + number))
    for number in range(100):  # the first of them while the clock stands
        engine.step(PredictionEvent(f"after {number}", 0.5, 1.7e9 + DAY + number))
    assert engine.join.counts.implied == 100
    assert engine.join.pending == 100
    for number in range(100):
        engine.step(LabelEvent(f"after {number}", 1, 1.7e9 + DAY + 1800.0))
    assert engine.join.counts.contradicted == 0
