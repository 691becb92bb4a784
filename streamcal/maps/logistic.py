"""Logistic regression of labels on functions of the logit, fitted to counts: Platt and hinge maps.

Both are p = expit(Σ_j θ_j·φ_j(x)) of x = logit(z), with the seven functions of `features`. A Platt map uses x
and 1 only; its other parameters are 0. A hinge map adds max(x − k, 0) for each of five knots k: its log odds
are a line that may bend where scores usually lie, and goes on straight beyond. So all of these maps are rows
of one matrix, and are applied together.

A fit minimises the log loss plus ½·Σ ridge_j·(θ_j − identity_j)², by damped Newton steps: full ones diverge
on saturated scores. The penalty weighs as much as a handful of labels, and keeps the fit finite where the
classes can be separated.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "FEATURES",
    "HINGE",
    "IDENTITY_ROW",
    "PLATT",
    "Family",
    "features",
    "fit_logistic",
    "group_logits",
]

Floats = npt.NDArray[np.float64]

KNOTS: Final = np.array((-3.0, -1.5, 0.0, 1.5, 3.0))
"""Logits at which a hinge map may bend: scores of .05, .18, .5, .82 and .95."""

FEATURES: Final = 2 + len(KNOTS)
"""How many functions φ_j there are."""

IDENTITY_ROW: Final = np.eye(FEATURES)[0]
"""Parameters θ of the map that changes nothing, float64[7]."""

_TOLERANCE: Final = (
    0.01  # nats over all labels together; fitting two parameters to chance costs about one nat
)
_MOST_STEPS: Final = 50
_MOST_HALVINGS: Final = 30
_SUFFICIENT: Final = 0.1  # the part of the decrease predicted by the slope that a step must reach (Armijo)
_PARTS: Final = 128  # of the labels, at least
_APART: Final = 0.125  # nats, at most, between the logits of one group


class Family(NamedTuple):
    """Maps that use the same functions."""

    used: tuple[int, ...]
    """Indices of the functions."""
    ridge: Floats
    """Weights of the penalty, one for each of them."""


PLATT: Final = Family((0, 1), np.ones(2))
HINGE: Final = Family((0, 1, *range(2, FEATURES)), np.array((1.0, 1.0, *(4.0,) * len(KNOTS))))


def features(logits: Floats) -> Floats:
    """Return φ_j(x) = x, 1, max(x − k, 0) of logits x, float64[n], as float64[7, n]."""
    out = np.empty((FEATURES, len(logits)))
    out[0] = logits
    out[1] = 1.0
    np.subtract(logits, KNOTS[:, np.newaxis], out=out[2:])
    np.maximum(out[2:], 0.0, out=out[2:])
    return out


def group_logits(logits: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Join neighbouring scores into groups of at most ⅛ nat, and of about 1 in 128 labels.

    Parameters
    ----------
    logits
        float64[m], ascending.
    counts
        float64[2, m], labels 1 and all labels of each, of which no score has none.

    Returns
    -------
    Mean logit of each group, float64[g], and its counts, float64[2, g].
    """
    if len(logits) <= _PARTS:
        return logits, counts
    totals = counts[1]
    ends = totals.cumsum()
    part = (ends - 0.5 * totals) * (_PARTS / ends[-1])
    changes = np.diff(part.astype(np.int64)) + np.diff(np.floor(logits / _APART)) > 0.0
    first = np.concatenate(([0], np.flatnonzero(changes) + 1))
    grouped = np.add.reduceat(counts, first, axis=1)
    return np.add.reduceat(logits * totals, first) / grouped[1], grouped


def fit_logistic(
    family: Family, values: Floats, positives: Floats, totals: Floats, start: Floats | None = None
) -> Floats:
    """Fit the map of a family, and return its θ, float64[7].

    Parameters
    ----------
    values
        `features` of m scores, float64[7, m].
    positives, totals
        float64[m], the labels 1 and all labels of each; there may be none.
    start
        θ to start from, float64[7], such as the previous fit of the same family; None: the identity.
    """
    used = list(family.used)
    phi, ridge, centre = values[used], family.ridge, IDENTITY_ROW[used]
    fitted = centre if start is None else start[used]
    loss, rates = _evaluate(fitted - centre, fitted @ phi, ridge, positives, totals)
    for _ in range(_MOST_STEPS):
        slope = phi @ (totals * rates - positives) + ridge * (fitted - centre)
        curvature = (phi * (totals * rates * (1.0 - rates))) @ phi.T + np.diag(ridge)
        step = -np.linalg.solve(curvature, slope)
        decrease = -float(step @ slope)
        if not decrease > _TOLERANCE:
            break
        scale = 1.0
        for _ in range(_MOST_HALVINGS):
            trial = fitted + scale * step
            new = _evaluate(trial - centre, trial @ phi, ridge, positives, totals)
            if new[0] <= loss - _SUFFICIENT * scale * decrease:
                break
            scale /= 2.0
        else:
            break  # rounding error dominates
        fitted, (loss, rates) = trial, new
    out = np.zeros(FEATURES)
    out[used] = fitted
    return out


def _evaluate(
    away: Floats, exponents: Floats, ridge: Floats, positives: Floats, totals: Floats
) -> tuple[float, Floats]:
    """Return the penalised log loss, and the probability of every score, float64[m].

    Parameters
    ----------
    away
        how far the parameters are from the identity's.
    exponents
        log odds of every score's probability, float64[m].
    """
    # log(1 + e^t) = max(t, 0) + log(1 + e^−|t|): one exponential serves the loss and its derivatives.
    small = np.exp(-np.abs(exponents))
    losses = totals * (np.maximum(exponents, 0.0) + np.log1p(small)) - positives * exponents
    inverse = 1.0 / (1.0 + small)
    rates = np.where(exponents >= 0.0, inverse, small * inverse)
    return float(losses.sum()) + 0.5 * float(ridge @ np.square(away)), rates
