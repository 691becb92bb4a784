"""The weights of the candidates of mode ``auto``: who takes part, and how weight passes to another.

All weights are float64[K] over `roster.NAMES`, not negative and with sum 1; those who are out have none.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.mixture.names import ALL_OF_FUSED, FUSED, FUSED_OF, NAMES, SHIFTED, TARGET_ONLY, counted_as

__all__ = ["allowed", "counted", "distance", "first_weights", "fused", "taking_part", "unfused"]

Floats = npt.NDArray[np.float64]

_K: Final = len(NAMES)
# Of the weight, before any label: fits to a few dozen may mislead, and late labels are slow to tell.
_IDENTITY: Final = 0.75


def first_weights() -> Floats:
    """Return the weights before there is a label or a source."""
    weights = np.zeros(_K)
    weights[:TARGET_ONLY] = (1.0 - _IDENTITY) / (TARGET_ONLY - 1)
    weights[0] = _IDENTITY
    return weights


def taking_part(*, sourced: bool, shift_allowed: bool, fused: bool) -> npt.NDArray[np.bool_]:
    """Return which candidates take part, bool[K].

    Parameters
    ----------
    sourced
        whether there is a source.
    shift_allowed
        whether those that assume label shift take part.
    fused
        whether they take the prior from labels and scores together.
    """
    active = np.arange(_K) < (_K if sourced else TARGET_ONLY)
    if not shift_allowed:
        active &= ~SHIFTED
    active &= (~SHIFTED | FUSED) if fused else ~FUSED
    return active


def allowed(weights: Floats, active: npt.NDArray[np.bool_]) -> Floats:
    """Return weights with those of who is out handed to the others in proportion."""
    kept = np.where(active, weights, 0.0)
    total = float(kept.sum())
    return np.divide(kept, total) if total > 0.0 else active / active.sum()


def fused(weights: Floats) -> Floats:
    """Return weights with those of priors from labels handed to those of the fused prior."""
    return np.bincount(FUSED_OF, weights, _K).astype(np.float64)


def unfused(weights: Floats) -> Floats:
    """Return weights with those of the fused prior handed to those of the prior from all labels."""
    handed = weights.copy()
    handed[ALL_OF_FUSED] += weights[FUSED]
    handed[FUSED] = 0.0
    return handed


def counted(weights: Floats, labels: int) -> Floats:
    """Return weights after so many labels: those of windows that are not full yet count as of all labels."""
    return np.bincount(counted_as(labels), weights, _K).astype(np.float64)


def distance(weights: Floats, others: Floats, labels: int) -> float:
    """Return the total variation ½Σ|w − w'| in [0, 1] of weights that are `counted` after so many labels."""
    return 0.5 * float(np.abs(counted(weights, labels) - counted(others, labels)).sum())
