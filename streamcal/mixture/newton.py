"""Online Platt scaling with a discount: recursive logistic regression of the label on the logit of the score.

After a block of labels, (a, b) of expit(a·logit(z) + b) take one Newton step on the discounted log loss,

    H ← γ^m H + Σ_i γ^(m−i) v_i (x_i, 1)(x_i, 1)ᵀ,    θ ← θ − s (H + I)⁻¹ Σ_i γ^(m−i) (p_i − y_i) (x_i, 1),

with v_i = max(p_i (1 − p_i), 10⁻³) and s = log(1 + d) / d, d being the farthest that a full step would move
the log odds of a label of the block. Full steps diverge on saturated scores; this is the length for losses
like the logistic one, which are self-concordant in a generalised sense (Bach, 2010; Sun and Tran-Dinh, 2019).
The identity, which adds I, keeps the first steps small.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.maps.platt import IDENTITY, expit
from streamcal.mixture.names import DISCOUNTS

__all__ = ["MOST", "OnlinePlatt"]

Floats = npt.NDArray[np.float64]

MOST: Final = 1e7
"""No number of a state is larger: H stays below 10⁶, as no logit is beyond ±28."""

_BLOCK: Final = 32  # labels a step
_LEAST_CURVATURE: Final = 1e-3
_FARTHEST: Final = 30.0  # in log odds: beyond it the loss is linear for all that labels can tell
_GAMMAS: Final = np.array(DISCOUNTS)[:, np.newaxis]
_AGED: Final = _GAMMAS ** np.arange(_BLOCK - 1, -1, -1)  # what each label of a block counts for after it


class OnlinePlatt:
    """Online Platt scalings of all `DISCOUNTS` at once."""

    __slots__ = ("_curvature", "parameters")

    def __init__(self) -> None:
        self.parameters: Floats = np.tile(np.array(IDENTITY), (len(DISCOUNTS), 1))
        """(a, b) of each discount, float64[G, 2], in an array that is never changed in place."""
        self._curvature: Floats = np.zeros((len(DISCOUNTS), 3))  # H: of a a, a b, b b

    def learn(self, logits: Floats, labels: npt.NDArray[np.int8]) -> None:
        """Learn the next labels, int8[n], with the logits of their scores, float64[n].

        The outcome depends on where a call ends: a block never goes beyond it.
        """
        powers = np.stack((np.square(logits), logits, np.ones(len(logits))), axis=1)
        parameters, curvature = self.parameters, self._curvature
        for start in range(0, len(labels), _BLOCK):
            x = powers[start : start + _BLOCK]
            size = len(x)
            exponents = parameters @ x[:, 1:].T
            np.maximum(exponents, -_FARTHEST, out=exponents)
            np.minimum(exponents, _FARTHEST, out=exponents)
            forecasts = expit(exponents)
            both = np.empty((2, *forecasts.shape))  # derivatives of the loss: first and second
            np.subtract(forecasts, labels[start : start + size], out=both[0])
            np.subtract(forecasts, np.square(forecasts), out=both[1])
            np.maximum(both[1], _LEAST_CURVATURE, out=both[1])
            both *= _AGED[:, _BLOCK - size :]
            sums = both @ x
            curvature = _GAMMAS**size * curvature + sums[1]
            slopes = sums[0, :, 1:].tolist()
            ends = float(x[:, 1].min()), float(x[:, 1].max())
            # Three systems of two equations: scalars take less time than arrays.
            parameters = np.array(
                [
                    _stepped((*theta, *h, *slope), ends)
                    for theta, h, slope in zip(parameters.tolist(), curvature.tolist(), slopes, strict=True)
                ]
            )
        self.parameters, self._curvature = parameters, curvature

    def merge(self, other: OnlinePlatt, labels: int) -> None:
        """Average with another by their curvatures, as if its so many labels had come later."""
        aged = np.array(DISCOUNTS)[:, np.newaxis] ** labels
        theirs = other._curvature
        prior = np.array((1.0, 0.0, 1.0))
        # The identity, from which both began, counts once.
        mine = aged * (_times(self._curvature + prior, self.parameters) - np.array(IDENTITY))
        pulls = mine + _times(theirs + prior, other.parameters)
        self._curvature = aged * self._curvature + theirs
        aa, ab, bb = (self._curvature + prior).T
        determinant = aa * bb - ab * ab
        a = (bb * pulls[:, 0] - ab * pulls[:, 1]) / determinant
        b = (aa * pulls[:, 1] - ab * pulls[:, 0]) / determinant
        self.parameters = np.stack((a, b), axis=1)

    def to_state(self) -> Floats:
        """Return the state, float64[5 G]."""
        return np.concatenate((self.parameters, self._curvature), axis=1).ravel()

    def restore(self, state: Floats) -> bool:
        """Set the state, float64[5 G] within ±`MOST`; return whether it can be one."""
        parts = state.reshape(len(DISCOUNTS), 5)
        self.parameters, self._curvature = parts[:, :2].copy(), parts[:, 2:].copy()
        aa, ab, bb = self._curvature.T
        return bool(((aa >= 0.0) & (bb >= 0.0) & (ab * ab <= aa * bb * (1.0 + 1e-9))).all())


def _stepped(state: tuple[float, ...], ends: tuple[float, float]) -> tuple[float, float]:
    """Return (a, b) after a damped Newton step.

    Parameters
    ----------
    state
        a and b; H of a a, a b and b b; the slope along a and b.
    ends
        The least and the greatest logit of the block.
    """
    a, b, aa, ab, bb, slope_a, slope_b = state
    aa += 1.0
    bb += 1.0
    determinant = aa * bb - ab * ab
    step_a = (bb * slope_a - ab * slope_b) / determinant
    step_b = (aa * slope_b - ab * slope_a) / determinant
    farthest = max(abs(x * step_a + step_b) for x in ends)
    length = math.log1p(farthest) / farthest if farthest > 0.0 else 1.0
    return a - length * step_a, b - length * step_b


def _times(curvature: Floats, parameters: Floats) -> Floats:
    """Return H·θ of each row, float64[G, 2]."""
    aa, ab, bb = curvature.T
    a, b = parameters.T
    return np.stack((aa * a + ab * b, ab * a + bb * b), axis=1)
