"""The laws of the score sketch: exact counts, and a state that depends only on the multiset of events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal import DamagedStateError, ScoreSketch
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import MIN_MAX_CELLS

# Scores of every magnitude and ties: a grid of 64 cells collapses often.
SCORES = st.one_of(
    st.floats(0.0, 1.0),
    st.floats(0.0, 1100.0).map(lambda e: 2.0**-e),
    st.floats(0.0, 55.0).map(lambda e: 1.0 - 2.0**-e),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
EVENTS = st.lists(st.tuples(SCORES, st.integers(0, 1)), max_size=300)
Events = list[tuple[float, int]]


def sketch_of(events: Events, max_cells: int = MIN_MAX_CELLS) -> ScoreSketch:
    sketch = ScoreSketch(max_cells)
    sketch.add([score for score, _ in events], [label for _, label in events])
    return sketch


def reference(events: Events, level: int) -> dict[int, list[int]]:
    """The cells and counts by definition."""
    counts: dict[int, list[int]] = {}
    for score, label in events:
        cell = int(grid.cells_of(np.array([score]), level)[0])
        counts.setdefault(cell, [0, 0])[label] += 1
    return counts


def told(score: float) -> bool:
    """Whether a key stands for this score alone, or for it among those that share the key."""
    if score in (0.0, 1.0) or 2.0**-40 <= score < 1.0 - 2.0**-53:
        return True
    return 2.0**-1022 < score < 0.5 and int(np.float64(score).view(np.int64)) % 64 == 0


def atoms_of(events: Events, level: int) -> list[float]:
    """The one score of each cell by definition; NaN where there are several, or one that its key hides."""
    scores: dict[int, set[float]] = {}
    for score, _ in events:
        scores.setdefault(int(grid.cells_of(np.array([score]), level)[0]), set()).add(score)
    return [
        score if len(held) == 1 and told(score) else np.nan
        for _, held in sorted(scores.items())
        for score in (min(held),)
    ]


@given(EVENTS)
def test_state_is_the_finest_grid_that_fits_with_exact_counts(events: Events) -> None:
    sketch = sketch_of(events)
    np.testing.assert_array_equal(sketch.atoms, atoms_of(events, sketch.level))
    counts = reference(events, sketch.level)
    assert sketch.cells.tolist() == sorted(counts)
    assert sketch.counts.T.tolist() == [counts[cell] for cell in sorted(counts)]
    assert len(counts) <= MIN_MAX_CELLS
    assert sketch.level == grid.MIN_LEVEL or len(reference(events, sketch.level - 1)) > MIN_MAX_CELLS


@given(EVENTS, st.randoms(use_true_random=False))
def test_the_state_does_not_depend_on_order_or_batches(events: Events, random: object) -> None:
    shuffled = list(events)
    random.shuffle(shuffled)
    one_by_one = ScoreSketch(MIN_MAX_CELLS)
    for score, label in shuffled:
        one_by_one.add([score], [label])
    assert one_by_one.to_bytes() == sketch_of(events).to_bytes()


@given(EVENTS, st.lists(st.integers(0, 3), max_size=300))
def test_merged_shards_equal_one_sketch(events: Events, shard_of: list[int]) -> None:
    shards = [ScoreSketch(MIN_MAX_CELLS) for _ in range(4)]
    for index, (score, label) in enumerate(events):
        shards[shard_of[index] if index < len(shard_of) else 0].add([score], [label])
    merged = ScoreSketch(MIN_MAX_CELLS)
    for shard in reversed(shards):
        merged.merge(shard)
    assert merged.to_bytes() == sketch_of(events).to_bytes()


@given(EVENTS)
def test_bytes_round_trip(events: Events) -> None:
    sketch = sketch_of(events)
    assert ScoreSketch.from_bytes(sketch.to_bytes()) == sketch


def test_memory_is_bounded_for_the_widest_spread() -> None:
    rng = np.random.default_rng(1)
    magnitudes = 2.0 ** -rng.uniform(0, 45, 400_000)
    scores = np.concatenate((magnitudes, 1.0 - magnitudes))
    sketch = ScoreSketch(labelled=False)
    sketch.add(scores)
    assert len(sketch.cells) <= 4096
    assert sketch.n == len(scores)
    assert len(sketch.to_bytes()) < 50_000


@settings(max_examples=300)
@given(EVENTS, st.data())
def test_damaged_bytes_are_refused(events: Events, data: st.DataObject) -> None:
    state = bytearray(sketch_of(events).to_bytes())
    index = data.draw(st.integers(0, len(state) - 1))
    state[index] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedStateError):
        ScoreSketch.from_bytes(bytes(state))
    with pytest.raises(DamagedStateError):
        ScoreSketch.from_bytes(bytes(state[:index]))


@pytest.mark.parametrize("score", [
    1.0, 0.37, 1.0 - 2.0**-52, float(np.float32(1e-45)), 2.0**-1021,
])  # fmt: skip
def test_an_atom_is_known_to_the_last_bit_however_often_and_however_coarse(score: float) -> None:
    sketch = ScoreSketch()
    sketch.add(np.full(100_000, score), np.zeros(100_000, np.int8))
    for level in (32, 33, 41, 49, grid.MAX_LEVEL):
        coarse = ScoreSketch.from_bytes(sketch.at_level(level).to_bytes())
        assert coarse.atoms.tolist() == [score]
    assert len(sketch.to_bytes()) < 100


@pytest.mark.parametrize("score", [0.37, 3e-12])
def test_two_neighbouring_floats_are_two_scores(score: float) -> None:
    near = np.nextafter(score, 1.0)
    for start in (near, score):  # both in one call, and one in a later call
        both = sketch_of([(start, 0)], 4096)
        assert both.atoms.tolist() == [start]
        both.add([score, near], [1, 1])
        assert np.isnan(both.atoms).tolist() == [True]


@pytest.mark.parametrize("score", [1e-13, 1.0 - 2.0**-53])
def test_a_score_whose_key_stands_for_another_is_no_atom(score: float) -> None:
    assert np.isnan(sketch_of([(score, 0)]).atoms).all()


def test_zero_is_one_score_whatever_its_sign() -> None:
    assert sketch_of([(-0.0, 0)]).to_bytes() == sketch_of([(0.0, 0)]).to_bytes()
    assert sketch_of([(-0.0, 0), (0.0, 0)]).atoms.tolist() == [0.0]


@given(st.binary(max_size=200))
def test_any_bytes_are_safe(noise: bytes) -> None:
    with pytest.raises(DamagedStateError):
        ScoreSketch.from_bytes(noise)


def test_a_bad_value_adds_nothing() -> None:
    sketch = ScoreSketch()
    with pytest.raises(ValueError, match="index 1: a score must be"):
        sketch.add([0.5, 1.5], [0, 1])
    with pytest.raises(ValueError, match="2 scores but 1 labels"):
        sketch.add([0.5, 0.5], [0])
    with pytest.raises(ValueError, match="a labelled sketch needs labels"):
        sketch.add([0.5])
    with pytest.raises(ValueError, match="this sketch has no labels"):
        ScoreSketch(labelled=False).add([0.5], [1])
    assert sketch == ScoreSketch()


def test_different_sketches_do_not_merge() -> None:
    with pytest.raises(ValueError, match="max_cells"):
        ScoreSketch(64).merge(ScoreSketch(128))
    with pytest.raises(ValueError, match="labels"):
        ScoreSketch().merge(ScoreSketch(labelled=False))
    with pytest.raises(ValueError, match="at least 64"):
        ScoreSketch(63)
