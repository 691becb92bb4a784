"""Lines at many points, and weighted means of forecasts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["interpolate", "mix"]

Floats = npt.NDArray[np.float64]


def interpolate(knots: Floats, values: Floats, points: Floats, out: Floats) -> None:
    """Put a piecewise linear function at points, float64[n], into ``out``, float64[n].

    It is constant beyond its ends.

    Parameters
    ----------
    knots, values
        float64[p], p at least 1; the knots ascending, and two of them may be equal.
    """
    last = len(knots) - 1
    for i in range(len(points)):
        x = points[i]
        if x >= knots[last]:
            out[i] = values[last]
            continue
        if x < knots[0]:
            out[i] = values[0]
            continue
        low, high = 0, last  # knots[low] <= x < knots[high]
        while high - low > 1:
            middle = (low + high) // 2
            if x < knots[middle]:
                high = middle
            else:
                low = middle
        slope = (values[high] - values[low]) / (knots[high] - knots[low])
        out[i] = slope * (x - knots[low]) + values[low]


def mix(weights: Floats, forecasts: Floats, ends: npt.NDArray[np.int64], out: Floats) -> None:
    """Put weighted means of forecasts into ``out``, float64[r, n].

    Parameters
    ----------
    weights
        Of s parts, float64[s, r, K].
    forecasts
        float64[K, n].
    ends
        Where each part ends, int64[s]; the last is n.
    """
    start = 0
    for each in range(len(ends)):
        for row in range(len(out)):
            for i in range(start, ends[each]):
                out[row, i] = 0.0
            for k in range(len(forecasts)):
                weight = weights[each, row, k]
                if weight != 0.0:
                    for i in range(start, ends[each]):
                        out[row, i] += weight * forecasts[k, i]
        start = ends[each]
