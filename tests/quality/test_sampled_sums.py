"""Intervals by propensity: what they bound, and that a wrong propensity shows."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.base.values import BANDS
from streamcal.quality.groups import by_propensity
from streamcal.quality.sampled_sums import SampledPanes, SampledSums, _table
from streamcal.quality.verdict import Arrival, judge
from tests.quality.sampled import COMPLETE, KINDS, in_one_band, sampled


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_gap_of_all_predictions_is_covered(kind: str) -> None:
    """Of 40 streams at most 6 may miss: of intervals that hold with 95%, more do once in 70 runs."""
    assert sum(sampled(seed, kind, 1.5).misses for seed in range(40)) <= 6


def test_a_wrong_propensity_misses_and_is_told() -> None:
    streams = [sampled(seed, "uniform", 3.0, wrong=2.0) for seed in range(10)]
    assert sum(stream.misses for stream in streams) >= 8
    assert {judge(stream.looks[-1], COMPLETE).state for stream in streams} == {"cannot tell"}
    lost = judge(sampled(0, "uniform", 1.0, wrong=0.6).looks[-1], COMPLETE)
    assert lost.state == "cannot tell"
    assert "should have a label" in lost.sentence


def test_keys_by_propensity_are_the_worst_first() -> None:
    by_key = {name: sampled(3, "root", factor).looks[-1] for name, factor in (("right", 1.0), ("high", 3.0))}
    named, figures = by_propensity(by_key)
    assert named == [("key", "high"), ("key", "right")]
    assert figures.deviates.tolist() == [True, False]
    assert (figures.low < figures.gap).all()
    assert figures.brier_before[0] < figures.brier_after[0]


@pytest.mark.slow
def test_labels_that_count_once_tell_earlier_and_only_what_is_there() -> None:
    """Of 40 calibrated streams at most 6 may be called wrong; twice the odds in a band are told in 9."""
    right = [sampled(seed, "asked").looks[-1] for seed in range(40)]
    assert sum(judge(each, COMPLETE).deviates for each in right) <= 6
    wrong = [sampled(seed, "asked", n=20_000, looks=20, truth_of=in_one_band).looks for seed in range(10)]
    said = [[judge(each, COMPLETE) for each in looks] for looks in wrong]
    assert sum(each[-1].state == "too high" and each[-1].band == (0.25, 0.5) for each in said) >= 9
    words = "points too high where labels were drawn (95% sure"
    assert any(words in each.sentence for looks in said for each in looks)


def test_a_draw_that_knows_the_label_misses() -> None:
    """Lemma 7 needs draws by forecasts and the past alone: here labels 1 are seen half as often again."""
    rng, told = np.random.default_rng(6), 0
    for _ in range(10):
        p, times = rng.beta(1.0, 4.0, 10_000), np.arange(10_000.0)
        labels = (rng.random(10_000) < p).astype(float)
        seen = rng.random(10_000) < 0.1 + 0.05 * labels
        panes, forecasts, weights = SampledPanes(draws=True), np.stack([p, p]), 1.0 / (0.1 + 0.05 * p)
        panes.predict(forecasts, weights, times)
        panes.label(forecasts[:, seen], labels[seen], weights[seen], times[seen])
        told += judge(panes.matured(1e4), COMPLETE).state == "too low"
    assert told >= 8


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lemma_6_holds_for_any_forecast_and_propensity(sign: float) -> None:
    """The mean of a factor over label and draw, computed without chance, is at most exp(λ (m − p))."""
    rng, ranges = np.random.default_rng(5), (0, 1, 4, 10)
    stakes = SampledSums.gap_stakes
    table = np.split(_table(ranges), 2, axis=-1)[int(sign < 0)]
    for place, exponent in enumerate(ranges):
        for _ in range(200):
            w = 2.0 ** (exponent - (rng.random() if exponent else 0.0))
            p, m = rng.random() ** 3, rng.random() ** 3
            rows = table[place, np.searchsorted(BANDS, p, side="right")]
            unseen = rows[0] + p * rows[1]
            zero, one = (unseen + np.array([1.0, w, p, w * p]) @ rows[at : at + 4] for at in (2, 6))
            mean = (1.0 - 1.0 / w) * np.exp(unseen) + (m * np.exp(one) + (1.0 - m) * np.exp(zero)) / w
            assert (mean <= np.exp(sign * stakes * (m - p)) * (1.0 + 1e-9)).all()


def test_where_delays_are_unknown_no_prediction_is_said_to_be_old_enough() -> None:
    found = [judge(SampledPanes().matured(0.0), Arrival(complete_at=age, fair=False)) for age in (None, 9.0)]
    assert [each.state for each in found] == ["cannot tell", "too few labels"]
    assert "no predictions are known to have nearly all" in found[0].sentence
