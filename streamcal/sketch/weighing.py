"""Weights of labels, and how many labels weighted ones are worth.

Where labels come for some predictions only, each counts for those that it stands for: its weight is one over
the chance that it was seen (inverse propensity weighting; Horvitz and Thompson, 1952). Sums of weights of 1
are exact. Sums of others depend on the order of the labels, but for that by rounding only.

Weights estimate the deployment, and are no evidence: n labels of one weight say as much as n without weights.
A result that depends on the amount of evidence uses the effective number of labels, (Σw)² / Σw² (Kish, 1965).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.values import Floats, Labels, shown, unmasked

LIGHTEST: Final = 1e-9
"""Smallest weight."""

HEAVIEST: Final = 10_000.0
"""Largest weight: a label with one chance in ten thousand."""

_MOST: Final = 1e40  # of a sum of weights, or of their squares
_Sum: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=_MOST)]

_EVEN: Final = 1e-9


class Mass(NamedTuple):
    """Sums of the weights of labels."""

    positives: _Sum
    """Σw over the labels 1."""
    labels: _Sum
    """Σw over all labels."""
    squares: _Sum
    """Σw² over all labels."""

    def with_labels(self, labels: Labels, weights: Floats | None) -> Mass:
        """Return the mass with more labels, int8[n]; ``weights``, float64[n]: None: all are 1.

        The sums are added to label by label: it makes no difference how labels come in parts.
        """
        if self.labels == self.squares and other_than_one(weights) is None:
            n = len(labels)
            return Mass(self.positives + float(np.count_nonzero(labels)), self.labels + n, self.squares + n)
        w = np.ones(len(labels)) if weights is None else weights
        rows = np.concatenate((np.array(self)[:, np.newaxis], (labels * w, w, w * w)), axis=1)
        return Mass(*np.cumsum(rows, axis=1)[:, -1].tolist())

    def plus(self, other: Mass) -> Mass:
        """Return the mass of both."""
        return Mass(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def even(self, n: int) -> bool:
        """Return whether these n labels have one weight, up to a relative variance of 1e-9."""
        return math.isclose(self.labels**2, n * self.squares, rel_tol=_EVEN)

    def effective(self) -> tuple[float, float]:
        """Return (positives, labels) with the effective number of labels and their weighted rate."""
        scale = self.labels / self.squares if self.squares else 0.0  # exactly 1 without weights
        return scale * self.positives, scale * self.labels


NONE: Final = Mass(0.0, 0.0, 0.0)
"""Mass of no labels."""


class Weighed(NamedTuple):
    """Weighted labels of each cell."""

    masses: npt.NDArray[Any]
    """Σw per class and cell, float64[2, m]; int64 if all weights are 1."""
    squares: Floats
    """Σw² per cell, float64[m]."""

    @property
    def labels(self) -> float:
        """The effective number of labels; their number where all have the same weight."""
        total = float(self.masses.sum())
        return total * (total / float(self.squares.sum()))


def other_than_one(weights: Floats | None) -> Floats | None:
    """Return weights, float64[n]; None if all are 1."""
    return None if weights is None or (weights == 1.0).all() else weights


def joined(*parts: tuple[int, Floats | None], size: int) -> Floats | None:
    """Return the latest ``size`` weights of labels that came in parts, float64; None if all are 1.

    Parameters
    ----------
    *parts
        number of labels, and their weights, float64[number]; None: all are 1.
    """
    for _, weights in parts:
        if weights is not None:
            break
    else:
        return None
    columns = [np.ones(number) if weights is None else weights for number, weights in parts]
    return other_than_one(np.concatenate(columns)[-size:])


def check_weight(weight: object) -> float:
    """Return a weight as a float.

    Raises
    ------
    ValueError
        if it is not a number from 1e-9 to 10,000.
    """
    value = _number(weight)
    if not LIGHTEST <= value <= HEAVIEST:
        raise ValueError(f"a weight must be a number from 1e-9 to 10000, got {shown(weight)}")
    return value


def check_propensity(propensity: object) -> float:
    """Return the weight of a label that was seen with this probability: one over it.

    Raises
    ------
    ValueError
        if it is not a number from 0.0001 to 1.
    """
    value = _number(propensity)
    if not 1.0 / HEAVIEST <= value <= 1.0:
        raise ValueError(
            "a propensity, the chance that the label is seen, must be a number from 0.0001 to 1, got"
            f" {shown(propensity)}"
        )
    return min(1.0 / value, HEAVIEST)


def as_weights(weights: Any, count: int) -> Floats | None:
    """Return an array-like of weights as float64[n]; None if all are 1.

    Raises
    ------
    ValueError
        if they are not n, or one is out of range; the message then names its index.
    """
    given = unmasked("weights", weights)
    if given.ndim != 1:
        raise ValueError(f"weights must be one-dimensional, got an array of shape {given.shape}")
    if len(given) != count:
        raise ValueError(f"{count} labels but {len(given)} weights")
    values = given.astype(np.float64) if given.dtype.kind in "fui" else np.full(count, np.nan)
    for index in np.flatnonzero(~((values >= LIGHTEST) & (values <= HEAVIEST))).tolist():
        try:
            values[index] = check_weight(given[index : index + 1].tolist()[0])
        except ValueError as error:
            raise ValueError(f"index {index}: {error}") from None
    return other_than_one(values)


def _number(value: object) -> float:
    """Return a value as a float; NaN if it is no number."""
    if isinstance(value, bool | np.bool_ | str | bytes):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
