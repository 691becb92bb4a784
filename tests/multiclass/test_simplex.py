"""Eq. 13 for K classes and the likeliest priors, against densities that are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal.maps.shift import shift_correction, shift_weights
from streamcal.multiclass.simplex import likeliest_priors, ordered, shifted
from streamcal.priors.likelihood import likeliest_prior

Floats = npt.NDArray[np.float64]

CENTRES = np.array(((0.0, 0.0), (2.0, 0.0), (0.5, 1.5)))
SOURCE = np.array((0.5, 0.3, 0.2))
TARGET = np.array((0.1, 0.2, 0.7))


def posterior(x: Floats, priors: Floats) -> Floats:
    """Return P[Y=k | x] of three Gaussians, by Bayes' rule."""
    joint = priors * np.exp(-0.5 * np.square(x[:, np.newaxis] - CENTRES).sum(axis=2))
    out: Floats = joint / joint.sum(axis=1, keepdims=True)
    return out


def drawn(n: int, priors: Floats, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return CENTRES[rng.choice(3, n, p=priors)] + rng.normal(size=(n, 2))


def test_eq_13_turns_the_posterior_of_the_source_into_that_of_the_target() -> None:
    x = drawn(500, SOURCE, 0)
    under_source, under_target = posterior(x, SOURCE), posterior(x, TARGET)
    np.testing.assert_allclose(shifted(under_source, SOURCE, TARGET), under_target, atol=1e-14)
    # The check can fail: weights the wrong way round.
    assert abs(shifted(under_source, TARGET, SOURCE) - under_target).max() > 0.1


def test_two_classes_are_eq_13_of_the_paper() -> None:
    p = np.linspace(0.0, 1.0, 101)
    rows = np.stack((1.0 - p, p), axis=1)
    found = shifted(rows, np.array((0.7, 0.3)), np.array((0.2, 0.8)))
    np.testing.assert_allclose(found[:, 1], shift_correction(p, shift_weights(0.3, 0.8)), atol=1e-15)


def test_likeliest_priors_satisfy_the_conditions_of_a_maximum() -> None:
    rows = posterior(drawn(300, TARGET, 2), SOURCE)
    labels = np.array((1.0, 0.5, 3.0))
    q = likeliest_priors(rows, SOURCE, labels)
    likelihood = rows / SOURCE
    slope = (likelihood / (likelihood @ q)[:, np.newaxis]).sum(axis=0) + labels / q
    np.testing.assert_allclose(slope, 300.0 + labels.sum(), rtol=1e-6)
    assert q.sum() == pytest.approx(1.0, abs=1e-12)


def test_likeliest_priors_of_two_classes_are_those_of_the_binary_engine() -> None:
    rng = np.random.default_rng(3)
    means, masses = rng.random(20), rng.integers(1, 50, 20)
    rows = np.repeat(np.stack((1.0 - means, means), axis=1), masses, axis=0)
    found = likeliest_priors(rows, np.array((0.6, 0.4)), np.array((0.5, 0.5)))
    assert found[1] == pytest.approx(likeliest_prior(masses, means, 0.4), abs=1e-8)


@pytest.mark.statistical
def test_likeliest_priors_find_those_of_the_target() -> None:
    """Over 40 seeds the largest error has mean .008 and deviation .005: .06 is ten deviations away."""
    rows = posterior(drawn(10_000, TARGET, 4), SOURCE)
    nothing = np.zeros(3)
    assert abs(likeliest_priors(rows, SOURCE, nothing) - TARGET).max() < 0.06
    assert abs(likeliest_priors(rows, TARGET, nothing) - TARGET).max() > 0.06  # with a wrong P it misses


@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
def test_pooling_keeps_the_order_and_lowers_losses_where_the_order_is_right(count: int, seed: int) -> None:
    """Proposition 3 of docs/proofs/multiclass.md, and the definition of the level."""
    rng = np.random.default_rng(seed)
    rows, scores = rng.dirichlet(np.full(count, 0.7), 20), rng.dirichlet(np.full(count, 0.7), 20)
    if seed % 3 == 0:  # ties, of scores and of probabilities
        rows, scores = np.round(4.0 * rows) + 1.0, np.round(4.0 * scores) + 1.0
        rows /= rows.sum(axis=1, keepdims=True)
    kept, top = ordered(rows, scores), scores.argmax(axis=1)
    np.testing.assert_array_equal(kept.argmax(axis=1), top)
    np.testing.assert_allclose(kept.sum(axis=1), rows.sum(axis=1), atol=1e-14)
    same = rows.argmax(axis=1) == top
    np.testing.assert_array_equal(kept[same], rows[same])
    np.testing.assert_allclose(ordered(kept, scores), kept, atol=0.0)
    for row, new, t in zip(rows, kept, top, strict=True):
        if row.argmax() != t:
            level = new[t]
            others = np.delete(row, t)
            assert level == pytest.approx(row[t] + np.maximum(others - level, 0.0).sum(), abs=1e-14)
            np.testing.assert_array_equal(np.delete(new, t), np.minimum(others, np.nextafter(level, 0.0)))
        truth = rng.dirichlet(np.ones(count))
        most = truth.argmax()
        truth[[most, t]] = truth[[t, most]]
        with np.errstate(divide="ignore"):
            assert -(truth @ np.log(new)) <= -(truth @ np.log(row)) + 1e-12
        assert np.square(new - truth).sum() <= np.square(row - truth).sum() + 1e-12
