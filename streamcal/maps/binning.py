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

from streamcal.base.values import Counts, Floats
from streamcal.maps.fits_c import put_losses_left_out, put_splits

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
    if not len(totals):
        return np.zeros(2, np.int64)
    splits = np.empty(len(totals) + 1, np.int64)
    ends = np.cumsum(totals)
    return splits[: put_splits(ends.astype(np.float64, copy=False), bins, is_whole(totals), splits)]


def is_whole(totals: npt.NDArray[Any]) -> bool:
    """Return whether these are counts, not sums of weights."""
    return totals.dtype.kind in "iu"


def bin_sums(counts: npt.NDArray[_Number], splits: Counts) -> npt.NDArray[_Number]:
    """Return the sum of the counts of each bin's cells, int64[B], for counts int64[m]; or of float64."""
    sums: npt.NDArray[_Number] = np.diff(np.concatenate(([0], np.cumsum(counts)))[splits])
    return sums


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
    """Return the candidate B with the lowest smoothed leave-one-out error, the smallest of equals.

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
    scores = np.empty(len(candidates))
    cells = np.array((positives, totals, squares), np.float64)
    put_losses_left_out(cells, is_whole(totals), np.array(candidates), scores)
    smooth = np.convolve(np.pad(scores, _REACH, mode="edge"), _KERNEL / _KERNEL.sum(), "valid")
    return candidates[int(np.argmin(smooth))]


def cube_root(n: int) -> int:
    """Return ⌊n^(1/3)⌋, at least 1, exactly: floating point gives 9 for n = 1000."""
    root = int(float(n) ** (1 / 3))
    while root**3 > n:
        root -= 1
    while (root + 1) ** 3 <= n:
        root += 1
    return max(1, root)
