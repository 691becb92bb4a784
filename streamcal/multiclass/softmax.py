"""Online scaling of K scores: softmax of a·log z + b, fitted to a stream by Newton steps with a discount.

With x_k = log z_k, a forecast is p ∝ exp(a_k x_k + b_k): one slope for all classes (temperature and a bias
a class), one a class (vector scaling), or a matrix (`MatrixScaling`). After a block of labels, θ = (a, b)
takes one Newton step on the discounted log loss with a ridge λ towards the identity, θ₀ = (1, 0):

    H ← γ^m H + Σ_i Dᵢᵀ(diag(pᵢ) − pᵢpᵢᵀ)Dᵢ,    θ ← θ − s (H + λ)⁻¹ (Σ_i Dᵢᵀ(pᵢ − yᵢ) + (1 − γ^m) λ (θ − θ₀)).

D_i is the derivative of the exponents. The last term is what the discount takes from the loss of earlier
labels, which balanced the ridge. s is the length for losses like the logistic one (see
`streamcal.mixture.newton_c`). Beyond `DENSE` classes H is kept as its diagonal.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.multiclass.rows_c import logarithms, scale
from streamcal.sketch.decoding import within
from streamcal.values import Counts, Floats

__all__ = ["DENSE", "END", "MatrixScaling", "OnlineSoftmax", "logs"]

DENSE: Final = 64
"""Number of classes up to which curvatures between classes are kept."""

END: Final = 1e-9
"""Scores nearer to 0 count as this."""
_MOST: Final = 1e12  # of a number of a state


def logs(rows: Floats) -> Floats:
    """Return the logarithms of rows of probabilities, float64[n, K], bounded below."""
    out: Floats = np.empty(rows.shape)
    logarithms(rows, END, out)
    return out


class OnlineSoftmax:
    """One online scaling.

    Parameters
    ----------
    classes
        K.
    sloped
        whether each class has a slope of its own; only up to `DENSE` classes.
    discount
        γ in (0, 1].
    ridge
        λ of slopes and of biases.
    """

    __slots__ = ("_curvature", "_dense", "_discount", "_first", "_ridge", "_sloped", "parameters")

    def __init__(self, classes: int, *, sloped: bool, discount: float, ridge: tuple[float, float]) -> None:
        slopes = classes if sloped else 1
        self._sloped, self._discount, self._dense = sloped, discount, classes <= DENSE
        self._ridge = np.repeat(ridge, (slopes, classes))
        self._first: Floats = np.repeat((1.0, 0.0), (slopes, classes))
        self.parameters = self._first
        """θ: slopes, then biases."""
        size = slopes + classes
        self._curvature: Floats = np.zeros((size, size) if self._dense else size)

    def forecast(self, x: Floats) -> Floats:
        """Return the forecasts for logarithms of scores, float64[n, K]."""
        out: Floats = np.empty(x.shape)
        scale(x, self.parameters, out)
        return out

    def _exponents(self, parameters: Floats, x: Floats) -> Floats:
        slopes = x.shape[1] if self._sloped else 1
        out: Floats = x * parameters[:slopes]
        out += parameters[slopes:]
        return out

    def learn(self, x: Floats, codes: Counts, shares: Floats) -> None:
        """Take one step for the next labels.

        Parameters
        ----------
        x, codes
            logarithms of scores, float64[n, K], and labels, int64[n].
        shares
            what each label counts for, float64[n].
        """
        n = len(x)
        weights = shares * self._discount ** np.arange(n - 1, -1, -1)
        p = self.forecast(x)
        off = p.copy()
        off[np.arange(n), codes] -= 1.0
        off *= weights[:, np.newaxis]
        kept = self._discount**n
        slope = (1.0 - kept) * self._ridge * (self.parameters - self._first)
        slope += self._slope(x, off)
        self._curvature *= kept
        self._add(x, p, weights[:, np.newaxis])
        self._move(slope, x)

    def relabel(self, x: Floats, code: int, before: int, share: float) -> None:
        """Take one step for a label that replaces one learned before; no curvature depends on labels.

        ``x`` are the logarithms of its scores, float64[1, K]; ``share`` is what it counts for now, in [0, 1].
        """
        off = np.zeros(x.shape)
        off[0, [before, code]] = share, -share
        self._move(self._slope(x, off), x)

    def _slope(self, x: Floats, off: Floats) -> Floats:
        """Return Σ Dᵀ off, for the derivatives ``off`` of losses by exponents, float64[n, K]."""
        by_slopes = (off * x).sum(axis=0 if self._sloped else None, keepdims=not self._sloped).ravel()
        return np.concatenate((by_slopes, off.sum(axis=0)))

    def _move(self, slope: Floats, x: Floats) -> None:
        """Take the Newton step of a slope, shortened by how far it moves forecasts of these scores."""
        step = self._solved(slope)
        moved = self._exponents(step, x)
        farthest = float((moved.max(axis=1) - moved.min(axis=1)).max())
        length = np.log1p(farthest) / farthest if farthest > 0.0 else 1.0
        self.parameters = self.parameters - length * step

    def _solved(self, slope: Floats) -> Floats:
        """Return (H + λ)⁻¹ times a slope."""
        if not self._dense:
            step: Floats = slope / (self._curvature + self._ridge)
            return step
        return np.asarray(np.linalg.solve(self._curvature + np.diag(self._ridge), slope), np.float64)

    @property
    def discount(self) -> float:
        """Discount γ of earlier labels."""
        return self._discount

    def _add(self, x: Floats, p: Floats, weights: Floats) -> None:
        """Add Σ Dᵀ(diag(p) − ppᵀ)D to the curvature, weighed by float64[n, 1]."""
        p_root, p = p * np.sqrt(weights), p * weights
        if self._dense:
            self._add_dense(x, p, p_root)
        else:
            self._add_diagonal(x, p, p_root)

    def _add_dense(self, x: Floats, p: Floats, p_root: Floats) -> None:
        """Add Σ Dᵀ(diag(p) − ppᵀ)D: first that with slopes, p weighed, then the square of its means."""
        h, px = self._curvature, p * x
        classes = x.shape[1]
        if self._sloped:
            places = np.arange(classes)
            h[places, places] += (px * x).sum(axis=0)
            across = px.sum(axis=0)
            h[places, classes + places] += across
            h[classes + places, places] += across
            h[classes + places, classes + places] += p.sum(axis=0)
            means = np.concatenate((p_root * x, p_root), axis=1)
        else:
            h[0, 0] += np.einsum("ik,ik", px, x)
            across = px.sum(axis=0)
            h[0, 1:] += across
            h[1:, 0] += across
            places = np.arange(1, classes + 1)
            h[places, places] += p.sum(axis=0)
            means = np.concatenate(((p_root * x).sum(axis=1, keepdims=True), p_root), axis=1)
        h -= means.T @ means

    def _add_diagonal(self, x: Floats, p: Floats, p_root: Floats) -> None:
        """Add to the diagonal; of the biases an upper bound of the curvature, Σ p."""
        h = self._curvature
        h[0] += np.einsum("ik,ik,ik", p, x, x) - np.square((p_root * x).sum(axis=1)).sum()
        h[1:] += p.sum(axis=0)

    def to_state(self) -> list[Floats]:
        """Return the state."""
        return [self.parameters, self._curvature.ravel()]

    def restore(self, state: list[Floats]) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        parameters, curvature = state
        what = "an online scaling"
        self.parameters = within(parameters, -_MOST, _MOST, what, self.parameters.size)
        self._curvature = within(curvature, -_MOST, _MOST, what, self._curvature.size).reshape(
            self._curvature.shape
        )


class MatrixScaling(OnlineSoftmax):
    """Online scaling by a matrix: p ∝ exp(Ax + b), with x less its mean.

    The curvature is kept in one block a class, as if the other rows of A stood still: K solutions of K + 1
    unknowns, where all would be one of K² + K.

    Parameters
    ----------
    classes
        K.
    discount
        γ in (0, 1].
    ridge
        λ of the diagonal of A, of biases, and of the rest of A.
    """

    __slots__ = ()

    def __init__(self, classes: int, *, discount: float, ridge: tuple[float, float, float]) -> None:
        slope, bias, across = ridge
        super().__init__(classes, sloped=True, discount=discount, ridge=(slope, bias))
        diagonal = np.eye(classes)
        self._ridge = np.append(np.where(diagonal, slope, across), np.full(classes, bias))
        self._first = self.parameters = np.append(diagonal, np.zeros(classes))
        self._curvature = np.zeros((classes, classes + 1, classes + 1))

    def _exponents(self, parameters: Floats, x: Floats) -> Floats:
        out: Floats = _known(x) @ _by_class(parameters, x.shape[1]).T
        return out

    def _slope(self, x: Floats, off: Floats) -> Floats:
        by_class: Floats = off.T @ _known(x)
        return np.append(by_class[:, :-1], by_class[:, -1])

    def _solved(self, slope: Floats) -> Floats:
        classes = len(self._curvature)
        h, places = self._curvature.copy(), np.arange(classes + 1)
        h[:, places, places] += _by_class(self._ridge, classes)
        step = np.linalg.solve(h, _by_class(slope, classes)[:, :, np.newaxis])[:, :, 0]
        return np.append(step[:, :-1], step[:, -1])

    def _add(self, x: Floats, p: Floats, weights: Floats) -> None:
        known = _known(x)
        self._curvature += ((weights * p * (1.0 - p)).T[:, np.newaxis] * known.T) @ known


def _known(x: Floats) -> Floats:
    """Return what multiplies A and b: logarithms less their mean, and 1, float64[n, K + 1]."""
    out: Floats = np.ones((len(x), x.shape[1] + 1))
    np.subtract(x, x.mean(axis=1, keepdims=True), out[:, :-1])
    return out


def _by_class(parameters: Floats, classes: int) -> Floats:
    """Return rows of A with their biases, float64[K, K + 1], of parameters in the order of a state."""
    slopes = parameters[:-classes].reshape(classes, classes)
    return np.concatenate((slopes, parameters[-classes:, np.newaxis]), axis=1)
