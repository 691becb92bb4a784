"""The correction for label shift, one probability after the other (eq. 13)."""

from __future__ import annotations

__all__ = ["class_prior", "shift_correction_one", "shift_weights"]


_NO_SHIFT = (1.0, 1.0)


def class_prior(positives: float, n: float) -> float | None:
    """Return (S + ½) / (N + 1), the estimate of the probability of class 1; None if N is 0.

    The estimator is Krichevsky and Trofimov's: never 0 or 1, unlike the paper's plug-in S / N.
    """
    return (positives + 0.5) / (n + 1.0) if n > 0.0 else None


def shift_weights(source: float | None, target: float | None) -> tuple[float, float]:
    """Return (w₀, w₁), w_k = Q̂[Y=k] / P̂[Y=k]: eq. 13 with estimated priors, which is eq. 16.

    Parameters
    ----------
    source, target
        the class priors, in [0, 1]; None where there is no estimate yet.

    Returns
    -------
    (1, 1), no correction, until there are estimates of both; also if that of the source is 0 or 1: the weight
    of an unseen class is undefined.
    """
    if source is None or target is None:
        return _NO_SHIFT
    p, q = source, target
    if not 0.0 < p < 1.0:
        return _NO_SHIFT
    return ((1.0 - q) / (1.0 - p), q / p)


def shift_correction_one(probability: float, weights: tuple[float, float]) -> float:
    """Apply `streamcal.maps.shift.shift_correction` to one probability, with the same bits."""
    w0, w1 = weights
    if w0 == w1:
        return probability
    positive = w1 * probability
    total = positive + w0 * (1.0 - probability)
    return positive / total if total > 0.0 else probability
