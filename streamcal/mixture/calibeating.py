"""Calibeating: the mixture's own forecasts, corrected by the labels that came to forecasts like them.

Foster and Hart, "Calibeating" (2023); Gupta and Ramdas, "Online Platt scaling with calibeating" (2023). Ten
knots divide the forecasts; a label counts for the two knots next to its forecast, in proportion. The mean
excess of the labels at each knot, shrunk as if 1,000 more labels had confirmed the forecast, is interpolated
and added.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Calibeating"]

Floats = npt.NDArray[np.float64]

_KNOTS: Final = np.arange(0.05, 1.0, 0.1)
_NUMBERS: Final = np.arange(float(len(_KNOTS)))[:, np.newaxis]
_SHRINKAGE: Final = 1000.0  # labels


class Calibeating:
    """Sums over all labels so far, by knot."""

    __slots__ = ("_excess", "_labels")

    def __init__(self) -> None:
        self._excess: Floats = np.zeros(len(_KNOTS))  # of labels over forecasts
        self._labels: Floats = np.zeros(len(_KNOTS))

    def learn(self, forecasts: Floats, labels: npt.NDArray[np.int8], shares: Floats | None = None) -> None:
        """Learn the labels, int8[n], of uncorrected forecasts, float64[n] in [0, 1].

        ``shares`` is what each counts for, float64[n]; None: one.
        """
        places = np.minimum(np.maximum(10.0 * forecasts - 0.5, 0.0), len(_KNOTS) - 1.0)
        parts = np.abs(_NUMBERS - places)  # of each label at each knot, float64[10, n]
        np.subtract(1.0, parts, out=parts)
        np.maximum(parts, 0.0, out=parts)
        if shares is not None:
            parts *= shares
        self._labels = self._labels + parts.sum(axis=1)
        self._excess = self._excess + parts.dot(labels - forecasts)

    def correct(self, forecasts: Floats) -> Floats:
        """Return forecasts, float64[n] in [0, 1], corrected.

        None comes nearer to 0 or 1 than ½ / (N + 1) after N labels, unless it was so before.
        """
        nearest = 0.5 / (float(self._labels.sum()) + 1.0)
        corrected = np.interp(forecasts, _KNOTS, self._excess / (self._labels + _SHRINKAGE))
        corrected += forecasts
        np.minimum(corrected, np.maximum(forecasts, 1.0 - nearest), out=corrected)
        return np.maximum(corrected, np.minimum(forecasts, nearest), out=corrected)

    def merge(self, other: Calibeating) -> None:
        """Add the labels of the other."""
        self._excess = self._excess + other._excess
        self._labels = self._labels + other._labels

    def to_state(self) -> Floats:
        """Return the state, float64[20]."""
        return np.concatenate((self._excess, self._labels))

    def restore(self, state: Floats) -> bool:
        """Set the state, float64[20] of finite numbers; return whether it can be one."""
        self._excess, self._labels = np.split(state, 2)
        return bool((self._labels >= 0.0).all() and (np.abs(self._excess) <= self._labels + 1e-6).all())
