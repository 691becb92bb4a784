"""The largest risk of a map over a likelihood set: a dynamic program over cells and values (lemma 17).

A path of non-decreasing values, one in each cell, earns in each cell the risk that its value causes, and λ
times the log likelihood of its value. The best total is found by a running maximum from cell to cell. Values
are rounded outward, to intervals. Cost: O(nodes) for each λ; nodes are the plausible intervals of all cells.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.certificates.likelihood_set import COARSE, LikelihoodSet, deviances, node_edges
from streamcal.maps.shift import shift_odds

__all__ = ["NO_SHIFT", "TILTS", "MassLimits", "Shift", "largest_risk"]

Counts = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

TILTS: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""θ of lemma 16: the larger, the less a mass costs for each interval, and the more for each score."""

_ENDS: Final = 0.2  # of δ, for the two ends of the interval of scores
_FEW, _MANY = 15_000, 150_000  # nodes of the search for λ and θ, and of the bound
_FINEST: Final = 8192  # intervals of values
_PARTS: Final = 2  # of a range of shifts
_MULTIPLIERS: Final = np.geomspace(0.02, 4.0, 7)  # in units of the widest risk over the slack
_NEARBY: Final = np.array([0.7, 1.0, 1.4])  # of the best of these


class MassLimits(NamedTuple):
    """Scores per segment, and what their masses may exceed them by (lemma 16).

    Segment c ends with cell c and begins after cell c − 1; the last one also contains what follows its cell.
    """

    shares: Reals
    """float64[m], the share of all scores in each segment, or more."""
    interval: float
    """x/n for any interval of scores."""
    end: float
    """x/n for an interval that reaches to 0 or to 1."""

    @classmethod
    def of(cls, counts: Counts, n: int, delta: float) -> MassLimits:
        """Return the limits that hold for n ≥ 1 scores with probability 1 − δ."""
        interval = math.log((n + 1) * len(TILTS) / ((1.0 - _ENDS) * delta))
        end = math.log(2 * len(TILTS) / (_ENDS * delta))
        return cls(counts / n, interval / n, end / n)


class _Lattice(NamedTuple):
    """The nodes: for each cell in turn, its plausible intervals of values."""

    first: list[int]
    last: list[int]
    starts: list[int]
    cell: Counts
    lower: Reals
    upper: Reals
    deviance: Reals


class Shift(NamedTuple):
    """A range of label shifts, from the domain of the labels to that of the risk (lemma 18)."""

    low: float
    """The smallest κ = w₁/w₀, positive."""
    high: float
    """The largest κ, finite."""
    negatives: float
    """The largest w₀."""


NO_SHIFT: Final = Shift(1.0, 1.0, 1.0)
"""The risk is asked for where the labels come from."""


def largest_risk(
    known: LikelihoodSet, lowest: Reals, highest: Reals, masses: MassLimits, shift: Shift = NO_SHIFT
) -> float:
    """Return a bound in [0, 1] on the risk of a map, if the set contains h* (lemmas 17 and 18).

    Parameters
    ----------
    known
        the likelihood set, of m cells; it is not empty.
    lowest, highest
        float64[m], the map's smallest and largest value in each segment, see `MassLimits`.
    masses
        of the scores with these labels.
    shift
        to the domain where the risk is asked for.
    """
    scale = _widest(known, lowest, highest, masses, shift) / max(known.slack, 1e-9)
    coarse = _lattice(known, _FEW)
    tilts, multipliers = np.repeat(TILTS, len(_MULTIPLIERS)), np.tile(scale * _MULTIPLIERS, len(TILTS))
    gains = _gains(coarse, lowest, highest, masses, shift)
    found = _bounds(coarse, gains, masses, known.slack, tilts, multipliers)
    best = int(np.argmin(found))
    # The whole range of shifts at once charges a point for two of them: parts of it, one by one, are tighter.
    fine, worst = _lattice(known, _MANY), 0.0
    tilts, multipliers = np.full(len(_NEARBY), tilts[best]), multipliers[best] * _NEARBY
    for part in _parts(shift):
        gains = _gains(fine, lowest, highest, masses, part)
        worst = max(worst, float(_bounds(fine, gains, masses, known.slack, tilts, multipliers).min()))
    return min(1.0, shift.negatives * min(worst, float(found[best])))


def _parts(shift: Shift) -> list[Shift]:
    """Return ranges of κ that cover that of a shift."""
    if shift.low == shift.high:
        return [shift]
    cuts = np.geomspace(shift.low, shift.high, _PARTS + 1)[1:-1].tolist()
    return [
        Shift(*ends, shift.negatives) for ends in zip([shift.low, *cuts], [*cuts, shift.high], strict=True)
    ]


def _widest(known: LikelihoodSet, lowest: Reals, highest: Reals, masses: MassLimits, shift: Shift) -> float:
    """Return the risk if every cell had its worst plausible value: the scale of the problem."""
    edges = node_edges(COARSE)
    above = shift_odds(edges[known.last], shift.high) - lowest
    below = highest - shift_odds(edges[known.first], shift.low)
    return float(masses.shares @ np.maximum(above, below) ** 2) + masses.end


def _lattice(known: LikelihoodSet, most: int) -> _Lattice:
    """Return the nodes, at most so many if possible: the intervals are halved as long as they are few."""
    m, times = len(known.first), 1
    size = int((known.last - known.first).sum())
    while size * 2 * times <= most and COARSE * 2 * times <= _FINEST:
        times *= 2
    first, last = known.first * times, known.last * times
    starts = np.concatenate(([0], np.cumsum(last - first)))
    cell = np.repeat(np.arange(m), last - first)
    node = np.arange(starts[-1]) - (starts[:-1] - first)[cell]
    edges = node_edges(COARSE * times)
    deviance, _ = deviances(known.negatives, known.positives, edges, cell, node)
    return _Lattice(
        first.tolist(), last.tolist(), starts.tolist(), cell, edges[node], edges[node + 1], deviance
    )


def _gains(
    lattice: _Lattice, lowest: Reals, highest: Reals, masses: MassLimits, shift: Shift
) -> tuple[Reals, Reals, float, float]:
    """Return what a path earns, over w₀: by shares and by intervals, at each node and at the ends."""
    cell, shares = lattice.cell, masses.shares
    upper, lower = shift_odds(lattice.upper, shift.high), shift_odds(lattice.lower, shift.low)
    heavy, light = 1.0 + (shift.high - 1.0) * lattice.upper, 1.0 + (shift.low - 1.0) * lattice.lower
    # The value of a cell limits h* from above in the segment before it, and from below in the one after it.
    # There is none before the first cell: 2 lies above all values, and −1 below.
    before, after = np.append(2.0, lowest[:-1])[cell], np.append(highest[1:], -1.0)[cell]
    rise, fall = heavy * _square(upper - before), light * _square(after - lower)
    by_share = np.append(0.0, shares[:-1])[cell] * rise + np.append(shares[1:], 0.0)[cell] * fall
    higher, nearer = np.maximum(before, lowest[cell]), np.minimum(after, highest[cell])
    by_interval = rise - heavy * _square(upper - higher) + fall - light * _square(nearer - lower)
    top, bottom = shift.high * (1.0 - lowest[-1]) ** 2, highest[0] ** 2
    return by_share, by_interval, float(shares[-1] * top + shares[0] * bottom), float(top + bottom)


def _bounds(
    lattice: _Lattice,
    gains: tuple[Reals, Reals, float, float],
    masses: MassLimits,
    slack: float,
    tilts: Reals,
    multipliers: Reals,
) -> Reals:
    """Return the bound for each pair of θ and λ, float64[k]."""
    by_share, by_interval, end_share, end_interval = gains
    each = 1.0 / -np.expm1(-tilts)
    earned = np.outer(tilts * each, by_share)
    earned += np.outer(masses.interval * each, by_interval)
    earned += np.outer(multipliers, lattice.deviance)
    ends = tilts * each * end_share + masses.end * each * end_interval
    return np.asarray(_best_path(lattice, earned) + ends + multipliers * slack)


def _best_path(lattice: _Lattice, earned: Reals) -> Reals:
    """Return the largest sum along any path, float64[k]; ``earned``, float64[k, nodes], is overwritten."""
    first, last, starts = lattice.first, lattice.last, lattice.starts
    reached = earned[:, : starts[1]]
    for cell in range(1, len(first)):
        best = np.maximum.accumulate(reached, axis=1)
        reached = earned[:, starts[cell] : starts[cell + 1]]
        shared = max(last[cell - 1] - first[cell], 0)
        if shared:
            reached[:, :shared] += best[:, first[cell] - first[cell - 1] :]
        reached[:, shared:] += best[:, -1:]
    return np.asarray(reached.max(axis=1))


def _square(values: Reals) -> Reals:
    """Return the squares of the positive values, and 0 for the others."""
    return np.asarray(np.maximum(values, 0.0) ** 2)
