"""The dyadic grid is monotone and exact at its edges; the checks are strict about scores and labels."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.sketch import checks, grid

SCORES = st.floats(0.0, 1.0)
LEVELS = st.integers(grid.MIN_LEVEL, grid.MAX_LEVEL)


def reference_key(score: float) -> int:
    """The definition, in Python integers."""

    def bits(value: float) -> int:
        return int(np.float64(value).view(np.int64))

    end, half = bits(2.0**-40), bits(0.5)
    if score < 0.5:
        return max(bits(abs(score)), end) - end
    return 2 * (half - end) - (max(bits(1.0 - score), end) - end)


@given(st.lists(SCORES, min_size=1), LEVELS)
def test_cells_follow_the_definition(scores: list[float], level: int) -> None:
    assert grid.cells_of(np.array(scores), level).tolist() == [reference_key(z) >> level for z in scores]


@given(SCORES, SCORES, LEVELS)
def test_cells_are_monotone(one: float, other: float, level: int) -> None:
    low, high = grid.cells_of(np.sort(np.array([one, other])), level)
    assert low <= high


@given(SCORES | st.floats(0.5, 1.0).map(lambda z: 1 - 2.0**-30 * z), SCORES, LEVELS)
def test_left_edges_are_exact(inside: float, score: float, level: int) -> None:
    cell = grid.cells_of(np.array([inside]), level)
    edge = grid.left_edges(cell, level)[0]
    assert (grid.cells_of(np.array([score]), level)[0] >= cell[0]) == (score >= edge)
    assert edge <= inside


def test_ends_and_middle() -> None:
    scores = np.array([0.0, 2.0**-41, 2.0**-40, np.nextafter(0.5, 0), 0.5, 1 - 2.0**-41, 1.0])
    cells = grid.cells_of(scores, 32)
    assert cells[0] == cells[1] == cells[2] == 0
    assert cells[3] < cells[4]
    assert cells[5] == cells[6] == grid.LAST_KEY >> 32
    assert grid.left_edges(np.array([0, cells[4], cells[6] + 1], np.int32), 32).tolist() == [0.0, 0.5, 1.0]


def test_rare_scores_keep_their_resolution() -> None:
    cells = grid.cells_of(np.array([1e-4, 3e-4, 1 - 3e-4, 1 - 1e-4]), 47)
    assert (np.diff(cells) >= 40).all()


@pytest.mark.parametrize(
    "column",
    [
        [0.25, 0.5],
        np.array([0.25, 0.5], np.float32),
        pd.Series([0.25, 0.5]),
        pl.Series([0.25, 0.5]),
        pa.array([0.25, 0.5]),
        pa.chunked_array([[0.25], [0.5]]),
        np.array([0.25, 0.5], object),
    ],
    ids=lambda column: type(column).__name__,
)
def test_scores_from_any_column(column: object) -> None:
    assert checks.as_scores(column).tolist() == [0.25, 0.5]


def test_float32_scores_convert_exactly() -> None:
    single = np.float32(0.1)
    assert checks.as_scores(np.array([single]))[0] == float(single)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -0.1, 1.0000001, "0.5", True, None])
def test_a_bad_score_is_named(bad: object) -> None:
    with pytest.raises(ValueError, match="a score must be a number in") as error:
        checks.check_score(bad)
    assert repr(bad) in str(error.value)
    with pytest.raises(ValueError, match="index 1"):
        checks.as_scores(np.array([0.5, bad], object))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1, 1.0000001])
def test_a_bad_score_is_found_deep_inside_an_array(bad: float) -> None:
    scores = np.full(100_000, 0.5)
    scores[77_777] = bad
    with pytest.raises(ValueError, match=rf"index 77777: .* got {bad!r}"):
        checks.as_scores(scores)


@pytest.mark.parametrize("column", [np.array([True]), np.array(["0.5"]), [["0.5"]], np.zeros((2, 2))])
def test_columns_that_are_not_scores(column: object) -> None:
    with pytest.raises(ValueError, match="scores must be"):
        checks.as_scores(column)


@pytest.mark.parametrize("good", [0, 1, True, False, 1.0, np.int8(1), np.float32(0.0), np.True_])
def test_labels_that_equal_0_or_1(good: object) -> None:
    assert checks.check_label(good) == int(good)  # type: ignore[call-overload]
    assert checks.as_labels(np.array([good])).tolist() == [int(good)]  # type: ignore[call-overload]


@pytest.mark.parametrize("bad", [2, -1, 0.5, math.nan, "1", None])
def test_a_bad_label_is_named(bad: object) -> None:
    with pytest.raises(ValueError, match="a label must equal 0 or 1") as error:
        checks.check_label(bad)
    assert repr(bad) in str(error.value)
    with pytest.raises(ValueError, match="index 1"):
        checks.as_labels(np.array([0, bad], object))


def test_empty_columns_are_valid() -> None:
    assert len(checks.as_scores([])) == len(checks.as_labels([])) == 0
