"""Platt scaling p = expit(a·logit(z) + b), fitted on the counts of cells, for several windows at once.

Damped Newton: full steps diverge on saturated scores, so a step is halved until it lowers the loss enough. A
normal prior N(1, 1) on a and N(0, 1) on b, centred on the identity, keeps separable data finite; it weighs as
much as a handful of labels.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["IDENTITY", "apply_platt", "expit", "fit_platt", "platt_loss"]

Floats = npt.NDArray[np.float64]

IDENTITY: Final = (1.0, 0.0)
"""(a, b) of the map that changes nothing."""

_TOLERANCE: Final = 0.01  # nats of all labels together, where chance costs about one for two parameters
_MOST_STEPS: Final = 50
_MOST_HALVINGS: Final = 30
_SUFFICIENT: Final = 0.1  # of the decrease that the slope promises (Armijo)


def apply_platt(slopes: Floats, intercepts: Floats, logits: Floats) -> Floats:
    """Return expit(a·x + b): float64[k] and float64[k] at float64[n] to float64[k, n] in [0, 1]."""
    exponents = slopes[:, np.newaxis] * logits
    exponents += intercepts[:, np.newaxis]
    return expit(exponents)


def expit(exponents: Floats) -> Floats:
    """Return 1 / (1 + e^−t) in place of t, float64 of any shape."""
    # |t| beyond 700 would overflow; expit(±700) is 0 or 1 to all digits that a label could tell.
    np.negative(exponents, out=exponents)
    np.clip(exponents, -700.0, 700.0, out=exponents)
    np.exp(exponents, out=exponents)
    exponents += 1.0
    return np.reciprocal(exponents, out=exponents)


def platt_loss(parameters: Floats, logits: Floats, positives: Floats, totals: Floats) -> Floats:
    """Return the penalised log loss in nats that `fit_platt` minimises, float64[k]; arguments as there."""
    return _evaluate(parameters, logits, positives, totals)[0]


def fit_platt(logits: Floats, positives: Floats, totals: Floats, start: Floats | None = None) -> Floats:
    """Return (a, b) of k windows, float64[k, 2].

    Parameters
    ----------
    logits
        float64[m], the logit of every cell's score, finite.
    positives, totals
        float64[k, m], labels 1 and all labels per window and cell; cells may be empty.
    start
        float64[k, 2] to start from, such as the fit before; None: the identity.
    """
    fitted = np.tile(np.array(IDENTITY), (len(totals), 1)) if start is None else start.astype(np.float64)
    loss, slope, curvature = _evaluate(fitted, logits, positives, totals)
    moving = np.arange(len(fitted))
    for _ in range(_MOST_STEPS):
        step, decrease = _newton_step(slope, curvature)
        going = decrease > _TOLERANCE
        if not going.all():
            if not going.any():
                break
            moving, loss, step, decrease = moving[going], loss[going], step[going], decrease[going]
            slope, curvature = slope[going], curvature[going]
        hits, counts = positives[moving], totals[moving]
        scale = np.ones(len(moving))
        for _ in range(_MOST_HALVINGS):
            trial = fitted[moving] + scale[:, np.newaxis] * step
            new = _evaluate(trial, logits, hits, counts)
            enough = new[0] <= loss - _SUFFICIENT * scale * decrease
            if enough.all():
                break
            scale[~enough] /= 2.0
        else:
            # Rounding alone keeps the loss from falling: what there is is the best to be had.
            moving, trial = moving[enough], trial[enough]
            new = tuple(part[enough] for part in new)  # type: ignore[assignment]
        fitted[moving] = trial
        if not len(moving):
            break
        loss, slope, curvature = new
    return fitted


def _evaluate(
    parameters: Floats, logits: Floats, positives: Floats, totals: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the penalised log loss, float64[k], its gradient, [k, 2], and its Hessian, [k, 3]."""
    exponents = parameters[:, :1] * logits
    exponents += parameters[:, 1:]
    away = parameters - IDENTITY
    # log(1 + e^t) = max(t, 0) + log(1 + e^−|t|), and all that follows is had from e^−|t|.
    small = np.exp(-np.abs(exponents))
    losses = np.maximum(exponents, 0.0)
    losses += np.log1p(small)
    losses *= totals
    losses -= positives * exponents
    loss = losses.sum(axis=1) + 0.5 * np.square(away).sum(axis=1)
    inverse = 1.0 / (1.0 + small)
    probabilities = np.where(exponents >= 0.0, inverse, small * inverse)
    excess = totals * probabilities
    weights = excess * (1.0 - probabilities)
    excess -= positives
    powers = np.stack((np.square(logits), logits, np.ones(len(logits))), axis=1)
    slope = np.einsum("km,mj->kj", excess, powers[:, 1:]) + away
    curvature = np.einsum("km,mj->kj", weights, powers)
    curvature[:, ::2] += 1.0
    return loss, slope, curvature


def _newton_step(slope: Floats, curvature: Floats) -> tuple[Floats, Floats]:
    """Return −H⁻¹g, float64[k, 2], and the Newton decrement gᵀH⁻¹g, float64[k]."""
    aa, ab, bb = curvature.T
    determinant = aa * bb - ab * ab
    along_a = (ab * slope[:, 1] - bb * slope[:, 0]) / determinant
    along_b = (ab * slope[:, 0] - aa * slope[:, 1]) / determinant
    step = np.stack((along_a, along_b), axis=1)
    return step, -(step * slope).sum(axis=1)
