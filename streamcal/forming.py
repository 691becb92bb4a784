"""Forming a uniform-mass map from the cells of a labelled sketch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal import binning, grid
from streamcal.maps import RecalibrationMap
from streamcal.sketch import ScoreSketch

__all__ = ["UniformMass", "form"]


class UniformMass(NamedTuple):
    """A uniform-mass map, and how its bins came about."""

    map: RecalibrationMap
    """h (eq. 10), as version 0."""
    splits: npt.NDArray[np.int64]
    """int64[B+1], the cells where the bins begin."""
    choices: int
    """From how many binnings it was chosen with the labels in view."""


def form(sketch: ScoreSketch, rule: binning.BinRule) -> UniformMass:
    """Return the uniform-mass map of a labelled sketch that is not empty."""
    cells = sketch.cells
    negatives, positives = sketch.counts
    totals = negatives + positives
    choices = 1
    if rule == "auto":
        bins = binning.choose_bins(negatives, positives)
        choices = len(binning.candidate_bins(sketch.n, len(cells)))
    elif rule == "cube_root":
        bins = binning.cube_root(sketch.n)
    else:
        bins = rule
    splits = binning.uniform_mass(totals, bins)
    means = binning.bin_sums(positives, splits) / binning.bin_sums(totals, splits)
    # A bin ends where its last cell does: what falls between two occupied cells belongs to the upper bin.
    inner = grid.left_edges(cells[splits[1:-1] - 1] + np.int32(1), sketch.level)
    recalibration = RecalibrationMap(
        version=0, edges=(0.0, *inner.tolist(), 1.0), values=tuple(means.tolist())
    )
    return UniformMass(recalibration, splits, choices)
