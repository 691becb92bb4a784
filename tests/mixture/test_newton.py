"""Online Platt scaling: a plain recursion, that stays bounded, follows, and can be merged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from streamcal.mixture.candidates import DISCOUNTS
from streamcal.mixture.online import OnlinePlatt
from tests.mixture.plain import expit, online_platt

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


def drawn(n: int, a: float, b: float, rng: np.random.Generator) -> tuple[Floats, Labels]:
    logits = rng.normal(0.0, 2.0, n)
    return logits, (rng.random(n) < expit(a * logits + b)).astype(np.int8)


def learned(*calls: tuple[Floats, Labels]) -> OnlinePlatt:
    online = OnlinePlatt()
    for call in calls:
        online.learn(*call)
    return online


def test_it_is_the_plain_recursion() -> None:
    rng = np.random.default_rng(1)
    calls = [drawn(n, 2.0, -1.0, rng) for n in (1, 31, 32, 33, 0, 500, 7)]
    calls += [(np.array([-27.7, 27.7, 0.0]), np.array([1, 0, 1], np.int8))]
    online = learned(*calls)
    for discount, row in zip(DISCOUNTS, online.parameters, strict=True):
        assert row == pytest.approx(online_platt(calls, discount)[0], rel=1e-7, abs=1e-9)
    again = OnlinePlatt(online.fits.ravel())
    for each in (online, again):
        each.learn(*calls[0])
    assert np.array_equal(online.fits, again.fits)


def test_it_stays_bounded_on_saturated_scores_where_full_steps_do_not() -> None:
    """Scores that are all but certain, three of ten of them wrongly: the best a is near 0."""
    rng = np.random.default_rng(2)
    truth = rng.random(2000) < 0.5
    logits = np.clip(np.where(truth, 15.0, -15.0) + rng.normal(0.0, 1.0, 2000), -27.7, 27.7)
    labels = (truth ^ (rng.random(2000) < 0.3)).astype(np.int8)
    assert online_platt([(logits, labels)], 0.997, damped=False)[1] > 5.0
    online = OnlinePlatt()
    for start in range(0, 2000, 32):
        online.learn(logits[start : start + 32], labels[start : start + 32])
        assert np.abs(online.parameters).max() < 1.5
    # A label tells of b as much as 0.3 · 0.7; three standard errors of what each discount remembers.
    off = np.abs(online.parameters - [0.85 / 15.0, 0.0]).max(axis=1)
    assert (off < 3.0 * np.sqrt((1.0 - np.array(DISCOUNTS)) / 0.21)).all()
