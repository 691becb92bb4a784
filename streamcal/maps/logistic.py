"""Logistic regression of labels on functions of the logit, fitted to counts: Platt and hinge maps.

Both are p = expit(Σ_j θ_j·φ_j(x)) of x = logit(z), with seven functions φ_j. A Platt map uses x
and 1 only; its other parameters are 0. A hinge map adds max(x − k, 0) for each of five knots k: its log odds
are a line that may bend where scores usually lie, and goes on straight beyond. So all of these maps are rows
of one matrix.

A fit minimises the log loss plus ½·Σ ridge_j·(θ_j − identity_j)², by damped Newton steps: full ones diverge
on saturated scores. The penalty weighs as much as a handful of labels, and keeps the fit finite where the
classes can be separated.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from streamcal.base.values import Floats
from streamcal.maps.fits_c import minimise

KNOTS: Final = np.array((-3.0, -1.5, 0.0, 1.5, 3.0))
"""Logits at which a hinge map may bend: scores of .05, .18, .5, .82 and .95."""

FEATURES: Final = 2 + len(KNOTS)
"""Number of functions φ_j."""

IDENTITY_ROW: Final = np.eye(FEATURES)[0]
"""Parameters θ of the map that changes nothing, float64[7]."""


Family: TypeAlias = Floats
"""Maps that use the same functions, the first ones: weights of the penalty, one for each function used."""

PLATT: Final = np.ones(2)
HINGE: Final = np.array((1.0, 1.0, *(4.0,) * len(KNOTS)))


def fit_logistic(
    family: Family, logits: Floats, positives: Floats, totals: Floats, start: Floats | None = None
) -> Floats:
    """Fit the map of a family, and return its θ, float64[7].

    Parameters
    ----------
    logits
        logits of m scores, float64[m].
    positives, totals
        labels 1 and all labels of each score, float64[m]; zeros are allowed.
    start
        θ to start from, float64[7], such as the previous fit of the same family; None: the identity.
    """
    used, theta = slice(len(family)), (IDENTITY_ROW if start is None else start).copy()
    theta[used.stop :] = 0.0
    logits, positives, totals = (
        np.ascontiguousarray(each, np.float64) for each in (logits, positives, totals)
    )
    knots = KNOTS[: used.stop - 2]
    minimise(theta[used], IDENTITY_ROW[used], family, knots, logits, positives, totals)
    return theta
