"""Running class priors, and the weights of the label-shift correction that follow from them."""

from __future__ import annotations

from typing import Literal

__all__ = ["PriorKind", "class_prior", "shift_weights"]

PriorKind = Literal["labels", "scores", "both"]
"""What the target's prior is estimated from."""


def class_prior(positives: int, n: int, smoothing: float) -> float | None:
    """Return the estimate (S + s) / (N + 2s) of the probability of class 1, None where undefined.

    ``smoothing`` ½ is the Krichevsky–Trofimov estimate, which is never 0 or 1; 0 is the paper's plug-in.
    """
    total = n + 2.0 * smoothing
    return (positives + smoothing) / total if total > 0.0 else None


def shift_weights(source: float | None, target: float | None) -> tuple[float, float]:
    """Return (w₀, w₁), w_k = Q̂[Y=k] / P̂[Y=k] (eq. 13).

    Parameters
    ----------
    source, target
        the class priors, in [0, 1]; None where there is no estimate yet.

    Returns
    -------
    (1, 1), no correction, until there are estimates of both; and without smoothing until the source has shown
    both classes, since the weight of an unseen class is undefined.
    """
    if source is None or target is None or not 0.0 < source < 1.0:
        return (1.0, 1.0)
    return ((1.0 - target) / (1.0 - source), target / source)
