"""Laws of weights: what they sum up to, in whatever parts, and nothing at all where every weight is 1."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import Recalibrator, ScoreSketch
from streamcal.events import Weight
from streamcal.sketch import grid, weighing
from streamcal.sketch.label_window import LabelWindow
from streamcal.sketch.recent_labels import RecentLabels
from streamcal.sketch.score_sketch import MIN_MAX_CELLS
from streamcal.sketch.weighing import HEAVIEST, LIGHTEST, NONE
from tests.states import bytes_of, restored

SCORES = st.one_of(
    st.floats(0.0, 1.0), st.floats(0.0, 45.0).map(lambda e: 2.0**-e), st.sampled_from([0.0, 0.1, 0.5, 1.0])
)
WEIGHTS = st.one_of(st.just(1.0), st.sampled_from([0.5, 2.0, 1e-3]), st.floats(LIGHTEST, HEAVIEST))
EVENTS = st.lists(st.tuples(SCORES, st.integers(0, 1), WEIGHTS), max_size=120)
Events = list[tuple[float, int, float]]


def sketch_of(events: Events) -> ScoreSketch:
    sketch = ScoreSketch(MIN_MAX_CELLS)
    sketch.add(*([event[part] for event in events] for part in range(3)))
    return sketch


@given(EVENTS, st.randoms(use_true_random=False), st.lists(st.integers(0, 120), max_size=3))
def test_sums_are_those_of_the_multiset_but_for_rounding(
    events: Events, random: Any, cuts: list[int]
) -> None:
    whole = sketch_of(events)
    assert whole.weighted == any(weight != 1.0 for *_, weight in events)
    positives, labels, squares = whole.mass
    assert positives == pytest.approx(sum(weight for _, label, weight in events if label))
    assert labels == pytest.approx(sum(weight for *_, weight in events))
    assert squares == pytest.approx(sum(weight**2 for *_, weight in events))
    shuffled = random.sample(events, len(events))
    ends = sorted({0, *(min(cut, len(events)) for cut in cuts), len(events)})
    in_parts, added, merged = (ScoreSketch(MIN_MAX_CELLS) for _ in range(3))
    for start, end in pairwise(ends):
        in_parts.add(*([event[column] for event in events[start:end]] for column in range(3)))
        part = shuffled[start:end]
        added.add(*([event[column] for event in part] for column in range(3)))
        other = sketch_of(part)
        other.merge(merged)
        merged = other
    assert in_parts == whole
    for found in (added, merged):
        assert found.cells.tolist() == whole.cells.tolist()
        assert found.counts.tolist() == whole.counts.tolist()
        assert found.weighted == whole.weighted
        assert np.allclose(found.weighed.masses, whole.weighed.masses, atol=0.0)
        assert np.allclose(found.weighed.squares, whole.weighed.squares, atol=0.0)
        assert found.weighted or found == whole
    assert ScoreSketch.from_bytes(whole.to_bytes()) == whole


@given(EVENTS, st.integers(1, 60), st.integers(0, 120))
def test_the_newest_keep_their_weights(events: Events, size: int, cut: int) -> None:
    scores = np.array([score for score, *_ in events])
    labels = np.array([label for _, label, _ in events], np.int8)
    weights = np.array([weight for *_, weight in events], np.float64)
    newest, window = RecentLabels(size), LabelWindow(size)
    for part in (slice(None, cut), slice(cut, None)):
        newest.add(scores[part], labels[part], weights[part])
        window.add(labels[part], weights[part])
    kept = min(size, len(events))
    *_, found = newest.latest(kept)
    expected = weights[len(weights) - kept :]
    assert (np.ones(kept) if found is None else found).tolist() == expected.tolist()
    if kept:
        cells, weighed = newest.weighed(kept)
        alone = ScoreSketch()
        alone.add_checked(scores[-kept:], labels[-kept:], expected)
        assert cells.tolist() == alone.cells.tolist()
        assert weighed.masses.tolist() == alone.weighed.masses.tolist()
        assert weighed.labels == pytest.approx(alone.weighed.labels)
        assert window.effective() == pytest.approx(alone.mass.effective())
    assert bytes_of(restored(RecentLabels(size), bytes_of(newest))) == bytes_of(newest)


def test_the_effective_number_of_labels() -> None:
    """Kish: weights 1, 1, 4 are worth 36/18 = 2 labels."""
    labels = np.array([1, 0, 1], np.int8)
    mass = NONE.with_labels(labels, np.array([1.0, 1.0, 4.0]))
    assert mass == (5.0, 6.0, 18.0)
    assert mass.effective() == pytest.approx((2 * 5 / 6, 2.0))
    assert NONE.with_labels(labels, None).effective() == (2.0, 3.0)
    assert NONE.effective() == (0.0, 0.0)


@pytest.mark.parametrize("mode", ["auto", "target"])
@pytest.mark.parametrize("scale", [1e-3, 1e-7])
def test_only_ratios_of_weights_count(mode: Any, scale: float) -> None:
    rng = np.random.default_rng(3)
    scores, weights = rng.random(3000), rng.choice([1.0, 3.0, 0.2], 3000)
    labels = (rng.random(3000) < scores**2).astype(np.int8)
    large, small = Recalibrator(mode=mode), Recalibrator(mode=mode)
    large.learn_many(scores, labels, weights=weights)
    small.learn_many(scores, labels, weights=scale * weights)
    at = np.linspace(0.01, 0.99, 50)
    assert small.predict_many(at) == pytest.approx(large.predict_many(at), abs=1e-4)  # fits end near enough
    assert small.target.prior == pytest.approx(large.target.prior)


@pytest.mark.parametrize("mode", ["auto", "composite", "label_shift"])
def test_only_ratios_of_weights_count_for_classes(mode: Any) -> None:
    rng = np.random.default_rng(4)
    rows, names = rng.dirichlet(np.ones(3), 900), ["a", "b", "c"]
    codes = (rng.random((900, 1)) > rows.cumsum(axis=1)).sum(axis=1)
    weights = rng.choice([1.0, 3.0, 0.2], 900)
    made = []
    for scale in (1.0, 2.0**-17):
        engine = Recalibrator(mode=mode, classes=names)
        engine.learn_many(rows, codes, "source", weights=scale * weights)
        kept = codes != 2
        engine.learn_many(rows[kept], codes[kept], weights=scale * weights[kept])
        made.append(engine.predict_many(rows[:50]))
    assert made[1] == pytest.approx(made[0], abs=1e-3)


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


# The newest labels: in their order, however they came, and of a size that is bounded


LAST = grid.LAST_KEY >> grid.MIN_LEVEL


def check(newest: RecentLabels, scores: np.ndarray, labels: np.ndarray, size: int) -> None:
    kept = min(size, len(scores))
    assert len(newest) == kept
    all_cells = grid.cells_of(scores, grid.MIN_LEVEL)
    for length in {0, 1, kept // 2, kept} & {*range(kept + 1)}:
        latest, latest_labels, weights = newest.latest(length)
        assert weights is None
        first = len(scores) - length
        assert latest.dtype == np.float64
        assert latest_labels.dtype == np.int8
        assert grid.cells_of(latest, grid.MIN_LEVEL).tolist() == all_cells[first:].tolist()
        assert latest_labels.tolist() == labels[first:].tolist()
        if not length:
            continue
        cells, counts = newest.counts(length)
        assert cells.dtype == np.int32
        assert counts.dtype == np.float64
        assert cells.tolist() == np.unique(all_cells[first:]).tolist()
        for label in (0, 1):
            these = all_cells[first:][labels[first:] == label]
            assert counts[label].tolist() == [int((these == cell).sum()) for cell in cells]


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 50), st.integers(0, 1000))
def test_the_latest_are_kept_in_their_order(parts: list[int], size: int, seed: int) -> None:
    """Whatever the parts in which they come, through a restart after each, or merged from two."""
    rng = np.random.default_rng(seed)
    n = sum(parts)
    scores, labels = rng.choice([0.0, 1.0, *rng.random(20)], n), rng.integers(0, 2, n).astype(np.int8)
    newest, start = RecentLabels(size), 0
    for part in parts:
        these = slice(start, start + part)
        start += part
        newest.add(scores[these], labels[these])
        check(newest, scores[:start], labels[:start], size)
        newest = restored(RecentLabels(size), bytes_of(newest))
    check(newest, scores, labels, size)
    assert len(newest.packed) == min(n, size)


@pytest.mark.parametrize("packed", [[-2], [2 * (LAST + 1)]])
def test_what_cannot_be_a_state_is_refused(packed: list[int]) -> None:
    newest = RecentLabels(2)
    newest.add(np.array([1.0]), np.array([1], np.int8))
    assert restored(RecentLabels(2), bytes_of(newest)).counts(1)[0].tolist() == [LAST]
    with pytest.raises(ValueError, match="newest labels"):
        RecentLabels(2, np.array(packed, np.int32))
