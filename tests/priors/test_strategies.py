"""What each strategy makes of a stream: labels, scores, and changes of the prior."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.maps.shift import class_prior
from streamcal.priors.history import BLOCK
from streamcal.priors.trackers import PriorTracker, ScoreTracker, ShareSinceChange, make_tracker
from streamcal.testing import NormalPair
from tests.priors.streams import (
    EDGES,
    MANY,
    MEANS,
    PRIOR,
    VALUES,
    oracle,
    scores_and_labels,
    up_to_date,
    with_source,
)
from tests.states import bytes_of


def take_labels(tracker: PriorTracker, labels: np.ndarray) -> None:
    tracker.take_labels(labels.astype(np.int8))


# Labels


@pytest.mark.parametrize("window", [1, 7, 300, MANY])
@given(st.lists(st.integers(0, 1), max_size=700), st.integers(0, 700))
def test_labels_are_counted(window: int, labels: list[int], split: int) -> None:
    tracker = make_tracker("labels", window)
    for label in labels[:split]:
        take_labels(tracker, np.array([label]))
    take_labels(tracker, np.array(labels[split:]))
    held = labels[-window:]
    assert tracker.n == len(held)
    assert tracker.prior == (class_prior(sum(held), len(held), 0.5) if held else None)


def test_labels_since_the_last_change() -> None:
    """A jump from 0.1 to 0.4 is found once, within 256 labels; seeded, failure probability below 0.1 %."""
    rng = np.random.default_rng(0)
    tracker = ShareSinceChange(0.5)
    earlier, later = rng.random(5000) < 0.1, rng.random(2000) < 0.4
    take_labels(tracker, earlier)
    assert tracker.prior == class_prior(int(earlier.sum()), 5000, 0.5)
    take_labels(tracker, later[:256])
    assert tracker.changes == 1
    assert 200 <= tracker.n <= 300
    take_labels(tracker, later[256:])
    assert tracker.changes == 1
    assert tracker.prior == pytest.approx(later.mean(), abs=0.01)


def test_a_window_of_labels_takes_a_byte_each() -> None:
    tracker = make_tracker("labels", 10_000)
    for seed in range(10):
        take_labels(tracker, np.random.default_rng(seed).random(9_000) < 0.3)
    assert len(bytes_of(tracker)) < 10_100


def test_labels_with_weights_are_not_searched_for_changes() -> None:
    with pytest.raises(ValueError, match="looks for changes"):
        make_tracker("labels", "adwin").take_labels(np.ones(1, np.int8), np.array([300]))


# Scores


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 900))
def test_every_score_counts(seed: int, n: int) -> None:
    scores, _ = scores_and_labels(n, 0.3, np.random.default_rng(seed))
    tracker = with_source("scores")
    tracker.take_scores(scores)
    assert tracker.n == n
    found, expected = up_to_date(tracker), oracle(scores)
    assert found == (expected if expected is None else pytest.approx(expected, rel=1e-12))


@pytest.mark.parametrize("window", [10, 100, 1000])
def test_a_window_holds_the_latest_predictions(window: int) -> None:
    """At least those of the window, and at most a sixteenth of it more."""
    scores, _ = scores_and_labels(4096, 0.3, np.random.default_rng(1))
    tracker = with_source("scores", window)
    for start in range(0, 4096, BLOCK):
        tracker.take_scores(scores[start : start + BLOCK])
        assert min(start + BLOCK, window) <= tracker.n <= window + window // 16 + 1
    assert up_to_date(tracker) == pytest.approx(oracle(scores[4096 - tracker.n :]), rel=1e-12)


def test_a_change_shows_within_256_scores() -> None:
    """At the jump, 0.1 to 0.4, the scores move the prior, and those before it stop counting.

    Seeded; over seeds the prior 1,000 predictions on has a standard error of 0.02, and detection takes at
    most 256 with a probability of 99.9 %.
    """
    rng = np.random.default_rng(4)
    jump = 6016  # where a block begins
    scores = np.concatenate([scores_and_labels(jump, q, rng)[0] for q in (0.1, 0.4)])
    tracker = ScoreTracker("adwin", 0.5)
    tracker.set_source(EDGES, MEANS, PRIOR)
    for now in range(BLOCK, len(scores) + 1, BLOCK):
        tracker.take_scores(scores[now - BLOCK : now])
        if now == jump:
            assert tracker.changes == 0
            assert tracker.prior == pytest.approx(0.1, abs=0.02)
        if now >= jump + 256:
            assert tracker.changes == 1
            assert now - jump - 128 <= tracker.n <= now - jump + 16
        if now >= jump + 1024:
            assert tracker.prior == pytest.approx(0.4, abs=0.07)


# Limits


def test_without_a_source_scores_do_not_count() -> None:
    tracker = make_tracker("scores", MANY)
    tracker.take_scores(np.full(BLOCK, 0.97))
    assert tracker.prior is None
    tracker.set_source(EDGES, MEANS, PRIOR)
    assert tracker.prior == pytest.approx(oracle(np.full(BLOCK, 0.97)), rel=1e-12)
    tracker.set_source(EDGES, MEANS, 1.0)  # a source of one class
    assert tracker.prior is None
    tracker.set_source((), (), 0.5)  # the identity
    assert tracker.prior is None


def test_without_smoothing_it_is_the_likeliest() -> None:
    tracker = with_source("scores", MANY, 0.0)
    tracker.take_scores(np.full(BLOCK, 0.03))
    assert tracker.prior == 0.0


def test_a_source_that_is_no_map_changes_nothing() -> None:
    tracker = with_source("scores")
    tracker.take_scores(VALUES.repeat(BLOCK))
    before = bytes_of(tracker)
    with pytest.raises(ValueError, match="ascend"):
        tracker.set_source((0.0, 0.5), (0.2,), 0.5)
    assert bytes_of(tracker) == before


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    """200,000 scores that differ, from 10⁻⁹ to 1 − 10⁻⁹: few bytes."""
    tracker = with_source("scores", "adwin")
    tracker.take_scores(1.0 / (1.0 + np.exp(np.random.default_rng(11).normal(0.0, 8.0, 200_000))))
    assert tracker.n == 200_000
    assert len(bytes_of(tracker)) < 64 * 1024


# On known truth


def test_it_tracks_a_moving_prior_on_the_papers_distribution() -> None:
    """Blocks of 3,000 predictions with priors 0.1 and 0.4 in turn, from 500 after each on.

    Root mean square error of the log-odds: of ``"scores"`` at most 0.15, of ``"labels"`` 1,000 late at least
    0.5. Over 20 seeds they are 0.07, with a standard deviation of 0.016, and 0.79, with one of 0.01: failure
    probability below 10⁻⁴.
    """
    rng = np.random.default_rng(12)
    source = NormalPair(0.5)
    edges = np.concatenate(
        ([0.0], np.quantile(source.sample(20_000, rng)[0], np.linspace(0, 1, 65))[1:-1], [1.0])
    )
    scores, labels = source.sample(400_000, rng)
    bins = np.searchsorted(edges, scores, side="right") - 1
    means = np.bincount(bins, labels, 64) / np.bincount(bins, minlength=64)
    of_scores, of_labels = make_tracker("scores", "adwin"), make_tracker("labels", "adwin")
    of_scores.set_source(edges, means, 0.5)
    errors = []
    gathered = np.empty(0)  # scores of a block that is not full yet
    queue: list[np.ndarray] = []
    for block in range(8):
        q = (0.1, 0.4)[block % 2]
        for step in range(50):
            z, y = NormalPair(q).sample(60, rng)
            queue.append(y)
            gathered = np.append(gathered, z)
            whole = len(gathered) // BLOCK * BLOCK
            of_scores.take_scores(gathered[:whole])
            gathered = gathered[whole:]
            if len(queue) > 17:
                of_labels.take_labels(queue[-18])
            if 60 * step >= 500 and of_labels.prior is not None:
                errors.append([np.log(p / (1 - p) * (1 - q) / q) for p in (of_scores.prior, of_labels.prior)])
    from_scores, from_labels = np.sqrt(np.mean(np.square(errors), axis=0))
    print(f"errors of log-odds: scores {from_scores:.3f}, labels {from_labels:.3f}")
    assert from_scores <= 0.15
    assert from_labels >= 0.5


@pytest.mark.slow
def test_stationary_streams_have_no_changes() -> None:
    """At most 1 in 6 streams of 30,000 predictions.

    None was seen in 72 streams of 100,000. If the rate were as high as that allows at 95 %, 0.042, two here
    would have a probability of 0.3 %.
    """
    changes = 0
    for seed in range(6):
        rng: Any = np.random.default_rng([13, seed])
        tracker = ScoreTracker("adwin", 0.5)
        tracker.set_source(EDGES, MEANS, PRIOR)
        tracker.take_scores(scores_and_labels(30_000, (0.02, 0.3)[seed % 2], rng)[0])
        changes += tracker.changes
    assert changes <= 1
