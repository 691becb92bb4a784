"""Uniform-mass bins over the cells of a sketch, and the choice of their number B.

The input is the counts of m cells in ascending order of score. A binning is an array ``splits``, int64[B+1]
from 0 to m: bin b consists of the cells ``splits[b]:splits[b+1]``.

Labels may have weights (`streamcal.sketch.weighing`). Counts are then sums of weights w, and bins have equal
shares of these. What depends on how many labels there are also takes the sums of w², float64[m]:
weights are no evidence.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from streamcal.maps.fits_c import put_losses_left_out
from streamcal.values import Counts, Floats

__all__ = [
    "BinRule",
    "bin_sums",
    "candidate_bins",
    "choose_bins",
    "cube_root",
    "effective",
    "leave_one_out_losses",
    "uniform_mass",
    "uniform_mass_of_each",
]

BinRule = Literal["auto", "cube_root"] | int
"""Choice of the number of bins B: ``"auto"``, ``"cube_root"``, or the number itself, at least 1."""

_Number = TypeVar("_Number", np.int64, np.float64)

_RATIO: Final = 2**0.25  # between neighbouring candidates; finer is useless, the risk is flat at its minimum
_REACH: Final = 6  # candidates on each side that the smoothing kernel covers
_KERNEL: Final = np.exp(-0.5 * (np.arange(-_REACH, _REACH + 1) / 2.0) ** 2)


def uniform_mass(totals: npt.NDArray[Any], bins: int) -> Counts:
    """Return the splits of the uniform-mass binning (Definition 6: u_b = z_(⌊nb/B⌋)) over cells.

    Each edge is the cell boundary nearest to the rank ⌊nb/B⌋, the lower of two equally near ones. So no edge
    splits a cell, and no bin is empty. Large cells (ties) can lead to fewer than B bins.

    Parameters
    ----------
    totals
        int64[m], the number of scores in each cell, each positive; or their weights, float64[m], for which
        ranks are not rounded down.
    bins
        B, at least 1.

    Returns
    -------
    int64[B'+1] with B' ≤ B; ``[0, m]`` for a single bin.

    Raises
    ------
    ValueError
        if ``bins`` is less than 1.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins!r}")
    return uniform_mass_of_each(totals, [bins])[0] if len(totals) else np.zeros(2, np.int64)


def _ranks(n: Any, edges: Counts, bins: Counts) -> npt.NDArray[Any]:
    """Return ⌊nb/B⌋ for edge b of B bins, int64[k]: exact, though n·b may exceed 64 bits; nb/B of weights."""
    if isinstance(n, np.floating):
        return n * (edges / bins)
    whole, rest = np.divmod(n, bins)
    ranks: Counts = whole * edges + rest * edges // bins
    return ranks


def _nearest_boundaries(ends: npt.NDArray[Any], ranks: npt.NDArray[Any]) -> Counts:
    """Return the cell boundary nearest to each rank, as the number of cells below the boundary, int64[k]."""
    above = np.minimum(np.searchsorted(ends, ranks), len(ends) - 1)  # this cell ends at or above the rank
    below_rank = np.where(above > 0, ends[above - 1], 0)
    nearest: Counts = np.where(ranks - below_rank <= ends[above] - ranks, above, above + 1)
    return nearest


def bin_sums(counts: npt.NDArray[_Number], splits: Counts) -> npt.NDArray[_Number]:
    """Return the sum of the counts of each bin's cells, int64[B], for counts int64[m]; or of float64."""
    sums: npt.NDArray[_Number] = np.diff(np.concatenate(([0], np.cumsum(counts)))[splits])
    return sums


def leave_one_out_losses(positives: npt.NDArray[Any], totals: npt.NDArray[Any], squares: Floats) -> Floats:
    """Return the sum of the leave-one-out squared errors in each bin, in closed form, float64[B].

    S (1 − (S−1)/(N−1))² + (N−S) (S/(N−1))², for S positives among N labels. A bin with a single score counts
    with the largest loss, 1, because no other label can predict its label. Weighted labels are treated as
    (Σw)² / Σw² labels of equal weight Σw² / Σw.
    """
    out: Floats = np.empty(len(totals))
    put_losses_left_out(positives.astype(np.float64), totals.astype(np.float64), squares, out)
    return out


def effective(totals: npt.NDArray[Any], squares: Floats) -> int:
    """Return the effective number of labels, rounded down, at least 1."""
    n = float(totals.sum())
    return max(1, int(n * (n / float(squares.sum()))))


def candidate_bins(n: int, cells: int) -> list[int]:
    """Return the values of B that ``"auto"`` compares: a geometric grid from 1 to 2√n, at most ``cells``.

    The best B grows as n^(1/3) (section 4.2). Much larger values would be chosen by noise only.
    """
    largest = max(1, min(2 * math.isqrt(n), cells))
    steps = int(np.log(largest) / np.log(_RATIO)) + 1
    return sorted({min(largest, round(_RATIO**step)) for step in range(steps + 1)})


def choose_bins(negatives: npt.NDArray[Any], positives: npt.NDArray[Any], squares: Floats) -> int:
    """Return the candidate B with the lowest smoothed leave-one-out Brier score, the smallest of equals.

    The score of each candidate is first averaged over its neighbours, with Gaussian weights of standard
    deviation √2 as a factor in B. The risk is flat around its minimum, so noise would decide between bare
    scores; on D(0.5), smoothing lowers the mean risk by 5 to 15 %.

    Parameters
    ----------
    negatives, positives
        the number of labels 0 and 1 in each cell, int64[m], or their weights.
    """
    totals = negatives + positives
    candidates = candidate_bins(effective(totals, squares), len(totals))
    scores = _leave_one_out_brier_of_each(positives, totals, candidates, squares)
    smooth = np.convolve(np.pad(scores, _REACH, mode="edge"), _KERNEL / _KERNEL.sum(), "valid")
    return candidates[int(np.argmin(smooth))]


def _leave_one_out_brier_of_each(
    positives: npt.NDArray[Any],
    totals: npt.NDArray[Any],
    candidates: list[int],
    squares: Floats,
) -> Floats:
    """Return the mean of `leave_one_out_losses` under `uniform_mass` for each candidate, float64[k]."""
    splits, first = uniform_mass_of_each(totals, candidates)
    # Skip the "bin" between the last edge of a candidate and the first edge of the next.
    sums = bin_sums(positives, splits), bin_sums(totals, splits), bin_sums(squares, splits)
    losses = leave_one_out_losses(*sums)
    last = np.append(first[1:], len(splits)) - 1
    lost = [losses[begin:end].sum() for begin, end in zip(first, last, strict=True)]
    return np.array(lost) / float(totals.sum())


def uniform_mass_of_each(totals: npt.NDArray[Any], candidates: list[int]) -> tuple[Counts, Counts]:
    """Return the splits of `uniform_mass` for each number of bins, one after the other.

    One pass handles the edges of all: most have so few bins that separate calls would cost more than the
    arithmetic.

    Returns
    -------
    The splits of all numbers, each from 0 to m; and the index at which the splits of each number begin,
    int64[k].
    """
    ends = np.cumsum(totals)
    m = len(totals)
    sizes = np.array(candidates) + 1  # edges of each candidate, including those at 0 and 1
    starts = np.cumsum(sizes) - sizes
    edge = np.arange(int(sizes.sum())) - np.repeat(starts, sizes)
    splits = _nearest_boundaries(ends, _ranks(ends[-1], edge, np.repeat(sizes - 1, sizes)))
    splits[starts], splits[starts + sizes - 1] = 0, m
    kept = np.concatenate(([True], splits[1:] != splits[:-1]))  # no bin lies between equal edges
    kept[starts] = True
    splits = splits[kept]
    return splits, np.flatnonzero(splits == 0)


def cube_root(n: int) -> int:
    """Return ⌊n^(1/3)⌋, at least 1, exactly: floating point gives 9 for n = 1000."""
    root = int(float(n) ** (1 / 3))
    while root**3 > n:
        root -= 1
    while (root + 1) ** 3 <= n:
        root += 1
    return max(1, root)
