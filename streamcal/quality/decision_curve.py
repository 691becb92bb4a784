"""Decision curve: net benefit of acting from a threshold on, by threshold (Vickers and Elkin 2006)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcal.quality.evaluate import Z95
from streamcal.sketch.checks import as_labels, as_scores
from streamcal.values import Floats, check_order

__all__ = ["DecisionCurve", "decision_curve"]


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit by threshold, in true positives per label: all arrays are float64[thresholds]."""

    threshold: Floats
    net_benefit: Floats
    """Of acting from the threshold t on: (true positives − false positives · t/(1 − t)) / labels."""
    low: Floats
    high: Floats
    """Its 95 % interval, of each threshold alone, for independent labels."""
    acting_on_all: Floats
    acting_on_none: Floats


def decision_curve(labels: Any, probabilities: Any, *, thresholds: Any = None) -> DecisionCurve:
    """Return the net benefit of acting on forecasts, for many thresholds.

    A threshold t is right where a false positive costs t/(1 − t) as much as a false negative.

    Parameters
    ----------
    labels, probabilities
        0 or 1, and forecasts in [0, 1], of length n ≥ 1: arrays, lists, or columns of data frames.
    thresholds
        between 0 and 1; None: 0.01, 0.02, …, 0.99.

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
    check_order(labels=labels, probabilities=probabilities)
    y, p = as_labels(labels), as_scores(probabilities)
    if y.shape != p.shape or not len(p):
        raise ValueError(f"labels and probabilities must have one length, at least 1: got {len(y)}, {len(p)}")
    t = np.arange(1, 100) / 100.0 if thresholds is None else np.atleast_1d(np.asarray(thresholds, np.float64))
    bad = t[~((t > 0.0) & (t < 1.0))]
    if len(bad):
        raise ValueError(f"thresholds must be above 0 and below 1, got {bad[0]}")
    order, odds, n = np.argsort(p, kind="stable"), t / (1.0 - t), len(p)
    ones = np.concatenate([[0], np.cumsum(y[order] == 1)])
    below = np.searchsorted(p[order], t, side="left")
    acted, true = n - below, ones[-1] - ones[below]
    benefit = (true - (acted - true) * odds) / n

    # Two more labels of each class, at the forecasts as they lie, as in `evaluate`.
    more = 2.0 * acted / n
    rate, false = (true + more) / (n + 4), (acted - true + more) / (n + 4)
    middle = rate - false * odds
    half = Z95 * np.sqrt(np.maximum(rate + false * odds**2 - middle**2, 0.0) / (n + 4))
    share = ones[-1] / n
    return DecisionCurve(
        t,
        benefit,
        np.minimum(middle - half, benefit),
        np.maximum(middle + half, benefit),
        share - (1.0 - share) * odds,
        np.zeros(len(t)),
    )
