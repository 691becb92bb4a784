"""Logistic regression on counts: the optimum, what full Newton steps do not survive, and the grouping."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from streamcal.maps.fits_c import group
from streamcal.maps.logistic import HINGE, IDENTITY_ROW, KNOTS, PLATT, Family, fit_logistic
from streamcal.maps.platt import IDENTITY, apply_platt, fit_platt
from tests.maps.cases import CASES, Case, Floats, drawn

FAMILIES = pytest.mark.parametrize("family", [PLATT, HINGE], ids=["platt", "hinge"])


def group_logits(logits: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    means, sums = np.empty(len(logits)), np.empty(counts.shape)
    groups = group(logits, counts, means, sums)
    return means[:groups], sums[:, :groups]


def features(logits: Floats) -> Floats:
    """Return φ_j(x) = x, 1, max(x − k, 0) of logits x, float64[n], as float64[7, n]."""
    return np.stack([logits, np.ones(len(logits)), *(np.maximum(logits - knot, 0.0) for knot in KNOTS)])


def penalised_loss(family: Family, theta: Floats, values: Floats, positives: Floats, totals: Floats) -> float:
    """Return the loss in nats that a fit minimises, of θ, float64[7], and `features`, float64[7, m]."""
    exponents, used = theta @ values, list(range(len(family)))
    away = theta[used] - IDENTITY_ROW[used]
    lost = totals @ np.logaddexp(0.0, exponents) - positives @ exponents
    return float(lost + 0.5 * (family @ away**2))


def plain_loss(free: Floats, family: Family, case: Case) -> float:
    """Return what is to be minimised, of the parameters that the family uses, from its definition."""
    logits, positives, totals = case
    functions = [logits, np.ones(len(logits)), *(np.maximum(logits - knot, 0.0) for knot in KNOTS)]
    t = sum(a * functions[j] for a, j in zip(free, range(len(family)), strict=True))
    likelihood = positives * -np.logaddexp(0.0, -t) + (totals - positives) * -np.logaddexp(0.0, t)
    centre = [1.0 if j == 0 else 0.0 for j in range(len(family))]
    return float(-likelihood.sum() + 0.5 * (family @ (free - centre) ** 2))


@FAMILIES
@pytest.mark.parametrize("case", CASES)
def test_it_finds_the_optimum_that_another_minimiser_finds(family: Family, case: Case) -> None:
    """Within the tolerance of .01 nats, and the parameters that are not used are 0."""
    logits, positives, totals = case
    values = features(logits)
    theta = fit_logistic(family, logits, positives, totals)
    used = list(range(len(family)))
    start = IDENTITY_ROW[used]
    best = minimize(plain_loss, start, (family, case), "BFGS", options={"gtol": 1e-6})
    found = plain_loss(theta[used], family, case)
    assert found <= best.fun + 0.01
    assert penalised_loss(family, theta, values, positives, totals) == pytest.approx(found, rel=1e-9)
    assert not np.delete(theta, used).any()


@FAMILIES
def test_without_labels_it_is_the_identity_and_empty_cells_have_no_say(family: Family) -> None:
    logits, positives, totals = drawn(7, 2.0, 0.5, 2.0, 100)
    for cells in (logits, logits[:0]):
        nothing = np.zeros(len(cells))
        assert fit_logistic(family, cells, nothing, nothing) == pytest.approx(IDENTITY_ROW)
    held = totals > 0
    assert not held.all()
    without = fit_logistic(family, logits[held], positives[held], totals[held])
    assert fit_logistic(family, logits, positives, totals) == pytest.approx(without, rel=1e-9, abs=1e-12)


@FAMILIES
def test_separable_labels_stay_finite_and_follow(family: Family) -> None:
    logits = np.array([-25.0, -20.0, -0.1, 0.1, 20.0, 25.0])
    totals = np.array([500.0, 1.0, 300.0, 300.0, 1.0, 500.0])
    values = features(logits)
    for positives in (totals * (logits > 0), totals * (logits < 0), totals, 0.0 * totals):
        theta = fit_logistic(family, logits, positives, totals)
        assert np.isfinite(theta).all()
        assert np.abs(theta).max() < 100.0
        said = theta @ values
        assert ((said > 0) == (positives > 0))[totals > 100].all()


@FAMILIES
def test_labels_out_of_place_on_saturated_scores(family: Family) -> None:
    """The curvature at the identity is next to nothing there: a full Newton step would go far astray."""
    logits = np.array([-25.0, -20.0, 20.0, 25.0])
    positives, totals = np.array([0.0, 1.0, 0.0, 500.0]), np.array([500.0, 1.0, 1.0, 500.0])
    values = features(logits)

    def loss(theta: Floats) -> float:
        return penalised_loss(family, theta, values, positives, totals)

    used = list(range(len(family)))
    rates = 1.0 / (1.0 + np.exp(-logits))
    slope = values[used] @ (totals * rates - positives)
    curvature = (values[used] * (totals * rates * (1.0 - rates))) @ values[used].T + np.diag(family)
    full = IDENTITY_ROW.copy()
    full[used] -= np.linalg.solve(curvature, slope)
    assert loss(full) > loss(IDENTITY_ROW)
    fitted = fit_logistic(family, logits, positives, totals)
    assert loss(fitted) < 0.5 * loss(IDENTITY_ROW)
    # Scores that are grossly wrong everywhere: every label contradicts its score.
    wrong = fit_logistic(family, logits, totals * (logits < 0), totals)
    assert ((wrong @ values > 0) == (logits < 0)).all()


def test_a_hinge_map_bends_where_a_line_cannot() -> None:
    """Log odds |x|: a Platt map says the base rate everywhere; straight on beyond the last knot."""
    rng = np.random.default_rng(9)
    logits = np.sort(rng.normal(0.0, 2.0, 400))
    totals = np.full(400, 100.0)
    positives = rng.binomial(100, 1.0 / (1.0 + np.exp(-np.abs(logits)))).astype(float)
    features(logits)
    hinge, platt = (fit_logistic(family, logits, positives, totals) for family in (HINGE, PLATT))
    at = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    assert hinge @ features(at) == pytest.approx(np.abs(at), abs=0.25)
    assert np.abs(platt @ features(at) - np.abs(at)).max() > 1.0
    beyond = hinge @ features(np.array([4.0, 5.0, 20.0]))
    assert (beyond[2] - beyond[1]) / 15.0 == pytest.approx(beyond[1] - beyond[0])


@pytest.mark.parametrize("n", [200, 300_000])
def test_groups_keep_counts_and_mean_logits_and_are_narrow(n: int) -> None:
    logits, positives, totals = drawn(10, 1.0, 0.0, 2.5, n, 2000)
    held = totals > 0
    logits, counts = logits[held], np.stack((positives[held], totals[held]))
    means, grouped = group_logits(logits, counts)
    assert grouped.sum(axis=1) == pytest.approx(counts.sum(axis=1))
    assert (np.diff(means) > 0.0).all()
    assert means @ grouped[1] == pytest.approx(logits @ counts[1])
    assert len(means) < 500
    # Each group is of neighbours: its bounds follow from the counts.
    ends = np.searchsorted(counts[1].cumsum(), grouped[1].cumsum() - 0.5)
    starts = np.concatenate(([0], ends[:-1] + 1))
    for start, end, mean, own in zip(starts, ends, means, grouped.T, strict=True):
        part = slice(start, end + 1)
        assert own == pytest.approx(counts[:, part].sum(axis=1))
        assert mean == pytest.approx(np.average(logits[part], weights=counts[1, part]))
        assert logits[end] - logits[start] <= 0.125
        assert end == start or own[1] <= 2.0 * counts[1].sum() / 128 + counts[1, part].max()


@FAMILIES
def test_grouping_changes_a_fit_little(family: Family) -> None:
    """The loss on all cells is within .3 nats of the best; a parameter fitted to chance costs half a nat."""
    for seed, slope, intercept, spread in ((1, 1.3, -1.0, 2.0), (2, 0.3, 0.5, 6.0), (3, 3.0, -2.0, 0.7)):
        logits, positives, totals = drawn(seed, slope, intercept, spread, 20_000, 3000)
        held = totals > 0
        logits, counts = logits[held], np.stack((positives[held], totals[held]))
        means, grouped = group_logits(logits, counts)
        assert len(means) < 0.2 * len(logits)
        losses = [
            penalised_loss(family, fit_logistic(family, x, *n), features(logits), *counts)
            for x, n in ((logits, counts), (means, grouped))
        ]
        assert losses[1] <= losses[0] + 0.3


# Platt scaling on cell counts: the optimum, and the cases that undamped Newton does not survive


def independent_loss(parameters: Floats, logits: Floats, positives: Floats, totals: Floats) -> float:
    a, b = parameters
    t = a * logits + b
    likelihood = positives * -np.logaddexp(0.0, -t) + (totals - positives) * -np.logaddexp(0.0, t)
    return float(-likelihood.sum() + 0.5 * ((a - 1.0) ** 2 + b**2))


@pytest.mark.parametrize("case", CASES)
def test_it_finds_the_optimum_that_another_minimiser_finds_of_platt(case: Case) -> None:
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
