"""The dyadic grid is monotone and exact at its edges; the checks are strict about scores and labels."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.sketch import checks, grid

# Powers of 2 to where doubles end, and their neighbours on both sides.
_ENDS = [2.0**-e for e in (*range(40), 40, 41, 52, 53, 149, 1021, 1022, 1023, 1073, 1074)] + [0.0]
_NEAR = [float(np.nextafter(z, to)) for z in _ENDS for to in (0.0, 1.0)]
SPECIAL = sorted({*_ENDS, *_NEAR, *(1.0 - z for z in _ENDS), *(1.0 - z for z in _NEAR)})
SCORES = st.one_of(
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0, width=32),
    st.floats(0.0, 1100.0).map(lambda e: 2.0**-e),
    st.floats(0.0, 55.0).map(lambda e: 1.0 - 2.0**-e),
    st.sampled_from(SPECIAL),
)
LEVELS = st.integers(grid.MIN_LEVEL, grid.MAX_LEVEL)


def reference_key(score: float) -> int:
    """The definition, in Python integers."""

    def bits(value: float) -> int:
        return int(np.float64(value).view(np.int64))

    def key(distance: float) -> int:
        above = bits(max(distance, 2.0**-1022)) - bits(2.0**-40)
        return (16 << 52) + (above if above >= 0 else above // 64)

    if score < 0.5:
        return key(score)
    return 2 * key(0.5) - key(max(1.0 - score, 2.0**-53))


@given(st.lists(SCORES, min_size=1), LEVELS)
def test_cells_follow_the_definition(scores: list[float], level: int) -> None:
    assert grid.cells_of(np.array(scores), level).tolist() == [reference_key(z) >> level for z in scores]


@given(SCORES, SCORES, LEVELS)
def test_cells_are_monotone(one: float, other: float, level: int) -> None:
    low, high = grid.cells_of(np.sort(np.array([one, other])), level)
    assert low <= high


@given(SCORES | st.floats(0.5, 1.0).map(lambda z: 1 - 2.0**-30 * z), SCORES, LEVELS | st.just(0))
def test_left_edges_are_exact(inside: float, score: float, level: int) -> None:
    cell = grid.keys_of(np.array([inside])) >> level
    edge = grid.left_edges(cell, level)[0]
    assert edge <= inside
    for other in (score, edge, *np.nextafter(edge, [0.0, 1.0])):
        assert ((grid.keys_of(np.array([other])) >> level)[0] >= cell[0]) == (other >= edge)


@pytest.mark.parametrize("level", [0, grid.MIN_LEVEL, 47, grid.MAX_LEVEL])
def test_edges_at_the_ends_of_doubles_are_exact(level: int) -> None:
    scores = np.array(SPECIAL)
    cells = grid.keys_of(scores) >> level
    assert (np.diff(cells) >= 0).all()
    at_least = scores >= grid.left_edges(cells, level)[:, np.newaxis]
    assert (at_least == (cells >= cells[:, np.newaxis])).all()
    assert ((grid.keys_of(grid.left_edges(cells, level)) >> level) == cells).all()


@given(SCORES, LEVELS)
def test_the_middle_of_a_cell_is_in_it(score: float, level: int) -> None:
    cell = grid.cells_of(np.array([score]), level)
    assert grid.cells_of(grid.middles(cell, level), level) == cell


def test_powers_of_two_are_edges_of_cells() -> None:
    """So that a coarse cell is not on both sides of ½."""
    powers = 2.0 ** -np.arange(1, 41)
    for level in (grid.MIN_LEVEL, 47, 52):
        for scores in (powers, 1.0 - powers):
            assert grid.left_edges(grid.cells_of(scores, level), level).tolist() == scores.tolist()


def test_scores_that_only_their_exponent_tells_apart_have_cells_of_their_own() -> None:
    """Down to where doubles end; and those of float32 next to 1."""
    tail = 2.0 ** -np.arange(40.0, 1022.0)
    assert len(np.unique(grid.cells_of(tail, 46))) == len(tail)
    singles = np.nextafter(np.float32(1.0), np.float32(0.0)) - np.arange(64) * np.float32(2.0**-24)
    assert len(np.unique(grid.cells_of(singles.astype(np.float64), grid.MIN_LEVEL))) == 64


@pytest.mark.parametrize(
    "column",
    [
        [0.25, 0.5],
        np.array([0.25, 0.5], np.float32),
        pa.chunked_array([[0.25], [0.5]]),
        np.array([0.25, 0.5], object),
    ],
    ids=lambda column: type(column).__name__,
)
def test_scores_from_any_column(column: object) -> None:
    assert checks.as_scores(column).tolist() == [0.25, 0.5]


@pytest.mark.parametrize("bad", [math.nan, 1.00001, "0.5", None])
def test_a_bad_score_is_named(bad: object) -> None:
    with pytest.raises(ValueError, match="a score must be a number in") as error:
        checks.check_score(bad)
    assert repr(bad) in str(error.value)
    with pytest.raises(ValueError, match="index 1"):
        checks.as_scores(np.array([0.5, bad], object))


@pytest.mark.parametrize("column", [np.array(["0.5"]), np.zeros((2, 2))])
def test_columns_that_are_not_scores(column: object) -> None:
    with pytest.raises(ValueError, match="scores must be"):
        checks.as_scores(column)


@pytest.mark.parametrize("good", [0, True, np.float32(0.0), np.True_])
def test_labels_that_equal_0_or_1(good: object) -> None:
    assert checks.check_label(good) == int(good)
    assert checks.as_labels(np.array([good])).tolist() == [int(good)]


@pytest.mark.parametrize("bad", [2, math.nan, "1"])
def test_a_bad_label_is_named(bad: object) -> None:
    with pytest.raises(ValueError, match="a label must equal 0 or 1") as error:
        checks.check_label(bad)
    assert repr(bad) in str(error.value)
    with pytest.raises(ValueError, match="index 1"):
        checks.as_labels(np.array([0, bad], object))
