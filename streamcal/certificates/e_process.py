"""Tests that refute a certificate's assumptions, without being fooled more often than they say.

Monotone h* is refuted by two pools of bins whose intervals are disjoint and wrongly ordered:
`BinIntervals` and `RiskBound` carry that as ``monotone``. Label shift is refuted by an
e-process on target labels: a predictor that learns each bin's rate bets against every composite g_κ∘h
that the source labels leave possible (lemma 14 of docs/certificates.md). State: four integers per bin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.certificates.inequalities import log_kt

__all__ = ["LabelShiftTest"]

Counts = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_STEPS: Final = 25
_MULTIPLIERS: Final = (0.1, 0.4, 1.0)
_FIRST_RESTART: Final = 1024
_SHIFTS: Final = np.linspace(-6.0, 6.0, 49)
_SCALES: Final = np.geomspace(0.25, 4.0, 25)
_TILTS: Final = np.linspace(0.05, 0.95, 19)


class LabelShiftTest:
    """An e-process against label shift with a constant prior since the last restart.

    ``log_e`` is the log of a predictor's likelihood over the largest that any composite gives the target
    labels. The predictor is half Π KT_b, which learns every bin's rate, half a mixture over recalibrations
    σ(a + c logit μ̂_b) of the source rates, which learns two numbers and so is faster. The denominator is
    the supremum over all κ and all source rates μ_b with Σ N_b kl(μ̂_b, μ_b) ≤ x, a set that holds the
    true rates with probability 1 − α_i/2. While label shift holds with a constant prior the process is
    then at most one of mean 1, and ever reaches log(2/α_i) with probability at most α_i/2 (Ville),
    however often it is looked at. Restart number i spends α_i = α/((i+1)(i+2)); all together spend α.

    The bins must be chosen without the source sample whose counts are given (fixed beforehand, or from
    target scores seen before the restart); then every bin's labels are independent with one rate. Few
    bins (8 to 16) detect fastest: each pays ½ log N for learning its rate.

    Parameters
    ----------
    source_negatives, source_positives
        int64[B], source labels per bin.
    alpha
        probability of a false alarm over the whole life, in (0, 1).
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
        """The number of target labels since the last restart."""
        return int(self._negatives.sum() + self._positives.sum())

    @property
    def restarts(self) -> int:
        """The number of restarts so far."""
        return self._restarts

    @property
    def threshold(self) -> float:
        """log(2/α_i): the level at which `log_e` alarms."""
        return math.log(2 * (self._restarts + 1) * (self._restarts + 2) / self._alpha)

    @property
    def due(self) -> bool:
        """Whether 1024·2^i labels have come since restart i: the time for the next restart."""
        return self.labels >= _FIRST_RESTART << min(self._restarts, 50)

    def restart(self, source_negatives: npt.ArrayLike, source_positives: npt.ArrayLike) -> None:
        """Forget the target labels and take the source's newest counts, under new bins if wanted."""
        negatives = np.array(source_negatives, dtype=np.int64)
        positives = np.array(source_positives, dtype=np.int64)
        if negatives.ndim != 1 or negatives.shape != positives.shape:
            raise ValueError(f"counts must be two vectors, got {negatives!r} and {positives!r}")
        if (negatives < 0).any() or (positives < 0).any():
            raise ValueError(f"counts must not be negative, got {negatives!r} and {positives!r}")
        self._source = negatives, positives
        self._negatives = np.zeros(len(negatives), np.int64)
        self._positives = np.zeros(len(negatives), np.int64)
        self._restarts += 1

    def update(self, bin_index: int, label: int) -> None:
        """Count one target label in its bin (the bins of the last restart). O(1)."""
        if label:
            self._positives[bin_index] += 1
        else:
            self._negatives[bin_index] += 1

    def update_many(self, negatives: Counts, positives: Counts) -> None:
        """Add target labels per bin: int64[B] each."""
        self._negatives += negatives
        self._positives += positives

    def log_e(self) -> float:
        """Return the log of the e-value now, rounded down. O(B), a few milliseconds."""
        learned = self._learned()
        source_misses, source_hits = (counts.astype(np.float64) for counts in self._source)
        misses, hits = self._negatives.astype(np.float64), self._positives.astype(np.float64)
        known = source_misses + source_hits > 0
        # bins without source labels: any rate is possible
        free = -_entropy(hits[~known], (hits + misses)[~known])
        if not known.any():
            return learned - free - 1e-9 * (1.0 + abs(learned))
        source_misses, source_hits = source_misses[known], source_hits[known]
        radius = _deviance_radius(len(source_hits), self.threshold)
        best = -_entropy(source_hits, source_hits + source_misses)
        largest = min(
            _largest_likelihood(
                weight * source_hits,
                weight * (source_hits + source_misses),
                hits[known],
                (hits + misses)[known],
            )
            - weight * best
            + weight * radius
            for weight in _MULTIPLIERS
        )
        largest = min(largest, -_entropy(hits[known], (hits + misses)[known]))
        return learned - free - largest - 1e-9 * (1.0 + abs(learned))

    def _learned(self) -> float:
        by_bin = sum(
            log_kt(int(hits), int(misses))
            for hits, misses in zip(self._positives, self._negatives, strict=True)
        )
        negatives, positives = self._source
        logits = _SCALES[:, None] * _logit((positives + 0.5) / (negatives + positives + 1.0))
        at = _SHIFTS[:, None, None] + logits
        # log σ(x) = −softplus(−x)
        by_map = -np.logaddexp(0.0, -at) @ self._positives - np.logaddexp(0.0, at) @ self._negatives
        top = float(by_map.max())
        by_map_mean = top + math.log(float(np.exp(by_map - top).mean()))
        return float(np.logaddexp(by_bin, by_map_mean)) - math.log(2.0)

    def alarm(self) -> bool:
        """Return whether label shift is refuted now."""
        return bool(self.log_e() >= self.threshold)

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
        """Return the test that `to_dict` described."""
        test = cls(state["source_negatives"], state["source_positives"], state["alpha"])
        test._restarts = int(state["restarts"])
        test.update_many(np.asarray(state["negatives"], np.int64), np.asarray(state["positives"], np.int64))
        return test


def _deviance_radius(bins: int, log_inverse: float) -> float:
    """Return x with P(Σ N_b kl(μ̂_b, μ_b) > x) ≤ exp(−log_inverse), for B independent bins.

    P(N kl ≥ u) ≤ 2e^{−u} gives E exp(λ N kl) ≤ (1+λ)/(1−λ) for λ < 1.
    """
    return float(((log_inverse + bins * np.log((1 + _TILTS) / (1 - _TILTS))) / _TILTS).min())


def _largest_likelihood(source_hits: Reals, source_totals: Reals, hits: Reals, totals: Reals) -> float:
    """Return an upper bound on max over (m_b, t) of the joint log-likelihood with logits m_b and m_b + t.

    A concave problem: Newton steps find nearly the best logits. The bound is the dual value there,
    −Σ N H(p), at fitted rates p moved to satisfy the dual's equations exactly; any such p bounds.
    """
    m = _logit((source_hits + hits + 0.5) / (source_totals + totals + 1.0))
    t = 0.0
    for _ in range(_STEPS):
        p, q = _sigmoid(m), _sigmoid(m + t)
        curve_m = source_totals * p * (1 - p) + 1e-9
        curve_q = totals * q * (1 - q)
        slope_m = source_hits - source_totals * p + hits - totals * q
        slope_t = float((hits - totals * q).sum())
        # arrow-shaped Newton system: eliminate the m_b
        both = curve_m + curve_q
        reduced = float((curve_q * curve_m / both).sum()) + 1e-9
        step_t = (slope_t - float((curve_q / both * slope_m).sum())) / reduced
        step_t = min(max(step_t, -1.0), 1.0)
        step_m = np.clip((slope_m - curve_q * step_t) / both, -2.0, 2.0)
        m, t = m + step_m, t + step_t
        if abs(step_t) < 1e-9 and np.abs(step_m).max() < 1e-7:
            break
    q = _sigmoid(m + t)
    room = totals * q * (1 - q)
    if room.sum() > 0:
        q = q + (hits.sum() - float(totals @ q)) * q * (1 - q) / room.sum()
    # each bin's equation gives p; where it leaves [0, 1], q gives way and the sum is repaired below
    low = np.maximum(0.0, (source_hits + hits - source_totals) / np.maximum(totals, 1e-300))
    high = np.minimum(1.0, (source_hits + hits) / np.maximum(totals, 1e-300))
    count = np.clip(q, low, high) * totals
    lack = float(hits.sum() - count.sum())
    room = (high * totals - count) if lack > 0 else (count - low * totals)
    room = np.where(totals > 0, room, 0.0)
    if room.sum() > 0:
        count = count + lack * room / room.sum()
    source_count = np.clip(source_hits + hits - count, 0.0, source_totals)
    return -_entropy(source_count, source_totals) - _entropy(count, totals)


def _entropy(hits: Reals, totals: Reals) -> float:
    """Return Σ N H(S/N) in nats, 0 where N = 0."""
    rate = np.clip(hits / np.maximum(totals, 1e-300), 0.0, 1.0)
    return float(-(totals * (_xlogx(rate) + _xlogx(1.0 - rate))).sum())


def _logit(p: Reals) -> Reals:
    return np.asarray(np.log(p) - np.log1p(-p))


def _sigmoid(t: Reals) -> Reals:
    return np.asarray(np.where(t >= 0, 1.0, np.exp(np.minimum(t, 0.0))) / (1.0 + np.exp(-np.abs(t))))


def _xlogx(x: Reals) -> Reals:
    return np.asarray(np.where(x > 0, x * np.log(np.where(x > 0, x, 1.0)), 0.0))
