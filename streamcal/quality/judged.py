"""Means over all predictions, by the labels of some and a judge's cheap labels of all.

A judge, such as a language model, gives each prediction a label, or a probability of one. It may be wrong in
any way: the labels of a random part say how far. Prediction-powered inference (Angelopoulos et al., Science
2023) adds the judge's mean over all, and the mean error of the judge where a label was seen. The share of the
judge that counts, and of the forecasts, which are cheap labels too, is the one of least variance (PPI++).
"""

from __future__ import annotations

import math

import numpy as np

from streamcal.base.values import Flags, Floats


def judged(
    labels: Floats, forecasts: Floats, judge: Floats, chances: Floats, seen: Flags, deviations: float
) -> dict[str, float]:
    """Return gap and Brier score of all predictions, and the ends of their intervals, by name.

    Let R = 1 where a label is seen, with chance π. A loss of a label y is a + b y. Its mean is that of
    a + b y R/π, and still is if multiples of b (1 − R/π) times 1, forecast and judge are taken off, whose
    means are 0: those that leave the least variance, by least squares. The variance has the errors of
    the judge in two more labels of each class: where few of a class are seen, its errors may be unseen.

    Parameters
    ----------
    labels
        0 or 1 where they are seen, float64[n].
    forecasts, judge
        in [0, 1], float64[n].
    chances
        chance that each label is seen, float64[n] in (0, 1].
    seen
        labels that are seen, bool[n].
    deviations
        half width of the intervals, in standard errors.
    """
    share, found = seen / chances, dict[str, float]()
    unit = float(share.sum()) / float(seen.sum())
    known = np.where(seen, labels, 0.0) * share
    columns = np.stack([np.ones(len(judge)), forecasts, judge], axis=1)
    cheap = (1.0 - share)[:, None] * columns
    for name, least, of_zero, slope in (
        ("gap", -1.0, forecasts, np.full(len(judge), -1.0)),
        ("brier", 0.0, forecasts**2, 1.0 - 2.0 * forecasts),
    ):
        terms, controls = of_zero + slope * known, slope[:, None] * cheap
        centred = controls - controls.mean(axis=0)
        fit = np.linalg.lstsq(centred, terms - terms.mean(), rcond=None)[0]
        terms = terms - controls @ fit
        added = sum(float((slope**2 * (label + columns @ fit) ** 2).mean()) for label in (0.0, 1.0))
        mean, squares = float(terms.mean()), len(terms) * float(terms.var()) + 2.0 * unit**2 * added
        half = deviations * math.sqrt(squares) / len(terms)
        found |= {name: mean, f"{name}_low": max(mean - half, least), f"{name}_high": min(mean + half, 1.0)}
    return found
