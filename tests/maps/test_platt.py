"""Platt scaling on cell counts: the optimum, and the cases that undamped Newton does not survive."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from streamcal.maps.platt import IDENTITY, apply_platt, fit_platt
from tests.maps.cases import CASES, Case, Floats, drawn


def independent_loss(parameters: Floats, logits: Floats, positives: Floats, totals: Floats) -> float:
    a, b = parameters
    t = a * logits + b
    likelihood = positives * -np.logaddexp(0.0, -t) + (totals - positives) * -np.logaddexp(0.0, t)
    return float(-likelihood.sum() + 0.5 * ((a - 1.0) ** 2 + b**2))


@pytest.mark.parametrize("case", CASES)
def test_it_finds_the_optimum_that_another_minimiser_finds(case: Case) -> None:
    logits, positives, totals = case
    (fitted,) = fit_platt(logits, positives[np.newaxis], totals[np.newaxis])
    best = minimize(independent_loss, np.array(IDENTITY), (logits, positives, totals), "Nelder-Mead")
    assert independent_loss(fitted, logits, positives, totals) <= best.fun + 0.01


def test_windows_together_are_fitted_as_each_alone() -> None:
    logits = CASES[0][0]
    positives = np.stack([case[1] for case in CASES])
    totals = np.stack([case[2] for case in CASES])
    together = fit_platt(logits, positives, totals)
    for i, row in enumerate(together):
        alone = fit_platt(logits, positives[i : i + 1], totals[i : i + 1])
        assert row == pytest.approx(alone[0], rel=1e-9, abs=1e-9)


def test_without_labels_it_is_the_identity_and_empty_cells_have_no_say() -> None:
    logits, *counts = drawn(7, 1.0, 0.0, 2.0, 100)
    positives, totals = (count[np.newaxis] for count in counts)
    assert fit_platt(logits, np.zeros((2, 60)), np.zeros((2, 60))) == pytest.approx(np.array([IDENTITY] * 2))
    held = totals[0] > 0
    assert not held.all()
    without = fit_platt(logits[held], positives[:, held], totals[:, held])
    assert fit_platt(logits, positives, totals) == pytest.approx(without, rel=1e-9)


def test_separable_labels_stay_finite_and_a_full_newton_step_would_not_do() -> None:
    logits = np.array([-25.0, -20.0, 20.0, 25.0])
    totals = np.array([[500.0, 1.0, 1.0, 500.0]])
    separable = fit_platt(logits, np.array([[0.0, 0.0, 1.0, 500.0]]), totals)
    assert np.isfinite(separable).all()
    assert separable[0, 0] > 0.5
    # Two labels out of place on saturated scores: the curvature at the identity is next to nothing.
    mixed = np.array([[0.0, 1.0, 0.0, 500.0]])
    fitted = fit_platt(logits, mixed, totals)
    losses = [independent_loss(np.array(each), logits, mixed[0], totals[0]) for each in (fitted[0], IDENTITY)]
    assert losses[0] < 0.5 * losses[1]


def test_it_is_the_logistic_function_to_the_ends() -> None:
    logits = np.array([-28.0, -1.0, 0.0, 2.0, 28.0])
    rows = apply_platt(np.array([[1.0], [-2.0], [1e6]]), np.array([[0.0], [1.0], [0.0]]), logits)
    assert rows[:2] == pytest.approx(
        1.0 / (1.0 + np.exp(-np.array([[1.0], [-2.0]]) * logits - np.array([[0.0], [1.0]])))
    )
    assert rows[2].tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0])
    assert ((rows >= 0.0) & (rows <= 1.0)).all()
