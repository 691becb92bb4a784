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

from streamcal.maps.platt import IDENTITY
from streamcal.mixture.names import DISCOUNTS

__all__ = ["MOST", "OnlinePlatt"]

Floats = npt.NDArray[np.float64]

MOST: Final = 1e11
"""No number of a state is larger: H stays below 10⁶, as no logit is beyond ±28, times the greatest weight."""

_BLOCK: Final = 32  # labels a step
_LEAST_CURVATURE: Final = 1e-3
_G: Final = len(DISCOUNTS)
_GAMMAS: Final = np.array(DISCOUNTS)[:, np.newaxis]
# What each label of a block counts for after it, times what the derivatives of the loss are multiples of.
_AGED: Final = np.array((0.5, 0.25))[:, np.newaxis, np.newaxis] * _GAMMAS ** np.arange(_BLOCK - 1, -1, -1)


class OnlinePlatt:
    """Online Platt scalings of all `DISCOUNTS` at once."""

    __slots__ = ("_fits",)

    def __init__(self) -> None:
        # a, b, and H of a a, a b, b b; the array is never changed in place.
        self._fits: Floats = np.tile(np.array((*IDENTITY, 0.0, 0.0, 0.0)), (_G, 1))

    @property
    def parameters(self) -> Floats:
        """(a, b) of each discount, float64[G, 2], in an array that is never changed in place."""
        return self._fits[:, :2]

    def learn(self, logits: Floats, labels: npt.NDArray[np.int8], shares: Floats | None = None) -> None:
        """Learn the next labels, int8[n], with the logits of their scores, float64[n].

        ``shares`` is what each counts for, float64[n]; None: one.

        The outcome depends on where a call ends: a block never goes beyond it.
        """
        powers = np.empty((len(labels), 3))
        np.square(logits, out=powers[:, 0])
        powers[:, 1] = logits
        powers[:, 2] = 1.0
        each, signs = logits.tolist(), 2.0 * labels - 1.0
        fits = self._fits
        for start in range(0, len(labels), _BLOCK):
            block = slice(start, start + _BLOCK)
            x, rows = each[block], powers[block]
            size = len(x)
            both = np.empty((2, _G, size))  # derivatives of the loss: first and second
            first, second = both
            # With t = tanh((a·x + b) / 2), they are (t − (2y − 1)) / 2 and (1 − t²) / 4.
            np.dot(0.5 * fits[:, :2], rows[:, 1:].T, out=first)
            np.tanh(first, out=first)
            np.square(first, out=second)
            np.subtract(1.0, second, out=second)
            np.maximum(second, 4.0 * _LEAST_CURVATURE, out=second)
            first -= signs[block]
            both *= _AGED[:, :, _BLOCK - size :]
            if shares is not None:
                both *= shares[block]
            sums = both.reshape(2 * _G, size).dot(rows).tolist()
            ends = min(x), max(x)
            # Systems of two equations: scalars take less time than arrays.
            fits = np.array(
                [
                    _stepped(fit, discount**size, slope, curvature, ends)
                    for fit, discount, slope, curvature in zip(
                        fits.tolist(), DISCOUNTS, sums[:_G], sums[_G:], strict=True
                    )
                ]
            )
        self._fits = fits

    def merge(self, other: OnlinePlatt, labels: int) -> None:
        """Average with another by their curvatures, as if its so many labels had come later."""
        aged = _GAMMAS**labels
        mine, theirs = self._fits[:, 2:], other._fits[:, 2:]
        prior = np.array((1.0, 0.0, 1.0))
        # The identity, from which both began, counts once.
        pulls = aged * (_times(mine + prior, self.parameters) - np.array(IDENTITY))
        pulls += _times(theirs + prior, other.parameters)
        curvature = aged * mine + theirs
        aa, ab, bb = (curvature + prior).T
        determinant = aa * bb - ab * ab
        a = (bb * pulls[:, 0] - ab * pulls[:, 1]) / determinant
        b = (aa * pulls[:, 1] - ab * pulls[:, 0]) / determinant
        self._fits = np.column_stack((a, b, curvature))

    def to_state(self) -> Floats:
        """Return the state, float64[5 G]."""
        return self._fits.ravel()

    def restore(self, state: Floats) -> bool:
        """Set the state, float64[5 G] within ±`MOST`; return whether it can be one."""
        self._fits = state.reshape(_G, 5)
        aa, ab, bb = self._fits[:, 2:].T
        return bool(((aa >= 0.0) & (bb >= 0.0) & (ab * ab <= aa * bb * (1.0 + 1e-9))).all())


def _stepped(
    fit: list[float], aged: float, slope: list[float], curvature: list[float], ends: tuple[float, float]
) -> tuple[float, ...]:
    """Return a scaling after a damped Newton step.

    Parameters
    ----------
    fit
        a and b; H of a a, a b and b b.
    aged
        What H counts for after the block.
    slope, curvature
        The sums over the block of the first and the second derivatives × x², x and 1.
    ends
        The least and the greatest logit of the block.
    """
    a, b, aa, ab, bb = fit
    _, slope_a, slope_b = slope
    aa = aged * aa + curvature[0]
    ab = aged * ab + curvature[1]
    bb = aged * bb + curvature[2]
    determinant = (aa + 1.0) * (bb + 1.0) - ab * ab
    step_a = ((bb + 1.0) * slope_a - ab * slope_b) / determinant
    step_b = ((aa + 1.0) * slope_b - ab * slope_a) / determinant
    farthest = max(abs(ends[0] * step_a + step_b), abs(ends[1] * step_a + step_b))
    length = math.log1p(farthest) / farthest if farthest > 0.0 else 1.0
    return a - length * step_a, b - length * step_b, aa, ab, bb


def _times(curvature: Floats, parameters: Floats) -> Floats:
    """Return H·θ of each row, float64[G, 2]."""
    aa, ab, bb = curvature.T
    a, b = parameters.T
    return np.stack((aa * a + ab * b, ab * a + bb * b), axis=1)
