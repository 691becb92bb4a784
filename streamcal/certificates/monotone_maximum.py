"""The largest risk of a map over a likelihood set: a dynamic program over values and cells (lemma 17).

A path of non-decreasing values, one in each cell, earns in each cell the risk that its value causes, and λ
times the log likelihood of its value. The best total is found from value to value, along the cells. Values
are rounded to points. Cost: O(nodes) for each λ and θ; nodes are the plausible points of all cells.

Only the search for θ and λ ends early: three and five are tried, and then three λ near the best on finer
points. Each pair gives a bound that holds (lemma 17), so a search that misses the best pair gives a larger
bound, and none smaller than is proven. No point and no cell is left out.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.certificates.likelihood_set import LikelihoodSet, log_majorants
from streamcal.certificates.likelihoods_c import best_paths, deviances, gains
from streamcal.certificates.target import NO_SHIFT, Shift
from streamcal.maps.shift import shift_odds

TILTS: Final = (0.12, 0.4, 1.2, 3.6)
"""Values of θ in lemma 16: a larger θ makes a mass cost less for each interval, and more for each score. The
last one suits the ends only."""

_ENDS: Final = 0.2  # of δ, for the two ends of the interval of scores
_FEW, _MANY = 8_000, 50_000  # nodes of the search for λ and θ, and of the bound
_FEWEST_POINTS, _MOST_POINTS = 32, 1024
_BANDS: Final = 128  # of values, to place the points by
_MULTIPLIERS: Final = np.geomspace(0.75, 6.0, 5)  # in units of the λ of `_multiplier`
_NEARBY: Final = np.array([0.8, 1.0, 1.25])  # of the best of these


class MassLimits(NamedTuple):
    """Scores per segment, and the limits on the excess of their masses (lemma 16).

    A segment holds one cell, or several neighbours. It ends with its last cell and begins where the one
    before it ends; the last segment also contains what follows its cells.
    """

    shares: Floats
    """Share of all scores in each segment, or more, float64[s]."""
    intervals: Floats
    """Exponent x/n for any interval of scores, by θ, float64[3]; the last of `TILTS` has none."""
    end: float
    """Exponent x/n for an interval that reaches to 0 or to 1, at any of `TILTS`."""
    segment: Counts | None = None
    """Segment of each cell, int64[m] from 0 to s − 1, ascending; None: each cell has its own."""

    @classmethod
    def of(cls, counts: Counts, n: int, delta: float, segment: Counts | None = None) -> MassLimits:
        """Return the limits that hold for n ≥ 1 scores with probability 1 − δ.

        Parameters
        ----------
        counts
            int64[s], scores per segment.
        n
            number of scores.
        delta
            δ in (0, 1).
        segment
            int64[m], the segment of each cell; None: each cell has its own.
        """
        tilts = np.array(TILTS[:-1])
        drift = tilts + np.expm1(-tilts)
        inverse = 2.0 * (1.0 + (n + 1) * drift) * len(tilts) / ((1.0 - _ENDS) * delta)
        end = math.log(2.0 * 2 * len(TILTS) / (_ENDS * delta))
        return cls(counts / n, np.log(inverse + 2.0 * np.log(inverse)) / n, end / n, segment)


class MapValues(NamedTuple):
    """Values of a map in each segment, float64[s] each, see `MassLimits`."""

    lowest: Floats
    """Smallest value."""
    highest: Floats
    """Largest value."""
    at: Floats
    """Value at the one score of a segment of one cell; NaN if there are several scores or cells."""


class _Lattice:
    """Nodes: for each point of value in turn, the cells in which it is plausible, one after the other.

    Parameters
    ----------
    known
        the likelihood set.
    points
        values from 0 to 1, ascending, float64[p]: nodes are all that paths can be rounded to.

    Attributes
    ----------
    first, last
        First cell of each point, and the cell after its last one, int64[p].
    deviance
        Deviance of each node, float64[nodes].
    """

    def __init__(self, known: LikelihoodSet, points: Floats) -> None:
        lower = np.searchsorted(points, known.lowest, "right") - 1
        upper = np.maximum(np.searchsorted(points, known.highest, "left"), lower)
        order = np.arange(len(points))
        self.points, self.first = points, np.searchsorted(upper, order, "left")
        self.last = np.maximum(np.searchsorted(lower, order, "right"), self.first)
        self.deviance = np.empty(int((self.last - self.first).sum()))
        deviances(self.first, self.last, *log_majorants(points), known.cells, self.deviance)


def largest_risk(
    known: LikelihoodSet, values: MapValues, masses: MassLimits, shift: Shift = NO_SHIFT
) -> float:
    """Return a bound in [0, 1] on the risk of a map, if the set contains h* (lemmas 17 and 18).

    Parameters
    ----------
    known
        the likelihood set, of m cells; it is not empty.
    values
        of the map in each segment, see `MassLimits`.
    masses
        limits on the masses of the segments, in the domain of the labels.
    shift
        to the domain where the risk is asked for.
    """
    own = slice(None) if masses.segment is None else masses.segment
    multipliers = _multiplier(known, values.lowest[own], values.highest[own], shift) * _MULTIPLIERS
    coarse = _Lattice(known, _points(known, _FEW))
    found = []
    # The whole range of shifts at once charges a point for two of them: parts of it, one by one, are tighter.
    parts = [shift]
    if shift.low < shift.high:
        middle = float(np.geomspace(shift.low, shift.high, 3)[1])
        parts = [shift._replace(high=middle), shift._replace(low=middle)]
    for part in parts:
        bounds = _bounds(known, coarse, values, masses, part, np.arange(len(TILTS) - 1), multipliers)
        tilt, best = divmod(int(np.argmin(bounds)), len(multipliers))
        found.append((float(bounds[tilt, best]), tilt, float(multipliers[best]), part))
    found.sort(key=lambda each: -each[0])
    fine, worst = _Lattice(known, _points(known, _MANY)), 0.0
    for risk, tilt, multiplier, part in found:
        if risk > worst:
            bounds = _bounds(known, fine, values, masses, part, np.array([tilt]), multiplier * _NEARBY)
            worst = max(worst, min(risk, float(bounds.min())))
    return min(1.0, shift.negatives * worst)


def _multiplier(known: LikelihoodSet, lowest: Floats, highest: Floats, shift: Shift) -> float:
    """Return a λ at which likelihood and risk curve about equally, where most of the risk may be."""
    low, high = shift_odds(known.lowest, shift.low), shift_odds(known.highest, shift.high)
    kappa, middle = math.sqrt(shift.low * shift.high), (known.lowest + known.highest) / 2
    density = 1.0 + (kappa - 1.0) * middle  # of the target, over w₀
    totals = known.negatives + known.positives
    weight = totals * density * np.maximum(high - lowest, highest - low) ** 2 + 1e-300
    bends = 2.0 * middle * (1.0 - middle) * kappa**2 / density**3
    return float(weight @ bends / (weight.sum() * totals.sum()))


def _points(known: LikelihoodSet, most: int) -> Floats:
    """Return points from 0 to 1 that make about ``most`` nodes.

    The cost of rounding is the square of the distance between points, in arcsin √v, times the scores with
    values there. For a given number of points the sum is least if their density is in proportion to the third
    root of that of the scores.
    """
    totals = known.negatives + known.positives
    low, high = (np.arcsin(np.sqrt(each)) * (2.0 / np.pi) for each in (known.lowest, known.highest))
    first = np.minimum((low * _BANDS).astype(np.int64), _BANDS - 1)
    last = np.minimum((high * _BANDS).astype(np.int64), _BANDS - 1)
    changes = np.zeros(_BANDS + 1)
    spread = totals / (totals.sum() * (last - first + 1))
    np.add.at(changes, first, spread)
    np.add.at(changes, last + 1, -spread)
    density = np.maximum(np.cumsum(changes)[:-1], 1e-9) ** (1.0 / 3.0)
    ranks = np.concatenate(([0.0], np.cumsum(density))) / density.sum()
    edges = np.linspace(0.0, 1.0, _BANDS + 1)
    width = float((np.interp(high, edges, ranks) - np.interp(low, edges, ranks)).sum())
    wanted = (most - 2 * len(totals)) / max(width, 1e-9)
    count = int(min(max(wanted, _FEWEST_POINTS), _MOST_POINTS))
    points = np.sin(np.interp(np.linspace(0.0, 1.0, count + 1), ranks, edges) * (np.pi / 2)) ** 2
    points[[0, -1]] = 0.0, 1.0
    return np.asarray(points)


def _bounds(
    known: LikelihoodSet,
    lattice: _Lattice,
    values: MapValues,
    masses: MassLimits,
    shift: Shift,
    tilts: Counts,
    multipliers: Floats,
) -> Floats:
    """Return the bound, in a part of the range of κ and over w₀, float64[tilts, multipliers].

    Parameters
    ----------
    known, values, masses
        as in `largest_risk`.
    lattice
        nodes of the set.
    shift
        part of the range.
    tilts, multipliers
        each θ, by its place in `TILTS`, and each λ.
    """
    shares, m, last = masses.shares, len(known.lowest), len(masses.shares) - 1
    (lowest, highest, at), every = values, np.array(TILTS)
    each = 1.0 / -np.expm1(-every)
    # Beside an atom, h* may be off on both sides, by as much as there and at the atom (lemma 17). Where few
    # scores are equal, that costs more than it saves.
    beside = 1.0 + 2.0 * max(shift.high, 1.0 / shift.low)
    atoms = ~np.isnan(at) & (shares * every[-2] > 6.0 * beside * masses.intervals[-1])
    others, intervals = np.where(atoms, 0.0, shares), np.where(atoms, 2.0 * beside, 1.0)
    segment = np.arange(m) if masses.segment is None else masses.segment
    # Only the first cell of a segment limits h* in the segment before it, and only the last in that after it.
    begins, ends = np.diff(segment, prepend=-1) > 0, np.diff(segment, append=last + 1) > 0
    by_point = np.empty((4, len(lattice.points)))
    for row, kappa in enumerate((shift.high, shift.low)):
        by_point[row] = 1.0 + (kappa - 1.0) * lattice.points
        by_point[2 + row] = shift_odds(lattice.points, kappa)
    by_cell = np.empty((10, m))
    # The value of such a cell limits h* from above in the segment before it, and from below in the one after.
    # There is none before the first segment: 2 lies above all values, and −1 below.
    by_cell[0] = np.where(begins, np.append(2.0, lowest[:-1])[segment], 2.0)
    by_cell[1] = np.where(ends, np.append(highest[1:], -1.0)[segment], -1.0)
    for row, costs in ((2, others), (4, intervals)):
        by_cell[row] = np.append(0.0, costs[:-1])[segment]
        by_cell[row + 1] = np.append(costs[1:], 0.0)[segment]
    by_cell[6], by_cell[7] = lowest[segment], highest[segment]
    by_cell[8], by_cell[9] = np.where(atoms, shares, 0.0)[segment], at[segment]
    by_tilt = np.empty((4, len(tilts)))
    by_tilt[0], by_tilt[1] = (every * each)[tilts], (masses.intervals * each[:-1])[tilts]
    fixed, gap = 0.0, float((masses.intervals * each[:-1]).min())
    # In the segments at the ends nothing limits h* from outside: there it is as far off as it can be.
    worst = shift.high * (1.0 - float(lowest[-1])) ** 2, float(highest[0]) ** 2
    for row, end, risk in zip((2, 3), (last, 0), worst, strict=True):
        limits = (every * others[end] + masses.end) * each  # of the mass of the segment, or beyond its atom
        least = float(limits.min())
        by_tilt[row] = (limits - least)[tilts]
        fixed += risk * (beside * (least + gap) if atoms[end] else least)
    top, bottom = int(np.searchsorted(segment, last)), int(np.searchsorted(segment, 0, "right")) - 1
    top, bottom = (-1 if atoms[last] else top), (-1 if atoms[0] else bottom)
    gained = np.empty((len(lattice.deviance), len(tilts)))
    gains(lattice.first, lattice.last, by_point, by_cell, by_tilt, top, bottom, gained)
    reached = np.full((m + 1, len(tilts) * len(multipliers)), -np.inf)
    reached[0] = 0.0
    best_paths(lattice.first, lattice.last, lattice.deviance, gained, multipliers, reached)
    return np.asarray(reached[-1].reshape(len(tilts), -1) + multipliers * known.slack + fixed)
