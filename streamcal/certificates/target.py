"""Label shift from the domain of some labels to another, by limits on the priors of both (lemma 12)."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from streamcal.certificates.inequalities import prior_limits, prior_limits_once, version_delta


class LabelCounts(NamedTuple):
    """Labels of one domain."""

    positives: int
    n: int
    """Number of labels."""
    version: int | None = None
    """Number of versions before, if these are the labels of a sliding window; None: all labels so far."""
    pending: int = 0
    """Number of labels that are still to come for predictions of the same cohorts (lemma 19)."""

    def doubled(self, doublings: int) -> LabelCounts:
        """Return 2^d times as many labels, at the rate (S + ½)/(N + 1): one class alone does not stay so."""
        n = self.n << doublings
        return LabelCounts(round(n * (self.positives + 0.5) / (self.n + 1)), n, self.version)

    def prior_limits(self, alpha: float) -> tuple[float, float]:
        """Return limits on the domain's prior; all together fail with probability at most α (lemma 12)."""
        if self.version is None:
            limits = prior_limits(self.positives, self.n + self.pending, alpha)
            if not self.pending:
                return limits
            most = prior_limits(self.positives + self.pending, self.n + self.pending, alpha)
            return limits[0], most[1]
        return prior_limits_once(self.positives, self.n, version_delta(alpha, self.version))


class Shift(NamedTuple):
    """A range of label shifts, from the domain of the labels to that of the risk (lemma 18)."""

    low: float
    """Smallest κ = w₁/w₀, at least 0."""
    high: float
    """Largest κ, at most ∞."""
    negatives: float
    """Largest w₀, at most ∞."""


NO_SHIFT: Final = Shift(1.0, 1.0, 1.0)
"""Shift of the labels' own domain: none."""


def shift_limits(source_labels: LabelCounts, target_labels: LabelCounts, delta: float) -> Shift:
    """Return limits on the shift that hold at all numbers of labels, and all versions, together (lemma 12).

    Parameters
    ----------
    source_labels, target_labels
        labels under P and under Q.
    delta
        in (0, 1). Each domain spends half of it, once for the whole life of the stream.
    """
    p_low, p_high = source_labels.prior_limits(delta / 2)
    q_low, q_high = target_labels.prior_limits(delta / 2)
    if p_high < 1.0:
        low, negatives = _odds(q_low) / _odds(p_high), (1.0 - q_low) / (1.0 - p_high)
    else:
        low, negatives = 0.0, math.inf
    return Shift(low, math.inf if p_low <= 0.0 else _odds(q_high) / _odds(p_low), negatives)


def _odds(prior: float) -> float:
    return math.inf if prior >= 1.0 else prior / (1.0 - prior)
