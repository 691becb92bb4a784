"""The map of ``bins="auto"``: steps, or a line, through the rates of uniform-mass bins.

Neighbouring bins whose rates contradict a non-decreasing h are pooled to blocks (isotonic regression;
assumption A2 of the paper). Three curves go through what is left:

* steps: one value for each block;
* a line in log-odds through the means of the blocks;
* the same line through the means of all bins: level where bins were pooled.

The first line is best where rates rise smoothly, the second where they rise here and stay level there, steps
where they jump. The number of bins B, and then the curve, is chosen by cross-validation in closed form: the
squared errors on the labels that the curve was fitted to, plus twice the covariance of each label with its
own forecast (Efron 2004, "The Estimation of Prediction Error"; of steps, the leave-one-out errors). Noise
would often decide between the curves, so the first line is replaced only if another is better by more than
one standard error. A line tells no scores apart that are nearer to 0 or 1 than 2⁻⁴⁰; steps do.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.base.values import Cells, Counts, Floats
from streamcal.maps import binning
from streamcal.maps.fits_c import STEPS, Curves
from streamcal.maps.platt import cell_logits, narrowed
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.uniform_mass import inner_edges

_RATIO: Final = 2**0.5  # between neighbouring numbers of bins
_GROUPS: Final = 512  # of cells, at most, on which curves are compared: four for each of the most bins


class Curve(NamedTuple):
    """A fitted curve."""

    steps: bool
    """Whether the curve is one of steps; else it is a line in log odds."""
    ends: Floats
    """Inner edges between the steps, float64[k − 1]; or logits of the knots, float64[k]."""
    values: Floats
    """Value of each step, or log odds at each knot, float64[k]."""
    loss: float
    """Brier score expected on new labels, in [0, 1]."""

    @property
    def map(self) -> RecalibrationMap:
        """Curve as a map of version 0."""
        ends, values = tuple(self.ends.tolist()), tuple(self.values.tolist())
        if self.steps:
            return RecalibrationMap(version=0, edges=(0.0, *ends, 1.0), values=values)
        return RecalibrationMap(version=0, kind="linear", knots=ends, log_odds=values)


def fit_curve(
    cells: Cells,
    level: int,
    counts: npt.NDArray[Any],
    *,
    monotone: bool = True,
    squares: Floats | None = None,
    logits: Floats | None = None,
) -> Curve:
    """Fit the map of ``bins="auto"``.

    Parameters
    ----------
    cells, level
        the grid, int32[m], m at least 1.
    counts
        labels per class and cell, int64[2, m]; no cell is empty. If labels have weights, the sums of the
        weights.
    monotone
        whether neighbouring bins are pooled so that the map does not decrease.
    squares
        the sums of the squares of the weights, float64[m]; None: all are 1.
    logits
        the `platt.wide_logit` of the middle of each cell, float64[m]; None: it is worked out.
    """
    totals = counts[0] + counts[1]
    squares = totals.astype(np.float64) if squares is None else squares
    logits = cell_logits(cells, level) if logits is None else narrowed(logits)
    labels = np.array((counts[1], totals, squares, logits))
    whole = binning.is_whole(totals)
    drawn, n = Curves(labels, whole=whole, monotone=monotone), binning.effective(totals, squares)
    # The best number grows as n^(1/3); larger ones would be chosen by noise.
    most = 2.0 * math.sqrt(n)
    numbers = _numbers(int(math.log(most, _RATIO)))
    bins, curve, lost = drawn.choose(numbers, min(_GROUPS, math.ceil(4.0 * most)))
    loss = min(1.0, lost / float(totals.sum()))
    drawn.draw(bins)
    if curve == STEPS:
        starts, values = drawn.steps()
        return Curve(True, inner_edges(cells, level, starts), values, loss)
    return Curve(False, *drawn.line(curve), loss)


@cache
def _numbers(steps: int) -> Counts:
    """Return the numbers of bins that are compared, of so many steps from 1 on: int64[N], ascending."""
    return np.array(sorted({round(_RATIO**step) for step in range(steps + 1)}))
