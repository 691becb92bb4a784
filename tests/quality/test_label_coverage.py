"""Which scores labels reach: a law of multisets, the ranges that are named, and no false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.quality.label_coverage import PANES, LabelCoverage
from streamcal.sketch.decoding import decoded, encoded

events = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.99, 1.0]),
        st.one_of(st.floats(-1e4, 1e4), st.just(math.nan), st.sampled_from([1.7e9, 1.8e9])),
        st.booleans(),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(events, st.randoms(use_true_random=False), st.integers(1, 7))
def test_its_state_is_that_of_the_multiset(
    rows: list[tuple[float, float, bool]], random: object, size: int
) -> None:
    """In any order, in any parts, stored in between: equal to the last byte."""
    whole = fed(rows, len(rows) or 1)
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert encoded(fed(rows, size), json=True) == encoded(whole, json=True)
    panes = [*whole.panes]
    assert not panes or panes[-1] - panes[0] < PANES


def fed(rows: list[tuple[float, float, bool]], size: int) -> LabelCoverage:
    reach = LabelCoverage()
    for at in range(0, len(rows), size):
        for labelled in (False, True):
            some = [row for row in rows[at : at + size] if row[2] is labelled]
            scores, times = (np.array([row[i] for row in some], float) for i in (0, 1))
            reach.add(scores, times, labelled=labelled)
        reach = decoded(encoded(reach, json=True), LabelCoverage, "it", json=True)
    return reach


def test_ranges_without_labels_are_named_and_young_ones_are_not() -> None:
    rng = np.random.default_rng(3)
    n = 40_000
    scores, times = rng.random(n), np.sort(rng.random(n) * 1e6)
    labelled = ((scores < 0.2) | (scores > 0.4)) & (scores < 0.8) & (rng.random(n) < 0.5)
    reach = LabelCoverage()
    reach.add(scores, times)
    reach.add(scores[labelled], times[labelled], labelled=True)
    share, ranges = reach.uncovered(1e6 + 1e6)
    assert share == pytest.approx(0.3, abs=0.01)
    assert [(each.low, each.high) for each in ranges] == [
        (pytest.approx(0.2, abs=0.05), pytest.approx(0.4, abs=0.05)),
        (pytest.approx(0.8, abs=0.05), 1.0),
    ]
    for each in ranges:
        inside = (scores >= each.low) & (scores < each.high)
        assert (each.predictions, each.labels) == (inside.sum(), (inside & labelled).sum())
    assert reach.uncovered(0.0) == (0.0, [])
    # Only the newest half has none of them: those are too young.
    young = LabelCoverage()
    young.add(scores, times)
    told = times < 5e5
    young.add(scores[told], times[told], labelled=True)
    young.add(scores, times + 1e6)
    assert young.uncovered(5e5) == (1.0, [])


@pytest.mark.statistical
def test_labels_that_come_alike_raise_nothing() -> None:
    """600 looks, 40 bins each: fails with a probability below 10⁻¹⁰ (`LabelCoverage.uncovered`)."""
    rng = np.random.default_rng(8)
    for stream in range(60):
        share = (0.02, 0.1, 0.5)[stream % 3]
        reach = LabelCoverage()
        for part in range(10):
            scores, times = rng.beta(1.0, 8.0, 3_000), 1e4 * part + rng.random(3_000) * 1e4
            told = rng.random(3_000) < share
            reach.add(scores, times)
            reach.add(scores[told], times[told], labelled=True)
            assert reach.uncovered(math.inf)[1] == []
