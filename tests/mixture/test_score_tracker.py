"""A tracker of the prior: what it makes of scores and of changes; the contract cuts and restores it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.mixture.history import BLOCK
from streamcal.mixture.score_tracker import ScoreTracker
from streamcal.testing import NormalPair
from tests.mixture.prior_streams import EDGES, MEANS, PRIOR, drawn, oracle, up_to_date, with_source

seeds = st.integers(0, 10**6)


@given(seeds, st.integers(0, 900))
def test_every_score_counts(seed: int, n: int) -> None:
    scores = drawn(n, 0.3, np.random.default_rng(seed))
    tracker = with_source()
    tracker.take_scores(scores)
    assert tracker.n == n
    found, expected = up_to_date(tracker), oracle(scores)
    assert found == (expected if expected is None else pytest.approx(expected, rel=1e-12))


def test_a_change_shows_within_256_scores() -> None:
    """At the jump, 0.1 to 0.4, the scores move the prior, and those before it stop counting.

    Seeded; over seeds the prior 1,000 predictions on has a standard error of 0.02, and detection takes at
    most 256 with a probability of 99.9 %.
    """
    rng = np.random.default_rng(4)
    jump = 6016  # where a block begins
    scores = np.concatenate([drawn(jump, q, rng) for q in (0.1, 0.4)])
    tracker = with_source()
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
    tracker = ScoreTracker()
    assert (tracker.prior, tracker.n) == (None, 0)
    tracker.take_scores(np.full(BLOCK, 0.97))
    assert tracker.prior is None
    tracker.set_source(EDGES, MEANS, PRIOR)
    assert tracker.prior == pytest.approx(oracle(np.full(BLOCK, 0.97)), rel=1e-12)
    tracker.set_source(EDGES, MEANS, 1.0)  # a source of one class
    assert tracker.prior is None
    tracker.set_source((), (), 0.5)  # the identity
    assert tracker.prior is None


# On known truth


def test_it_tracks_a_moving_prior_on_the_papers_distribution() -> None:
    """Blocks of 3,000 predictions with priors 0.1 and 0.4 in turn, from 500 after each jump on.

    Root mean square error of the log-odds: at most 0.15. Over 20 seeds it is 0.07, with a standard deviation
    of 0.016: failure probability below 10⁻⁴.
    """
    rng = np.random.default_rng(12)
    source = NormalPair(0.5)
    edges = np.concatenate(
        ([0.0], np.quantile(source.sample(20_000, rng)[0], np.linspace(0, 1, 65))[1:-1], [1.0])
    )
    scores, labels = source.sample(400_000, rng)
    bins = np.searchsorted(edges, scores, side="right") - 1
    means = np.bincount(bins, labels, 64) / np.bincount(bins, minlength=64)
    tracker = ScoreTracker()
    tracker.set_source(edges, means, 0.5)
    errors = []
    gathered = np.empty(0)  # scores of a block that is not full yet
    for block in range(8):
        q = (0.1, 0.4)[block % 2]
        for step in range(50):
            gathered = np.append(gathered, NormalPair(q).sample(60, rng)[0])
            whole = len(gathered) // BLOCK * BLOCK
            tracker.take_scores(gathered[:whole])
            gathered = gathered[whole:]
            if 60 * step >= 500:
                p = tracker.prior
                errors.append(np.log(p / (1 - p) * (1 - q) / q))
    error = np.sqrt(np.mean(np.square(errors)))
    print(f"error of log-odds: {error:.3f}")
    assert error <= 0.15


@pytest.mark.slow
def test_stationary_streams_have_no_changes() -> None:
    """At most 1 in 6 streams of 30,000 predictions.

    None was seen in 72 streams of 100,000. If the rate were as high as that allows at 95 %, 0.042, two here
    would have a probability of 0.3 %.
    """
    changes = 0
    for seed in range(6):
        tracker = with_source()
        tracker.take_scores(drawn(30_000, (0.02, 0.3)[seed % 2], np.random.default_rng([13, seed])))
        changes += tracker.changes
    assert changes <= 1
