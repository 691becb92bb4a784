"""Quality of forecasts of many classes: sums, added up label by label in bounded memory.

The class-wise calibration error (Kull et al., NeurIPS 2019) is, over all classes, the mean of the calibration
error of the probability of one class, over `BINS` bins of equal width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Self

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.sketch.decoding import Finite

BINS: Final = 15
_LEAST: Final = 1e-15


class ClassFigures(msgspec.Struct):
    """Figures of forecasts of many classes; None without labels."""

    accuracy: float | None = None
    """Share of labels whose class had the highest forecast, the first of equal ones."""
    log_loss: float | None = None
    """Mean of −ln of the probability that was given to the label, at least 10⁻¹⁵."""
    brier: float | None = None
    """Mean of Σ (forecast − 1 if it is the label's class)² over all classes."""
    class_ece: float | None = None
    """Class-wise calibration error."""


class ClassSums(msgspec.Struct):
    """Sums of scores and of probabilities, one behind the other."""

    names: list[str]
    """Names of the classes."""
    labels: Finite = 0.0
    """Sum of the labels' weights."""
    sums: list[list[Finite]] = msgspec.field(default_factory=lambda: [[0.0] * 3, [0.0] * 3])
    """Right decisions, log losses and squares, of each side."""
    bins: Floats = msgspec.field(default_factory=partial(np.empty, 0))
    """Number of forecasts, sum of forecasts, and number of labels of that class: float64[3 · 2 K BINS]."""

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """Return those of no label yet."""
        return cls(list(names), bins=np.zeros(6 * len(names) * BINS))

    def __post_init__(self) -> None:
        self.bins = self.bins.reshape(6 * len(self.names) * BINS)

    def rows(self, memos: Sequence[bytes]) -> Floats:
        """Return scores and forecasts, float64[n, 2, K], of what the join has kept with n predictions."""
        classes = len(self.names)
        numbers = [np.frombuffer(each, "<f8", 2 * classes) for each in memos]
        return np.array(numbers, np.float64).reshape(-1, 2, classes)

    def add(
        self, sides: Floats, codes: Counts, weights: Floats | None = None
    ) -> tuple[list[str], Floats, Floats]:
        """Add labels.

        Parameters
        ----------
        sides
            what `rows` returned.
        codes
            places of the classes, int[n].
        weights
            weights of the labels, float64[n]; None: all are 1.

        Returns
        -------
        Each class against the others, for `Groups.add`: K names, float64[2, n K] and float64[n K].
        """
        classes = len(self.names)
        each = np.ones(len(codes)) if weights is None else weights
        self.labels = float(np.cumsum([self.labels, *each])[-1])  # in whatever parts
        bins = self.bins.reshape(3, 2, classes, BINS)
        for side, sums in enumerate(self.sums):
            forecasts = sides[:, side]
            for index, values in enumerate(figures_of(forecasts, codes)):
                sums[index] = float(np.cumsum([sums[index], *(each * values)])[-1])  # in whatever parts
            add_to_bins(bins[:, side], forecasts, codes, each)
        ones = np.arange(classes) == codes[:, np.newaxis]
        against = sides.transpose(1, 0, 2).reshape(2, -1)
        return self.names, against, ones.ravel().astype(np.float64)

    def figures(self, side: int) -> ClassFigures:
        """Return the figures of the scores, 0, or of the probabilities, 1."""
        if not self.labels:
            return ClassFigures()
        right, losses, squares = (each / self.labels for each in self.sums[side])
        _, forecasts, ones = self.bins.reshape(3, 2, -1, BINS)[:, side]
        errors = np.abs(forecasts - ones).sum(axis=1) / self.labels
        return ClassFigures(right, losses, squares, float(errors.mean()))


def add_to_bins(bins: Floats, forecasts: Floats, codes: Counts, weights: Floats) -> None:
    """Add labels one by one, so that it makes no difference how they come in parts.

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
    count, classes = bins.shape[2], np.arange(bins.shape[1])
    at = np.minimum((forecasts * count).astype(np.int64), count - 1)
    ones, each = classes == codes[:, np.newaxis], weights[:, np.newaxis]
    for sums, values in zip(bins, (each, each * forecasts, each * ones), strict=True):
        np.add.at(sums, (classes, at), values)


def figures_of(forecasts: Floats, codes: Counts) -> tuple[Floats, Floats, Floats]:
    """Return, of each label, whether its class had the highest forecast, its log loss and its squares."""
    given = forecasts[np.arange(len(codes)), codes]
    squares = np.square(forecasts).sum(axis=1) - np.square(given) + np.square(1.0 - given)
    right = (forecasts.argmax(axis=1) == codes).astype(np.float64)
    return right, -np.log(np.maximum(given, _LEAST)), squares
