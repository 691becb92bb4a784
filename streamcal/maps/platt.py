"""Platt scaling p = expit(a·logit(z) + b), fitted to counts per cell, for several windows at once.

The fit is a damped Newton method: full steps diverge on saturated scores, so a step is halved until the loss
falls by enough. A normal prior, N(1, 1) on a and N(0, 1) on b, is centred on the identity and weighs as much
as a handful of labels. It keeps the fit finite where the two classes are separable.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.sketch import grid
from streamcal.sketch.arrays import Cells

__all__ = ["IDENTITY", "apply_platt", "cell_logits", "expit", "fit_platt", "inside", "logit", "platt_loss"]

Floats = npt.NDArray[np.float64]

IDENTITY: Final = (1.0, 0.0)
"""(a, b) of the map that changes nothing."""

_END: Final = 2.0**-40  # scores nearer to 0 or 1 than this share one cell of the grid
_LARGEST: Final = 700.0  # e^t overflows little above
# In nats, over all labels together. Fitting two parameters to chance costs about one nat.
_TOLERANCE: Final = 0.01
_MOST_STEPS: Final = 50
_MOST_HALVINGS: Final = 30
_SUFFICIENT: Final = 0.1  # the part of the decrease predicted by the slope that a step must reach (Armijo)


def apply_platt(slopes: Floats, intercepts: Floats, logits: Floats, out: Floats | None = None) -> Floats:
    """Return expit(a·x + b).

    Parameters
    ----------
    slopes, intercepts
        a and b, float64 of any shape that broadcasts against the logits.
    logits
        x, float64[n].
    out
        Where to put the result, of the shape that they broadcast to.

    Returns
    -------
    float64 in [0, 1], of the shape that they broadcast to.
    """
    exponents: Floats = np.multiply(slopes, logits, out=out)
    exponents += intercepts
    return expit(exponents)


def expit(exponents: Floats) -> Floats:
    """Overwrite t with 1 / (1 + e^−t), float64 of any shape, and return it.

    On thousands of values this is three to four times as fast as `scipy.special.expit`.
    """
    np.negative(exponents, out=exponents)
    # e^700 does not overflow, and no number of labels can tell expit(−700) from 0.
    np.minimum(exponents, _LARGEST, out=exponents)
    np.exp(exponents, out=exponents)
    exponents += 1.0
    return np.reciprocal(exponents, out=exponents)


def logit(scores: Floats, out: Floats | None = None) -> Floats:
    """Return log(z / (1 − z)) of scores, float64[n] in [0, 1], clipped to [2⁻⁴⁰, 1 − 2⁻⁴⁰]: within ±28.

    ``out`` is an array for the result.
    """
    clipped = np.maximum(scores, _END, out=out)  # np.clip takes longer on few
    np.minimum(clipped, 1.0 - _END, out=clipped)
    odds = np.divide(clipped, 1.0 - clipped, out=clipped)
    return np.log(odds, out=odds)


def cell_logits(cells: Cells, level: int) -> Floats:
    """Return the logit of the middle of every cell of the grid, float64[m] for int32[m]."""
    return logit(grid.left_edges(2 * cells + np.int32(1), level - 1))


def inside(score: float) -> float:
    """Return one score in [0, 1], clipped as by `logit`."""
    return min(max(score, _END), 1.0 - _END)


def platt_loss(parameters: Floats, logits: Floats, positives: Floats, totals: Floats) -> Floats:
    """Return the penalised log loss in nats that `fit_platt` minimises, float64[k].

    ``parameters`` are (a, b) of each window, float64[k, 2]; the other arguments are those of `fit_platt`.
    """
    return _evaluate(parameters, logits, positives, totals)[0]


def fit_platt(logits: Floats, positives: Floats, totals: Floats, start: Floats | None = None) -> Floats:
    """Fit (a, b) to k windows, and return them as float64[k, 2].

    Parameters
    ----------
    logits
        float64[m], the logit of every cell's score, finite.
    positives, totals
        float64[k, m], the labels 1 and all labels per window and cell; a cell may be empty.
    start
        float64[k, 2], where to start, such as the previous fit; None starts from the identity.
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
            # The fit cannot improve further: rounding error dominates.
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
    # log(1 + e^t) = max(t, 0) + log(1 + e^−|t|): one exponential serves the loss and its derivatives.
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
