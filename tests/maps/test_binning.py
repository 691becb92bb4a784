"""Uniform-mass bins on cells, and the choice of B."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.maps import binning

TOTALS = st.lists(st.integers(1, 50), min_size=1, max_size=60)


@given(TOTALS, st.integers(1, 80))
def test_every_edge_is_the_boundary_nearest_to_its_rank(totals: list[int], bins: int) -> None:
    splits = binning.uniform_mass(np.array(totals), bins)
    ends = [0, *np.cumsum(totals).tolist()]
    n = ends[-1]
    nearest = {
        min(range(len(ends)), key=lambda i, r=n * b // bins: (abs(ends[i] - r), i)) for b in range(1, bins)
    }
    assert splits.tolist() == sorted({0, len(totals)} | nearest)
    assert (binning.bin_sums(np.array(totals), splits) > 0).all()


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).filter(any), min_size=1, max_size=20))
def test_leave_one_out_closed_form(bins: list[tuple[int, int]]) -> None:
    """The definition: predict each label by the mean of the other labels in its bin."""
    loss = 0.0
    for positives, negatives in bins:
        labels = [1] * positives + [0] * negatives
        for i, label in enumerate(labels):
            others = labels[:i] + labels[i + 1 :]
            loss += (label - sum(others) / len(others)) ** 2 if others else 1.0
    positive, total = np.array([s for s, _ in bins]), np.array([s + r for s, r in bins])
    assert binning.leave_one_out_losses(positive, total, total.astype(float)).sum() == pytest.approx(loss)


@pytest.mark.parametrize(("n", "root"), [(8, 2), (1000, 10), (10**18 - 1, 999_999)])
def test_cube_root_is_exact(n: int, root: int) -> None:
    assert binning.cube_root(n) == root


def test_candidates_are_a_geometric_grid() -> None:
    assert binning.candidate_bins(1, 1) == [1]
    candidates = binning.candidate_bins(10**6, 4096)
    assert candidates[0] == 1
    assert candidates[-1] == 2000
    assert len(candidates) < 48
    assert binning.candidate_bins(10**6, 300)[-1] == 300


def test_auto_chooses_few_bins_for_noise_and_many_for_signal() -> None:
    even = np.full(400, 50)
    assert binning.choose_bins(even, even, 2.0 * even) <= 3
    steep = np.arange(400)
    assert binning.choose_bins(400 - steep, steep, np.full(len(steep), 400.0)) > 8


def test_bins_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        binning.uniform_mass(np.array([3, 4]), 0)
