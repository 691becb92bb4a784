"""The contract of `PriorTracker`, tested against every strategy, and the factory that chooses one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.errors import DamagedStateError
from streamcal.priors.factory import make_tracker
from streamcal.priors.tracker import BLOCK, NO_LIMIT, PriorEvidence
from tests.priors.streams import (
    EDGES,
    MEANS,
    PRIOR,
    VALUES,
    Caller,
    events,
    scores_and_labels,
    up_to_date,
    with_source,
)
from tests.states import bytes_of, restored

KINDS = ("labels", "scores", "both")
WINDOWS = (None, 300, "adwin")

every_strategy = pytest.mark.parametrize(("kind", "window"), list(itertools.product(KINDS, WINDOWS)))
with_scores = pytest.mark.parametrize(
    ("kind", "window"), list(itertools.product(("scores", "both"), WINDOWS))
)
seeds = st.integers(0, 10**6)


# Cutting


@pytest.mark.slow
@every_strategy
@settings(max_examples=15, deadline=None)
@given(seeds, st.sets(st.integers(0, 900), max_size=200))
def test_cutting_leaves_no_trace(kind: Any, window: Any, seed: int, cuts: set[int]) -> None:
    """Labels handed over at `room`, earlier, or only before a block of scores: the same bytes and prior."""
    stream, callers = events(400, seed), [Caller(with_source(kind, window)) for _ in range(2)]
    callers.append(Caller(with_source(kind, window), heeds_room=False))
    for caller, early in zip(callers, (set(), cuts, set()), strict=True):
        caller.feed(stream[:300], early)
        caller.tracker.set_source(EDGES, MEANS, PRIOR / 2.0)
        caller.feed(stream[300:], early)
    at_room, earlier, late = (caller.tracker for caller in callers)
    assert bytes_of(at_room) == bytes_of(earlier) == bytes_of(late)
    assert at_room.prior == earlier.prior == late.prior
    assert at_room.room == earlier.room == late.room


@every_strategy
@settings(max_examples=5, deadline=None)
@given(seeds, st.sets(st.integers(1, 699), max_size=10))
def test_many_labels_are_a_loop_of_one(kind: Any, window: Any, seed: int, cuts: set[int]) -> None:
    scores, labels = scores_and_labels(700, 0.2, np.random.default_rng(seed))
    seen = np.arange(700)
    one, many = with_source(kind, window), with_source(kind, window)
    for tracker in (one, many):
        tracker.take_scores(scores)
    for i in range(700):
        one.take_labels(labels[i : i + 1], scores[i : i + 1], seen[i : i + 1])
    for start, end in itertools.pairwise([0, *sorted(cuts), 700]):
        many.take_labels(labels[start:end], scores[start:end], seen[start:end])
    assert bytes_of(one) == bytes_of(many)
    assert one.prior == many.prior


@with_scores
def test_many_blocks_are_a_loop_of_one(kind: Any, window: Any) -> None:
    scores, _ = scores_and_labels(20 * BLOCK, 0.2, np.random.default_rng(6))
    one, many = with_source(kind, window), with_source(kind, window)
    for start in range(0, len(scores), BLOCK):
        one.take_scores(scores[start : start + BLOCK])
    many.take_scores(scores)
    assert bytes_of(one) == bytes_of(many)
    assert one.prior == many.prior


@every_strategy
def test_the_prior_with_scores_moves_only_at_the_room(kind: Any, window: Any) -> None:
    """Between two moments at which the caller has to hand labels over, it may read a prior without them."""
    tracker = with_source(kind, window)
    tracker.take_scores(VALUES.repeat(200)[: 18 * BLOCK])
    scores, labels = scores_and_labels(500, 0.9, np.random.default_rng(3))
    for i in range(500):
        before, room = tracker.prior, tracker.room
        assert room >= 1
        tracker.take_labels(labels[i : i + 1], scores[i : i + 1], np.array([i]))
        if tracker.takes_scores and room > 1:
            assert tracker.prior == before
            assert tracker.room in (room - 1, NO_LIMIT)


@every_strategy
def test_nothing_changes_nothing(kind: Any, window: Any) -> None:
    tracker = with_source(kind, window)
    Caller(tracker).feed(events(200, 3))
    before = bytes_of(tracker)
    tracker.take_labels(np.empty(0, np.int8), np.empty(0), np.empty(0, np.int64))
    tracker.take_scores(np.empty(0))
    tracker.set_source(EDGES, MEANS, PRIOR)
    assert bytes_of(tracker) == before


@every_strategy
def test_the_arrays_of_the_caller_are_not_kept(kind: Any, window: Any) -> None:
    """The caller may reuse its buffer."""
    tracker, copy = with_source(kind, window), with_source(kind, window)
    scores, labels = scores_and_labels(BLOCK, 0.3, np.random.default_rng(4))
    seen = np.arange(40, 40 + BLOCK)
    copy.take_labels(labels.copy(), scores.copy(), seen.copy())
    copy.take_scores(scores.copy())
    taken = labels, scores, seen
    tracker.take_labels(*taken)
    tracker.take_scores(scores)
    for array in taken:
        array[:] = 0
    assert bytes_of(tracker) == bytes_of(copy)


@pytest.mark.parametrize("window", WINDOWS)
def test_what_does_not_matter_is_ignored(window: Any) -> None:
    labels, scores = with_source("labels", window), with_source("scores", window)
    assert not labels.takes_scores
    assert scores.takes_scores
    assert with_source("both", window).takes_scores
    before = bytes_of(labels)
    labels.take_scores(VALUES)
    labels.set_source((0.0, 1.0), (0.3,), 0.3)
    assert bytes_of(labels) == before
    before = bytes_of(scores)
    scores.take_labels(np.ones(500, np.int8), np.full(500, 0.2), np.full(500, -1))
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
            assert broken.tracker.room >= 1
        broken.add(event)
    broken.hand_over_labels()
    assert broken.tracker.prior == straight.prior
    assert broken.tracker.evidence == straight.evidence
    assert bytes_of(broken.tracker) == bytes_of(straight)


def test_a_restored_tracker_estimates_when_the_other_does() -> None:
    """In a long window the prior is estimated now and then, and a restored tracker keeps those moments."""
    scores, labels = scores_and_labels(12_800, 0.3, np.random.default_rng(14))
    straight, broken = with_source("both", "adwin"), with_source("both", "adwin")
    estimates = set()
    for start in range(0, len(scores), BLOCK):
        part = slice(start, start + BLOCK)
        broken = restored(make_tracker("both", "adwin"), bytes_of(broken))
        for tracker in (straight, broken):
            tracker.take_scores(scores[part])
            tracker.take_labels(labels[part][:20], scores[part][:20], start + np.arange(20))
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
    assert tracker.room >= 1
    tracker.take_scores(VALUES)
    tracker.take_labels(np.ones(200, np.int8), np.full(200, 0.2), np.full(200, 3))


@pytest.mark.parametrize(("kind", "window"), [("labels", None), ("scores", "adwin"), ("labels", 299)])
def test_the_state_of_another_strategy_is_refused(kind: Any, window: Any) -> None:
    with pytest.raises(DamagedStateError, match="not the state of this part"):
        restored(make_tracker(kind, window), bytes_of(with_source("both", 300)))


# Merging


@every_strategy
def test_merging_is_learning_later(kind: Any, window: Any) -> None:
    """Two trackers merged hold what one holds that was given both streams, one after the other."""
    rng = np.random.default_rng(8)
    first, second = scores_and_labels(640, 0.3, rng), scores_and_labels(1280, 0.3, rng)
    trackers = [with_source(kind, window) for _ in range(3)]
    for tracker, stretches in zip(trackers, [[first], [second], [first, second]], strict=True):
        start = 0
        for scores, labels in stretches:
            tracker.take_scores(scores)
            tracker.take_labels(labels[:500], scores[:500], start + np.arange(500))
            start += len(scores)
        tracker.merge(with_source(kind, window))
    trackers[0].merge(trackers[1])
    merged, whole = trackers[0], trackers[2]
    if window != 300 or kind == "labels":
        assert merged.evidence == whole.evidence
        assert up_to_date(merged) == up_to_date(whole)
    else:  # the panes of a window begin elsewhere
        assert 300 <= merged.evidence.labels + merged.evidence.scores <= 300 + 2 * 300 // 16


@pytest.mark.slow
@every_strategy
@settings(max_examples=10, deadline=None)
@given(seeds, st.integers(0, 300), st.integers(0, 300))
def test_merging_does_not_depend_on_the_cutting(
    kind: Any, window: Any, seed: int, here: int, there: int
) -> None:
    merged = []
    for heeds_room in (True, False):
        one, two = (Caller(with_source(kind, window), heeds_room=heeds_room) for _ in range(2))
        one.feed(events(here, seed))
        two.feed(events(there, seed + 1))
        one.hand_over()
        one.tracker.merge(two.tracker)
        Caller(one.tracker, heeds_room=heeds_room).feed(events(200, seed + 2))
        merged.append(bytes_of(one.tracker))
    assert merged[0] == merged[1]


# Options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("label",), "kind must be 'labels', 'scores' or 'both', got 'label'"),
        (("both", 0), "window must be None, 'adwin' or an integer of at least 1, got 0"),
        (("both", "ADWIN"), "window must be .* got 'ADWIN'"),
        (("both", 2.5), "window must be .* got 2.5"),
        (("both", None, -1.0), "smoothing must be a number of at least 0, got -1.0"),
        (("both", None, float("nan")), "smoothing must be .* got nan"),
    ],
)
def test_options_are_checked(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_tracker(*arguments)


@every_strategy
def test_a_new_tracker_knows_nothing(kind: Any, window: Any) -> None:
    tracker = make_tracker(kind, window)
    assert tracker.kind == kind
    assert tracker.prior is None
    assert tracker.evidence == PriorEvidence(0, 0, 0, 0)
