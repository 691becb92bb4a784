"""Decomposition of the Brier score: brier = miscalibration − discrimination + uncertainty.

The parts are those of CORP: forecasts are compared with the isotonic regression of the labels on them
(Dimitriadis, Gneiting and Jordan, PNAS 2021).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamcal.base.values import Floats
from streamcal.maps.fits_c import isotonic


class Parts(NamedTuple):
    """Parts of a Brier score, each at least 0."""

    miscalibration: float
    discrimination: float
    uncertainty: float


def isotonic_rates(rates: Floats, labels: Floats) -> Floats:
    """Return the isotonic fit at each group of forecasts: float64[m].

    Parameters
    ----------
    rates, labels
        rate of label 1 of each group, in the order of the forecasts, and weight of its labels, above 0:
        float64[m], m at least 1.
    """
    starts, values = isotonic(rates, labels)
    return np.repeat(values, np.diff(starts))


def decompose(brier: float, labels: Floats, forecasts: Floats, positives: Floats) -> Parts:
    """Return the parts of a Brier score, by groups of neighbouring forecasts.

    Recalibration shifts the forecasts of each group from their mean to the fit, or replaces all of them by
    the fit: counted is the better of both. So it costs nothing that forecasts differ within a group, and no
    part is negative. Where each group is of one forecast, the parts are those of CORP.

    Parameters
    ----------
    brier
        Brier score of the single forecasts.
    labels, forecasts, positives
        weight of the labels of each group, above 0, and by this weight the sums of their forecasts and of
        the labels 1, in the order of the forecasts: float64[m], m at least 1.
    """
    n, rates = float(labels.sum()), positives / labels

    def loss(of_group: Floats) -> float:
        return float((labels * ((of_group - rates) ** 2 + rates * (1.0 - rates))).sum()) / n

    rate = float(positives.sum()) / n
    uncertainty = rate * (1.0 - rate)
    fitted = loss(isotonic_rates(rates, labels))
    miscalibration = max(loss(forecasts / labels) - fitted, brier - fitted, 0.0)  # shifted, or replaced
    return Parts(miscalibration, max(miscalibration - brier + uncertainty, 0.0), uncertainty)
