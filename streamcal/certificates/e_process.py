"""The e-process that tests label shift on target labels. It may be read after any label.

A predictor bets against every composite g_κ∘h that the source labels leave possible (lemma 14 of
docs/proofs/certificates.md). The state is four integers per bin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.certificates.inequalities import log_kt
from streamcal.certificates.shift_likelihood_c import entropy, largest_likelihood, shifted_likelihood
from streamcal.values import Counts, Floats

__all__ = ["LabelShiftTest"]

_MULTIPLIERS: Final = (0.1, 0.4, 1.0)  # Lagrange multipliers λ that are tried
_FIRST_RESTART: Final = 1024  # labels
_SHIFTS: Final = np.linspace(-6.0, 6.0, 49)  # a of the recalibrations σ(a + c logit μ̂_b)
_SCALES: Final = np.geomspace(0.25, 4.0, 25)  # c of them
_TILTS: Final = np.linspace(0.05, 0.95, 19)


class LabelShiftTest:
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

    Parameters
    ----------
    source_negatives, source_positives
        int64[B], source labels per bin.
    alpha
        α in (0, 1), the probability of a false alarm over the whole life.

    Raises
    ------
    ValueError
        if α is out of range, or the counts are negative or not two vectors of one length.
    """

    def __init__(
        self, source_negatives: npt.ArrayLike, source_positives: npt.ArrayLike, alpha: float
    ) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha must be in (0, 1), got {alpha!r}")
        self._alpha = alpha
        self._restarts = -1
        self.restart(source_negatives, source_positives)

    @property
    def labels(self) -> int:
        """Number of target labels since the last restart."""
        return int(self._negatives.sum() + self._positives.sum())

    @property
    def restarts(self) -> int:
        """Number of restarts so far."""
        return self._restarts

    @property
    def threshold(self) -> float:
        """Value of `log_e` that raises an alarm, log(2/α_i)."""
        return math.log(2 * (self._restarts + 1) * (self._restarts + 2) / self._alpha)

    @property
    def due(self) -> bool:
        """Whether the next restart is due: 1024·2^i labels after restart i."""
        return self.labels >= _FIRST_RESTART << min(self._restarts, 50)

    def restart(self, source_negatives: npt.ArrayLike, source_positives: npt.ArrayLike) -> None:
        """Forget the target labels and replace the source counts; the bins may be new ones.

        Raises
        ------
        ValueError
            if the counts are negative or not two vectors of one length.
        """
        negatives = np.array(source_negatives, dtype=np.int64)
        positives = np.array(source_positives, dtype=np.int64)
        if negatives.ndim != 1 or negatives.shape != positives.shape:
            raise ValueError(f"counts must be two vectors of one length, got {negatives!r} and {positives!r}")
        if (negatives < 0).any() or (positives < 0).any():
            raise ValueError(f"counts must not be negative, got {negatives!r} and {positives!r}")
        self._source = negatives, positives
        self._negatives = np.zeros(len(negatives), np.int64)
        self._positives = np.zeros(len(negatives), np.int64)
        self._restarts += 1

    def count(self, negatives: Counts, positives: Counts) -> None:
        """Add target labels per bin: int64[B] each, in the bins of the last restart."""
        self._negatives += negatives
        self._positives += positives

    def alarm(self) -> bool:
        """Return whether label shift is refuted now: whether `log_e` has reached the threshold.

        `log_e_limit` is never below `log_e`, and far cheaper: as long as it is below the threshold, so is
        `log_e`, and no alarm can be missed.
        """
        return self.log_e_limit() >= self.threshold and self.log_e() >= self.threshold

    def log_e(self) -> float:
        """Return the log of the e-value, rounded down. Cost: O(B), 1 to 2 ms."""
        learned = self.log_predictor()
        source_misses, source_hits = (counts.astype(np.float64) for counts in self._source)
        misses, hits = self._negatives.astype(np.float64), self._positives.astype(np.float64)
        known = source_misses + source_hits > 0
        # In a bin without source labels any rate is possible.
        free = -entropy(hits[~known], (hits + misses)[~known])
        if not known.any():
            return learned - free - _rounding(learned)
        source_misses, source_hits = source_misses[known], source_hits[known]
        radius = _deviance_radius(len(source_hits), self.threshold)
        best = -entropy(source_hits, source_hits + source_misses)
        largest = min(
            largest_likelihood(
                weight * source_hits,
                weight * (source_hits + source_misses),
                hits[known],
                (hits + misses)[known],
            )
            - weight * best
            + weight * radius
            for weight in _MULTIPLIERS
        )
        largest = min(largest, -entropy(hits[known], (hits + misses)[known]))
        return learned - free - largest - _rounding(learned)

    def log_e_limit(self) -> float:
        """Return an upper limit on `log_e`, at a tenth of its cost.

        `log_e` divides by an upper bound on the supremum over all allowed composites. Here one allowed
        composite takes its place: its likelihood is at most the supremum, so the quotient is at least as
        large. The composite has the source rates μ̃_b = (S_b + ½)/(N_b + 1) and the κ that a few Newton steps
        find; the proof holds for any κ. The rates are allowed: with F_b = N_b − S_b,

            N kl(μ̂, μ̃) = N log(1 + 1/N) − S log(1 + 1/(2S)) − F log(1 + 1/(2F)) ≤ 1

        in each bin, hence at most B in all, while x ≥ min over λ of B log((1+λ)/(1−λ))/λ ≥ 2B. Bins without
        source labels are treated alike in both.

        Rounding cannot reverse the order: `log_e` is rounded down, and this limit is rounded up by as much.
        """
        learned = self.log_predictor()
        negatives, positives = self._source
        known = negatives + positives > 0
        source = _logit((positives + 0.5) / (negatives + positives + 1.0))[known]
        misses, hits = self._negatives.astype(np.float64), self._positives.astype(np.float64)
        free = -entropy(hits[~known], (hits + misses)[~known])
        return learned - free - shifted_likelihood(source, misses[known], hits[known]) + _rounding(learned)

    def log_predictor(self) -> float:
        """Return the predictor's log-likelihood of the target labels, the numerator of the e-value."""
        by_bin = sum(
            log_kt(int(hits), int(misses))
            for hits, misses in zip(self._positives, self._negatives, strict=True)
        )
        misses, hits = self._source
        at = _SHIFTS[:, None, None] + _SCALES[:, None] * _logit((hits + 0.5) / (misses + hits + 1.0))
        # log σ(±x) = min(±x, 0) − log(1 + e^−|x|): half of the work for both, and numpy's own, which is fast.
        by_map = np.minimum(at, 0.0) @ self._positives - np.maximum(at, 0.0) @ self._negatives
        by_map -= np.log1p(np.exp(-np.abs(at))) @ (self._positives + self._negatives)
        top = float(by_map.max())
        by_map_mean = top + math.log(float(np.exp(by_map - top).mean()))
        return float(np.logaddexp(by_bin, by_map_mean)) - math.log(2.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as plain numbers and lists."""
        return {
            "alpha": self._alpha,
            "restarts": self._restarts,
            "source_negatives": self._source[0].tolist(),
            "source_positives": self._source[1].tolist(),
            "negatives": self._negatives.tolist(),
            "positives": self._positives.tolist(),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> LabelShiftTest:
        """Return the test whose state `to_dict` returned."""
        test = cls(state["source_negatives"], state["source_positives"], state["alpha"])
        test._restarts = int(state["restarts"])
        test.count(np.asarray(state["negatives"], np.int64), np.asarray(state["positives"], np.int64))
        return test


def _rounding(learned: float) -> float:
    """Return an upper limit on the rounding error of a difference of log-likelihoods of this size."""
    return 1e-9 * (1.0 + abs(learned))


def _deviance_radius(bins: int, log_inverse: float) -> float:
    """Return x with P(Σ N_b kl(μ̂_b, μ_b) > x) ≤ exp(−log_inverse), for B independent bins.

    P(N kl ≥ u) ≤ 2e^{−u} gives E exp(λ N kl) ≤ (1+λ)/(1−λ) for λ < 1. Then Markov, at the best λ of a grid.
    """
    return float(((log_inverse + bins * np.log((1 + _TILTS) / (1 - _TILTS))) / _TILTS).min())


def _logit(rates: Floats) -> Floats:
    return np.asarray(np.log(rates / (1.0 - rates)))
