"""ADWIN: where, in a stream of values in [0, 1], the mean last changed (Bifet and Gavaldà 2007).

The stream is kept as panes, counts and sums of neighbouring values, fine where they are recent and coarser
with age, so that there are O(log n) of them. The window begins anew where its older and its newer part, for
any cut between panes, have means that differ by more than chance allows. Two things differ from ADWIN2:

* Its cut follows Bernstein's inequality with a normal approximation, this one Bennett's, which is sharper,
  and far sharper for rare events: k·σ²/b²·φ(b·d/σ²), φ(x) = (1+x)·log(1+x) − x, for k values whose mean lies
  d from that of all and which reach b in that direction, summed over both parts, against log(n/δ).
* It drops old panes one by one until no cut is significant, which keeps what is too little to be significant.
  Here all that came before the likeliest cut goes at once.

σ² is the window's own variance in place of the true one, as in ADWIN2, so that δ, for a false alarm at a
given look, is nominal: tests/priors/test_adwin.py states what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["change_point", "deviations", "grouped"]

_RESOLUTION: Final = 4  # a pane is at most this part of what is newer: a cut is never far from the change
_ROUNDING: Final = 1e-12  # of a variance of values in [0, 1] that are all alike

Floats = npt.NDArray[np.float64]


def deviations(counts: npt.NDArray[np.int64], sums: Floats, squares: Floats) -> Floats:
    """Return how far from chance the two parts on either side of every cut are apart.

    Parameters
    ----------
    counts, sums, squares
        per pane, oldest first: int64[J] numbers of values in [0, 1]; float64[J] their sums, and those of
        their squares.

    Returns
    -------
    float64[J−1], for the cut before pane 1, 2, …: the exponent of Bennett's inequality, in nats; 0 where a
    part is empty.
    """
    n, total = int(counts.sum()), float(sums.sum())
    mean = total / n if n else 0.0
    variance = float(squares.sum()) / n - mean * mean if n else 0.0
    if variance <= _ROUNDING:
        return np.zeros(len(counts) - 1)
    older, older_sum = np.cumsum(counts)[:-1], np.cumsum(sums)[:-1]
    exponent = np.zeros(len(counts) - 1)
    for part, part_sum in ((older, older_sum), (n - older, total - older_sum)):
        apart = part_sum / np.maximum(part, 1) - mean
        reach = np.where(apart > 0.0, 1.0 - mean, mean)  # how far one value can lie on that side
        x = reach * np.abs(apart) / variance
        exponent += part * (variance / (reach * reach)) * ((1.0 + x) * np.log1p(x) - x)
    exponent[(older == 0) | (older == n)] = 0.0
    return exponent


def change_point(counts: npt.NDArray[np.int64], sums: Floats, squares: Floats, delta: float) -> int:
    """Return the pane that the last significant change of the mean came before; 0: there was none.

    Parameters
    ----------
    counts, sums, squares
        see `deviations`.
    delta
        δ in (0, 1), the nominal probability of a false alarm.
    """
    if len(counts) < 2:
        return 0
    exponent = deviations(counts, sums, squares)
    cut = int(np.argmax(exponent))
    return cut + 1 if exponent[cut] > math.log(max(int(counts.sum()), 1) / delta) else 0


def grouped(sizes: Sequence[int], finest: int, longest: int, *, adaptive: bool) -> list[int]:
    """Return which panes to begin new ones with, when neighbours are to be merged.

    Parameters
    ----------
    sizes
        of the panes, oldest first.
    finest, longest
        up to which size neighbours are always merged, and up to which they ever are.
    adaptive
        whether, in between, a pane may be a quarter as long as all that is newer; else the longest holds.

    Returns
    -------
    Ascending indices, the first 0; empty without panes.
    """
    starts: list[int] = []
    newer, size = sum(sizes), 0
    for i, more in enumerate(sizes):
        newer -= more
        limit = min(longest, max(finest, newer // _RESOLUTION)) if adaptive else longest
        if starts and size + more <= limit:
            size += more
        else:
            starts.append(i)
            size = more
    return starts
