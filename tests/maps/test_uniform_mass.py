"""Uniform-mass binning by order statistics, compared with the paper's definition taken literally."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.maps.uniform_mass import uniform_mass_binning

BEFORE_1 = 1.0 - 2.0**-53
SCORES = st.floats(0.0, 1.0).filter(lambda score: score != BEFORE_1)
SAMPLES = st.lists(st.tuples(SCORES, st.integers(0, 1)), min_size=1, max_size=60)


@given(SAMPLES, st.data())
def test_definition(sample: list[tuple[float, int]], data: st.DataObject) -> None:
    n = len(sample)
    bins = data.draw(st.integers(1, n))
    recalibration = uniform_mass_binning([z for z, _ in sample], [y for _, y in sample], bins)
    ordered = sorted(z for z, _ in sample)
    u = [0.0, *(ordered[n * b // bins - 1] for b in range(1, bins)), 1.0]
    for score, _ in sample:
        b = next(b for b in range(1, bins + 1) if score <= u[b])
        inside = [y for z, y in sample if (u[b - 1] < z or b == 1) and z <= u[b]]
        assert recalibration.predict_one(score) == pytest.approx(sum(inside) / len(inside))


def test_the_last_score_before_1_shares_its_bin_with_1() -> None:
    recalibration = uniform_mass_binning([0.0, BEFORE_1, 1.0], [0, 1, 0], 3)
    assert recalibration.values == (0.0, 0.5)


@pytest.mark.parametrize(("bins", "scores"), [(2, [0.5]), (1, [])])
def test_bins_out_of_range(bins: int, scores: list[float]) -> None:
    with pytest.raises(ValueError, match="bins must be from 1 to the number of scores"):
        uniform_mass_binning(scores, [1] * len(scores), bins)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 scores but 1 labels"):
        uniform_mass_binning([0.1, 0.2], [1], 1)
