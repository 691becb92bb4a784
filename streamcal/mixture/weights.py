"""The weights of the candidates of mode ``auto``: exponential weights with variable share.

Herbster and Warmuth, "Tracking the best expert" (1998). Their fixed share moves a part of the weights to all
forecasters at every trial. Where labels are nearly certain, trials that teach nothing then wipe out what the
few others taught. Their variable share moves weight in proportion to the losses, so only where there is
something to learn.

All weights are float64[K] over `names.NAMES`, not negative, with sum 1. A candidate that does not take part
has weight 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.mixture.fits import Floats, Source
from streamcal.mixture.names import (
    ALL_OF_FUSED,
    FAMILIES,
    FUSED,
    FUSED_OF,
    NAMES,
    PRIORS,
    SHIFTED,
    TARGET_ONLY,
    counted_as,
)

__all__ = ["RATE", "SHARE", "Weights", "pool", "track"]

RATE: Final = 2.0
"""η: the Brier loss is 2-mixable, so a rate of 2 has the least cost of tracking in the worst case."""

SHARE: Final = 0.004
"""α, the part of the weights that moves at a label as uncertain as a coin toss."""

_COIN: Final = 0.25  # the Brier loss of the forecast ½
_K: Final = len(NAMES)
# Before any label the identity keeps most of the weight: fits to a few dozen labels may mislead, and late
# labels are slow to show it.
_IDENTITY: Final = 0.75
_SOURCE_LABELS: Final = 500  # source labels count for at most so many: about what tracking remembers
_ALIKE: Final = 0.05  # the part that all candidates share evenly when a source comes in


class Weights:
    """The weights, and who takes part.

    The first weights give the identity ¾, and share the rest among the candidates that need no source.
    """

    __slots__ = ("_fused", "_shift_allowed", "_sourced", "current")

    def __init__(self) -> None:
        self.current: Floats = np.zeros(_K)
        """The weights, in an array that is never changed in place."""
        self.current[:TARGET_ONLY] = (1.0 - _IDENTITY) / (TARGET_ONLY - 1)
        self.current[0] = _IDENTITY
        self._sourced = self._fused = False
        self._shift_allowed = True

    @property
    def shift_allowed(self) -> bool:
        """Whether candidates that assume label shift take part, once there is a source."""
        return self._shift_allowed

    @property
    def fused(self) -> bool:
        """Whether the candidates that assume label shift take the fused prior."""
        return self._fused

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """Which candidates take part, bool[K]."""
        active = np.arange(_K) < (_K if self._sourced else TARGET_ONLY)
        if not self._shift_allowed:
            active &= ~SHIFTED
        active &= (~SHIFTED | FUSED) if self._fused else ~FUSED
        return active

    def track(self, losses: Floats, block: int) -> None:
        """Move the weights by the Brier losses of the first k candidates, float64[k, n]; see `track`."""
        k, active = len(losses), self.active
        shares = active / active.sum()
        tracked = track(self.current[:k], losses, shares[:k], block=block)
        self.current = np.append(tracked, self.current[k:])

    def set_source(self, source: Source, *, labels: int, new_generation: bool) -> bool:
        """Let candidates of a source take part; return whether some of them did not before.

        Parameters
        ----------
        source
            The source map.
        labels
            The number of target labels so far. Before the first, the candidates are weighed by their losses
            on the source's labels. Later, where candidates come in, that and the weights so far are averaged.
        new_generation
            Whether label shift is allowed again.
        """
        enters = not self._sourced or (new_generation and not self._shift_allowed)
        self._sourced = True
        self._shift_allowed |= new_generation
        if not labels:
            self.current = _by_source(source, self.active)
        elif enters:
            self.current = 0.5 * (self.current + _by_source(source, self.active))
        return enters

    def refute_label_shift(self) -> None:
        """Take out the candidates that assume label shift; the others get their weight, in proportion."""
        self._shift_allowed = False
        self._keep_active()

    def set_fused(self, fused: bool) -> None:
        """Let candidates take the fused prior instead of priors from labels, or the other way round.

        Each hands its weight over. Losses do not decide here: the user has asked for the fused prior, and
        late labels cannot tell in time which prior is better.
        """
        if fused == self._fused:
            return
        self._fused = fused
        if fused:
            self.current = np.bincount(FUSED_OF, self.current, _K).astype(np.float64)
        else:
            weights = self.current.copy()
            weights[ALL_OF_FUSED] += weights[FUSED]
            weights[FUSED] = 0.0
            self.current = weights

    def merge(self, other: Weights, share: float) -> None:
        """Average with other weights, ``share`` in [0, 1] being the part of these; who takes part stays."""
        self.current = share * self.current + (1.0 - share) * other.current
        self._keep_active()

    def restore(self, weights: Floats, *, sourced: bool, shift_allowed: bool, fused: bool) -> bool:
        """Set the state; return whether only candidates that take part have weight."""
        self.current = weights
        self._sourced, self._shift_allowed, self._fused = sourced, shift_allowed, fused
        return not weights[~self.active].any()

    def _keep_active(self) -> None:
        active = self.active
        kept = np.where(active, self.current, 0.0)
        total = float(kept.sum())
        self.current = np.divide(kept, total) if total > 0.0 else active / active.sum()


def pool(weights: Floats, labels: int) -> Floats:
    """Return the weights after so many labels, each added to that of the candidate it equals."""
    return np.bincount(counted_as(labels), weights, _K).astype(np.float64)


def track(
    weights: Floats,
    losses: Floats,
    shares: Floats,
    *,
    rate: float = RATE,
    share: float = SHARE,
    block: int = 1,
) -> Floats:
    """Return the weights after a sequence of trials, float64[K], with sum 1.

    After every trial with Brier losses l, w_k ∝ w_k·exp(−η·l_k). Then every forecaster gives up the part
    1 − (1−α)^(l_k/¼) of its weight, and the sum of these parts is distributed by s.

    Parameters
    ----------
    weights
        float64[K], not negative, with sum 1. A forecaster of weight 0 and share 0 stays out.
    losses
        float64[K, n], one column for every trial.
    shares
        s, float64[K], not negative, with sum 1.
    rate
        η, positive.
    share
        α in [0, 1), the part that moves at a trial with loss ¼, that of a coin toss.
    block
        The number of consecutive trials that count as one, with the sums of their losses, at least 1. Blocks
        take a fraction of the time.
    """
    if not losses.shape[1]:
        return weights
    summed = np.add.reduceat(losses, np.arange(0, losses.shape[1], block), axis=1).T
    kept = np.exp((np.log1p(-share) / _COIN) * summed)
    factors = np.exp(-rate * (summed - summed.min(axis=1, keepdims=True)))
    for factor, keep in zip(factors, kept, strict=True):
        weights = weights * factor
        weights /= weights.sum()
        held = weights * keep
        weights -= held
        weights = held + weights.sum() * shares
    # Rounding errors must not add up over the stream.
    weights /= weights.sum()
    return weights


def _by_source(source: Source, active: npt.NDArray[np.bool_]) -> Floats:
    """Return weights by the losses on the source's labels; of these they are exponential weights.

    Candidates fitted to target labels, of which the source tells nothing, get an even share of 5 %.
    """
    losses = np.array(source.losses)
    maps = np.exp(-RATE * min(source.fit.labels, _SOURCE_LABELS) * (losses - losses.min()))
    weights = np.zeros(_K)
    weights[0] = maps[0]
    # Each map counts once as it is, and once more when shifted, by priors that are not known yet.
    weights[TARGET_ONLY : TARGET_ONLY + len(FAMILIES)] = maps[1:]
    weights[TARGET_ONLY + len(FAMILIES) :] = np.repeat((*maps[1:], maps[0]), len(PRIORS)) / len(PRIORS)
    weights *= active
    mixed: Floats = (1.0 - _ALIKE) * weights / weights.sum() + _ALIKE * active / active.sum()
    return mixed
