"""The label-shift e-process: false alarms, delay, exact suprema, state.

Failure probability: at α = 0.05, more than 20 alarms in 400 streams that keep label shift. The proof
allows at most 0.05 each; in truth far fewer alarm (none seen), so the test fails with probability below
1e-9 unless the formula is broken.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from streamcal.certificates.e_process import LabelShiftTest
from streamcal.certificates.likelihoods_c import largest_likelihood
from tests.certificates.truths import Truth, _gaussian, gaussian

ALPHA = 0.05
BINS = 8


def first_alarm(
    target: Truth, source: Truth, n_source: int, longest: int, seed: int, growth: float
) -> int | None:
    """Labels until the alarm; bins from 500 earlier target scores, looked at at geometric counts."""
    rng = np.random.default_rng([7, seed])
    scores, labels = target.draw(longest + 500, rng)
    edges = np.unique(np.quantile(scores[:500], np.arange(1, BINS) / BINS))
    scores, labels = scores[500:], labels[500:]
    source_scores, source_labels = source.draw(n_source, rng)

    def count(z: np.ndarray) -> np.ndarray:
        return np.bincount(np.searchsorted(edges, z, side="right"), minlength=len(edges) + 1)

    known = np.stack([count(source_scores[source_labels == label]) for label in (0, 1)])
    test = LabelShiftTest(known, ALPHA)
    seen, now = 0, 16
    while now <= longest:
        z, y = scores[seen:now], labels[seen:now]
        test.count(np.stack((count(z[y == 0]), count(z[y == 1]))))
        seen = now
        if test.alarm():
            return now
        if test.due:
            test.restart(known)
        now = max(now + 1, int(now * growth))
    return None


@pytest.mark.statistical
def test_false_alarms_are_rarer_than_alpha() -> None:
    alarms = [first_alarm(gaussian(0.1), gaussian(0.5), 2_000, 2_000, s, 2.0) for s in range(400)]
    rate = np.mean([alarm is not None for alarm in alarms])
    print(f"false alarms {rate:.4f} of 400 streams, alpha {ALPHA}")
    assert rate <= ALPHA


@pytest.mark.statistical
def test_changed_class_conditionals_are_detected() -> None:
    """X | Y=1 moves from N(2, 1) to N(1, 1); nine streams, the median delay in labels."""
    moved = _gaussian(0.1, (-2.0, 1.0))
    delays = [first_alarm(moved, gaussian(0.5), 100_000, 40_000, s, 1.1) for s in range(9)]
    median = float(np.median([delay or np.inf for delay in delays]))
    print(f"median delay {median:.0f} labels")
    assert median < 40_000


def test_the_denominator_is_a_supremum() -> None:
    rng = np.random.default_rng(3)
    for _ in range(25):
        bins = int(rng.integers(1, 7))
        totals, more = rng.integers(1, 2000, bins) * 1.0, rng.integers(0, 300, bins) * 1.0
        hits = np.round(totals * rng.random(bins) * rng.integers(0, 2, bins))
        others = np.round(more * rng.random(bins))

        def loss(at, hits=hits, totals=totals, others=others, more=more) -> float:
            m, t = at[:-1], at[-1]
            return -float(
                hits @ m - totals @ np.logaddexp(0, m) + others @ (m + t) - more @ np.logaddexp(0, m + t)
            )

        best = -minimize(loss, np.zeros(bins + 1), method="BFGS").fun
        bound = largest_likelihood(hits, totals, others, more)
        assert best - 1e-6 <= bound <= best + 0.01


@pytest.mark.statistical
def test_dividing_by_the_served_map_would_alarm_falsely() -> None:
    """The broken formula: against the source rates themselves, their estimation error alone alarms."""
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng([8, seed])
        rates = np.linspace(0.05, 0.95, BINS)
        hits = rng.binomial(60, rates)
        test = LabelShiftTest(np.stack((60 - hits, hits)), ALPHA)
        target = rng.binomial(2000, rates)
        test.count(np.stack((2000 - target, target)))
        served = np.clip(hits / 60, 1e-3, 1 - 1e-3)
        own = float(target @ np.log(served) + (2000 - target) @ np.log1p(-served))
        alarms += test.log_predictor() - own >= test.threshold
        assert not test.alarm()
    assert alarms > 20
