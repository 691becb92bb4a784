"""The e-process that tests label shift on target labels. It may be read after any label.

A predictor bets against every composite g_κ∘h that the source labels leave possible (lemma 14 of
docs/proofs/certificates.md). Memory: four integers per bin.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.certificates.inequalities import log_kt
from streamcal.certificates.likelihoods_c import entropy, largest_likelihood
from streamcal.sketch.decoding import Part

_MULTIPLIERS: Final = (0.1, 0.4, 1.0)  # Lagrange multipliers λ that are tried
_FIRST_RESTART: Final = 1024  # labels
_SHIFTS: Final = np.linspace(-6.0, 6.0, 49)  # a of the recalibrations σ(a + c logit μ̂_b)
_SCALES: Final = np.geomspace(0.25, 4.0, 25)  # c of them
_TILTS: Final = np.linspace(0.05, 0.95, 19)


class LabelShiftTest(Part):
    """An e-process against label shift with a prior that is constant since the last restart.

    The e-value is a predictor's likelihood of the target labels, divided by the largest likelihood that any
    composite gives them. The predictor is an equal mixture of two parts. One, Π KT_b, learns the rate of
    every bin. The other is a uniform mixture over recalibrations σ(a + c logit μ̂_b) of the source rates; it
    learns only two numbers, and so it learns faster. The denominator is the supremum over all κ and all
    source rates μ_b with Σ N_b kl(μ̂_b, μ_b) ≤ x. That set holds the true rates with probability 1 − α_i/2.

    While label shift holds with a constant prior, the process is then bounded by one of mean 1. It ever
    reaches 2/α_i with probability at most α_i/2 (Ville), however often it is read. Restart number i
    spends α_i = α/((i+1)(i+2)); all restarts together spend α.

    The bins must be chosen without the source sample whose counts are given: beforehand, or from target
    scores before the restart. Then the labels of a bin are independent with one rate. Few bins (8 to 16)
    detect fastest, because each bin costs ½ log N to learn.

    A test is its own state.

    Raises
    ------
    ValueError
        if α or a count is out of range, or if the counts are not in the same bins.
    """

    source: Counts
    """Source labels per bin, int64[2, B]: labels 0, labels 1."""
    alpha: float
    """α in (0, 1), the probability of a false alarm over the whole life."""
    target: Counts = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    """Target labels per bin since the last restart, int64[2, B]; none by default."""
    restarts: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Number of restarts so far, each after twice the labels of the one before."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must be in (0, 1), got {self.alpha!r}")
        self.source = np.asarray(self.source, np.int64).reshape(2, -1)  # one row in a state
        self.target = (self.target if self.target.size else 0 * self.source).reshape(self.source.shape)

    @property
    def labels(self) -> int:
        """Number of target labels since the last restart."""
        return int(self.target.sum())

    @property
    def threshold(self) -> float:
        """Value of `log_e` that raises an alarm, log(2/α_i)."""
        return math.log(2 * (self.restarts + 1) * (self.restarts + 2) / self.alpha)

    @property
    def due(self) -> bool:
        """Whether the next restart is due: 1024·2^i labels after restart i."""
        return self.labels >= _FIRST_RESTART << min(self.restarts, 50)

    def restart(self, source: Counts) -> None:
        """Forget the target labels, and replace the source's by int64[2, B]; the bins may be new ones."""
        self.source, self.target = source, np.zeros_like(source)
        self.restarts += 1

    def count(self, labels: Counts) -> None:
        """Add target labels per bin, int64[2, B], in the bins of the last restart."""
        self.target += labels

    def alarm(self) -> bool:
        """Return whether label shift is refuted now: whether `log_e` has reached the threshold."""
        return self.log_e() >= self.threshold

    def log_e(self) -> float:
        """Return the log of the e-value, rounded down. Cost: O(B), 0.1 to 0.2 ms."""
        learned = self.log_predictor()
        source_misses, source_hits, misses, hits, free = self._known()
        if not len(hits):
            return learned - free - _rounding(learned)
        radius = _deviance_radius(len(hits), self.threshold)
        best = -entropy(source_hits, source_hits + source_misses)
        largest = min(
            largest_likelihood(
                weight * source_hits, weight * (source_hits + source_misses), hits, hits + misses
            )
            - weight * best
            + weight * radius
            for weight in _MULTIPLIERS
        )
        largest = min(largest, -entropy(hits, hits + misses))
        return learned - free - largest - _rounding(learned)

    def log_predictor(self) -> float:
        """Return the predictor's log-likelihood of the target labels, the numerator of the e-value."""
        misses, hits = self.target
        by_bin = sum(log_kt(*each) for each in zip(hits.tolist(), misses.tolist(), strict=True))
        at = _SHIFTS[:, None, None] + _SCALES[:, None] * _smoothed_logit(*self.source)
        # log σ(±x) = min(±x, 0) − log(1 + e^−|x|): half of the work for both, and numpy's own, which is fast.
        by_map = np.minimum(at, 0.0) @ hits - np.maximum(at, 0.0) @ misses
        by_map -= np.log1p(np.exp(-np.abs(at))) @ (hits + misses)
        top = float(by_map.max())
        by_map_mean = top + math.log(float(np.exp(by_map - top).mean()))
        return float(np.logaddexp(by_bin, by_map_mean)) - math.log(2.0)

    def _known(self) -> tuple[Floats, Floats, Floats, Floats, float]:
        """Return source labels 0 and 1, and target labels 0 and 1, in bins with source labels.

        And the log of the largest likelihood of the target's labels in all other bins: there any rate is
        possible.
        """
        source, (misses, hits) = self.source.astype(np.float64), self.target.astype(np.float64)
        known = source.any(axis=0)
        free = -entropy(hits[~known], (hits + misses)[~known])
        return source[0][known], source[1][known], misses[known], hits[known], free


def _rounding(learned: float) -> float:
    """Return an upper limit on the rounding error of a difference of log-likelihoods of this size."""
    return 1e-9 * (1.0 + abs(learned))


def _deviance_radius(bins: int, log_inverse: float) -> float:
    """Return x with P(Σ N_b kl(μ̂_b, μ_b) > x) ≤ exp(−log_inverse), for B independent bins.

    P(N kl ≥ u) ≤ 2e^{−u} gives E exp(λ N kl) ≤ (1+λ)/(1−λ) for λ < 1. Then Markov, at the best λ of a grid.
    """
    return float(((log_inverse + bins * np.log((1 + _TILTS) / (1 - _TILTS))) / _TILTS).min())


def _smoothed_logit(misses: Counts | Floats, hits: Counts | Floats) -> Floats:
    """Return the logit of the rates (hits + ½)/(labels + 1), float64[B]."""
    rates = (hits + 0.5) / (misses + hits + 1.0)
    return np.asarray(np.log(rates / (1.0 - rates)))
