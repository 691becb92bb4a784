"""Uniform-mass binning of a whole sample at once: the paper's definition, by order statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal import grid
from streamcal.maps import RecalibrationMap

__all__ = ["uniform_mass_binning"]


def uniform_mass_binning(scores: Any, labels: Any, bins: int) -> RecalibrationMap:
    """Return the recalibration map ĥ of the uniform-mass binning scheme (Definition 7, eq. 10).

    Bin b holds the scores in (u_{b−1}, u_b], u_b = z_(⌊nb/B⌋), and maps them to the mean of their labels.
    Bins that ties leave empty are dropped, so there may be fewer than B.

    Parameters
    ----------
    scores, labels
        array-likes of length n ≥ 1: scores in [0, 1], labels 0 or 1.
    bins
        B, from 1 to n.

    Returns
    -------
    A map of version 1. Its edges are the next float64 above u_b, because a `RecalibrationMap` closes bins
    on the left: the same sets of float64 scores.

    Raises
    ------
    ValueError
        on bad values, lengths that differ, an empty sample, or B out of range.

    Examples
    --------
    >>> uniform_mass_binning([0.1, 0.2, 0.6, 0.7], [0, 1, 1, 1], bins=2).values
    (0.5, 1.0)
    """
    values, classes = grid.as_scores(scores), grid.as_labels(labels)
    n = len(values)
    if n != len(classes):
        raise ValueError(f"{n} scores but {len(classes)} labels")
    if not 1 <= bins <= n:
        raise ValueError(f"bins must be from 1 to the number of scores, {n}, got {bins!r}")
    order = np.argsort(values, kind="stable")
    ranks = n * np.arange(1, bins, dtype=np.int64) // bins
    upper = np.unique(values[order][ranks - 1])  # u_1, …, u_{B−1}
    upper = upper[upper < values[order[-1]]]
    places = np.searchsorted(upper, values, side="left")
    totals = np.bincount(places, minlength=len(upper) + 1)
    positives = np.bincount(places, weights=classes, minlength=len(upper) + 1)
    edges = np.nextafter(upper, 1.0)
    return RecalibrationMap(
        version=1, edges=(0.0, *edges.tolist(), 1.0), values=tuple((positives / totals).tolist())
    )
