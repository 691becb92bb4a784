"""OnlinePlatt: Platt scalings that follow the labels by blocks.

Online Platt scaling is recursive logistic regression of the label on the logit of the score, with a discount.
After a block of labels, (a, b) of expit(a·logit(z) + b) take one Newton step on the discounted log loss,

    H ← γ^m H + Σ_i γ^(m−i) v_i (x_i, 1)(x_i, 1)ᵀ,    θ ← θ − s (H + I)⁻¹ Σ_i γ^(m−i) (p_i − y_i) (x_i, 1),

with v_i = max(p_i (1 − p_i), 10⁻³) and s = log(1 + d) / d, d being the farthest that a full step would move
the log odds of a label of the block. Full steps diverge on saturated scores; this is the length for losses
like the logistic one, which are self-concordant in a generalised sense (Bach, 2010; Sun and Tran-Dinh, 2019).
The identity, which adds I, keeps the first steps small.
"""

from __future__ import annotations

import math
from typing import Final, Self

import numpy as np

from streamcal.base.values import Floats, Labels
from streamcal.maps.platt import IDENTITY
from streamcal.mixture.candidates import DISCOUNTS
from streamcal.mixture.forecasts_c import learn_labels
from streamcal.sketch.decoding import Part

_G: Final = len(DISCOUNTS)
_DISCOUNTS: Final = np.array(DISCOUNTS)
_FIRST: Final = np.tile(np.array((*IDENTITY, 0.0, 0.0, 0.0)), (_G, 1))


class OnlinePlatt(Part):
    """Online Platt scalings of all `DISCOUNTS` at once; its fields are its state."""

    fits: Floats = _FIRST
    """For each discount a, b, and H of a a, a b, b b, float64[G, 5]; never changed in place."""

    def __post_init__(self) -> None:
        self.fits = self.fits.reshape(_G, 5)  # one row in a state

    @property
    def parameters(self) -> Floats:
        """(a, b) of each discount, float64[G, 2], in an array that is never changed in place."""
        return self.fits[:, :2]

    def shifted(self, odds: float) -> Self:
        """Return scalings without a label, which begin with the score shifted by κ = ``odds``."""
        fits = _FIRST.copy()
        fits[:, 1] = math.log(odds)
        return type(self)(fits)

    def learn(self, logits: Floats, labels: Labels, shares: Floats | None = None) -> None:
        """Learn the next labels, int8[n], with the logits of their scores, float64[n].

        ``shares`` are what the labels count for, float64[n]; None: one each.

        The outcome depends on where a call ends: a block never goes beyond it.
        """
        fits = self.fits.copy()
        counted = np.ones(len(labels)) if shares is None else shares
        learn_labels(fits, _DISCOUNTS, logits, labels, counted)
        self.fits = fits
