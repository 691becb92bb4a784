"""Distributions with a known truth, to measure maps exactly: the paper's D(π), and any other `Law`.

D(π): Y ~ Bernoulli(π), X | Y=0 ~ N(−2, 1), X | Y=1 ~ N(2, 1), score f(X) = sigmoid(X) (section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.special import expit, logit

from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.values import Floats, Labels

__all__ = ["Law", "NormalPair", "Risk"]

_REACH: Final = 12.0  # D(π) has a mass below 1e-22 beyond ±12 on the logit scale
_PANELS: Final = 1200  # of the quadrature of D(π), each with 8 nodes
_WIDE_PANELS: Final = 3600  # that of any law
_WIDEST: Final = 36.0  # of any law, on the logit scale: the next score to 1 is at 36.7
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
        x, widths = _nodes(_cuts(_REACH, _PANELS, _breaks(recalibration)))
        density = (
            self.prior * np.exp(-((x - 2.0) ** 2) / 2.0)
            + (1.0 - self.prior) * np.exp(-((x + 2.0) ** 2) / 2.0)
        ) / np.sqrt(2.0 * np.pi)
        return _risk(recalibration, expit(x), density * widths, expit(4.0 * x + logit(self.prior)))


class Law:
    """A law of scores and labels of one's own.

    Parameters
    ----------
    density
        the density of the scores on (0, 1): a function of float64[n] to float64[n], whose integral is 1.
    rate
        h*(z) = P[Y=1 | score = z], likewise, in [0, 1].
    jumps
        scores at which either of them jumps. The quadrature is cut there.

    Raises
    ------
    ValueError
        if the density has a negative value or another integral than 1, or a rate is not in [0, 1].

    Examples
    --------
    >>> law = Law(density=lambda z: np.ones_like(z), rate=lambda z: z**2)
    >>> round(law.risk(RecalibrationMap(version=0)).total, 9)  # of serving the score: ∫ (z − z²)² dz = 1/30
    0.033333333
    >>> scores, labels = law.sample(1_000, np.random.default_rng(0))
    >>> bool(abs(labels.mean() - 1 / 3) < 0.05)
    True
    """

    def __init__(
        self,
        density: Callable[[Floats], Floats],
        rate: Callable[[Floats], Floats],
        jumps: Sequence[float] = (),
    ) -> None:
        self._density, self._rate = density, rate
        self._jumps: Floats = logit(np.asarray(jumps, np.float64))
        self._panels = _cuts(_WIDEST, _WIDE_PANELS, self._jumps)
        scores, mass = self._mass(self._panels)
        rates = self.optimal(scores)
        if not (mass >= 0.0).all():
            raise ValueError(f"a density must be at least 0; at {scores[~(mass >= 0.0)][0]} it is not")
        if abs(mass.sum() - 1.0) > 1e-6:
            raise ValueError(
                f"a density must have the integral 1 over (0, 1), got {mass.sum():.9g}: divide it by that, or"
                " name the scores at which it jumps"
            )
        if not ((rates >= 0.0) & (rates <= 1.0)).all():
            bad = np.flatnonzero(~((rates >= 0.0) & (rates <= 1.0)))[0]
            raise ValueError(f"a rate must be in [0, 1], got {rates[bad]} at the score {scores[bad]}")
        self._cumulated: Floats = np.concatenate(
            [[0.0], np.cumsum(mass.reshape(len(self._panels) - 1, -1).sum(axis=1))]
        )

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Floats, Labels]:
        """Return n independent scores, float64[n], and labels, int8[n].

        Scores are uniform in log-odds within each of 3,600 panels, which have the exact masses.
        """
        at = rng.random(n) * self._cumulated[-1]
        scores: Floats = expit(np.interp(at, self._cumulated, self._panels))
        return scores, (rng.random(n) < self.optimal(scores)).astype(np.int8)

    def optimal(self, scores: Floats) -> Floats:
        """Return the optimal recalibration h*(z), float64[n]."""
        return np.asarray(self._rate(scores), np.float64)

    def risk(self, recalibration: RecalibrationMap) -> Risk:
        """Return the risks of a map, by quadrature between its edges and the jumps."""
        cuts = _cuts(_WIDEST, _WIDE_PANELS, np.concatenate((self._jumps, _breaks(recalibration))))
        scores, mass = self._mass(cuts)
        return _risk(recalibration, scores, mass, self.optimal(scores))

    def _mass(self, cuts: Floats) -> tuple[Floats, Floats]:
        """Return the nodes as scores, and the mass of each."""
        x, widths = _nodes(cuts)
        scores: Floats = expit(x)
        return scores, np.asarray(self._density(scores), np.float64) * scores * expit(-x) * widths


def _cuts(reach: float, panels: int, more: Floats) -> Floats:
    """Return where panels of the quadrature begin and end on the logit scale: evenly, and at these points."""
    return np.unique(np.concatenate((np.linspace(-reach, reach, panels), np.clip(more, -reach, reach))))


def _breaks(recalibration: RecalibrationMap) -> Floats:
    """Return the logits of the scores at which a map jumps or bends."""
    steps: Floats = logit(np.asarray(recalibration.edges[1:-1], np.float64))
    return np.concatenate((steps, recalibration.knots))


def _nodes(cuts: Floats) -> tuple[Floats, Floats]:
    """Return the nodes of the quadrature between cuts, and their widths."""
    half = np.diff(cuts)[:, None] / 2.0
    return (cuts[:-1, None] + half * (1.0 + _NODES)).ravel(), (half * _NODE_WEIGHTS).ravel()


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
