"""The newest labels: in their order, however they came, and of a size that is bounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.sketch import grid
from streamcal.sketch.recent_labels import RecentLabels
from tests.states import bytes_of, restored

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
        assert counts.dtype == np.int64
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
