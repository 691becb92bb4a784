"""Uniform-mass maps (Definition 6, eq. 9): from the cells of a sketch, or from a sample."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamcal.base.values import Cells, Counts, Floats
from streamcal.maps import binning
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch import checks, grid
from streamcal.sketch.score_sketch import ScoreSketch


class UniformMass(NamedTuple):
    """A uniform-mass map, with its bins and the number of binnings compared."""

    map: RecalibrationMap
    """The map h (eq. 9), as version 0."""
    splits: Counts
    """First cell of each bin, then m: int64[B+1] from 0 to m."""
    choices: int
    """Number of binnings that were compared by their labels, at least 1."""


def form(sketch: ScoreSketch, rule: binning.BinRule) -> UniformMass:
    """Return the uniform-mass map of a labelled sketch with at least one score.

    Labels count with their weights, so bins have equal mass in the deployment, as far as weights tell.
    """
    cells = sketch.cells
    (negatives, positives), squares = sketch.weighed
    totals = negatives + positives
    choices = 1
    if rule == "auto":
        bins = binning.choose_bins(negatives, positives, squares)
        choices = len(binning.candidate_bins(binning.effective(totals, squares), len(cells)))
    elif rule == "cube_root":
        bins = binning.cube_root(binning.effective(totals, squares))
    else:
        bins = rule
    splits = binning.uniform_mass(totals, bins)
    means = np.add.reduceat(positives, splits[:-1]) / np.add.reduceat(totals, splits[:-1])
    edges = (0.0, *inner_edges(cells, sketch.level, splits).tolist(), 1.0)
    return UniformMass(
        RecalibrationMap(version=0, edges=edges, values=tuple(means.tolist())), splits, choices
    )


def inner_edges(cells: Cells, level: int, splits: Counts) -> Floats:
    """Return the edges between bins of cells of the grid, int32[m], as scores: float64[B − 1].

    ``splits`` are the first cell of each bin, then m: int64[B+1] from 0 to m. A bin ends with its last
    occupied cell: scores in empty cells after it belong to the next bin.
    """
    return grid.left_edges(cells[splits[1:-1] - 1] + np.int32(1), level)


def uniform_mass_binning(scores: Any, labels: Any, bins: int) -> RecalibrationMap:
    """Return the recalibration map ĥ of the uniform-mass binning scheme (Definition 6, eq. 9).

    Bin b contains the scores in (u_{b−1}, u_b], u_b = z_(⌊nb/B⌋), and maps them to the mean of their labels.
    Bins that are empty because of ties are dropped, so there may be fewer than B.

    Parameters
    ----------
    scores, labels
        array-likes of length n ≥ 1: scores in [0, 1], labels 0 or 1.
    bins
        B, from 1 to n.

    Returns
    -------
    A map of version 1. Its edges are the next float64 above u_b: a `RecalibrationMap` closes bins on the
    left, so the bins contain the same float64 scores. Only 1 − 2⁻⁵³, the last before 1, shares
    its bin with 1.

    Raises
    ------
    ValueError
        if a value is bad, the lengths differ, the sample is empty, or B is out of range.

    Examples
    --------
    >>> uniform_mass_binning([0.1, 0.2, 0.6, 0.7], [0, 1, 1, 1], bins=2).values
    (0.5, 1.0)
    """
    values, classes = checks.as_scores(scores), checks.as_labels(labels)
    n = len(values)
    if n != len(classes):
        raise ValueError(f"{n} scores but {len(classes)} labels")
    if not 1 <= bins <= n:
        raise ValueError(f"bins must be from 1 to the number of scores, {n}, got {bins!r}")
    order = np.argsort(values, kind="stable")
    ranks = n * np.arange(1, bins, dtype=np.int64) // bins
    upper = np.unique(values[order][ranks - 1])  # u_1, …, u_{B−1}
    upper = upper[(upper < values[order[-1]]) & (np.nextafter(upper, 1.0) < 1.0)]
    bin_of = np.searchsorted(upper, values, side="left")
    totals = np.bincount(bin_of, minlength=len(upper) + 1)
    positives = np.bincount(bin_of, weights=classes, minlength=len(upper) + 1)
    edges = np.nextafter(upper, 1.0)
    return RecalibrationMap(
        version=1, edges=(0.0, *edges.tolist(), 1.0), values=tuple((positives / totals).tolist())
    )
