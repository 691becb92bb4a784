"""The paper's distribution D(π), whose truth is known, to measure maps exactly.

D(π): Y ~ Bernoulli(π), X | Y=0 ~ N(−2, 1), X | Y=1 ~ N(2, 1), score f(X) = sigmoid(X) (section 6).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.special import expit, logit

from streamcal.base.values import Floats, Labels
from streamcal.maps.recalibration_map import RecalibrationMap

__all__ = ["NormalPair", "Risk"]

_REACH: Final = 12.0  # D(π) has a mass below 1e-22 beyond ±12 on the logit scale
_PANELS: Final = 1200  # of the quadrature, each with 8 nodes
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)


class Risk(NamedTuple):
    """The risks of a map (Definitions 3 to 5), each in [0, 1]."""

    calibration: float
    sharpness: float

    @property
    def total(self) -> float:
        """R = R_cal + R_sha (Proposition 1)."""
        return self.calibration + self.sharpness


class NormalPair:
    """The distribution D(π) of scores and labels.

    Parameters
    ----------
    prior
        π = P[Y=1], in (0, 1).

    Raises
    ------
    ValueError
        if the prior is not in (0, 1).
    """

    def __init__(self, prior: float) -> None:
        if not 0.0 < prior < 1.0:
            raise ValueError(f"prior must be in (0, 1), got {prior!r}")
        self.prior = prior

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Floats, Labels]:
        """Return n independent scores, float64[n], and labels, int8[n]."""
        labels = (rng.random(n) < self.prior).astype(np.int8)
        return expit(rng.standard_normal(n) + (4.0 * labels - 2.0)), labels

    def optimal(self, scores: Floats) -> Floats:
        """Return the optimal recalibration h*(z) = P[Y=1 | f(X)=z] = sigmoid(4x + logit π)."""
        probabilities: Floats = expit(4.0 * logit(scores) + logit(self.prior))
        return probabilities

    def risk(self, recalibration: RecalibrationMap) -> Risk:
        """Return the exact risks of a map, by quadrature between its edges (relative error below 1e-9)."""
        breaks = np.concatenate((logit(np.asarray(recalibration.edges[1:-1])), recalibration.knots))
        panels = np.linspace(-_REACH, _REACH, _PANELS)
        cuts = np.unique(np.concatenate((panels, np.clip(breaks, -_REACH, _REACH))))
        half = np.diff(cuts)[:, None] / 2.0
        x, widths = (cuts[:-1, None] + half * (1.0 + _NODES)).ravel(), (half * _NODE_WEIGHTS).ravel()
        density = (
            self.prior * np.exp(-((x - 2.0) ** 2) / 2.0)
            + (1.0 - self.prior) * np.exp(-((x + 2.0) ** 2) / 2.0)
        ) / np.sqrt(2.0 * np.pi)
        return _risk(recalibration, expit(x), density * widths, expit(4.0 * x + logit(self.prior)))


def _risk(recalibration: RecalibrationMap, scores: Floats, mass: Floats, truth: Floats) -> Risk:
    """Return the risks of a map at scores with these masses and rates of label 1."""
    served = recalibration.predict_many(scores)
    if not recalibration.bins:  # injective: E[Y | h(Z)] = E[Y | Z]
        return Risk(float(mass @ (served - truth) ** 2), 0.0)
    levels, level = np.unique(served, return_inverse=True)
    level_mass = np.bincount(level, mass)
    level_mean = np.divide(
        np.bincount(level, mass * truth), level_mass, out=np.zeros(len(levels)), where=level_mass > 0.0
    )
    return Risk(
        float(level_mass @ (levels - level_mean) ** 2),
        float(mass @ (level_mean[level] - truth) ** 2),
    )
