"""Likelihoods of labels per bin under a shift of the logits: what the test of label shift compares.

The types of these loops over a few bins are in `shift_likelihood_c.pxd`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streamcal.values import Floats

__all__ = ["entropy", "largest_likelihood"]

_NEWTON_STEPS: Final = 25


def entropy(hits: Floats, totals: Floats) -> float:
    """Return Σ N H(S/N) in nats for S labels 1 of N, float64[B] each; a bin with N = 0 adds nothing."""
    whole = 0.0
    for b in range(len(totals)):
        rate = hits[b] / max(totals[b], 1e-300)
        if 0.0 < rate < 1.0:
            whole -= totals[b] * (rate * math.log(rate) + (1.0 - rate) * math.log1p(-rate))
    return float(whole)


def largest_likelihood(source_hits: Floats, source_totals: Floats, hits: Floats, totals: Floats) -> float:
    """Return an upper bound on the largest log-likelihood of both domains under one shift of the logits.

    The source has the logits m_b, the target m_b + t, and the bound is on the maximum over all m_b and t.
    The problem is concave, and Newton steps come close to its maximum. The bound is the dual value −Σ N H(p)
    there. The fitted rates p are first moved so that they satisfy the dual's equations; any such p gives a
    bound.

    Parameters
    ----------
    source_hits, source_totals
        labels 1 and all labels of the source per bin, float64[B]; they may be weighted.
    hits, totals
        the same of the target.
    """
    bins, shift, all_hits = len(hits), 0.0, 0.0
    logits, slopes = np.empty(bins), np.empty(bins)
    source_curves, curves = np.empty(bins), np.empty(bins)
    for b in range(bins):
        rate = (source_hits[b] + hits[b] + 0.5) / (source_totals[b] + totals[b] + 1.0)
        logits[b] = math.log(rate / (1.0 - rate))
        all_hits += hits[b]
    for _ in range(_NEWTON_STEPS):
        # The Newton system is arrow-shaped: eliminate the m_b first.
        slope, reduced = 0.0, 1e-9
        for b in range(bins):
            p, q = _expit(logits[b]), _expit(logits[b] + shift)
            source_curves[b] = source_totals[b] * p * (1.0 - p) + 1e-9
            curves[b] = totals[b] * q * (1.0 - q)
            slopes[b] = source_hits[b] - source_totals[b] * p + hits[b] - totals[b] * q
            both = source_curves[b] + curves[b]
            slope += hits[b] - totals[b] * q - curves[b] / both * slopes[b]
            reduced += curves[b] * source_curves[b] / both
        step, farthest = min(max(slope / reduced, -1.0), 1.0), 0.0
        for b in range(bins):
            own = (slopes[b] - curves[b] * step) / (source_curves[b] + curves[b])
            own = min(max(own, -2.0), 2.0)
            logits[b] += own
            farthest = max(farthest, abs(own))
        shift += step
        if abs(step) < 1e-9 and farthest < 1e-7:
            break
    # Move the rates of the target to its sum, in the bins that have room for it. The equation of a bin gives
    # the rate of its source; if that leaves [0, 1], the target's is changed instead, and the sum repaired.
    lack, room = all_hits, 0.0
    for b in range(bins):
        q = _expit(logits[b] + shift)
        lack -= totals[b] * q
        room += totals[b] * q * (1.0 - q)
    moved = lack / room if room > 0.0 else 0.0
    lack = all_hits
    for b in range(bins):
        q = _expit(logits[b] + shift)
        known, most = source_hits[b] + hits[b], max(totals[b], 1e-300)
        low, high = max(0.0, (known - source_totals[b]) / most), min(1.0, known / most)
        slopes[b], curves[b] = low * totals[b], high * totals[b]
        logits[b] = (
            min(max(q + moved * q * (1.0 - q), low), high) * totals[b]
        )  # labels 1 of the bin from now on
        lack -= logits[b]
    room = 0.0
    for b in range(bins):
        room += (curves[b] - logits[b] if lack > 0.0 else logits[b] - slopes[b]) if totals[b] > 0.0 else 0.0
    for b in range(bins):
        if room > 0.0 and totals[b] > 0.0:
            logits[b] += lack * (curves[b] - logits[b] if lack > 0.0 else logits[b] - slopes[b]) / room
        source_curves[b] = min(max(source_hits[b] + hits[b] - logits[b], 0.0), source_totals[b])
    return -entropy(source_curves, source_totals) - entropy(logits, totals)


def _expit(exponent: float) -> float:
    """Return 1 / (1 + e^−t), also where e^−t would overflow."""
    if exponent >= 0.0:
        return 1.0 / (1.0 + math.exp(-exponent))
    small = math.exp(exponent)
    return small / (1.0 + small)
