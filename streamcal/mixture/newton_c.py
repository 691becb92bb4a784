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

from streamcal.maps.platt import IDENTITY
from streamcal.mixture.candidates import DISCOUNTS
from streamcal.values import Floats, Labels

__all__ = ["MOST", "OnlinePlatt", "compiled"]

compiled: Final = not __file__.endswith(".py")
"""Whether this module was compiled when the package was installed."""

MOST: Final = 1e11
"""Upper limit on the numbers of a state: H stays below 10⁶, as no logit is beyond ±28, times the greatest
weight."""

_BLOCK: Final = 32  # labels a step, at most
_LEAST_CURVATURE: Final = 1e-3
_G: Final = len(DISCOUNTS)
_GAMMAS: Final = np.array(DISCOUNTS)[:, np.newaxis]


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

    def learn(self, logits: Floats, labels: Labels, shares: Floats | None = None) -> None:
        """Learn the next labels, int8[n], with the logits of their scores, float64[n].

        ``shares`` are what the labels count for, float64[n]; None: one each.

        The outcome depends on where a call ends: a block never goes beyond it.
        """
        fits = self._fits.copy()
        learn_labels(fits, logits, labels, np.ones(len(labels)) if shares is None else shares)
        self._fits = fits

    def to_state(self) -> Floats:
        """Return the state, float64[5 G]."""
        return self._fits.ravel()

    def restore(self, state: Floats) -> bool:
        """Set the state, float64[5 G] within ±`MOST`; return whether it can be one."""
        self._fits = state.reshape(_G, 5)
        aa, ab, bb = self._fits[:, 2:].T
        return bool(((aa >= 0.0) & (bb >= 0.0) & (ab * ab <= aa * bb * (1.0 + 1e-9))).all())


def learn_labels(fits: Floats, logits: Floats, labels: Labels, shares: Floats) -> None:
    """Let every scaling take its steps for the next labels, in place.

    Compiled where there is a C compiler: `newton_c.pxd` has the types.

    Parameters
    ----------
    fits
        float64[G, 5], for every discount a and b; H of a a, a b and b b.
    logits, labels
        float64[n], finite, and int8[n].
    shares
        what each label counts for, float64[n].
    """
    n, block, least = len(labels), _BLOCK, _LEAST_CURVATURE
    for start in range(0, n, block):
        end = min(start + block, n)
        low = high = logits[start]
        for i in range(start, end):
            low = min(low, logits[i])
            high = max(high, logits[i])
        for k in range(len(fits)):
            discount = DISCOUNTS[k]
            a, b = fits[k, 0], fits[k, 1]
            aa, ab, bb = fits[k, 2], fits[k, 3], fits[k, 4]
            slope_a = slope_b = 0.0
            for i in range(start, end):
                # With t = tanh((a·x + b) / 2), p − y is (t − (2y − 1)) / 2, and p (1 − p) is (1 − t²) / 4.
                x, t = logits[i], math.tanh(0.5 * (a * logits[i] + b))
                first, second = 0.5 * (t + 1.0) - labels[i], max(0.25 * (1.0 - t * t), least)
                first *= shares[i]
                second *= shares[i]
                slope_a = discount * slope_a + first * x
                slope_b = discount * slope_b + first
                aa = discount * aa + second * x * x
                ab = discount * ab + second * x
                bb = discount * bb + second
            determinant = (aa + 1.0) * (bb + 1.0) - ab * ab
            step_a = ((bb + 1.0) * slope_a - ab * slope_b) / determinant
            step_b = ((aa + 1.0) * slope_b - ab * slope_a) / determinant
            farthest = max(abs(low * step_a + step_b), abs(high * step_a + step_b))
            length = math.log1p(farthest) / farthest if farthest > 0.0 else 1.0
            fits[k, 0], fits[k, 1] = a - length * step_a, b - length * step_b
            fits[k, 2], fits[k, 3], fits[k, 4] = aa, ab, bb
