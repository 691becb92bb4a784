"""Decisions: the rules, their net benefit with confidence sequences, and decision curves."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

import streamcal
from streamcal.base.errors import DamagedStateError
from streamcal.base.values import Floats
from streamcal.quality import decision_figures
from streamcal.quality.decision_figures import DecisionFigures, DecisionRule, decision_names
from streamcal.quality.decision_sums import DecisionSums
from streamcal.quality.decisions import ACT, Capacity, Costs
from streamcal.quality.figures import Unrated
from streamcal.quality.verdict import Arrival
from streamcal.sketch.decoding import decoded, encoded
from tests.quality import forecasts
from tests.quality.sampled import COMPLETE, KINDS, Drawn, drawn

COSTS = Costs(1.0, 4.0), Costs(5.0, 5.0), Costs(1.0, 50.0, 0.4)


def rated(scores: Floats, served: Floats, labels: Floats) -> Unrated:
    """Return labels to be rated, a prediction a second."""
    unrated, times = Unrated(), np.arange(float(len(labels)))
    unrated.extend(
        scores, served, labels.astype(np.int8), [None] * len(labels), times, times + 1.0, np.ones(len(labels))
    )
    return unrated


FAIR = Arrival()


def figures(sums: DecisionSums, arrival: Arrival = FAIR, until: float = np.inf) -> DecisionFigures:
    """Return the figures where the verdict is that forecasts are well calibrated."""
    return sums.figures(arrival, until, 1.0, calibrated=True, withheld="")


def broken(cells: decision_figures.Cells) -> decision_figures.Cells:
    """Return cells whose labels are said to be a hundred times as near to the forecasts as they are."""
    return cells._replace(bounds=0.01 * cells.bounds, squares=0.0001 * cells.squares)


def misses_sampled(costs: Costs, stream: Drawn, looks: int) -> bool:
    """Return whether an interval misses what it bounds of all complete predictions, of some labelled."""
    sums, times = DecisionSums(DecisionRule(costs)), np.arange(float(len(stream.p)))
    for part, new in stream.parts(looks):
        unrated = rated(stream.truth[new], stream.p[new], stream.labels[new])
        unrated.predicted_at = array("d", times[new])
        unrated.weights = dict(enumerate((1.0 / stream.pi[new]).tolist()))
        unrated.add_predictions(stream.truth[part], times[part])
        pairs = zip(stream.p[part].tolist(), (1.0 / stream.pi[part]).tolist(), strict=True)
        unrated.sampled = [(*pair, None, 0) for pair in pairs]
        sums.add(unrated)
        found = figures(sums, COMPLETE, until=float(part.stop))
        if violated(found, costs, stream.truth, stream.p, stream.truth, found.rated):
            return True
    return False


def misses(costs: Costs, stream: forecasts.Stream, looks: range) -> bool:
    """Return whether any interval misses what it bounds, at any of some label counts."""
    sums, begin = DecisionSums(DecisionRule(costs)), 0
    for end in looks:
        part = slice(begin, end)
        sums.add(rated(stream.scores[part], stream.forecasts[part], stream.labels[part]))
        begin, found = end, figures(sums)
        if violated(found, costs, stream.scores, stream.forecasts, stream.means, end):
            return True
    return False


def violated(
    found: DecisionFigures, costs: Costs, scores: Floats, forecasts: Floats, means: Floats, end: int
) -> bool:
    """Return whether an interval misses what it bounds, given the truth of the first so many predictions."""
    raw, served = (costs.thresholds.codes(p[:end]) for p in (scores, forecasts))
    table, m, at = costs.table, means[:end], np.arange(end)
    cost = table[:, :1] * (1.0 - m) + table[:, 1:] * m  # of each decision, on average
    saved = [float((each - cost[served, at]).mean()) for each in (cost[raw, at], cost[2], cost[0])]
    bounded = [*zip(found.saved.values(), saved, strict=False)]
    acts, caught = served == 2, served > 0
    if found.precision is not None:
        bounded.append((found.precision, float(m[acts].mean())))
    if found.recall is not None:
        bounded.append((found.recall, float(m[caught].sum() / m.sum())))
    return any(not each.low - 1e-9 <= mean <= each.high + 1e-9 for each, mean in bounded)


def missed(streams: int, seed: int) -> int:
    """Return in how many streams an interval misses, of so many of each truth and each costs in turn."""
    rngs = [np.random.default_rng([seed, index]) for index in range(streams)]
    return max(
        sum(misses(COSTS[i % 3], truth(rng, 2_000), range(100, 2_001, 380)) for i, rng in enumerate(rngs))
        for truth in forecasts.TRUTHS
    )


def missed_sampled(streams: int, seed: int, wrong: float = 1.0, looks: int = 5) -> int:
    """Return in how many streams an interval misses, of so many of each kind of propensities."""
    return max(
        sum(
            misses_sampled(COSTS[i % 3], drawn(seed + i, kind, 3.0, n=3_000, wrong=wrong), looks)
            for i in range(streams)
        )
        for kind in KINDS
    )


@pytest.mark.statistical
def test_intervals_by_propensity_hold_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 5% of streams may miss: of 12 streams, 7 or more with probability below 10⁻⁶ for each kind."""
    assert missed_sampled(12, 0) < 7
    assert missed_sampled(12, 0, wrong=3.0) >= 7
    right = decision_figures._limits
    monkeypatch.setattr(decision_figures, "_limits", lambda cells, slopes: right(broken(cells), slopes))
    assert missed_sampled(12, 0) >= 7


@pytest.mark.nightly
def test_intervals_by_propensity_hold_together_in_a_thousand_streams() -> None:
    """At most 5% may miss: 87 or more of 1,000 with probability below 10⁻⁶ for each kind."""
    assert missed_sampled(1_000, 1) < 87


@pytest.mark.statistical
def test_all_intervals_hold_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 5% of streams may miss: of 20 streams, 9 or more with probability below 10⁻⁶ for each truth."""
    assert missed(20, 0) < 9
    right = decision_figures._limits
    monkeypatch.setattr(
        decision_figures,
        "_limits",
        lambda cells, slopes: right(cells._replace(squares=0.01 * cells.squares), slopes),
    )
    assert missed(20, 0) >= 9


@pytest.mark.nightly
def test_all_intervals_hold_together_in_a_thousand_streams() -> None:
    """At most 5% may miss: 87 or more of 1,000 with probability below 10⁻⁶ for each truth."""
    assert missed(1_000, 1) < 87


def test_decisions_are_of_least_expected_cost() -> None:
    p = np.linspace(0.0, 1.0, 1_001)
    for costs in (*COSTS, Costs(0.0, 1.0), Costs(1.0, 0.0), Costs(2.0, 2.0, 0.0), Costs(1.0, 1.0, 9.0)):
        table = costs.table if costs.review is not None else costs.table[[0, 2]]
        expected = table[:, :1] * (1.0 - p) + table[:, 1:] * p
        made = [costs.table[{"pass": 0, "review": 1, "act": 2}[each]] for each in streamcal.decide(p, costs)]
        cost = np.array([row[0] * (1.0 - q) + row[1] * q for row, q in zip(made, p, strict=True)])
        np.testing.assert_allclose(cost, expected.min(axis=0), atol=1e-12)


def test_the_net_benefit_is_the_difference_of_costs() -> None:
    rng = np.random.default_rng(2)
    served, labels = rng.random(500), (rng.random(500) < 0.4).astype(float)
    scores, costs = rng.random(500), Costs(2.0, 7.0, 1.2)
    whole, parts = DecisionSums(DecisionRule(costs)), DecisionSums(DecisionRule(costs))
    whole.add(rated(scores, served, labels))
    for at in range(0, 500, 77):
        part = slice(at, at + 77)
        parts.add(rated(scores[part], served[part], labels[part]))
    np.testing.assert_array_equal(whole.sums, parts.sums)
    cost = {"pass": 7.0 * labels, "review": np.full(500, 1.2), "act": 2.0 * (1.0 - labels)}
    made = streamcal.decide(served, costs)
    total = np.choose(np.searchsorted(["act", "pass", "review"], made), [cost[d] for d in sorted(cost)])
    saved = figures(whole).saved
    assert saved["acting on all"].mean == pytest.approx(float((cost["act"] - total).mean()))
    assert saved["acting on none"].mean == pytest.approx(float((cost["pass"] - total).mean()))
    precision = figures(whole).precision
    assert precision is not None
    assert precision.mean == pytest.approx(float(labels[made == "act"].mean()))


def test_only_complete_predictions_count_where_one_class_comes_later() -> None:
    sums = DecisionSums(DecisionRule(Costs(1.0, 1.0)))
    sums.add(rated(np.full(1_000, 0.9), np.full(1_000, 0.4), np.zeros(1_000)))
    late = Arrival(late=1, complete_at=300.0, fair=False)
    found, all_ = figures(sums, late, until=1_000.0), figures(sums)
    assert (found.labels, all_.labels) == (672, 1_000)  # panes of 32 seconds
    for name, saved in found.saved.items():  # 2% of the labels may be missing
        assert saved.high - saved.low >= all_.saved[name].high - all_.saved[name].low
    assert figures(sums, Arrival(fair=False)).labels == 0


def test_a_capacity_is_never_exceeded_and_takes_about_the_most_probable() -> None:
    rng = np.random.default_rng(3)
    days, k = 20, 30
    times = np.sort(rng.uniform(0.0, days * 86_400.0, 20_000))
    for p in (rng.random(20_000), np.round(rng.random(20_000), 1), np.full(20_000, 0.5)):
        acts = streamcal.decide(p, capacity_per_day=k, times=times) == "act"
        by_day = np.bincount((times // 86_400.0).astype(int), acts, days)
        assert by_day.max() <= k
        assert by_day[1:].mean() > 0.8 * k
        assert p[acts & (times > 86_400.0)].mean() >= np.quantile(p, 0.95)
        again = Capacity(k)
        np.testing.assert_array_equal(acts, [again.take(q, t) == ACT for q, t in zip(p, times, strict=True)])


def test_a_capacity_is_compared_with_that_on_the_score() -> None:
    rng, n = np.random.default_rng(5), 2_000
    served, times = rng.random(n), 100.0 * np.arange(n)
    scores, labels = np.clip(served + rng.normal(0.0, 0.5, n), 0.0, 1.0), rng.random(n) < served
    sums = DecisionSums(DecisionRule(capacity_per_day=40))
    cells = sums.take(scores, served, times)
    unrated = rated(scores, served, labels)
    unrated.decided = {at: int(cell) for at, cell in enumerate(cells) if cell}
    sums.add(unrated)
    acts, raw = (streamcal.decide(p, capacity_per_day=40, times=times) == "act" for p in (served, scores))
    assert (decision_names(cells) == np.where(acts, "act", "pass")).all()
    found = figures(sums)
    assert found.saved.keys() == {"the raw score", "acting on none"}
    saved = found.saved["the raw score"]
    assert saved.mean == pytest.approx((labels[acts].sum() - labels[raw].sum()) / n)
    assert saved.low < saved.mean < saved.high
    assert found.recall is not None
    assert found.recall.mean == pytest.approx(labels[acts].sum() / labels.sum())


def test_labels_of_predictions_before_the_rule_do_not_count() -> None:
    sums, unrated = DecisionSums(DecisionRule(Costs(1.0, 2.0))), rated(*np.full((3, 100), 1.0))
    sums.restore(DecisionSums(DecisionRule(Costs(1.0, 1.0))), 60.0)
    sums.add(unrated)
    assert figures(sums).labels == 39


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Costs(-1.0, 1.0), "false_positive must be a finite cost, at least 0, got -1.0"),
        (lambda: Costs(1.0, float("nan")), "false_negative must be a finite cost, at least 0, got nan"),
        (lambda: Costs(0.0, 0.0), "both 0"),
        (lambda: Costs(1.0, 1.0, -0.5), "review must be a finite cost"),
        (lambda: streamcal.decide([0.5]), "give one of costs, thresholds and capacity_per_day, got 0"),
        (lambda: streamcal.decide([0.5], thresholds=(0.9, 0.1)), "two ascending probabilities"),
        (lambda: streamcal.decide([0.5], thresholds=(0.9,)), "two ascending probabilities"),
        (lambda: streamcal.decide([0.5], capacity_per_day=0, times=[1.0]), "from 1 to 100,000, got 0"),
        (lambda: streamcal.decide([0.5], capacity_per_day=2), "needs times of the 1 predictions"),
        (
            lambda: streamcal.decide([0.5, 0.6], capacity_per_day=2, times=[1e6, 2.0]),
            "index 1: .* sort by time",
        ),
        (lambda: streamcal.decide([0.5], capacity_per_day=2, times=[np.nan]), "index 0: a time must be"),
        (lambda: streamcal.decide([0.5], thresholds=0.5), "two ascending probabilities"),  # type: ignore[arg-type]
        (lambda: streamcal.decision_curve([0, 1], [0.5]), "one length"),
        (lambda: streamcal.decision_curve([0], [0.5], thresholds=[1.0]), "below 1, got 1.0"),
    ],
)
def test_errors_name_the_value_and_what_is_allowed(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_a_decision_curve_is_that_of_vickers_and_its_intervals_cover() -> None:
    """An interval of 95% misses 57 or more of 400 times with probability below 10⁻⁶."""
    rng = np.random.default_rng(4)
    truth = np.array([0.02, 0.1, 0.3, 0.7])
    missed, sampled = np.zeros(3), np.zeros(3)
    thresholds = np.array([0.05, 0.2, 0.5])
    expected = [(truth * (truth >= t) - (1 - truth) * (truth >= t) * t / (1 - t)).mean() for t in thresholds]
    for _ in range(400):
        p = truth[rng.integers(4, size=400)]
        y = (rng.random(400) < p).astype(int)
        curve = streamcal.decision_curve(y, p, thresholds=thresholds)
        missed += (curve.low > expected) | (curve.high < expected)
        chance = np.where(p < 0.2, 0.4, 0.8)
        seen = np.where(rng.random(400) < chance, y, np.nan)
        curve = streamcal.decision_curve(seen, p, thresholds=thresholds, propensities=chance)
        sampled += (curve.low > expected) | (curve.high < expected)
    curve, acts = streamcal.decision_curve(y, p, thresholds=thresholds), p >= 0.2
    by_hand = (y[acts].sum() - (1 - y[acts]).sum() * 0.25) / 400
    assert curve.net_benefit[1] == pytest.approx(by_hand)
    assert curve.acting_on_all[1] == pytest.approx(y.mean() - (1 - y.mean()) * 0.25)
    assert missed.max() < 57
    assert sampled.max() < 57


def test_a_damaged_state_is_told() -> None:
    sums = DecisionSums(DecisionRule(Costs(1.0, 2.0)))
    sums.counts = [1]
    with pytest.raises(DamagedStateError):
        decoded(encoded(sums), DecisionSums, "decisions")
