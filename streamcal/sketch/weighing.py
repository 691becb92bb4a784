"""Weights of labels as fixed-point numbers, and how many labels weighted ones are worth.

Where labels come for some predictions only, each counts for those that it stands for: its weight is one over
the chance that it was seen (inverse propensity weighting; Horvitz and Thompson, 1952). A weight is kept in
units of 1/256: sums of integers do not depend on the order of their terms, so a state stays a function of the
multiset of labels. Weights within half a unit of 1 are 1.

Weights estimate the deployment, and are no evidence: n labels of one weight say as much as n without weights.
A result that depends on the amount of evidence uses the effective number of labels, (Σw)² / Σw² (Kish, 1965).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Self

import numpy as np

from streamcal.sketch.cells import pack_numbers, unpack_numbers
from streamcal.sketch.counts_c import ONE
from streamcal.sketch.decoding import require
from streamcal.values import Cells, Counts, Floats, Labels, shown, unmasked

__all__ = [
    "HEAVIEST",
    "LIGHTEST",
    "NONE",
    "ONE",
    "Mass",
    "Weighed",
    "as_units",
    "check_propensity",
    "check_units",
    "check_weight",
    "fits",
    "heavy",
    "mass_of",
    "normalised",
    "pack_extra",
    "squares",
    "unit_weights",
    "units_of",
    "unpack_extra",
    "weighed",
]

LIGHTEST: Final = 1.0 / ONE
"""Smallest weight."""

_UNITS: Final = np.broadcast_to(np.array(ONE), 1 << 48)  # one number; cut to length by `unit_weights`
_NOWHERE: Final = np.empty(0, np.int64)

_SUM_TO_ONE: Final = 1e-4  # rounding of a sum of float32
HEAVIEST: Final = 10_000.0
"""Largest weight: a label with one chance in ten thousand. Sums of 10⁸ squares fit into int64."""


class Mass(NamedTuple):
    """Weight of labels beyond one each, in exact integers; all 0 if and only if all weights are 1."""

    positives: int
    """Σ (u − 256) over the labels 1, u being units."""
    labels: int
    """Σ (u − 256) over all labels."""
    squares: int
    """Σ (⌈u² / 256⌉ − 256) over all labels. Rounded up, so that only weights of 1 add up to 0: by the
    inequality of Cauchy and Schwarz, Σ u²/256 > 256 n where Σ u = 256 n and one u is not 256."""

    def plus(self, other: Mass) -> Mass:
        """Return the mass of both."""
        return Mass(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def effective(self, positives: int, labels: int) -> tuple[float, float]:
        """Return (positives, labels) with the effective number of labels and their weighted rate.

        Parameters
        ----------
        positives, labels
            number of labels 1 and of all labels, at least one.
        """
        if not any(self):
            return positives, labels
        mass = self.labels + ONE * labels
        number = mass**2 / (ONE * (self.squares + ONE * labels))
        return number * ((self.positives + ONE * positives) / mass), number

    @classmethod
    def of(cls, labels: Labels, units: Counts | None) -> Self:
        """Return the mass of labels, int8[n], with their units, int64[n]; None: all have weight 1."""
        if units is None:
            return cls(0, 0, 0)
        at = heavy(units)
        if not len(at):
            return cls(0, 0, 0)
        extra = units[at] - ONE
        more = squares(units[at]) - ONE
        return cls(int(extra[labels[at] == 1].sum()), int(extra.sum()), int(more.sum()))


NONE: Final = Mass(0, 0, 0)
"""Mass of labels without weights."""


class Weighed(NamedTuple):
    """Weighted labels of each cell."""

    masses: Counts
    """Σw per class and cell, int64[2, m]: in labels if all are whole numbers, else in units."""
    squares: Floats
    """Σw² per cell, float64[m], in squares of the same."""

    @property
    def labels(self) -> float:
        """The effective number of labels; their number where all have the same weight."""
        total = int(self.masses.sum())
        return total * (total / float(self.squares.sum()))


def weighed(counts: Counts, extra: Counts | None) -> Weighed:
    """Return labels per class and cell, int64[2, m], with their weights.

    Parameters
    ----------
    extra
        weight beyond one each, int64[3, m]: of labels 0, of labels 1, and of the squares of both, as in
        `Mass`; None: all weights are 1.
    """
    if extra is None:
        return Weighed(counts, counts.sum(axis=0).astype(np.float64))
    masses, sums = ONE * counts + extra[:2], (ONE * counts.sum(axis=0) + extra[2]).astype(np.float64)
    if (masses % ONE).any():
        return Weighed(masses, ONE * sums)
    return Weighed(masses // ONE, sums / ONE)  # of whole weights, exactly as if each label came so often


def mass_of(extra: Counts | None) -> Mass:
    """Return the mass of all cells of ``extra``, as in `weighed`."""
    if extra is None:
        return NONE
    negatives, positives, more = extra.sum(axis=1).tolist()
    return Mass(positives, negatives + positives, more)


def fits(counts: Counts, extra: Counts) -> bool:
    """Return whether labels per class and cell can have these extra weights; parameters as in `weighed`."""
    masses, totals = ONE * counts + extra[:2], counts.sum(axis=0)
    within = (masses >= counts) & (masses <= round(ONE * HEAVIEST) * counts)
    sums, mass = (ONE * totals + extra[2]).astype(np.float64), masses.sum(axis=0).astype(np.float64)
    enough = ONE * sums * totals * (1.0 + 1e-9) >= mass**2  # Cauchy and Schwarz, but for rounding
    return bool(within.all() and enough.all() and (sums <= ONE * HEAVIEST**2 * totals).all())


def pack_extra(counts: Counts, extra: Counts) -> bytes:
    """Return extra weights of labels as bytes; parameters as in `weighed`."""
    sums = ONE * counts.sum(axis=0) + extra[2]
    return pack_numbers(np.concatenate(((ONE * counts + extra[:2]).ravel(), sums)))


def unpack_extra(counts: Counts, data: bytes) -> tuple[Counts, bytes]:
    """Return the ``extra`` of `pack_extra`, and the bytes behind it.

    Raises
    ------
    ValueError
        if the bytes do not begin with what labels of these counts, int64[2, m], can count for.
    """
    numbers, rest = unpack_numbers(data)
    rows, cells = counts.shape
    require(rows == 2 and len(numbers) == 3 * cells, f"{len(numbers)} sums of weights for {cells} cells")
    extra: Counts = numbers.reshape(3, -1)
    extra[:2] -= ONE * counts
    extra[2] -= ONE * counts.sum(axis=0)
    fitting = extra.any() and fits(counts, extra)
    require(fitting, "the weights of the labels of a sketch do not fit their number")
    return extra, rest


def unit_weights(count: int) -> Counts:
    """Return the units of labels of weight 1, int64[count], as a view of one number."""
    return _UNITS[:count]


def heavy(units: Counts | Cells) -> Counts:
    """Return the indices of the weights other than 1, int64[k], of labels with these units."""
    return _NOWHERE if units.strides == (0,) else np.flatnonzero(units != ONE)  # of `unit_weights`


def squares(units: Counts) -> Counts:
    """Return ⌈u² / 256⌉ of each, int64[n]."""
    return (units * units + (ONE - 1)) // ONE


def units_of(weight: float) -> int:
    """Return the units of a checked weight."""
    return round(weight * ONE)


def check_weight(weight: object) -> float:
    """Return a weight as a float.

    Raises
    ------
    ValueError
        if it is not a number from 1/256 to 10,000.
    """
    value = _number(weight)
    if not LIGHTEST <= value <= HEAVIEST:
        raise ValueError(f"a weight must be a number from 1/256 to 10000, got {shown(weight)}")
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


def as_units(weights: Any, count: int) -> Counts | None:
    """Return an array-like of weights in units, int64[n]; None if all are 1. They are `normalised`.

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
    values = normalised(given.astype(np.float64)) if given.dtype.kind in "fui" else np.full(count, np.nan)
    for index in np.flatnonzero(~((values >= LIGHTEST) & (values <= HEAVIEST))).tolist():
        try:
            values[index] = check_weight(given[index : index + 1].tolist()[0])
        except ValueError as error:
            raise ValueError(f"index {index}: {error}") from None
    units = np.rint(values * ONE).astype(np.int64)
    return None if (units == ONE).all() else units


def normalised(weights: Floats) -> Floats:
    """Return weights, float64[n]: if some are too small and all sum to 1, divided by their mean."""
    if (weights < LIGHTEST).any() and abs(weights.sum() - 1.0) <= _SUM_TO_ONE:
        return weights * len(weights)
    return weights


def check_units(units: Counts, count: int) -> None:
    """Check units that were read from a state, which has none where all weights are 1.

    Raises
    ------
    ValueError
        if they are not ``count``, one is out of range, or all are those of weight 1.
    """
    if len(units) != count or ((units < 1) | (units > ONE * HEAVIEST)).any() or (units == ONE).all():
        raise ValueError(f"the weights of {count} labels are damaged")


def _number(value: object) -> float:
    """Return a value as a float; NaN if it is no number."""
    if isinstance(value, bool | np.bool_ | str | bytes):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
