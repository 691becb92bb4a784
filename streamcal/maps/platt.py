"""Platt scaling p = expit(a·logit(z) + b), fitted to counts per cell; logits and their inverse."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streamcal.base.values import Cells, Floats
from streamcal.maps import fits_c
from streamcal.maps.logistic import PLATT, fit_logistic

IDENTITY: Final = (1.0, 0.0)
"""(a, b) of the map that changes nothing."""

_END: Final = 2.0**-40  # what is linear in log odds tells no scores apart that are nearer to 0 or 1 than this
_LEAST_LOGIT: Final = math.log(_END / (1.0 - _END))
_MOST_LOGIT: Final = math.log((1.0 - _END) / _END)
_LEAST, _MOST = 2.0**-1022, 1.0 - 2.0**-53  # the ends of the grid
_LARGEST: Final = 700.0  # e^t overflows little above


def apply_platt(slopes: Floats, intercepts: Floats, logits: Floats) -> Floats:
    """Return expit(a·x + b).

    Parameters
    ----------
    slopes, intercepts
        a and b, float64 of any shape that broadcasts against the logits.
    logits
        x, float64[n].

    Returns
    -------
    float64 in [0, 1], of the shape that they broadcast to.
    """
    return expit(slopes * logits + intercepts)


def expit(exponents: Floats) -> Floats:
    """Overwrite t with 1 / (1 + e^−t), float64 of any shape, and return it.

    On thousands of values this is three to four times as fast as `scipy.special.expit`.
    """
    np.negative(exponents, out=exponents)
    # e^700 does not overflow, and no number of labels can tell expit(−700) from 0.
    np.minimum(exponents, _LARGEST, out=exponents)
    np.exp(exponents, out=exponents)
    exponents += 1.0
    return np.reciprocal(exponents, out=exponents)


def logit(scores: Floats) -> Floats:
    """Return log(z / (1 − z)) of scores, float64[n] in [0, 1], clipped to [2⁻⁴⁰, 1 − 2⁻⁴⁰]: within ±28."""
    return _logit(scores, _END, 1.0 - _END)


def wide_logit(scores: Floats) -> Floats:
    """Return log(z / (1 − z)) clipped where doubles end, to [2⁻¹⁰²², 1 − 2⁻⁵³]: from −708.4 to 36.8."""
    return _logit(scores, _LEAST, _MOST)


def _logit(scores: Floats, least: float, most: float) -> Floats:
    clipped = np.maximum(scores, least)  # np.clip takes longer on few
    np.minimum(clipped, most, out=clipped)
    odds = np.divide(clipped, 1.0 - clipped, out=clipped)
    return np.log(odds, out=odds)


def cell_logits(cells: Cells, level: int) -> Floats:
    """Return the `logit` of the middle of every cell of the grid, float64[m] for int32[m]."""
    return narrowed(wide_cell_logits(cells, level))


def narrowed(logits: Floats) -> Floats:
    """Return the `logit` of scores, float64[n], of which the `wide_logit` is given."""
    return np.minimum(np.maximum(logits, _LEAST_LOGIT), _MOST_LOGIT)


def wide_cell_logits(cells: Cells, level: int) -> Floats:
    """Return the `wide_logit` of the middle of every cell of the grid, float64[m] for int32[m]."""
    out = np.empty(len(cells))
    fits_c.cell_logits(cells.astype(np.int64), level, out)
    return out


def inside(score: float) -> float:
    """Return one score in [0, 1], clipped as by `logit`."""
    return min(max(score, _END), 1.0 - _END)


def fit_platt(logits: Floats, positives: Floats, totals: Floats) -> Floats:
    """Fit (a, b) to k windows, and return them as float64[k, 2].

    Parameters
    ----------
    logits
        float64[m], the logit of every cell's score, finite.
    positives, totals
        float64[k, m], the labels 1 and all labels per window and cell; a cell may be empty.
    """
    return np.array([fit_logistic(PLATT, logits, *rows)[:2] for rows in zip(positives, totals, strict=True)])
