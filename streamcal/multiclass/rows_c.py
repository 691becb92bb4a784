"""Loops over rows of K probabilities: their check, their mixture, what a label needs of them.

One row at a time is the usual case, where a call of numpy costs more than its numbers. Compiled where there
is a C compiler; `rows_c.pxd` has the types.
"""

from __future__ import annotations

import math

import numpy as np

from streamcal.values import Counts, Floats

__all__ = [
    "are_shares",
    "count",
    "gather",
    "largest",
    "log_losses",
    "logarithms",
    "mix",
    "normalise",
    "shares_of",
]


def are_shares(rows: Floats, rounding: float) -> bool:
    """Whether all numbers are in [0, 1], and each row sums to 1, both give or take ``rounding``.

    Up to the first row that is not so, numbers outside become 0 or 1, in place.
    """
    good = True
    for i in range(rows.shape[0]):
        good = good and _put_shares(rows[i], rounding, rows[i])
    return good


def shares_of(row: Floats, rounding: float) -> Floats | None:
    """Return a row of K numbers as float64[1, K], all in [0, 1]; None if it is not as `are_shares` asks."""
    out: Floats = np.empty((1, row.shape[0]))
    made = out
    return out if _put_shares(row, rounding, made[0]) else None


def _put_shares(row: Floats, rounding: float, out: Floats) -> bool:
    total = 0.0
    for k in range(row.shape[0]):
        if not -rounding <= row[k] <= 1.0 + rounding:
            return False
        total += row[k]
    if not abs(total - 1.0) <= rounding:
        return False
    for k in range(row.shape[0]):
        out[k] = min(max(row[k], 0.0), 1.0)
    return True


def largest(values: Floats) -> float:
    """Return the largest of numbers of at least 0, float64[n]: 0 of none, and -1 if one is below 0 or NaN."""
    most = 0.0
    for i in range(values.shape[0]):
        if not values[i] >= 0.0:
            return -1.0
        most = max(most, values[i])
    return most


def logarithms(rows: Floats, least: float, out: Floats) -> None:
    """Put the logarithms of numbers, of at least ``least``, into ``out``, float64[n, K]."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            out[i, k] = math.log(max(rows[i, k], least))


def normalise(rows: Floats, instead: Floats) -> None:
    """Divide rows of at least 0 by their sums, in place; where all is 0, take the row of ``instead``."""
    for i in range(rows.shape[0]):
        total = 0.0
        for k in range(rows.shape[1]):
            total += rows[i, k]
        for k in range(rows.shape[1]):
            rows[i, k] = rows[i, k] / total if total > 0.0 else instead[i, k]


def mix(weights: Floats, made: Floats, out: Floats) -> None:
    """Put the mixture of forecasts, float64[M, n, K], by weights, float64[M], into ``out``, float64[n, K]."""
    for i in range(out.shape[0]):
        total = 0.0
        for k in range(out.shape[1]):
            mixed = 0.0
            for m in range(weights.shape[0]):
                mixed += weights[m] * made[m, i, k]
            out[i, k] = mixed
            total += mixed
        for k in range(out.shape[1]):
            out[i, k] /= total


def gather(
    made: Floats,
    codes: Counts,
    trackers: Floats,
    carried: Floats | None,
    observed: float,
    shares: Floats | None,
    out: Floats,
) -> None:
    """Put what n labels tell of the candidates into ``out``.

    Parameters
    ----------
    made
        what the M candidates forecast now, and behind them one or two rows of logarithms: float64[M + 1 or
        M + 2, n, K].
    codes
        places of the labels' classes, int64[n].
    trackers
        weights by both trackers, float64[2, M].
    carried
        rows of `Many.answer` with all forecasts, float64[n, C]; None: nothing was carried.
    observed
        number of scores observed by now.
    shares
        what each label counts for, float64[n]; None: 1 each.
    out
        for each label the logarithms (2 K numbers, of which the second K may be left as they are); what all
        candidates gave to its class as of the prediction (M), and what they give now (M); what the mixtures
        of both trackers gave as of the prediction; its share; and how many scores came since: float64[n, 2 K
        + 2 M + 4].
    """
    candidates, classes = trackers.shape[1], made.shape[2]
    for m in range(candidates, made.shape[0]):
        for i in range(made.shape[1]):
            for k in range(classes):
                out[i, (m - candidates) * classes + k] = made[m, i, k]
    out = out[:, 2 * classes :]
    for i in range(made.shape[1]):
        knew, by_first, by_second = False, 0.0, 0.0
        if carried is not None:
            knew = carried[i, 1] + carried[i, 1 + candidates] > 0.0  # weights of the score, which never are 0
        for m in range(candidates):
            now = then = made[m, i, codes[i]]
            first, second = trackers[0, m], trackers[1, m]
            if carried is not None and knew:
                first, second = carried[i, 1 + m], carried[i, 1 + candidates + m]
                if m:  # the score does not change
                    then = carried[i, 1 + 2 * candidates + (m - 1) * classes + codes[i]]
            out[i, m], out[i, candidates + m] = then, now
            by_first += first * then
            by_second += second * then
        out[i, 2 * candidates], out[i, 2 * candidates + 1] = by_first, by_second
        late = 0.0 if carried is None else observed - carried[i, 0]
        out[i, 2 * candidates + 2] = 1.0 if shares is None else shares[i]
        out[i, 2 * candidates + 3] = max(late, 0.0)


def log_losses(given: Floats, shares: Floats, least: float, out: Floats) -> None:
    """Put weighed log losses of probabilities, float64[n, C], into ``out``, float64[C, n].

    ``shares``, float64[n], weigh them; a probability counts as ``least`` from 0 and 1 at least.
    """
    for c in range(given.shape[1]):
        for i in range(given.shape[0]):
            out[c, i] = -shares[i] * math.log(min(max(given[i, c], least), 1.0 - least))


def count(codes: Counts, weights: Floats | None, kept: float, counts: Floats) -> None:
    """Count n labels by their classes, int64[n], in place.

    ``counts``, float64[2, K]: the first row adds up weights, float64[n] (None: 1 each); the second numbers of
    labels, of which each later one leaves the part ``kept``.
    """
    left = math.pow(kept, codes.shape[0])
    for k in range(counts.shape[1]):
        counts[1, k] *= left
    for i in range(codes.shape[0]):
        counts[0, codes[i]] += 1.0 if weights is None else weights[i]
        counts[1, codes[i]] += math.pow(kept, codes.shape[0] - 1 - i)
