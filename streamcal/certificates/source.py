"""The streaming certificate: upper bounds on the risk of a step map, from the cells of a sketch alone.

It assumes that the labelled scores are independent and identically distributed, and that
h*(z) = P[Y=1 | Z=z] is non-decreasing. It assumes nothing else: scores may have atoms, h* may jump, n may be
small, and the bins may be chosen from the same scores. The proofs are lemmas 0, 8 and 9 of
docs/proofs/certificates.md. Cost: O(m) for the m cells, and O(B log B) for every candidate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.certificates.bin_limits import BinningLimits, VersionLimits
from streamcal.certificates.inequalities import Masses, chernoff_upper, largest_proxy, largest_variance
from streamcal.certificates.monotone_maximum import MapValues
from streamcal.maps.binning import uniform_mass

# Shares of a version's δ, divided among the candidates. `streamcal.certificates.bin_limits` spends the rest.
_SPREAD, _LINEAR = 0.02, 0.45


class RiskBound(NamedTuple):
    """Upper bound on the risk of one map."""

    risk: float
    """Bound in [0, 1] on R."""
    monotone: bool
    """False if the labels refute that h* is non-decreasing. The bound is then 1."""


def default_candidates(n: int, cells: int) -> list[int]:
    """Return the numbers of bins to certify: n^(1/3) times powers of √2 from 1/4 to 8, at most ``cells``."""
    base = n ** (1 / 3)
    wanted = {max(1, round(base * 2 ** (step / 2))) for step in range(-4, 7)}
    return sorted({min(bins, cells) for bins in wanted})


def certify_best(version: VersionLimits, candidates: Sequence[int]) -> tuple[RiskBound, Counts]:
    """Return the smallest risk bound over several numbers of bins, and the splits that it belongs to.

    The bounds of all candidates hold together with probability 1 − δ; the union over them is paid for. Where
    labels are pending, the bound holds for the map that these labels would give, for any values (lemma 19).

    Parameters
    ----------
    version
        the cells, and the error probability δ that may be spent on them.
    candidates
        numbers of bins B for `streamcal.maps.binning.uniform_mass`, ascending, at least one; labels must not
        decide them.

    Notes
    -----
    The search tries every third candidate, and then goes downhill from the best of them: 5 or 6 of 11
    candidates in all. Apart from ripples, the bound has one valley. As all bounds hold together, so does the
    smallest of those tried. If one candidate refutes that h* is non-decreasing, none claims anything.
    """
    found: dict[int, tuple[RiskBound, Counts]] = {}

    def risk(index: int) -> tuple[float, int]:
        if index not in found:
            splits = uniform_mass(version.totals, candidates[index])
            binning = BinningLimits(version, splits, len(candidates))
            found[index] = _certify(version, binning), binning.splits
        return found[index][0].risk, index

    last = len(candidates) - 1
    best, before = min(range(min(2, last), last + 1, 3), key=risk), -1
    while best != before:
        best, before = min(range(max(best - 1, 0), min(best + 1, last) + 1), key=risk), best
    refuted = (each for each in found.values() if not each[0].monotone)
    return next(refuted, found[best])


class Centre:
    """A certified step map ĥ, from which the risk of any other map is bounded (lemma 9).

    Its values are the label means of bins. The cells are cut into groups, none of which crosses an edge of ĥ.

    Parameters
    ----------
    version
        the cells that ``bound`` was computed from. Its limits on masses are part of the bound's event.
    splits
        int64[B+1], the bins of ĥ.
    bound
        the certificate of ĥ.

    Attributes
    ----------
    starts
        First cell of each group, int64[G].
    values
        Least possible value of ĥ in each group, float64[G]: pending labels count as 0.
    most
        Largest possible value of ĥ in each group, float64[G]: pending labels count as 1 (lemma 19).
    masses
        Limits on the masses of the groups.
    single
        Mask of the groups that are one cell with one score only, bool[G].
    """

    def __init__(self, version: VersionLimits, splits: Counts, bound: RiskBound) -> None:
        self.bound, n, (totals, hits, most) = bound, version.n, version.sums(splits)
        groups = uniform_mass(version.totals, max(1, min(len(version.totals), round(8 * n ** (1 / 3)))))
        edges = np.union1d(groups, splits)
        ends = np.concatenate(([0], np.cumsum(version.totals)))[edges]
        self.starts = edges[:-1]
        owner = np.searchsorted(splits, self.starts, side="right") - 1
        self.values, self.most = (hits / totals)[owner], (most / totals)[owner]
        self.masses = Masses(version.masses(np.diff(ends)), ends[:-1], ends[1:], n, version.mass_exponent)
        self.single = (np.diff(edges) == 1) & version.single[self.starts]

    @classmethod
    def best_of(cls, version: VersionLimits) -> Self:
        """Return the centre at the best certified map of all `default_candidates`, see `certify_best`."""
        bound, splits = certify_best(version, default_candidates(version.n, len(version.totals)))
        return cls(version, splits, bound)

    def bound_of(self, values: MapValues) -> float:
        """Return the bound (‖m − ĥ‖ + √C)² on R(m) of any map m, in [0, 1], where C is the bound of ĥ.

        It holds on the event on which the certificate of ĥ holds. ``values`` are those of m in the groups;
        the first reaches down to 0, the last up to 1, and a gap belongs to the group on one side of it.
        """
        lowest, highest, at = values
        farthest = np.maximum(np.abs(lowest - self.most), np.abs(highest - self.values)) ** 2
        at_score = np.maximum(np.abs(at - self.values), np.abs(at - self.most)) ** 2
        distance = self.masses.fill_atoms(farthest, at_score, self.single)
        return min(1.0, (math.sqrt(distance) + math.sqrt(self.bound.risk)) ** 2)


def _certify(version: VersionLimits, binning: BinningLimits) -> RiskBound:
    """Return the certificate of the step map whose values are the label means of these bins (lemma 8)."""
    if not binning.monotone:
        return RiskBound(1.0, monotone=False)
    upto = np.cumsum(binning.totals).astype(np.int64)
    below = upto - binning.totals.astype(np.int64)
    masses = Masses(binning.mass, below, upto, version.n, version.mass_exponent)
    shift = _filled(version, binning, masses, binning.shape**2)
    calibration = (math.sqrt(binning.squares) + math.sqrt(shift)) ** 2
    sharpness = _filled(version, binning, masses, np.full(len(binning.totals), 0.25))
    risk = min(calibration + sharpness, _by_differences(version, binning), 1.0)
    return RiskBound(risk, monotone=True)


def _filled(version: VersionLimits, binning: BinningLimits, masses: Masses, part: Floats) -> float:
    """Return the largest Σ p_b part_b r_b², where r_b is the range of h in the bin (lemmas 8g, 8h).

    For a bin of one score, only the gaps beside it count, if that is less (lemma 8i).
    """
    atom = binning.atom < part
    values = np.where(atom, 1.0, part) * (binning.ceiling - binning.floor) ** 2
    return masses.fill(values, np.where(atom, version.gap, binning.mass))


def _by_differences(version: VersionLimits, binning: BinningLimits) -> float:
    """Return a bound on R from the differences between neighbouring bins (lemma 8)."""
    totals = binning.totals
    if len(totals) < 2:
        return math.inf
    rates, highest, atom = binning.rates, binning.most, binning.atom
    spread = np.minimum(np.sqrt(0.25 + binning.shape**2), atom)
    drift = np.minimum(2 * binning.shape**2, atom**2)
    inside = binning.mass * spread
    for end in (0, -1):
        inside[end] *= atom[end] < 1.0
    edge = np.maximum(inside[:-1], inside[1:])
    jump = np.maximum(np.abs(highest[1:] - rates[:-1]), np.abs(rates[1:] - highest[:-1]))
    form = float(edge @ jump**2)
    slope = float((edge * (1 / totals[1:] + 1 / totals[:-1])).max())
    exponent = -math.log(_LINEAR * binning.share)
    proxy = _linear_proxy(rates, highest, totals, exponent, _SPREAD * binning.share)
    t = math.sqrt(2 * exponent * proxy * slope)
    form = (t + math.sqrt(t * t + form)) ** 2
    cross = 2 * math.sqrt(binning.squares * form * float((drift / spread).max()))
    return form + _end_terms(version, binning) + binning.squares + cross


def _linear_proxy(rates: Floats, highest: Floats, totals: Floats, exponent: float, delta: float) -> float:
    """Return a proxy s for the linear term: Kearns and Saul's, or Bennett's at the tilt (lemma 7c)."""
    least = float(totals.min())
    worst, best = float(rates.min()), float(highest.max())
    if worst <= 0.5 <= best:
        return 0.25
    spread = math.log(2 * len(rates) / delta) / least
    limits = chernoff_upper(np.array([1.0 - worst, best]), spread)
    lower, upper = 1.0 - float(limits[0]), float(limits[1])
    low = float(largest_variance(lower, upper))
    high = float(largest_proxy(lower, upper))
    # Bisect for the smallest s in [v, KS] with s ≥ v φ(√(2x/(s N))). KS itself is always a bound.
    variance = low
    for _ in range(12 if low < high else 0):
        middle = 0.5 * (low + high)
        tilt = min(math.sqrt(2 * exponent / (middle * least)), 100.0)
        if middle >= variance * 2 * (math.expm1(tilt) - tilt) / tilt**2:
            high = middle
        else:
            low = middle
    return high


def _end_terms(version: VersionLimits, binning: BinningLimits) -> float:
    """Return the most that the first and the last bin can add: no neighbour bounds h* there (lemma 8e).

    The bound is convex in the point m. Its maximum over the hull of the bin's limits and the map's value is
    therefore at an end of that hull. For a bin of one score, only the gap on the outside is added (lemma 8i).
    """
    ends, (first, last) = [0, -1], binning.mass[[0, -1]].tolist()
    totals = binning.totals[ends]
    others = np.maximum(totals - 1.0, 1.0)
    counts = totals * [1.0 - binning.rates[0], binning.most[-1]]
    rise = chernoff_upper(np.minimum(counts / others, 1.0), version.end_exponent / others)
    rises = np.where(totals > 1, rise, 1.0).tolist()
    lowest = np.minimum(binning.lower, binning.rates)[ends].tolist()
    highest = np.maximum(binning.upper, binning.most)[ends].tolist()
    low, high = float(binning.floor[-1]), 1.0 - float(binning.ceiling[0])
    last *= max(_chord(each, low, rises[1]) for each in (lowest[1], highest[1]))
    first *= max(_chord(1.0 - each, high, rises[0]) for each in (lowest[0], highest[0]))
    if binning.atom[-1] < 1.0:
        last = version.gap * (1.0 - lowest[1]) ** 2
    if binning.atom[0] < 1.0:
        first = version.gap * highest[0] ** 2
    return float(last + first)


def _chord(mean: float, floor: float, rate: float) -> float:
    """Return the largest E(H − mean)² over all laws of H on [floor, 1] with E H ≤ rate."""
    at_floor = (mean - floor) ** 2
    share = min(max(rate - floor, 0.0) / max(1.0 - floor, 1e-300), 1.0)
    return max(at_floor, at_floor * (1 - share) + (1.0 - mean) ** 2 * share)
