"""Updates by blocks of labels: of online Platt scalings, and of the weights of the candidates (`weights`).

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
from typing import Final, NamedTuple

import numpy as np

from streamcal.maps.platt import IDENTITY
from streamcal.mixture.candidates import DISCOUNTS
from streamcal.sketch.decoding import Part, require, within
from streamcal.values import Bytes, Floats, Labels

__all__ = ["OnlinePlatt", "Rates", "compiled", "move", "trust"]

compiled: Final = not __file__.endswith(".py")
"""Whether this module was compiled when the package was installed."""

# Upper limit on the numbers of a state: no logit is beyond ±28, so H stays below 10⁶ times the largest
# weight.
_MOST: Final = 1e11

_BLOCK: Final = 32  # labels a step, at most
_LEAST_CURVATURE: Final = 1e-3
_G: Final = len(DISCOUNTS)
_FIRST: Final = np.tile(np.array((*IDENTITY, 0.0, 0.0, 0.0)), (_G, 1))


class OnlinePlatt(Part):
    """Online Platt scalings of all `DISCOUNTS` at once; its fields are its state."""

    fits: Floats = _FIRST
    """For each discount a, b, and H of a a, a b, b b, float64[G, 5]; never changed in place."""

    def __post_init__(self) -> None:
        """Check a decoded state; raise ValueError if it is none."""
        self.fits = within(self.fits, -_MOST, _MOST, "scalings", 5 * _G).reshape(_G, 5)
        aa, ab, bb = self.fits[:, 2:].T
        right = (aa >= 0.0) & (bb >= 0.0) & (ab * ab <= aa * bb * (1.0 + 1e-9))
        require(right.all(), "online Platt scalings are damaged")

    @property
    def parameters(self) -> Floats:
        """(a, b) of each discount, float64[G, 2], in an array that is never changed in place."""
        return self.fits[:, :2]

    def learn(self, logits: Floats, labels: Labels, shares: Floats | None = None) -> None:
        """Learn the next labels, int8[n], with the logits of their scores, float64[n].

        ``shares`` are what the labels count for, float64[n]; None: one each.

        The outcome depends on where a call ends: a block never goes beyond it.
        """
        fits = self.fits.copy()
        learn_labels(fits, logits, labels, np.ones(len(labels)) if shares is None else shares)
        self.fits = fits


def learn_labels(fits: Floats, logits: Floats, labels: Labels, shares: Floats) -> None:
    """Let every scaling take its steps for the next labels, in place.

    Compiled where there is a C compiler: `updates_c.pxd` has the types.

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


class Rates(NamedTuple):
    """Constants of the recursion; `streamcal.mixture.weights` and `streamcal.multiclass.mixing` say why."""

    rate: float
    """η times the mean loss a label, where η is below its maximum of 1."""
    early: float
    """Increase of the rate at the beginning."""
    share: float
    """Part of the weights that goes back at a label as uncertain as a coin toss."""
    lead_rate: float
    """Rate of the weights of the trackers."""
    trust: float
    """First weight of the first tracker."""
    kept: float = 0.5 ** (1.0 / 2000.0)
    """Factor on the mean loss, a label."""
    coin: float = math.log(2.0)
    """Log loss of the forecast ½."""
    least: float = 1e-300
    """Loss that nothing is divided by."""
    least_trust: float = 1e-12
    """Least weight of a tracker."""


def move(
    served: Floats,
    sums: Floats,
    lead: float,
    losses: Floats,
    tracked: Floats,
    counted: Floats,
    first: Floats,
    asleep: Bytes,
    earlier: float,
    rates: Rates,
) -> float:
    """Move the weights of both trackers by log losses, in place; return the lead of the first.

    Parameters
    ----------
    served
        weights by both trackers, and behind them the weights by each, float64[3, K].
    sums
        The discounted log loss of each tracker, and the discounted number of labels, float64[3].
    lead
        lead of the first tracker: the log odds of its weight.
    losses, tracked, counted
        As in `Weights.track`.
    first
        The first weights, float64[K].
    asleep
        candidates that keep their weight, 1 or 0, uint8[K].
    earlier
        number of target labels that came before; negative: the labels are the source's.
    """
    block = 64
    rate, early, share, lead_rate, first_trust, kept_a_label, coin, least_loss, least_trust = rates
    candidates, n, kinds = losses.shape[1], losses.shape[2], losses.shape[0]
    lost, each = np.empty(candidates), served[1:]
    for start in range(0, n, block):
        end = min(start + block, n)
        known = 0.0
        for i in range(start, end):
            known += counted[i]
        product = rate
        if earlier >= 0.0:
            product = rate * (1.0 + early / (earlier + start + 0.5 * block))
        least_mean = math.inf
        returned = math.inf  # the least part of the weights that goes back
        kept = math.pow(kept_a_label, float(end - start))
        for tracker in range(2):
            kind = tracker if kinds > 1 else 0
            mean = sums[tracker] / sums[2]
            total = own = 0.0
            least = math.inf
            for k in range(candidates):
                if asleep[k]:
                    continue
                loss = 0.0
                for i in range(start, end):
                    loss += losses[kind, k, i]
                lost[k] = loss
                total += each[tracker, k]
                own += each[tracker, k] * loss
                if each[tracker, k] > 0.0:
                    least = min(least, loss)
            eta = min(1.0, product / max(mean, least_loss))
            moved = 0.0
            for k in range(candidates):
                if not asleep[k]:
                    lost[k] = each[tracker, k] * math.exp(min(eta * (least - lost[k]), 0.0))
                    moved += lost[k]
            back = 1.0 - math.pow(1.0 - share * min(1.0, mean / coin), known)
            for k in range(candidates):
                if not asleep[k]:
                    each[tracker, k] = lost[k] * (total / moved)
                each[tracker, k] += back * (first[k] - each[tracker, k])
            sums[tracker] = kept * sums[tracker] + own / total
            least_mean = min(least_mean, mean)
            returned = min(returned, back)
        ahead = 0.0
        for i in range(start, end):
            ahead += tracked[1, i]
            ahead -= tracked[0, i]
        if ahead != 0.0:
            trusted = trust(lead + min(1.0, lead_rate / max(least_mean, least_loss)) * ahead)
            trusted += (first_trust - trusted) * returned
            trusted = min(max(trusted, least_trust), 1.0 - least_trust)
            lead = math.log(trusted / (1.0 - trusted))
        sums[2] = kept * sums[2] + known
    trusted = trust(lead)
    for k in range(candidates):
        served[0, k] = trusted * each[0, k] + (1.0 - trusted) * each[1, k]
    return lead


def trust(lead: float) -> float:
    """Return the weight of the first tracker, by its log odds."""
    most = 30.0  # of one tracker over the other, in log odds
    return 1.0 / (1.0 + math.exp(min(max(-lead, -most), most)))
