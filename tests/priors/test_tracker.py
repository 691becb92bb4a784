"""The contract of `PriorTracker`, tested against every strategy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.errors import DamagedStateError
from streamcal.priors.history import BLOCK
from streamcal.priors.trackers import make_tracker
from tests.priors.streams import (
    EDGES,
    MANY,
    MEANS,
    PRIOR,
    VALUES,
    Caller,
    events,
    scores_and_labels,
    with_source,
)
from tests.states import bytes_of, restored

KINDS = ("labels", "scores")
WINDOWS = (MANY, 300, "adwin")

every_strategy = pytest.mark.parametrize(("kind", "window"), list(itertools.product(KINDS, WINDOWS)))
seeds = st.integers(0, 10**6)


# Cutting


@pytest.mark.slow
@every_strategy
@settings(max_examples=15, deadline=None)
@given(seeds, st.sets(st.integers(0, 900), max_size=200))
def test_cutting_leaves_no_trace(kind: Any, window: Any, seed: int, cuts: set[int]) -> None:
    """Labels handed over when due, earlier, or only before a block of scores: the same bytes and prior."""
    stream, callers = events(400, seed), [Caller(with_source(kind, window)) for _ in range(2)]
    callers.append(Caller(with_source(kind, window), heeds_due=False))
    for caller, early in zip(callers, (set(), cuts, set()), strict=True):
        caller.feed(stream[:300], early)
        caller.tracker.set_source(EDGES, MEANS, PRIOR / 2.0)
        caller.feed(stream[300:], early)
    when_due, earlier, late = (caller.tracker for caller in callers)
    assert bytes_of(when_due) == bytes_of(earlier) == bytes_of(late)
    assert when_due.prior == earlier.prior == late.prior
    assert when_due.labels_until_due == earlier.labels_until_due == late.labels_until_due


@every_strategy
@settings(max_examples=5, deadline=None)
@given(seeds, st.sets(st.integers(1, 699), max_size=10))
def test_many_labels_are_a_loop_of_one(kind: Any, window: Any, seed: int, cuts: set[int]) -> None:
    scores, labels = scores_and_labels(700, 0.2, np.random.default_rng(seed))
    one, many = with_source(kind, window), with_source(kind, window)
    for tracker in (one, many):
        tracker.take_scores(scores)
    for i in range(700):
        one.take_labels(labels[i : i + 1])
    for start, end in itertools.pairwise([0, *sorted(cuts), 700]):
        many.take_labels(labels[start:end])
    assert bytes_of(one) == bytes_of(many)
    assert one.prior == many.prior


@pytest.mark.parametrize("window", WINDOWS)
def test_many_blocks_are_a_loop_of_one(window: Any) -> None:
    scores, _ = scores_and_labels(20 * BLOCK, 0.2, np.random.default_rng(6))
    one, many = with_source("scores", window), with_source("scores", window)
    for start in range(0, len(scores), BLOCK):
        one.take_scores(scores[start : start + BLOCK])
    many.take_scores(scores)
    assert bytes_of(one) == bytes_of(many)
    assert one.prior == many.prior


@every_strategy
def test_nothing_changes_nothing(kind: Any, window: Any) -> None:
    tracker = with_source(kind, window)
    Caller(tracker).feed(events(200, 3))
    before = bytes_of(tracker)
    tracker.take_labels(np.empty(0, np.int8))
    tracker.take_scores(np.empty(0))
    tracker.set_source(EDGES, MEANS, PRIOR)
    assert bytes_of(tracker) == before


@every_strategy
def test_the_arrays_of_the_caller_are_not_kept(kind: Any, window: Any) -> None:
    """The caller may reuse its buffer."""
    tracker, copy = with_source(kind, window), with_source(kind, window)
    scores, labels = scores_and_labels(BLOCK, 0.3, np.random.default_rng(4))
    for each, taken in ((copy, (labels.copy(), scores.copy())), (tracker, (labels, scores))):
        each.take_labels(taken[0])
        each.take_scores(taken[1])
    labels[:], scores[:] = 0, 0.0
    assert bytes_of(tracker) == bytes_of(copy)


@pytest.mark.parametrize("window", WINDOWS)
def test_what_does_not_matter_is_ignored(window: Any) -> None:
    labels, scores = with_source("labels", window), with_source("scores", window)
    assert not labels.takes_scores
    assert scores.takes_scores
    before = bytes_of(labels)
    labels.take_scores(VALUES)
    labels.set_source((0.0, 1.0), (0.3,), 0.3)
    assert bytes_of(labels) == before
    before = bytes_of(scores)
    scores.take_labels(np.ones(500, np.int8))
    assert bytes_of(scores) == before


# Bytes


@pytest.mark.slow
@every_strategy
@settings(max_examples=15, deadline=None)
@given(seeds, st.sets(st.integers(0, 900), max_size=5))
def test_bytes_in_midstream(kind: Any, window: Any, seed: int, stops: set[int]) -> None:
    """A tracker restored from bytes goes on as the one that gave them, to the same bytes in the end."""
    stream = events(500, seed)
    straight = Caller(with_source(kind, window)).feed(stream)
    broken = Caller(with_source(kind, window))
    for i, event in enumerate(stream):
        if i in stops:
            data = bytes_of(broken.tracker)
            broken.tracker = restored(make_tracker(kind, window), data)
            assert bytes_of(broken.tracker) == data
            assert broken.tracker.labels_until_due >= 1
        broken.add(event)
    broken.hand_over_labels()
    assert broken.tracker.prior == straight.prior
    assert broken.tracker.n == straight.n
    assert bytes_of(broken.tracker) == bytes_of(straight)


def test_a_restored_tracker_estimates_when_the_other_does() -> None:
    """In a long window the prior is estimated now and then, and a restored tracker keeps those moments."""
    scores, _ = scores_and_labels(12_800, 0.3, np.random.default_rng(14))
    straight, broken = with_source("scores", "adwin"), with_source("scores", "adwin")
    estimates = set()
    for start in range(0, len(scores), BLOCK):
        broken = restored(make_tracker("scores", "adwin"), bytes_of(broken))
        for tracker in (straight, broken):
            tracker.take_scores(scores[start : start + BLOCK])
        assert broken.prior == straight.prior
        estimates.add(straight.prior)
    assert len(estimates) < 0.9 * len(scores) / BLOCK  # else they could not have differed


@pytest.mark.slow
@every_strategy
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_damaged_bytes_are_refused_or_harmless(kind: Any, window: Any, data: st.DataObject) -> None:
    whole = bytes_of(Caller(with_source(kind, window)).feed(events(150, 7)))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DamagedStateError):
        restored(make_tracker(kind, window), whole[:cut])
    offset, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    altered = whole[:offset] + bytes([value]) + whole[offset + 1 :]
    tracker = make_tracker(kind, window)
    try:
        restored(tracker, altered)
    except DamagedStateError:
        return
    assert tracker.prior is None or 0.0 <= tracker.prior <= 1.0
    assert tracker.labels_until_due >= 1
    tracker.take_scores(VALUES)
    tracker.take_labels(np.ones(200, np.int8))


@pytest.mark.parametrize(("kind", "window"), [("labels", MANY), ("labels", "adwin")])
def test_the_state_of_another_strategy_is_refused(kind: Any, window: Any) -> None:
    with pytest.raises(DamagedStateError, match="not the state of this part"):
        restored(make_tracker(kind, window), bytes_of(with_source("scores", 300)))


# Merging


@every_strategy
def test_a_new_tracker_knows_nothing(kind: Any, window: Any) -> None:
    tracker = make_tracker(kind, window)
    assert tracker.prior is None
    assert tracker.n == 0
