"""Sums over labels: of groups, see `streamcal.quality.groups`, and of classes, see `class_sums`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal.values import Counts, Floats

__all__ = ["add_labels", "add_to_bins", "places_of"]


def places_of(names: Sequence[str | None], places: dict[str | None, int]) -> npt.NDArray[np.int64]:
    """Return the place of each name, int64[n]; a new one gets the next."""
    found = np.empty(len(names), np.int64)
    out: Any = found.data
    for i, name in enumerate(names):
        place = places.get(name)
        if place is None:
            place = places[name] = len(places)
        out[i] = place
    return found


def add_labels(sums: Floats, at: npt.NDArray[np.int64], forecasts: Floats, labels: Floats) -> None:
    """Add labels one by one, so that it makes no difference how they come in parts.

    Parameters
    ----------
    sums
        float64[groups, 6], which are added to. For each group: number of labels, sum of the served
        probabilities, sum of the labels, sum of the squares of label − probability about their mean so far,
        and squared errors of scores and of served probabilities.
    at
        group of each label, int64[n].
    forecasts, labels
        scores and served probabilities in [0, 1], float64[2, n]; labels, each 0 or 1, float64[n].
    """
    for i in range(len(at)):
        row, score, forecast, label = at[i], forecasts[0, i], forecasts[1, i], labels[i]
        count = sums[row, 0]
        expected = (sums[row, 2] - sums[row, 1]) / count if count > 0.0 else 0.0
        error = label - forecast
        sums[row, 0] = count + 1.0
        sums[row, 1] += forecast
        sums[row, 2] += label
        sums[row, 3] += (error - expected) * (error - expected)
        sums[row, 4] += (score - label) * (score - label)
        sums[row, 5] += error * error


def add_to_bins(bins: Floats, forecasts: Floats, codes: Counts, weights: Floats) -> None:
    """Add labels one by one, as `add_labels` does.

    Parameters
    ----------
    bins
        of equal width, float64[3, K, bins], which are added to. For each class and bin: the weight of its
        forecasts, their weighed sum, and the weight of the labels of that class.
    forecasts
        in [0, 1], float64[n, K].
    codes, weights
        places of the labels' classes, int64[n], and what they count for, float64[n].
    """
    count = bins.shape[2]
    for i in range(forecasts.shape[0]):
        weight = weights[i]
        for k in range(forecasts.shape[1]):
            place = int(forecasts[i, k] * count)
            place = min(place, count - 1)
            bins[0, k, place] += weight
            bins[1, k, place] += weight * forecasts[i, k]
            if k == codes[i]:
                bins[2, k, place] += weight
