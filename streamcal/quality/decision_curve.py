"""Net benefit of acting on forecasts, by threshold (decision curve analysis)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamcal.base.values import Floats, check_order
from streamcal.quality.intervals import Z95
from streamcal.quality.seen import seen_labels
from streamcal.sketch.checks import as_labels, as_scores


class DecisionCurve(NamedTuple):
    """Net benefit by threshold, in true positives per label (Vickers and Elkin 2006).

    All arrays are float64[thresholds].
    """

    threshold: Floats
    net_benefit: Floats
    """Net benefit of acting from t on: (true positives − false positives · t/(1 − t)) / labels."""
    low: Floats
    high: Floats
    """Its 95 % interval, of each threshold alone, for independent labels."""
    acting_on_all: Floats
    acting_on_none: Floats


def decision_curve(
    labels: Any, probabilities: Any, *, thresholds: Any = None, propensities: Any = None
) -> DecisionCurve:
    """Return the net benefit of acting on forecasts, for many thresholds.

    A threshold t is right where a false positive costs t/(1 − t) as much as a false negative.

    Parameters
    ----------
    labels, probabilities
        0 or 1, and forecasts in [0, 1], of length n ≥ 1: arrays, lists, or columns of data frames.
    thresholds
        between 0 and 1; None: 0.01, 0.02, …, 0.99.
    propensities
        as of `evaluate`: chance that each label was to be seen; the curve is then of all predictions.

    Raises
    ------
    ValueError
        if a value or threshold is out of range, or lengths differ.

    Examples
    --------
    >>> curve = decision_curve([0, 0, 1, 1], [0.2, 0.6, 0.6, 0.8], thresholds=[0.5])
    >>> curve.net_benefit.tolist(), curve.acting_on_all.tolist()
    ([0.25], [0.0])
    """
    check_order(labels=labels, probabilities=probabilities, propensities=propensities)
    weights: Floats | float = 1.0
    if propensities is not None:
        seen, weights = seen_labels(labels, propensities)
        labels, probabilities = (np.asarray(each)[seen].tolist() for each in (labels, probabilities))
    y, p = as_labels(labels), as_scores(probabilities)
    if y.shape != p.shape or not len(p):
        raise ValueError(f"labels and probabilities must have one length, at least 1: got {len(y)}, {len(p)}")
    t = np.arange(1, 100) / 100.0 if thresholds is None else np.atleast_1d(np.asarray(thresholds, np.float64))
    bad = t[~((t > 0.0) & (t < 1.0))]
    if len(bad):
        raise ValueError(f"thresholds must be above 0 and below 1, got {bad[0]}")
    order, odds, n = np.argsort(p, kind="stable"), t / (1.0 - t), len(p)
    w, one = np.broadcast_to(weights, n)[order], y[order] == 1
    sums = np.cumsum([w * one, w, w**2 * one, w**2], axis=1)
    below = np.searchsorted(p[order], t, side="left")
    ones, total, _, squares = sums[:, -1]
    true, acted, true_squares, acted_squares = (
        sums[:, -1:] - np.concatenate([np.zeros((4, 1)), sums], axis=1)[:, below]
    )
    benefit = (true - (acted - true) * odds) / total
    # The interval counts two more labels of each class, at the forecasts as they lie, as in `evaluate`.
    unit = total / n
    more, count = 2.0 * unit * acted / total, total + 4.0 * unit
    middle = (true + more - (acted - true + more) * odds) / count
    of_true, of_false = true_squares + unit * more, acted_squares - true_squares + unit * more
    rest = squares + 4.0 * unit**2 - of_true - of_false
    variance = of_true * (1.0 - middle) ** 2 + of_false * (odds + middle) ** 2 + rest * middle**2
    half, share = Z95 * np.sqrt(np.maximum(variance, 0.0)) / count, ones / total
    low, high = np.minimum(middle - half, benefit), np.maximum(middle + half, benefit)
    return DecisionCurve(t, benefit, low, high, share - (1.0 - share) * odds, 0.0 * t)
