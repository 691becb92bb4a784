"""A sliding window is exact: it always equals a new sketch of only the labels in the window."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal import Recalibrator, RecalibratorConfig
from streamcal.base.errors import DamagedStateError
from streamcal.engine.engine import Engine
from streamcal.engine.label_log import PANES, LabelLog
from streamcal.engine.schedule import Schedule
from streamcal.maps.curves import fit_curve
from streamcal.sketch.score_sketch import ScoreSketch
from tests.inside import labels_of
from tests.states import restored


def fresh(scores: np.ndarray, labels: np.ndarray) -> ScoreSketch:
    sketch = ScoreSketch()
    sketch.add(scores, labels)
    return sketch


def stream(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose spread shrinks, so that a late window fits a finer grid than an early one."""
    rng = np.random.default_rng(seed)
    scores = np.clip(0.3 + rng.normal(size=n) * np.geomspace(0.2, 0.0005, n), 0.0, 1.0)
    return scores, (rng.random(n) < scores).astype(np.int8)


def held_of_labels(n: int, length: int) -> slice:
    pane = -(-length // PANES)
    newest = (n - 1) // pane
    return slice(max(0, (newest - PANES) * pane), n)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.integers(0, 2**32 - 1), st.integers(64, 400), st.lists(st.integers(1, 150), min_size=1, max_size=20)
)
def test_a_window_of_labels_equals_a_new_sketch_of_its_labels(
    seed: int, length: int, batches: list[int]
) -> None:
    n = sum(batches)
    scores, labels = stream(n, seed)
    engine = Engine(RecalibratorConfig(mode="target", window=length))
    start = 0
    for size in batches:
        part = slice(start, start + size)
        engine.learn_many(scores[part], labels[part], "target", None, None)
        start += size
        held = held_of_labels(start, length)
        prior = (labels[:start][held].sum() + 0.5) / (len(labels[:start][held]) + 1)
        assert engine.target.prior == prior
        assert labels_of(engine, "target") == fresh(scores[:start][held], labels[:start][held])
        assert engine.target.prior == prior  # also with all labels in the log
        assert length <= len(labels[:start][held]) + max(0, length - start)
        assert len(labels[:start][held]) <= length + -(-length // PANES) + PANES


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_a_window_of_time_equals_a_new_sketch_of_its_labels(seed: int, batches: list[int]) -> None:
    n, span = sum(batches), 160.0
    scores, labels = stream(n, seed)
    rng = np.random.default_rng(seed)
    times = 1e9 + np.cumsum(rng.exponential(2.0, n)) + rng.normal(size=n) * 15.0  # out of order too
    engine = Engine(RecalibratorConfig(mode="target", window=timedelta(seconds=span)))
    start = 0
    for size in batches:
        part = slice(start, start + size)
        engine.learn_many(scores[part], labels[part], "target", times[part], None)
        start += size
        panes = np.floor(times[:start] / (span / PANES))
        # labels that were too old when they arrived were never in the window
        kept = (panes >= np.maximum.accumulate(panes) - PANES) & (panes >= panes.max() - PANES)
        assert labels_of(engine, "target") == fresh(scores[:start][kept], labels[:start][kept])
        assert engine.target.labels == start


@pytest.mark.slow
def test_the_map_uses_only_the_window_and_is_formed_again_with_each_pane() -> None:
    scores, labels = stream(6400, 2)
    engine = Recalibrator(mode="target", window=640)
    versions = []
    for start in range(0, 6400, 40):
        engine.learn_many(scores[start : start + 40], labels[start : start + 40], "target")
        versions.append(engine.version)
    held = held_of_labels(6400, 640)
    schedule = Schedule(1.1, 40)
    at = schedule.count(schedule.passed(6400) - 1)
    window = fresh(scores[:at][held_of_labels(at, 640)], labels[:at][held_of_labels(at, 640)])
    formed = fit_curve(window.cells, window.level, window.counts).map
    assert engine.map == formed.model_copy(update={"version": engine.version})
    assert np.diff(versions[-50:]).tolist() == [1] * 49
    assert engine.certificate.n_target <= held.stop - held.start + 40


def test_bad_times_and_windows_are_refused() -> None:
    engine = Recalibrator(mode="target", window=timedelta(hours=1))
    with pytest.raises(ValueError, match="needs the time of every label, in seconds, got None"):
        engine.learn_one(0.5, 1, "target")
    with pytest.raises(ValueError, match="got None"):
        engine.learn_many([0.5], [1], "target")
    with pytest.raises(ValueError, match=r"index 1: a time must be seconds since the epoch, .*, got nan"):
        engine.learn_many([0.5, 0.5], [1, 0], "target", times=[0.0, float("nan")])
    with pytest.raises(ValueError, match=r"2 scores but times of shape \(3,\)"):
        engine.learn_many([0.5, 0.5], [1, 0], "target", times=[0.0, 1.0, 2.0])
    assert engine.target.labels == 0
    assert engine.to_bytes() == Recalibrator(mode="target", window=timedelta(hours=1)).to_bytes()
    with pytest.raises(ValueError, match="a window must be longer than 0"):
        Recalibrator(window=timedelta(0))
    with pytest.raises(ValueError, match="greater than or equal to 64"):
        Recalibrator(window=10)
    assert Recalibrator(window="P30D").config.window == timedelta(days=30)
    with pytest.raises(DamagedStateError, match="not the state of this part"):
        restored(LabelLog.begun(100), b"nonsense")
