"""Online scaling of K scores: softmax of a·log z + b, fitted to a stream by Newton steps with a discount.

With x_k = log z_k, a forecast is p ∝ exp(a_k x_k + b_k): one slope for all classes (temperature and a bias
a class), one a class (vector scaling), or a matrix A, with x less its mean. After a block of labels, θ =
(a, b) takes one Newton step on the discounted log loss with a ridge λ towards the identity, θ₀ = (1, 0):

    H ← γ^m H + Σ_i Dᵢᵀ(diag(pᵢ) − pᵢpᵢᵀ)Dᵢ,    θ ← θ − s (H + λ)⁻¹ (Σ_i Dᵢᵀ(pᵢ − yᵢ) + (1 − γ^m) λ (θ − θ₀)).

D_i is the derivative of the exponents. The last term is what the discount takes from the loss of earlier
labels, which balanced the ridge. s is the length for losses like the logistic one (see
`streamcal.mixture.online`). Beyond `DENSE` classes H is kept as its diagonal. That of a matrix is kept in
one block a class, as if the other rows of A stood still: K solutions of K + 1 unknowns, where all would be
one of K² + K.

Here are the loops over rows of K probabilities, too. One row at a time is the usual case, where a call of
numpy costs more than its numbers.

Compiled where there is a C compiler; `softmax_c.pxd` has the types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from streamcal.base.values import Counts, Floats


def are_shares(rows: Floats, rounding: float) -> bool:
    """Whether all numbers are in [0, 1], and each row sums to 1, both give or take ``rounding``.

    Up to the first row that is not so, numbers outside become 0 or 1, in place.
    """
    good = True
    for i in range(rows.shape[0]):
        good = good and _put_shares(rows[i], rounding, rows[i])
    return good


def shares_of(row: Floats, rounding: float) -> Floats | None:
    """Return a row of K numbers as float64[1, K], all in [0, 1]; None if it is not as `are_shares` asks."""
    out: Floats = np.empty((1, row.shape[0]))
    made = out
    return out if _put_shares(row, rounding, made[0]) else None


def _put_shares(row: Floats, rounding: float, out: Floats) -> bool:
    total = 0.0
    for k in range(row.shape[0]):
        if not -rounding <= row[k] <= 1.0 + rounding:
            return False
        total += row[k]
    if not abs(total - 1.0) <= rounding:
        return False
    for k in range(row.shape[0]):
        out[k] = min(max(row[k], 0.0), 1.0)
    return True


def largest(values: Floats) -> float:
    """Return the largest of numbers of at least 0, float64[n]: 0 of none, and -1 if one is below 0 or NaN."""
    most = 0.0
    for i in range(values.shape[0]):
        if not values[i] >= 0.0:
            return -1.0
        most = max(most, values[i])
    return most


def logarithms(rows: Floats, least: float, out: Floats) -> None:
    """Put the logarithms of numbers, of at least ``least``, into ``out``, float64[n, K]."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            out[i, k] = math.log(max(rows[i, k], least))


def normalise(rows: Floats, instead: Floats) -> None:
    """Divide rows of at least 0 by their sums, in place; where all is 0, take the row of ``instead``."""
    for i in range(rows.shape[0]):
        total = 0.0
        for k in range(rows.shape[1]):
            total += rows[i, k]
        for k in range(rows.shape[1]):
            rows[i, k] = rows[i, k] / total if total > 0.0 else instead[i, k]


def mix(weights: Floats, made: Floats, out: Floats) -> None:
    """Put the mixture of forecasts, float64[M, n, K], by weights, float64[M], into ``out``, float64[n, K]."""
    for i in range(out.shape[0]):
        total = 0.0
        for k in range(out.shape[1]):
            mixed = 0.0
            for m in range(weights.shape[0]):
                mixed += weights[m] * made[m, i, k]
            out[i, k] = mixed
            total += mixed
        for k in range(out.shape[1]):
            out[i, k] /= total


def gather(
    made: Floats,
    codes: Counts,
    trackers: Floats,
    carried: Floats | None,
    shares: Floats | None,
    out: Floats,
) -> None:
    """Put what n labels tell of the candidates into ``out``.

    Parameters
    ----------
    made
        what the M candidates forecast now, and behind them one or two rows of logarithms: float64[M + 1 or
        M + 2, n, K].
    codes
        places of the labels' classes, int64[n].
    trackers
        weights by both trackers, float64[2, M].
    carried
        rows of `Many.answer` with all forecasts, float64[n, C]; None: nothing was carried.
    shares
        what each label counts for, float64[n]; None: 1 each.
    out
        for each label the logarithms (2 K numbers, of which the second K may be left as they are); what all
        candidates gave to its class as of the prediction (M), and what they give now (M); what the mixtures
        of both trackers gave as of the prediction; its share; and how many scores had been observed when it
        was predicted, -1 if nothing was carried: float64[n, 2 K + 2 M + 4].
    """
    candidates, classes = trackers.shape[1], made.shape[2]
    for m in range(candidates, made.shape[0]):
        for i in range(made.shape[1]):
            for k in range(classes):
                out[i, (m - candidates) * classes + k] = made[m, i, k]
    out = out[:, 2 * classes :]
    for i in range(made.shape[1]):
        knew, by_first, by_second = False, 0.0, 0.0
        if carried is not None:
            knew = carried[i, 1] + carried[i, 1 + candidates] > 0.0  # weights of the score, which never are 0
        for m in range(candidates):
            now = then = made[m, i, codes[i]]
            first, second = trackers[0, m], trackers[1, m]
            if carried is not None and knew:
                first, second = carried[i, 1 + m], carried[i, 1 + candidates + m]
                if m:  # the score does not change
                    then = carried[i, 1 + 2 * candidates + (m - 1) * classes + codes[i]]
            out[i, m], out[i, candidates + m] = then, now
            by_first += first * then
            by_second += second * then
        out[i, 2 * candidates], out[i, 2 * candidates + 1] = by_first, by_second
        out[i, 2 * candidates + 2] = 1.0 if shares is None else shares[i]
        out[i, 2 * candidates + 3] = -1.0 if carried is None else carried[i, 0]


def log_losses(given: Floats, shares: Floats, least: float, out: Floats) -> None:
    """Put weighed log losses of probabilities, float64[n, C], into ``out``, float64[C, n].

    ``shares``, float64[n], weigh them; a probability counts as ``least`` from 0 and 1 at least.
    """
    for c in range(given.shape[1]):
        for i in range(given.shape[0]):
            out[c, i] = -shares[i] * math.log(min(max(given[i, c], least), 1.0 - least))


def count(codes: Counts, weights: Floats | None, kept: float, counts: Floats) -> None:
    """Count n labels by their classes, int64[n], in place.

    ``counts``, float64[2, K]: the first row adds up weights, float64[n] (None: 1 each); the second numbers of
    labels, of which each later one leaves the part ``kept``.
    """
    left = math.pow(kept, codes.shape[0])
    for k in range(counts.shape[1]):
        counts[1, k] *= left
    for i in range(codes.shape[0]):
        counts[0, codes[i]] += 1.0 if weights is None else weights[i]
        counts[1, codes[i]] += math.pow(kept, codes.shape[0] - 1 - i)


DENSE: Final = 64
"""Number of classes up to which curvatures between classes are kept."""

END: Final = 1e-9
"""Scores nearer to 0 count as this."""


def logs(rows: Floats) -> Floats:
    """Return the logarithms of rows of probabilities, float64[n, K], bounded below."""
    out: Floats = np.empty((rows.shape[0], rows.shape[1]))
    logarithms(rows, END, out)
    return out


def exponents(x: Floats, parameters: Floats, out: Floats) -> None:
    """Put a·x + b of one row into ``out``, float64[K]; see `scale`."""
    classes = x.shape[0]
    slopes, mean = parameters.shape[0] - classes, 0.0
    step = 1 if slopes > 1 else 0
    if slopes > classes:
        for k in range(classes):
            mean += x[k] / classes
    for k in range(classes):
        total = parameters[slopes + k]
        if slopes > classes:
            for j in range(classes):
                total += parameters[k * classes + j] * (x[j] - mean)
        else:
            total += x[k] * parameters[k * step]
        out[k] = total


def scale(x: Floats, parameters: Floats, out: Floats) -> None:
    """Put softmax(a·x + b) into ``out``, float64[n, K].

    Parameters
    ----------
    x
        float64[n, K].
    parameters
        a, and then K of b. a: one for all classes, K, or a matrix by rows, for x less its row's mean.
    """
    classes = x.shape[1]
    for i in range(x.shape[0]):
        exponents(x[i], parameters, out[i])
        most, total = -math.inf, 0.0
        for k in range(classes):
            most = max(most, out[i, k])
        for k in range(classes):
            out[i, k] = math.exp(out[i, k] - most)
            total += out[i, k]
        for k in range(classes):
            out[i, k] /= total


def scale_each(made: Floats, of: int, at: int, first: int, scalings: Sequence[OnlineSoftmax]) -> None:
    """Put scalings of rows of probabilities into ``made``, float64[M, n, K], from the place ``first`` on.

    The rows are in the place ``of``; their logarithms are put into the place ``at``.
    """
    logarithms(made[of], END, made[at])
    for m in range(len(scalings)):
        scaling = scalings[m]
        scale(made[at], scaling._theta, made[first + m])


class OnlineSoftmax:
    """One online scaling.

    Parameters
    ----------
    classes
        K.
    slopes
        number of slopes: 1, or up to `DENSE` classes K, or K² of a matrix.
    discount
        γ in (0, 1].
    ridge
        λ of slopes (of a matrix those on the diagonal), of biases, and of the rest of a matrix.
    """

    def __init__(
        self, classes: int, *, slopes: int, discount: float, ridge: tuple[float, float, float]
    ) -> None:
        slope, bias, across = ridge
        self._classes, self._slopes = classes, slopes
        self.discount = discount
        """Discount γ of earlier labels."""
        self._blocks = classes if slopes > classes else 1
        self._dense = classes <= DENSE
        diagonal = np.eye(classes).ravel() if slopes > classes else np.ones(slopes)
        self.parameters = np.append(diagonal, np.zeros(classes))
        """θ: slopes, then biases, in an array that is never changed in place."""
        self._theta = self._first = self.parameters
        self._ridge = np.append(np.where(diagonal > 0.0, slope, across), np.full(classes, bias))
        size = len(self._first) // self._blocks
        self._curvature = np.zeros((self._blocks, size, size if self._dense else 1))
        self._known = np.ones(size)

    def forecast(self, x: Floats) -> Floats:
        """Return the forecasts for logarithms of scores, float64[n, K]."""
        out: Floats = np.empty((x.shape[0], x.shape[1]))
        scale(x, self._theta, out)
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
        n, theta = x.shape[0], self._theta
        kept = math.pow(self.discount, n)
        off, slope = self.forecast(x), np.empty(theta.shape[0])
        for j in range(theta.shape[0]):
            slope[j] = (1.0 - kept) * self._ridge[j] * (theta[j] - self._first[j])
        h = self._curvature
        for b in range(h.shape[0]):
            for j in range(h.shape[1]):
                for m in range(h.shape[2]):
                    h[b, j, m] *= kept
        for i in range(n):
            weight = shares[i] * math.pow(self.discount, n - 1 - i)
            self._add(x[i], off[i], weight)
            off[i, codes[i]] -= 1.0
            for k in range(self._classes):
                off[i, k] *= weight
            self._lean(x[i], off[i], slope)
        if self._dense:
            for b in range(h.shape[0]):
                for j in range(h.shape[1]):
                    for m in range(j):
                        h[b, m, j] = h[b, j, m]
        self._move(slope, x)

    def _centre(self, x: Floats) -> None:
        """Put what multiplies A and b into ``_known``: logarithms less their mean, and 1."""
        mean = 0.0
        for k in range(self._classes):
            mean += x[k] / self._classes
        for k in range(self._classes):
            self._known[k] = x[k] - mean

    def _lean(self, x: Floats, off: Floats, slope: Floats) -> None:
        """Add Dᵀ off to a slope, for the derivatives ``off`` of a loss by exponents, float64[K]."""
        if self._blocks > 1:
            self._centre(x)
        for k in range(self._classes):
            if self._blocks > 1:
                for j in range(self._classes):
                    slope[k * self._classes + j] += off[k] * self._known[j]
            else:
                slope[k if self._slopes > 1 else 0] += off[k] * x[k]
            slope[self._slopes + k] += off[k]

    def _add(self, x: Floats, p: Floats, weight: float) -> None:
        """Add Dᵀ(diag(p) − ppᵀ)D, weighed, to the lower half of the curvature.

        Where it is a diagonal, that of the biases gets an upper bound, p.
        """
        h, known = self._curvature, self._known
        if self._blocks > 1:
            self._centre(x)
            for b in range(self._classes):
                each = weight * p[b] * (1.0 - p[b])
                for j in range(known.shape[0]):
                    part = each * known[j]
                    for m in range(j + 1):
                        h[b, j, m] += part * known[m]
            return
        known[0] = 0.0
        for k in range(self._classes):
            each, a, b = weight * p[k], k if self._slopes > 1 else 0, self._slopes + k
            h[0, a, a] += each * x[k] * x[k]
            if self._dense:
                h[0, b, a] += each * x[k]
            h[0, b, b if self._dense else 0] += each
            known[a] = p[k] * x[k] + (0.0 if self._slopes > 1 else known[0])
            known[b] = p[k]
        for j in range(known.shape[0] if self._dense else 1):
            part = weight * known[j]
            for m in range(j + 1):
                h[0, j, m] -= part * known[m]

    def _move(self, slope: Floats, x: Floats) -> None:
        """Take the Newton step of a slope, shortened by how far it moves forecasts of these scores."""
        self._solve(slope)
        farthest, moved = 0.0, np.empty(self._classes)
        for i in range(x.shape[0]):
            exponents(x[i], slope, moved)
            least, most = moved[0], moved[0]
            for k in range(self._classes):
                least, most = min(least, moved[k]), max(most, moved[k])
            farthest = max(farthest, most - least)
        length = math.log1p(farthest) / farthest if farthest > 0.0 else 1.0
        self.parameters = np.array(self._theta)
        theta = self._theta = self.parameters
        for j in range(theta.shape[0]):
            theta[j] -= length * slope[j]

    def _solve(self, slope: Floats) -> None:
        """Turn a slope into (H + λ)⁻¹ times it, by LDLᵀ.

        As H is positive semi-definite, no pivot is below its λ, but for rounding.
        """
        size = self._known.shape[0]
        if not self._dense:
            for j in range(size):
                slope[j] /= self._curvature[0, j, 0] + self._ridge[j]
            return
        work, column, places = np.array(self._curvature), np.empty(size), np.arange(size)
        for b in range(self._blocks):
            h = work[b]
            if self._blocks > 1:
                for j in range(size):
                    places[j] = b * self._classes + j if j < self._classes else self._slopes + b
            for j in range(size):
                at = places[j]
                h[j, j] = self._ridge[at] + max(h[j, j], 0.0)
                for i in range(j + 1, size):
                    column[i] = h[i, j]
                for i in range(j + 1, size):
                    share = column[i] / h[j, j]
                    for m in range(j + 1, i + 1):
                        h[i, m] -= share * column[m]
                    h[i, j] = share
                    slope[places[i]] -= share * slope[at]
            for j in range(size - 1, -1, -1):
                at = places[j]
                slope[at] /= h[j, j]
                for i in range(j + 1, size):
                    slope[at] -= h[i, j] * slope[places[i]]

    def to_state(self) -> list[Floats]:
        """Return the state."""
        return [self.parameters, np.array(self._curvature).ravel()]

    def restore(self, state: list[Floats]) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        parameters, curvature = state
        self.parameters = self._theta = parameters.reshape(len(self._first))
        self._curvature = curvature.reshape(np.shape(self._curvature)).copy()
