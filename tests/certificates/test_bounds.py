"""What is certain of maps that are not step maps on the version's own bins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import RecalibrationMap, Recalibrator
from streamcal.certificates.bin_limits import LOG_GRID
from streamcal.certificates.bounds import _range
from streamcal.sketch import grid
from streamcal.testing import NormalPair


def test_no_fewer_intervals_of_the_grid_are_paid_for_than_there_are() -> None:
    cells = (grid.LAST_KEY >> grid.MIN_LEVEL) - (grid.FIRST_KEY >> grid.MIN_LEVEL) + 1
    assert LOG_GRID - 0.1 <= math.log(cells * (cells + 1) / 2) <= LOG_GRID


@given(
    st.sets(st.integers(-2_000, 2_000).map(lambda k: k / 100), min_size=1, max_size=6),
    st.data(),
    st.sets(st.floats(0.01, 0.99), min_size=1, max_size=6),
    st.sampled_from([(1.0, 1.0), (0.3, 1.7), (0.0, 1.0)]),
)
def test_the_range_of_a_line_in_each_bin(
    knots: set[float], data: st.DataObject, inner: set[float], weights: tuple[float, float]
) -> None:
    log_odds = data.draw(st.lists(st.floats(-9.0, 9.0), min_size=len(knots), max_size=len(knots)))
    served = RecalibrationMap(
        version=1, kind="linear", knots=tuple(sorted(knots)), log_odds=tuple(log_odds), weights=weights
    )
    edges = np.array(sorted(inner))
    lowest, highest = _range(served, edges)
    bends = 1.0 / (1.0 + np.exp(-np.array(served.knots)))
    everywhere = np.unique(np.concatenate((np.linspace(0.0, 1.0, 2001), edges, bends)))
    values = served.predict_many(everywhere)
    for left, right, low, high in zip((0.0, *edges), (*edges, 1.0), lowest, highest, strict=True):
        inside = values[(everywhere >= left) & (everywhere <= right)]
        # g is 0 or 1 throughout where one weight is 0: a wider range, never a narrower one.
        assert low <= inside.min() + 1e-12
        assert high >= inside.max() - 1e-12
        if weights[0]:
            assert (low, high) == pytest.approx((inside.min(), inside.max()), abs=1e-9)


@pytest.mark.slow
def test_a_line_is_certified() -> None:
    """Certificates are many times the risk here: one below it would be an error, not chance."""
    truth = NormalPair(0.5)
    for seed in range(5):
        engine = Recalibrator(mode="source")
        engine.learn_many(*truth.sample(20_000, np.random.default_rng(seed)), "source")
        assert engine.map.kind == "linear"
        assert engine.certificate is not None
        assert truth.risk(engine.map).total <= engine.certificate.risk < 0.05
