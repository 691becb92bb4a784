"""Loops over likelihoods: of paths through cells, and of labels per bin under a shift of the logits.

A node of a likelihood set is a point of value in a cell (lemmas 15 and 17); a path is a non-decreasing
sequence of points, one in each cell. No loop over nodes ends early: every node is visited, so no sum is less
than the largest. The test of label shift compares the likelihoods under a shift.

Compiled where there is a C compiler; `likelihoods_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streamcal.base.values import Counts, Floats


def plausible(
    points: Floats,
    hit: Floats,
    miss: Floats,
    cells: Floats,
    slack: float,
    lowest: Floats,
    highest: Floats,
) -> bool:
    """Find the least and the largest value of a plausible path in each cell; return whether there is any.

    A path is plausible if its deviances sum to −slack or more. Between the last point that is not and the
    first that is, sums are linear.

    Parameters
    ----------
    points
        float64[p], ascending.
    hit, miss
        float64[p], the log likelihood of a label 1 and a label 0 at each point.
    cells
        float64[3, m], labels 1, labels 0, and the largest log likelihood of each cell.
    slack
        in nats.
    lowest, highest
        float64[m], filled with the result.
    """
    size, m = len(points), len(lowest)
    before, own, after = np.zeros((m, size)), np.empty(size), np.zeros(size)
    for c in range(m - 1):
        best = before[c, 0] + cells[0, c] * hit[0] + cells[1, c] * miss[0] - cells[2, c]
        before[c + 1, 0] = best
        for k in range(1, size):
            best = max(best, before[c, k] + cells[0, c] * hit[k] + cells[1, c] * miss[k] - cells[2, c])
            before[c + 1, k] = best
    for c in range(m - 1, -1, -1):
        first = last = -1
        for k in range(size):
            own[k] = after[k] + cells[0, c] * hit[k] + cells[1, c] * miss[k] - cells[2, c]
            if before[c, k] + own[k] >= -slack:
                last = k
                if first < 0:
                    first = k
        if first < 0:
            return False
        lowest[c], highest[c] = points[first], points[last]
        enough = before[c, first] + own[first] + slack
        if first > 0:
            short = -slack - before[c, first - 1] - own[first - 1]
            lowest[c] -= enough / max(short + enough, 1e-300) * (points[first] - points[first - 1])
        if last < size - 1:
            enough = before[c, last] + own[last] + slack
            short = -slack - before[c, last + 1] - own[last + 1]
            highest[c] += enough / max(short + enough, 1e-300) * (points[last + 1] - points[last])
        best = own[size - 1]
        for k in range(size - 1, -1, -1):
            best = max(best, own[k])
            after[k] = best
    return True


def deviances(first: Counts, last: Counts, hit: Floats, miss: Floats, cells: Floats, out: Floats) -> None:
    """Fill in the log likelihood of each node less the largest of its cell, in nats.

    Parameters
    ----------
    first, last
        int64[p], the first cell of each point, and the cell after its last one.
    hit, miss, cells
        as in `plausible`.
    out
        float64[nodes], for each point in turn one cell after the other.
    """
    node = 0
    for k in range(len(first)):
        for c in range(first[k], last[k]):
            out[node] = cells[0, c] * hit[k] + cells[1, c] * miss[k] - cells[2, c]
            node += 1


def gains(
    first: Counts,
    last: Counts,
    by_point: Floats,
    by_cell: Floats,
    by_tilt: Floats,
    top: int,
    bottom: int,
    out: Floats,
) -> None:
    """Fill in the risk that each node causes, at each θ (lemma 17).

    Parameters
    ----------
    first, last
        as in `deviances`.
    by_point
        float64[4, p]: the largest and the smallest weight of a unit of mass; the largest and the smallest h*.
    by_cell
        float64[10, m]: values of the map that h* may exceed before the cell, and fall below behind it; the
        shares of the scores there, and the numbers of intervals; the smallest and the largest value of the
        map in the cell; the share of an atom, else 0; and the value of the map at the atom.
    by_tilt
        float64[4, t]: the cost of risk by share, by interval, and at the top and the bottom end.
    top, bottom
        cells at the ends.
    out
        float64[nodes, t].
    """
    tilts, node = by_tilt.shape[1], 0
    for k in range(len(first)):
        heavy, light, upper, lower = by_point[0, k], by_point[1, k], by_point[2, k], by_point[3, k]
        for c in range(first[k], last[k]):
            rise, fall = max(upper - by_cell[0, c], 0.0), max(by_cell[1, c] - lower, 0.0)
            up = max(upper - max(by_cell[0, c], by_cell[6, c]), 0.0)
            down = max(min(by_cell[1, c], by_cell[7, c]) - lower, 0.0)
            rise, fall = heavy * rise * rise, light * fall * fall
            up, down = heavy * up * up, light * down * down
            share = by_cell[2, c] * rise + by_cell[3, c] * fall
            interval = by_cell[4, c] * rise + by_cell[5, c] * fall
            if by_cell[8, c] > 0.0:
                over, under = max(upper - by_cell[9, c], 0.0), max(by_cell[9, c] - lower, 0.0)
                own = heavy * over * over + light * under * under
                share, interval = share + by_cell[8, c] * own, interval + own
            else:
                interval -= up + down
            for t in range(tilts):
                out[node, t] = by_tilt[0, t] * share + by_tilt[1, t] * interval
                if c == top:
                    out[node, t] += by_tilt[2, t] * up
                if c == bottom:
                    out[node, t] += by_tilt[3, t] * down
            node += 1


def best_paths(
    first: Counts, last: Counts, deviance: Floats, risk: Floats, multipliers: Floats, reached: Floats
) -> None:
    """Find the largest sum of λ times deviance plus risk along any path, for each θ and each λ.

    Parameters
    ----------
    first, last
        as in `deviances`.
    deviance, risk
        float64[nodes] and float64[nodes, t].
    multipliers
        float64[k], λ.
    reached
        float64[m+1, t k]: 0 in its first row, −∞ in the others. It is filled with the largest sums up to each
        cell; its last row is the result.
    """
    tilts, many, node = risk.shape[1], len(multipliers), 0
    for k in range(len(first)):
        for c in range(first[k], last[k]):
            # At this point in this cell: from the best of all up to it that is at this point or below.
            for t in range(tilts):
                for j in range(many):
                    lane = t * many + j
                    best = reached[c, lane] + (multipliers[j] * deviance[node] + risk[node, t])
                    reached[c + 1, lane] = max(reached[c + 1, lane], best)
            node += 1


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


def log_likelihoods(counts: Counts, learned: bool) -> Floats:
    """Return log likelihoods by one law of labels by bins, of labels alone, and of bins: float64[n, 3].

    Parameters
    ----------
    counts
        labels by label and bin, int64[n, 2, B].
    learned
        True: by the estimator of Krichevsky and Trofimov, which learns the law from label to label: with K
        symbols, of which n_k of n came, the quotient of Π Γ(n_k+½)/Γ(n+K/2) and the same without symbols.
        False: by the likeliest law, Π n_k^n_k / n^n.
    """
    bins, logs = counts.shape[2], np.empty((len(counts), 3))
    half, last, out = _log_gamma(0.5), _log_gamma(0.5 * bins), logs
    for i in range(len(counts)):
        zeros = ones = by_bins = of_bins = 0.0
        for b in range(bins):
            low, high = counts[i, 0, b], counts[i, 1, b]
            by_bins += _log_power(low, 0.5, half, learned) + _log_power(high, 0.5, half, learned)
            by_bins -= _log_power(low + high, 1.0, 0.0, learned)
            of_bins += _log_power(low + high, 0.5, half, learned)
            zeros += low
            ones += high
        alone = _log_power(zeros, 0.5, half, learned) + _log_power(ones, 0.5, half, learned)
        out[i, 0], out[i, 1] = by_bins, alone - _log_power(zeros + ones, 1.0, 0.0, learned)
        out[i, 2] = of_bins - _log_power(zeros + ones, 0.5 * bins, last, learned)
    return logs


def _log_power(n: float, start: float, at_start: float, learned: bool) -> float:
    """Return log Γ(n + a) − log Γ(a), for a = ``start`` and its log Γ; if nothing is ``learned``, log n^n."""
    if n == 0.0:
        return 0.0
    return _log_gamma(n + start) - at_start if learned else n * math.log(n)


def _log_gamma(x: float) -> float:
    """Return log Γ(x) for x ≥ ½, within 1e-11 and rounding: Stirling's series from 8 on, and back."""
    below = 1.0
    while x < 8.0:
        below *= x
        x += 1.0
    square = 1.0 / (x * x)
    series = (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))) / x
    return (x - 0.5) * math.log(x) - x + series - math.log(below) + 0.5 * math.log(2.0 * math.pi)


def _expit(exponent: float) -> float:
    """Return 1 / (1 + e^−t), also where e^−t would overflow."""
    if exponent >= 0.0:
        return 1.0 / (1.0 + math.exp(-exponent))
    small = math.exp(exponent)
    return small / (1.0 + small)
