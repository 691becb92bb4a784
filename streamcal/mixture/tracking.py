"""Tracking the best of several forecasters: exponential weights with variable share.

Herbster and Warmuth, "Tracking the best expert" (1998). Their fixed share moves a part of the weights to all
forecasters at every trial. Where labels are nearly sure, trials that teach nothing then wipe out what the few
others taught; their variable share moves weight in proportion to the losses, and so only where there is
something to be learned.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["RATE", "SHARE", "track"]

Floats = npt.NDArray[np.float64]

RATE: Final = 2.0
"""η: the Brier loss is 2-mixable, so that at 2 tracking costs least in the worst case."""

SHARE: Final = 0.004
"""α, the part of the weights that a label like a coin toss moves."""

_COIN: Final = 0.25
"""The Brier loss of the forecast ½: the share is counted in trials with this loss."""


def track(
    weights: Floats,
    losses: Floats,
    shares: Floats,
    *,
    rate: float = RATE,
    share: float = SHARE,
    block: int = 1,
) -> Floats:
    """Return the weights after a run of trials, float64[K], summing to 1.

    After every trial with Brier losses l: w_k ∝ w_k·exp(−η·l_k); then every forecaster gives up the part
    1 − (1−α)^(l_k/¼) of its weight, which is handed out by s. With a ``block`` above 1, so many trials in a
    row count as one, with the sums of their losses, for a fraction of the time.

    Parameters
    ----------
    weights
        float64[K], not negative, with sum 1; those at 0 with share 0 stay out.
    losses
        float64[K, n], one column for every trial.
    shares
        float64[K], s: not negative, with sum 1.
    rate
        η, positive.
    share
        α in [0, 1), the part that moves at a trial like a coin toss, where the loss is ¼.
    block
        how many trials count as one, at least 1.
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
