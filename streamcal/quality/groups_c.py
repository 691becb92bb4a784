"""Sums over the labels of groups, see `streamcal.quality.groups`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcal.values import Floats

__all__ = ["add_labels", "places_of"]


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
