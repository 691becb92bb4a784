"""Uniform-mass bins on cells, and the choice of B."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import RecalibrationMap
from streamcal.maps import binning
from streamcal.maps.curves import fit_curve
from streamcal.maps.fits_c import loss_left_out
from streamcal.maps.uniform_mass import form, uniform_mass_binning
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

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
    found = sum(loss_left_out(float(s), float(s + r), float(s + r)) for s, r in bins)
    assert found == pytest.approx(loss)


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


# Uniform-mass binning by order statistics, compared with the paper's definition taken literally


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


# The map of ``bins="auto"``: how good it is, and what it never does


def formed(scores: Any, labels: Any, **options: bool) -> RecalibrationMap:
    sketch = ScoreSketch()
    sketch.add(scores, labels)
    return fit_curve(sketch.cells, sketch.level, sketch.counts, **options).map


WIDE_SCORES = st.one_of(
    st.floats(0.0, 1.0),
    st.floats(0.0, 1100.0).map(lambda e: 2.0**-e),
    st.floats(0.0, 55.0).map(lambda e: 1.0 - 2.0**-e),
)


@given(st.lists(st.tuples(WIDE_SCORES, st.integers(0, 1)), min_size=1, max_size=80))
def test_it_never_decreases_and_never_says_0_or_1(sample: list[tuple[float, int]]) -> None:
    scores, labels = [z for z, _ in sample], [y for _, y in sample]
    curve = formed(scores, labels)
    everywhere = curve.predict_many(np.sort(np.concatenate((scores, np.linspace(0.0, 1.0, 501)))))
    assert (np.diff(everywhere) >= -1e-15).all()
    n, positives = len(labels), sum(labels)
    assert everywhere[0] >= min(0.5 / (n + 1), positives / n or 1.0) - 1e-12
    assert everywhere[-1] <= 1.0 - min(0.5 / (n + 1), 1.0 - positives / n or 1.0) + 1e-12


def test_a_single_score() -> None:
    assert formed([0.3], [1]).predict_one(0.7) == pytest.approx(0.75)  # 1 − ½/(1+1)
    assert formed([0.3] * 4, [0, 1, 0, 0]).predict_one(0.7) == pytest.approx(0.25)


@pytest.mark.parametrize("monotone", [True, False])
def test_steps_tell_scores_apart_that_lines_do_not(monotone: bool) -> None:
    """A line is in log odds, which it takes for within ±28: scores beyond would have one forecast."""
    scores = np.repeat([1e-300, 1e-200, 1e-100, 1e-50, 0.5, 1.0 - 2.0**-45, 1.0 - 2.0**-52], 500)
    labels = np.tile(np.arange(500), 7) < np.repeat([10, 50, 100, 150, 200, 250, 400], 500)
    curve = formed(scores, labels, monotone=monotone)
    assert curve.predict_many(scores[::500]) == pytest.approx(labels.reshape(7, -1).mean(axis=1))


def test_raw_means_may_fall() -> None:
    scores = np.repeat(np.linspace(0.05, 0.95, 10), 1_000)
    labels = np.tile(np.arange(1_000) < 300, 10).astype(int)
    labels[3_000:4_000] = 0
    labels[3_000:3_100] = 1  # a tenth, among three tenths
    pooled, raw = (formed(scores, labels, monotone=monotone) for monotone in (True, False))
    assert raw.predict_one(0.35) == pytest.approx(0.1)
    assert pooled.predict_one(0.35) == pytest.approx((3 * 0.3 + 0.1) / 4)


def test_each_truth_gets_the_curve_that_suits_it() -> None:
    """A smooth truth is drawn by a line, one that jumps by steps; of 20 samples of each, at most one errs.

    Over 200 other seeds none did in either case: a wrong choice has a probability below 0.02, and two among
    20 one below 0.06. The seeds are fixed.
    """
    wrong = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        smooth = formed(*NormalPair(0.5).sample(20_000, rng))
        scores = rng.random(20_000)
        jumps = formed(scores, rng.random(20_000) < np.where(scores < 0.4, 0.1, 0.9))
        probabilities = jumps.predict_many(np.array([0.38, 0.42]))
        wrong += smooth.kind != "linear" or np.diff(probabilities)[0] < 0.7
    assert wrong <= 1


@pytest.mark.parametrize(("n", "seeds", "most"), [(1_000, 60, 6e-4), (10_000, 20, 9e-5)])
def test_the_risk_is_a_fraction_of_that_of_steps(n: int, seeds: int, most: float) -> None:
    """Mean risk on D(0.5). Steps have 1.2e-3 and 2.3e-4, and fail.

    Over 200 seeds the mean is at least 5 standard errors of these samples
    below the limit: the test errs with a probability below 1e-6. The seeds are fixed.
    """
    truth = NormalPair(0.5)
    risks: dict[str, list[float]] = {"curve": [], "steps": []}
    for seed in range(seeds):
        sketch = ScoreSketch()
        sketch.add(*truth.sample(n, np.random.default_rng(seed)))
        risks["curve"].append(truth.risk(fit_curve(sketch.cells, sketch.level, sketch.counts).map).total)
        risks["steps"].append(truth.risk(form(sketch, "auto").map).total)
    assert np.mean(risks["curve"]) <= most
    assert np.mean(risks["steps"]) > 1.5 * most
