"""Online scalings: their steps are Newton steps, and they find the scaling that is right."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
import scipy.special
from scipy.optimize import minimize

from streamcal.multiclass.softmax_c import OnlineSoftmax, logs

softmax = partial(scipy.special.softmax, axis=1)
Floats = npt.NDArray[np.float64]


def stream(n: int, slopes: Floats, biases: Floats, seed: int = 0) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return scores, and labels of the scaling with these slopes and biases."""
    rng = np.random.default_rng(seed)
    rows = softmax(rng.normal(0.0, 1.5, (n, len(biases))))
    truth = softmax(slopes * logs(rows) + biases)
    labels = (truth.cumsum(axis=1) < rng.random(n)[:, np.newaxis]).sum(axis=1)
    return rows, np.minimum(labels, len(biases) - 1)


def loss(parameters: Floats, x: Floats, labels: npt.NDArray[np.int64], *, sloped: bool) -> float:
    slopes = x.shape[1] if sloped else 1
    p = softmax(x * parameters[:slopes] + parameters[slopes:])
    return float(-np.log(p[np.arange(len(x)), labels]).sum())


def test_the_curvature_is_the_second_derivative_of_the_loss() -> None:
    rows, labels = stream(50, np.ones(3), np.zeros(3))
    x = logs(rows)
    scaling = OnlineSoftmax(3, slopes=3, discount=1.0, ridge=(1.0, 1.0, 0.0))
    at = scaling.parameters
    scaling.learn(x, labels, np.ones(50))
    size, h = len(at), 1e-4
    found = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            steps = [h * (np.eye(size)[i] * a + np.eye(size)[j] * b) for a in (1, -1) for b in (1, -1)]
            up, across, back, down = (loss(at + step, x, labels, sloped=True) for step in steps)
            found[i, j] = (up - across - back + down) / (4.0 * h * h)
    np.testing.assert_allclose(scaling.to_state()[1].reshape(size, size), found, rtol=1e-4, atol=1e-3)


@pytest.mark.statistical
def test_it_finds_the_temperature_and_the_biases() -> None:
    """On these labels the parameters found do better than the true ones; those of wrong labels do not.

    By .0007 of what the scaling gains for 3 classes (deviation .0004 over 20 seeds), by .0046 for 80 (.0005
    over 10): the limit is 20 deviations away.
    """
    biases = np.random.default_rng(1).normal(0.0, 0.7, 3)
    rows, labels = stream(20_000, np.array(0.5), biases)
    x = logs(rows)
    right = loss(np.append(0.5, biases), x, labels, sloped=False)
    before = loss(np.append(1.0, np.zeros(3)), x, labels, sloped=False)
    excess = []
    for taught in (labels, (labels + 1) % 3):
        scaling = OnlineSoftmax(3, slopes=1, discount=1.0, ridge=(1.0, 1.0, 0.0))
        for start in range(0, 20_000, 32):
            part = slice(start, start + 32)
            scaling.learn(x[part], taught[part], np.ones(len(taught[part])))
        excess.append((loss(scaling.parameters, x, labels, sloped=False) - right) / (before - right))
    assert excess[0] < 0.01 < excess[1]


RIDGE = (5.0, 1.0, 20.0)  # of the diagonal of a matrix, of biases, of the rest


def penalised(parameters: Floats, x: Floats, labels: npt.NDArray[np.int64]) -> float:
    """Return the loss of a matrix and biases, with its ridge."""
    classes = x.shape[1]
    matrix, biases = parameters[:-classes].reshape(classes, classes), parameters[-classes:]
    p = scipy.special.log_softmax((x - x.mean(axis=1, keepdims=True)) @ matrix.T + biases, axis=1)
    off = matrix - np.eye(classes)
    slope, bias, across = RIDGE
    ridges = across * np.square(off).sum() + (slope - across) * np.square(np.diag(off)).sum()
    return float(-p[np.arange(len(x)), labels].sum() + 0.5 * (ridges + bias * np.square(biases).sum()))


def crossed(n: int, seed: int = 0) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return logarithms of scores, and labels where the score of one class speaks for another."""
    matrix = np.array(((1.0, 0.6, 0.0), (0.0, 0.5, 0.0), (-0.5, 0.0, 1.0)))
    rows, _ = stream(n, np.ones(3), np.zeros(3), seed)
    x = logs(rows)
    truth = softmax(x @ matrix.T + np.array((0.3, 0.0, -0.3)))
    draw = np.random.default_rng(seed + 1).random(n)
    return x, np.minimum((truth.cumsum(axis=1) < draw[:, np.newaxis]).sum(axis=1), 2)


def test_a_matrix_comes_near_the_optimum_of_its_loss() -> None:
    """What the optimum gains is left to .001, at most .003 over 20 seeds; a vector gains nothing here."""
    x, labels = crossed(2_000)
    matrix, vector = (OnlineSoftmax(3, slopes=slopes, discount=1.0, ridge=RIDGE) for slopes in (9, 3))
    first = matrix.parameters
    for start in range(0, len(x), 16):
        part = slice(start, start + 16)
        for scaling in (matrix, vector):
            scaling.learn(x[part], labels[part], np.ones(16))
    best = minimize(penalised, first, (x, labels), options={"gtol": 1e-3})
    as_matrix = np.append(np.diag(vector.parameters[:3]), vector.parameters[3:])
    before = penalised(first, x, labels)
    left = [
        (penalised(each, x, labels) - best.fun) / (before - best.fun)
        for each in (matrix.parameters, as_matrix)
    ]
    assert -1e-6 < left[0] < 0.01 < left[1]


def test_the_curvature_of_a_matrix_is_the_second_derivative_in_its_blocks() -> None:
    x, labels = crossed(50)
    scaling = OnlineSoftmax(3, slopes=9, discount=1.0, ridge=RIDGE)
    at = scaling.parameters
    scaling.learn(x, labels, np.ones(50))
    h = 1e-3
    for k in range(3):
        block = [3 * k, 3 * k + 1, 3 * k + 2, 9 + k]
        found = np.empty((4, 4))
        for i, j in np.ndindex(4, 4):
            steps = [
                h * (np.eye(12)[block[i]] * a + np.eye(12)[block[j]] * b) for a in (1, -1) for b in (1, -1)
            ]
            up, across, back, down = (penalised(at + step, x, labels) for step in steps)
            found[i, j] = (up - across - back + down) / (4.0 * h * h)
        found -= np.diag(np.where(np.arange(4) == k, RIDGE[0], (RIDGE[2],) * 3 + (RIDGE[1],)))
        np.testing.assert_allclose(scaling.to_state()[1].reshape(3, 4, 4)[k], found, rtol=1e-3, atol=1e-3)


def test_a_matrix_stays_finite_on_extreme_scores() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    x = logs(np.eye(4)[(labels + (rng.random(400) < 0.5)) % 4])
    scaling = OnlineSoftmax(4, slopes=16, discount=0.9998, ridge=RIDGE)
    for start in range(0, 400, 4):
        scaling.learn(x[start : start + 4], labels[start : start + 4], np.ones(4))
        found = scaling.forecast(x)
        assert np.isfinite(found).all()
        assert found.sum(axis=1) == pytest.approx(1.0)
    state = [part.copy() for part in scaling.to_state()]
    other = OnlineSoftmax(4, slopes=16, discount=0.9998, ridge=RIDGE)
    other.restore(state)
    assert np.array_equal(other.forecast(x), found)
