"""ADWIN: finds the last change of the mean of a stream of values in [0, 1] (Bifet and Gavaldà 2007).

The stream is kept in panes: counts and sums of neighbouring values. Recent panes are short and older ones
longer, so there are O(log n) of them. The window restarts at a cut between two panes if the means of the
older and the newer part differ by more than chance allows. Two things differ from ADWIN2:

* ADWIN2 tests a cut by Bernstein's inequality with a normal approximation. This module uses Bennett's
  inequality, which is sharper, and far sharper for rare events: for a part of k values whose mean lies d from
  the mean of all, and whose values lie at most b from it in that direction, the exponent is
  k·σ²/b²·φ(b·d/σ²), φ(x) = (1+x)·log(1+x) − x. The sum over both parts is compared with log(n/δ).
* ADWIN2 drops old panes one by one until no cut is significant. It so keeps old values that are too few to be
  significant. Here everything before the likeliest cut is dropped at once.

As in ADWIN2, the variance of the window stands in for the true σ². So δ, the probability of a false alarm at
one test, is nominal; the tests of this module state what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from streamcal.base.values import Counts, Floats

# A pane is at most 1/4 as long as everything newer: a cut is never far from the change.
_RESOLUTION: Final = 4
_ROUNDING: Final = 1e-12  # the variance of equal values in [0, 1] is at most this, by rounding


def deviations(counts: Counts, sums: Floats, squares: Floats) -> Floats:
    """Return how unlikely the difference is between the two parts on either side of each cut.

    Parameters
    ----------
    counts, sums, squares
        per pane, oldest first: the number of values in [0, 1], int64[J]; their sum, and the sum of their
        squares, float64[J].

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


def change_point(counts: Counts, sums: Floats, squares: Floats, delta: float) -> int:
    """Return the index of the first pane after the last significant change of the mean; 0 if there is none.

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


def grouped(sizes: Sequence[int], finest: int, longest: int) -> list[int]:
    """Return the first pane of each merged pane, when neighbours are merged as far as allowed.

    Parameters
    ----------
    sizes
        numbers of values in the panes, oldest first.
    finest, longest
        neighbours are always merged up to size ``finest``, and never beyond ``longest`` or, if that is more
        than ``finest``, a quarter of everything newer.

    Returns
    -------
    Ascending indices, the first 0; empty without panes.
    """
    starts: list[int] = []
    newer, size = sum(sizes), 0
    for i, more in enumerate(sizes):
        newer -= more
        limit = min(longest, max(finest, newer // _RESOLUTION))
        if starts and size + more <= limit:
            size += more
        else:
            starts.append(i)
            size = more
    return starts
