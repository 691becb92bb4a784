"""The weights of the candidates of mode ``auto``: exponential weights with variable share.

Herbster and Warmuth, "Tracking the best expert" (1998). Their fixed share moves a part of the weights to all
forecasters at every trial. Where labels are nearly certain, trials that teach nothing then wipe out what the
few others taught. Their variable share moves weight in proportion to the losses, so only where there is
something to learn.

The rate falls as the loss grows. The Brier loss is 2-mixable, so a rate of 2 costs least where losses are
independent. Under drift they come in runs, and the noise of labels makes fast weights chase them: the rate is
at most 1/20 of the mixture's own loss a label, inverted, which is ⅕ for labels as uncertain as a coin toss.

All weights are float64[K] over the candidates (`names.names_of`), not negative, with sum 1. A candidate that
does not take part has weight 0.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamcal.mixture.fits import Floats, Source
from streamcal.mixture.names import COMPOSITE, EXPOSURES, NAMES

__all__ = ["BLOCK", "FASTEST", "SHARE", "Weights", "by_source", "track"]

FASTEST: Final = 2.0
"""The largest rate η: the Brier loss is 2-mixable."""

SHARE: Final = 0.001
"""α, the part of the weights that moves at a label as uncertain as a coin toss."""

BLOCK: Final = 64
"""How many labels count as one trial."""

_PRODUCT: Final = 0.05  # of the rate and the mean loss, where the rate is below its maximum
_KEPT: Final = 0.5 ** (1.0 / 2000.0)  # of the mean loss, a label
_COIN: Final = 0.25  # the Brier loss of the forecast ½
_MOST_LEAD: Final = 700.0  # e to a larger number overflows
_LEAST: Final = 1e-300  # a loss that nothing is divided by
# Without a source the identity has most of the first weight: fits to a few dozen labels may mislead, and late
# labels are slow to show it. With one, half is for the composites, which need few labels.
_IDENTITY: Final = 0.75
_COMPOSITES: Final = 0.5
# Beside maps of the source, as before the first label there are no losses: the told positives tilt it.
_EXPOSED: Final = 0.05


class _Roles(NamedTuple):
    """Who can take part, with even weights; arrays of K."""

    composite: npt.NDArray[np.bool_]
    every: npt.NDArray[np.bool_]
    without_shift: npt.NDArray[np.bool_]
    even: Floats
    even_without_shift: Floats

    @classmethod
    def of(cls, composite: npt.NDArray[np.bool_]) -> Self:
        every, without = np.ones(len(composite), np.bool_), ~composite
        return cls(composite, every, without, every / len(composite), without / without.sum())


_USUAL: Final = _Roles.of(COMPOSITE)
_WITH_EXPOSURES: Final = _Roles.of(np.append(COMPOSITE, [False] * len(EXPOSURES)))


class Weights:
    """The weights, and who takes part.

    They are a mixture of two trackers. One scores a candidate by what it forecast when the prediction was
    made. That is fair, but slow after a jump: what is right since then is learned one delay late, and shows
    it by labels that come another delay later. The other scores it by what it forecasts when the label
    arrives. That is one delay late, but overrates short memories where labels that arrive together resemble
    each other. Which to trust depends on how the stream's labels come, so the trackers have weights in turn:
    exponential weights, never shared, by the losses of what each forecast when the prediction was made. On
    labels that come at once both are the same.

    Parameters
    ----------
    exposed
        whether `names.EXPOSURES` are candidates.
    """

    __slots__ = ("_each", "_lead", "_loss", "_roles", "_shift_allowed", "_sourced", "served")

    def __init__(self, *, exposed: bool = False) -> None:
        roles = self._roles = _WITH_EXPOSURES if exposed else _USUAL
        self._lead = 0.0  # of the first tracker over the second, in log odds of their weights
        composite = roles.composite
        first = np.where(composite, 0.0, (1.0 - _IDENTITY) / (len(composite) - 1 - composite.sum()))
        first[0] = _IDENTITY
        self._loss = np.zeros(3)  # discounted sums of the Brier loss by each tracker, and of labels
        self._sourced = False
        self._shift_allowed = True
        self._set(np.stack((first, first)))

    @property
    def shift_allowed(self) -> bool:
        """Whether candidates that assume label shift take part, once there is a source."""
        return self._shift_allowed

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """Which candidates take part, bool[K]."""
        return self._roles.every if self._sourced and self._shift_allowed else self._roles.without_shift

    def track(self, errors: Floats, tracked: Floats, counted: Floats | None = None) -> None:
        """Move the weights by Brier losses: the squares of errors, forecast − label.

        Parameters
        ----------
        errors
            Those of the candidates, float64[2, K, n]: as of the prediction, and on arrival; float64[1, K, n]
            where both are the same.
        tracked
            Those of the two trackers' own mixtures as of the prediction, float64[2, n].
        counted
            What each label counts for, float64[n], with errors times its root; None: one.
        """
        n = errors.shape[2]
        roles = self._roles
        shares = roles.even if self.active is roles.every else roles.even_without_shift
        each, (*sums, labels) = self._each, self._loss.tolist()
        for start in range(0, n, BLOCK):
            trial = errors[:, :, start : start + BLOCK]
            lost, size = np.vecdot(trial, trial), trial.shape[2]
            kept = _KEPT**size
            labels = kept * labels + (
                size if counted is None else float(counted[start : start + BLOCK].sum())
            )
            sums = [kept * sum_ + own for sum_, own in zip(sums, np.vecdot(each, lost).tolist(), strict=True)]
            rates = [[min(FASTEST, _PRODUCT * labels / max(total, _LEAST))] for total in sums]
            each = track(each, lost, shares, np.array(rates))
        first, second = np.vecdot(tracked, tracked).tolist()
        self._lead += FASTEST * (second - first)
        self._loss = np.array((*sums, labels))
        self._set(each)

    def begin(self) -> None:
        """Set the weights of the first target label: with a source, the other candidates are alike."""
        if self._sourced and self._shift_allowed:
            self._enter(self._roles.even_without_shift)

    def set_source(self, *, new_generation: bool) -> bool:
        """Let the composites take part; return whether they did not before.

        They get half of the weight then, and the others keep their proportions.

        Parameters
        ----------
        new_generation
            Whether label shift is allowed again.
        """
        enters = not self._sourced or (new_generation and not self._shift_allowed)
        self._sourced = True
        self._shift_allowed |= new_generation
        if enters:
            self._enter(self._each)
        return enters

    def refute_label_shift(self) -> None:
        """Take out the candidates that assume label shift; the others get their weight, in proportion."""
        self._shift_allowed = False
        self._keep_active()

    def merge(self, other: Weights, share: float) -> None:
        """Average with other weights, ``share`` in [0, 1] being the part of these; who takes part stays."""
        self._set(share * self._each + (1.0 - share) * other._each)
        self._lead += other._lead
        self._loss = self._loss + other._loss
        self._keep_active()

    def to_state(self) -> Floats:
        """Return the state but who takes part, float64[2 K + 4]."""
        return np.concatenate((self._each.ravel(), self._loss, (self._lead,)))

    def restore(self, state: Floats, *, sourced: bool, shift_allowed: bool) -> bool:
        """Set the state, float64[2 K + 4] of finite numbers; return whether it can be one."""
        ends = 2 * len(self._roles.every)
        self._sourced, self._shift_allowed = sourced, shift_allowed
        self._loss, self._lead = state[ends:-1], float(state[-1])
        self._set(state[:ends].reshape(2, -1))
        return bool(
            (state[:-1] >= 0.0).all()
            and (abs(self._each.sum(axis=1) - 1.0) < 1e-6).all()
            and not self._each[:, ~self.active].any()
            and (self._loss[:2] <= self._loss[2] * (1.0 + 1e-9)).all()
        )

    def _enter(self, others: Floats) -> None:
        composites = self._roles.composite / self._roles.composite.sum()
        self._set(np.zeros((2, len(composites))) + _COMPOSITES * composites + (1.0 - _COMPOSITES) * others)

    def _set(self, each: Floats) -> None:
        self._each = each
        share = 1.0 / (1.0 + math.exp(min(-self._lead, _MOST_LEAD)))
        served = np.empty((3, each.shape[1]))
        served[0] = share * each[0] + (1.0 - share) * each[1]
        served[1:] = each
        self.served: Floats = served
        """The weights of the candidates, and behind them those by each tracker, float64[3, K]."""

    def _keep_active(self) -> None:
        active = self.active
        kept = np.where(active, self._each, 0.0)
        totals = kept.sum(axis=1, keepdims=True)
        even = np.broadcast_to(active / active.sum(), kept.shape)
        self._set(np.divide(kept, totals, out=even.copy(), where=totals > 0.0))


def track(weights: Floats, losses: Floats, shares: Floats, rates: Floats, share: float = SHARE) -> Floats:
    """Return the weights after one trial, float64[T, K] of T trackers, each with sum 1.

    w_k ∝ w_k·exp(−η·l_k). Then every forecaster gives up the part 1 − (1−α)^(l_k/¼) of its weight, and the
    sum of these parts is distributed by s.

    Parameters
    ----------
    weights
        float64[T, K], not negative, with sum 1. A forecaster of weight 0 and share 0 stays out.
    losses
        l, float64[T, K]; η·l is at most some hundreds, so that not all weights vanish.
    shares
        s, float64[K], not negative, with sum 1.
    rates
        η, float64[T, 1], positive.
    share
        α in [0, 1), the part that moves at a trial with loss ¼, that of a coin toss.
    """
    weights = weights * np.exp(losses * -rates)
    weights /= weights.sum(axis=1, keepdims=True)
    weights *= np.exp((math.log1p(-share) / _COIN) * losses)
    # Rounding must not make negative what is given up where nothing is lost.
    weights += np.maximum(1.0 - weights.sum(axis=1, keepdims=True), 0.0) * shares
    return weights


def by_source(source: Source, *, shifted: bool, exposed: bool = False) -> Floats:
    """Return the weights before the first target label: exponential weights by losses on the source's labels.

    Parameters
    ----------
    shifted
        Whether the target's prior is known to differ: then only the composites follow it.
    exposed
        Whether `names.EXPOSURES` are candidates: they have a small part.
    """
    maps = np.exp(-FASTEST * source.labels * (np.array(source.losses) - min(source.losses)))
    identity, platt, curve, uniform = maps.tolist()
    weights = np.zeros(len(NAMES))
    weights[COMPOSITE] = platt, curve
    weights[NAMES.index("target/uniform/all")] = 0.0 if shifted else uniform
    weights[0] = 0.0 if shifted else identity
    total = float(weights.sum())
    weights = np.divide(weights, total) if total > 0.0 else COMPOSITE / COMPOSITE.sum()
    if not exposed:
        return weights
    return np.append((1.0 - _EXPOSED) * weights, [_EXPOSED / len(EXPOSURES)] * len(EXPOSURES))
