"""The laws of weights: exact sums of integers, and nothing at all where every weight is 1."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import DamagedStateError, ScoreSketch
from streamcal.events import Weight
from streamcal.sketch import weighing
from streamcal.sketch.recent_labels import RecentLabels
from streamcal.sketch.score_sketch import MIN_MAX_CELLS
from streamcal.sketch.weighing import HEAVIEST, LIGHTEST, NONE, ONE, Mass
from tests.states import bytes_of, restored

SCORES = st.one_of(
    st.floats(0.0, 1.0), st.floats(0.0, 45.0).map(lambda e: 2.0**-e), st.sampled_from([0.0, 0.1, 0.5, 1.0])
)
WEIGHTS = st.one_of(st.just(1.0), st.sampled_from([0.5, 2.0, 255 / 256, 257 / 256]), st.floats(1 / 256, 1e4))
EVENTS = st.lists(st.tuples(SCORES, st.integers(0, 1), WEIGHTS), max_size=120)
Events = list[tuple[float, int, float]]


def sketch_of(events: Events) -> ScoreSketch:
    sketch = ScoreSketch(MIN_MAX_CELLS)
    sketch.add(*([event[part] for event in events] for part in range(3)))
    return sketch


@given(EVENTS, st.randoms(use_true_random=False), st.lists(st.integers(0, 120), max_size=3))
def test_the_state_is_that_of_the_multiset(events: Events, random: Any, cuts: list[int]) -> None:
    whole = sketch_of(events)
    units = [round(256 * weight) for *_, weight in events]
    assert whole.weighted == any(each != ONE for each in units)
    assert whole.mass.labels == sum(units) - ONE * len(events)
    assert whole.mass.positives == sum(
        own - ONE for own, (_, label, _) in zip(units, events, strict=True) if label
    )
    shuffled = random.sample(events, len(events))
    ends = sorted({0, *(min(cut, len(events)) for cut in cuts), len(events)})
    added, merged = ScoreSketch(MIN_MAX_CELLS), ScoreSketch(MIN_MAX_CELLS)
    for start, end in pairwise(ends):
        part = shuffled[start:end]
        added.add(*([event[column] for event in part] for column in range(3)))
        other = sketch_of(part)
        other.merge(merged)
        merged = other
    assert added == merged == whole
    assert ScoreSketch.from_bytes(whole.to_bytes()) == whole


@given(EVENTS, EVENTS)
def test_what_was_merged_can_be_subtracted(first: Events, second: Events) -> None:
    both, other = sketch_of(first), sketch_of(second)
    both.merge(other)
    level = both.level
    both.subtract(other)
    assert both.mass == sketch_of(first).mass
    weighed, own = both.weighed, sketch_of(first).at_level(level).weighed
    assert weighed.masses.tolist() == own.masses.tolist()
    if any(weight != 1.0 for *_, weight in second):
        untouched = both.to_bytes()
        with pytest.raises(ValueError, match="never added"):
            both.subtract(sketch_of([(0.3, 1, 3.0)] * 500))
        assert both.to_bytes() == untouched


@given(EVENTS, st.integers(1, 60), st.integers(0, 120))
def test_the_newest_keep_their_weights(events: Events, size: int, cut: int) -> None:
    scores = np.array([score for score, *_ in events])
    labels = np.array([label for _, label, _ in events], np.int8)
    units = np.array([round(256 * weight) for *_, weight in events], np.int64)
    newest = RecentLabels(size)
    for part in (slice(None, cut), slice(cut, None)):
        newest.add(scores[part], labels[part], None if (units[part] == ONE).all() else units[part])
    kept = min(size, len(events))
    *_, found = newest.latest(kept)
    expected = units[len(units) - kept :]
    assert (np.full(kept, ONE) if found is None else found).tolist() == expected.tolist()
    if kept:
        cells, weighed = newest.weighed(kept)
        alone = ScoreSketch()
        alone.add_checked(scores[-kept:], labels[-kept:], None if (expected == ONE).all() else expected)
        assert cells.tolist() == alone.cells.tolist()
        assert weighed.masses.tolist() == alone.weighed.masses.tolist()
        assert weighed.labels == pytest.approx(alone.weighed.labels)
    assert bytes_of(restored(RecentLabels(size), bytes_of(newest))) == bytes_of(newest)


def test_the_effective_number_of_labels() -> None:
    """Kish: weights 1, 1, 4 are worth 36/18 = 2 labels."""
    mass = Mass.of(np.array([1, 0, 1], np.int8), np.array([256, 256, 1024]))
    positives, labels = mass.effective(2, 3)
    assert (positives, labels) == pytest.approx((2 * 5 / 6, 2.0))
    assert NONE.effective(2, 3) == (2, 3)


@pytest.mark.parametrize("weight", [0, 10_001, float("nan"), True])
def test_a_weight_out_of_range_is_refused(weight: Any) -> None:
    with pytest.raises(ValueError, match="a weight must be a number from 1/256 to 10000, got"):
        weighing.check_weight(weight)
    if weight is not None and not isinstance(weight, list):
        sketch = ScoreSketch()
        with pytest.raises(ValueError, match="index 1: a weight must be"):
            sketch.add([0.1, 0.2], [0, 1], np.array([1.0, weight], object))
        assert sketch.n == 0


@pytest.mark.parametrize("propensity", [0.0, 1.01, "0.5"])
def test_a_propensity_out_of_range_is_refused(propensity: Any) -> None:
    with pytest.raises(ValueError, match=r"must be a number from 0\.0001 to 1, got"):
        weighing.check_propensity(propensity)


def test_a_propensity_is_one_over_a_weight() -> None:
    assert weighing.check_propensity(0.25) == 4.0
    assert weighing.check_propensity(1) == 1.0
    assert weighing.check_weight(weighing.check_propensity(0.0001)) == HEAVIEST
    (limits,) = get_args(Weight)[1:]
    assert (limits.ge, limits.le) == (LIGHTEST, HEAVIEST)


def test_wrong_lengths_and_missing_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="2 labels but 1 weights"):
        ScoreSketch().add([0.1, 0.2], [0, 1], [2.0])
    with pytest.raises(ValueError, match="one-dimensional"):
        ScoreSketch().add([0.1, 0.2], [0, 1], 2.0)
    with pytest.raises(ValueError, match="weights are those of labels"):
        ScoreSketch(labelled=False).add([0.1], None, [2.0])


def test_bytes_from_anywhere_are_safe() -> None:
    sketch = sketch_of([(0.1, 0, 2.0), (0.7, 1, 0.5), (0.9, 1, 1.0)])
    counts, data = sketch.counts, weighing.pack_extra(sketch.counts, sketch._extra)  # type: ignore[arg-type]
    extra, rest = weighing.unpack_extra(counts, data + b"tail")
    assert (extra.tolist(), rest) == (sketch._extra.tolist(), b"tail")  # type: ignore[union-attr]
    wrong = [
        np.zeros_like(extra),  # all weights 1
        extra - ONE,  # masses of 0
        extra + 10_000 * ONE,
        np.where(np.arange(3)[:, None] == 2, extra - ONE // 2, extra),  # squares below what is possible
    ]
    for bad in wrong:
        with pytest.raises(ValueError, match="weights"):
            weighing.unpack_extra(
                counts, weighing.pack_extra(counts, np.maximum(bad, -ONE * counts[0].max()))
            )
    with pytest.raises(ValueError, match="sums of weights"):
        weighing.unpack_extra(counts[:, :1], data)
    with pytest.raises(DamagedStateError):
        ScoreSketch.from_bytes(sketch.to_bytes()[:-1])
    newest = RecentLabels(9)
    newest.add(np.array([0.1, 0.2]), np.array([0, 1], np.int8), np.array([256, 512]))
    for wrong_units in ([256], [256, 256], [256, 0]):
        with pytest.raises(ValueError, match="damaged"):
            RecentLabels(9, newest.packed, np.array(wrong_units, np.int32))
