"""`streamcal.testing`: the risks of maps under laws of one's own, against closed forms and D(π)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import beta, kstest, norm

from streamcal import RecalibrationMap, Recalibrator
from streamcal.testing import Law, NormalPair
from streamcal.values import Floats

IDENTITY = RecalibrationMap(version=0)
STEPS = RecalibrationMap(version=1, edges=(0.0, 0.3, 0.6, 1.0), values=(0.1, 0.4, 0.9))


def pair(prior: float) -> Law:
    """Return D(π) by its density and rate."""
    exact = NormalPair(prior)

    def density(z: Floats) -> Floats:
        x = logit(z)
        both = prior * norm.pdf(x, 2.0) + (1.0 - prior) * norm.pdf(x, -2.0)
        return np.asarray(both / (z * (1.0 - z)), np.float64)

    return Law(density, exact.optimal)


def test_the_law_of_the_paper_has_the_risks_of_the_paper() -> None:
    learned = Recalibrator(mode="source")
    learned.learn_many(*NormalPair(0.5).sample(3_000, np.random.default_rng(0)), "source")
    learned.refresh()
    for made in (IDENTITY, STEPS, learned.map):
        assert tuple(pair(0.2).risk(made)) == pytest.approx(tuple(NormalPair(0.2).risk(made)), rel=1e-6)


def test_uniform_scores_with_a_rate_of_their_square_have_risks_in_closed_form() -> None:
    law = Law(np.ones_like, np.square)
    assert law.risk(IDENTITY).total == pytest.approx(1.0 / 30.0)
    found = law.risk(STEPS)
    calibration = sharpness = 0.0
    for (low, high), value in zip(pairwise(STEPS.edges), STEPS.values, strict=True):
        width, mean = high - low, (high**3 - low**3) / (3.0 * (high - low))
        calibration += width * (value - mean) ** 2
        sharpness += (high**5 - low**5) / 5.0 - width * mean**2
    assert found == pytest.approx((calibration, sharpness))


def test_jumps_are_exact_if_they_are_named() -> None:
    def rate(z: Floats) -> Floats:
        return np.where(z < 0.37, 0.2, 0.7)

    found = Law(np.ones_like, rate, jumps=(0.37,)).risk(
        RecalibrationMap(version=1, edges=(0.0, 1.0), values=(0.5,))
    )
    mean = 0.37 * 0.2 + 0.63 * 0.7
    assert found == pytest.approx(((0.5 - mean) ** 2, 0.37 * 0.63 * 0.5**2))


@pytest.mark.statistical
def test_a_sample_has_the_law() -> None:
    """Kolmogorov and Smirnov, at p < 1e-6; the rate within 5 standard errors. A wrong law is noticed."""
    law = Law(beta(0.5, 8.0).pdf, lambda z: 0.9 * z)
    scores, labels = law.sample(20_000, np.random.default_rng(3))
    assert kstest(scores, beta(0.5, 8.0).cdf).pvalue > 1e-6
    assert kstest(scores, beta(0.6, 8.0).cdf).pvalue < 1e-6
    expected = 0.9 * 0.5 / 8.5
    assert abs(labels.mean() - expected) < 5.0 * (expected / 20_000) ** 0.5
