"""Labels held in front of an engine: its state, blocks, event times, and how large it is."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamcal import LabelEvent, PredictionEvent, Recalibrator
from streamcal.engine.emissions import Recalibrated
from streamcal.sketch.decoding import encoded
from tests.inside import memo_of
from tests.nightly import one_in
from tests.release.events import acts, digest, take
from tests.release.streams import ALIKE, Delays, Stream, bulk, by_class, fixed, made, served

ROOT = Path(__file__).parents[2]
GRID = np.linspace(0.01, 0.99, 60)
STREAMS: dict[str, tuple[Delays, float]] = {
    "positives late": (by_class(100.0, 800.0), 0.2),
    "bulk of negatives": (bulk(0, 700.0), 0.5),
    "fixed": (fixed(700.0, 200.0), 0.2),
    "alike": (ALIKE["exponential"], 0.2),
}


def assert_alike(a: Recalibrator, b: Recalibrator) -> None:
    assert a.to_bytes() == b.to_bytes()
    assert np.array_equal(a.predict_many(GRID), b.predict_many(GRID))
    assert a.label_delays == b.label_delays


# State


@pytest.mark.parametrize("name", STREAMS)
def test_a_restored_engine_goes_on_alike(name: str) -> None:
    """Cut at random: in the middle of the start, of a cohort, and with labels held."""
    delays, rate = STREAMS[name]
    stream = made(3000, [71, 1], delays, rate=rate)
    events = acts(stream, 25)
    whole, first = Recalibrator(), 0
    cuts = sorted(random.Random(name).sample(range(len(events)), 24))
    again, held = Recalibrator(), set()
    for cut in (10, 700, *cuts, len(events)):
        part, first = events[first:cut], max(first, cut)
        take(whole, stream, part)
        take(again, stream, part)
        held.add((whole._engine.release.unsettled, whole._engine.release.held > 0))
        again = Recalibrator.from_bytes(again.to_bytes())
        assert_alike(again, whole)
    assert (True, True) in held  # in the middle of the start
    assert name == "alike" or (False, True) in held


def test_a_damaged_state_is_refused() -> None:
    """More labels released than told, or held than there are columns for; numbers out of range."""
    stream = made(1500, 72, by_class(20.0, 250.0), rate=0.5)
    release = take(Recalibrator(), stream, acts(stream, 10))._engine.release
    assert release.held
    state = release.to_state()
    k = len(state.counts) // 8
    for name, at, value in (
        ("counts", 4 * k, 1 << 40),
        ("counts", 1, 0),
        ("held", 0, 10_000),
        ("labels", 0, 3),
        ("scores", 0, 1.5),
        ("stands", 0, 0),
        ("laws", 0, 2.0),
        ("times", 0, np.inf),
        ("cells", 0, -1),
    ):
        damaged = release.to_state()
        changed = np.array(getattr(damaged, name))
        changed[at] = value
        setattr(damaged, name, changed)
        with pytest.raises(ValueError):  # noqa: PT011
            type(release)().restore(damaged)
    assert encoded(type(release)().restore(state).to_state()) == encoded(state)


# Blocks


@pytest.mark.parametrize("options", [{}, {"window": 1000}])
@pytest.mark.parametrize("name", STREAMS)
def test_blocks_are_as_one_by_one(name: str, options: dict[str, object]) -> None:
    """With any cut of predictions and of labels that belong to one batch."""
    delays, rate = STREAMS[name]
    stream = made(3000, [73, 1], delays, rate=rate)
    for batch in (25, 100):
        events = acts(stream, batch)
        one = take(Recalibrator(**options), stream, events)  # type: ignore[arg-type]
        for seed in range(2):
            assert_alike(take(Recalibrator(**options), stream, events, seed), one)  # type: ignore[arg-type]


def test_labels_without_the_number_of_their_prediction_in_blocks() -> None:
    """They wait at the start, in calls of any size."""
    stream = made(600, 76, fixed(0.0, 0.0))
    for sizes in ((1,), (5,), (40,), (300,)):
        engine, first = Recalibrator(), 0
        while first < 600:
            part = slice(first, first + sizes[0])
            engine.observe_many(stream.scores[part])
            engine.learn_many(stream.scores[part], stream.labels[part])
            first += sizes[0]
        assert engine.target.labels == 600
        assert engine.label_delays is not None
        assert engine.label_delays.held == 0


@pytest.mark.nightly
def test_uncompiled_is_the_same() -> None:
    code = "from tests.uncompiled import import_uncompiled; import_uncompiled()\nimport streamcal\n"
    code += "from tests.release.events import digest; print(streamcal.compiled, digest())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False", digest()]


# Event times


def stepped(stream: Stream, times: tuple[float, float] | None) -> tuple[list[float], Recalibrator]:
    """Return answers of an engine that takes events, and the engine.

    ``times``: what is added to the number of predictions for the event times of a prediction and a label;
    None: these have none.
    """
    engine, order, answers, j = Recalibrator(), stream.order(), list[float](), 0
    of_prediction, of_label = times or (0.0, 0.0)
    for i, score in enumerate(stream.scores.tolist()):
        event = PredictionEvent(str(i), score, None if times is None else i + of_prediction)
        answers += [each.probability for each in engine.step(event) if isinstance(each, Recalibrated)]
        while j < len(order) and stream.due[order[j]] <= i:
            time = None if times is None else i + of_label
            engine.step(LabelEvent(str(order[j]), int(stream.labels[order[j]]), time))
            j += 1
    return answers, engine


@pytest.mark.parametrize("name", ["positives late", "fixed"])
def test_events_with_times_that_count_predictions(name: str) -> None:
    """Are answered as without times, and as scores with the number of their prediction.

    The end of a cohort is the earlier of its two latest times: 64 predictions end at 64 with times from 2 on.
    """
    delays, rate = STREAMS[name]
    stream = made(3000, [77, 1], delays, rate=rate)
    plain, engine = served(stream, batch=1)
    answers, by_events = stepped(stream, None)
    by_time, timed = stepped(stream, (2.0, 1.0))
    assert answers == plain.tolist()
    assert engine.label_delays == by_events.label_delays
    assert timed.label_delays is not None
    assert timed.label_delays.by_time
    assert timed.label_delays.late == int(name != "fixed")
    assert timed.label_delays.excluded == engine.label_delays.excluded  # type: ignore[union-attr]
    assert by_time == plain.tolist()


@pytest.mark.parametrize("timed", [False, True])
def test_events_without_times_leave_a_state_that_is_restored(timed: bool) -> None:
    engine = Recalibrator()
    for i in range(20):
        engine.step(PredictionEvent(str(i), 0.5, 1e9 + i if timed else None))
    for i in range(10):
        engine.step(LabelEvent(str(i), i % 2))
    assert Recalibrator.from_bytes(engine.to_bytes()).to_bytes() == engine.to_bytes()


# Labels with and without the number of their prediction, and merging


def test_labels_that_came_at_once_are_released_with_the_first() -> None:
    for late in (0, 1):
        for seed in range(3):
            engine = Recalibrator()
            for _ in range(15):
                engine.learn_one(0.5, 1 - late)
            stream = made(3000, [79, seed], by_class(600.0 * (late == 0), 600.0 * (late == 1)), rate=0.5)
            _, engine = served(stream, engine)
            assert engine._engine.release.on
            assert not engine._engine.release._loose
            Recalibrator.from_bytes(engine.to_bytes())


def learned(seed: int, labels: int) -> Recalibrator:
    stream, engine = made(500, [80, seed], fixed(0.0, 0.0)), Recalibrator()
    engine.observe_many(stream.scores)
    for i in range(labels):
        engine.learn_one(
            float(stream.scores[i]), int(stream.labels[i]) if labels > 40 else 1, memo=memo_of(i)
        )
    return engine


# How large it is


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delays", "rate"), one_in(3, [(bulk(0), 0.02), (bulk(0), 0.2), (by_class(3000.0, 300.0), 0.02)])
)
def test_a_million_pending_predictions(delays: Delays, rate: float) -> None:
    """Negatives stop coming, positives are told at once: no more than 200 KB."""
    n = 12_000
    _, engine = served(made(n, 82, delays, rate=rate))
    before = len(engine.to_bytes())
    more = made(1_000_000, 83, fixed(np.inf, 0.0), rate=rate)
    for i in range(0, 1_000_000, 1000):
        engine.observe_many(more.scores[i : i + 1000])
        for q in (i + np.flatnonzero(more.labels[i : i + 1000])[:20]).tolist():
            engine.learn_one(float(more.scores[q]), 1, memo=memo_of(n + q))
    assert engine.label_delays is not None
    assert engine.label_delays.late == 0
    size = len(engine.to_bytes())
    held = Recalibrator.from_bytes(engine.to_bytes())._engine.release.to_state()
    print(f"\n{before:,} bytes before, {size:,} after; {len(held.scores):,} scores held or noted")
    assert size <= 200_000
