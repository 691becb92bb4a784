"""Delay of positives: the number of panes from a prediction to its positive label.

Only positives show a delay, and only a delay up to the age of their prediction: the sample is truncated on
the right. The reverse-time product limit (Woodroofe 1985; Lagakos, Barraj and De Gruttola 1988)
estimates its distribution nevertheless, see docs/proofs/exposure.md. Time is cut into panes. The delay is the
number of panes from the pane of the prediction to the pane of the positive. So all delays of at most k are
known for a prediction that is k panes old, wherever it lies in its pane.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from streamcal.base.values import Counts, Floats

PANES: Final = 64
"""Number of panes after which a label is final: longer delays do not count."""

BINS: Final = PANES + 1
"""Number of different delays: 0 to `PANES` panes."""

LEAST: Final = 32
"""Smallest risk set, in positives: a smaller one would multiply the product limit before it by chance."""

_SHRINKAGE: Final = 32.0  # positives of all bands that a band's own are mixed with
_DEVIATIONS: Final = 9.0  # the square of the standard errors by which a band must differ: three
_PACES: Final = 2.0 ** (np.arange(-12.0, 13.0) / 4.0)
_LEAST_STEP: Final = 1e-6  # of a distribution, which nothing is divided by


class Delays(NamedTuple):
    """Estimated distributions of the delay."""

    within: Floats
    """Share F of positives that come after at most 0 to `PANES` panes, float64[g + 1, `BINS`]: one row for
    all bands together, then one per band. Each row ends with 1."""
    known: float
    """Share F of all bands together at the longest delay in the data; 0 if there is none."""
    seen: float
    """Longest delay in the data, as a part of all panes."""


def fit_delays(counts: Counts) -> Delays:
    """Estimate the distribution of the delay, in each band of scores.

    With N_b positives of delay b in the panes that are at least b panes old, and R_b positives of delay b or
    less in the same panes, F(b − 1) / F(b) is estimated by 1 − N_b / R_b, and F is 1 at the end. Beyond the
    last delay with R_b ≥ `LEAST`, the density is taken to stay as it was over the upper half before: a
    density that falls, as most do, is then overestimated there rather than underestimated.

    A band has a distribution of its own if it differs by the log-rank statistic: by more than three standard
    errors.

    Parameters
    ----------
    counts
        int64[p, g, `BINS`]: the positives of each pane, by its age in panes from 0 on, of each band, and of
        each delay in panes.
    """
    complete = np.arange(len(counts))[:, np.newaxis] >= np.arange(BINS)
    own = np.einsum("pgb,pb->gb", counts, complete).astype(np.float64)
    risk = np.einsum("pgb,pb->gb", counts.cumsum(axis=2), complete).astype(np.float64)
    every, at_risk = own.sum(axis=0), risk.sum(axis=0)
    last = int(np.max(np.flatnonzero(at_risk >= LEAST), initial=0))
    if not last:
        return Delays(np.tile(np.arange(1.0, BINS + 1.0) / BINS, (len(own) + 1, 1)), 0.0, 0.0)
    pooled = every / np.maximum(at_risk, 1.0)
    expected = risk * pooled
    spread = (expected * (1.0 - pooled) * (1.0 - risk / np.maximum(at_risk, 1.0)))[:, : last + 1].sum(axis=1)
    excess = (own - expected)[:, : last + 1].sum(axis=1)
    differs = 1.0 - _DEVIATIONS * spread / np.maximum(np.square(excess), 1e-300)
    shares = (own + _SHRINKAGE * pooled) / (risk + _SHRINKAGE)
    shares = pooled + np.maximum(differs, 0.0)[:, np.newaxis] * (shares - pooled)
    within = np.ones((len(own) + 1, BINS))
    ratios = 1.0 - np.vstack((pooled, shares))[:, last:0:-1]
    within[:, :last] = np.cumprod(ratios, axis=1)[:, ::-1]
    # What comes beyond the last delay, at the density of the upper half before.
    beyond = np.arange(PANES - last + 1.0)
    density = (1.0 - within[:, last // 2]) / (last - last // 2)
    known = 1.0 / (1.0 + density * beyond[-1])
    within *= known[:, np.newaxis]
    within[:, last:] = known[:, np.newaxis] * (1.0 + np.outer(density, beyond))
    return Delays(within, float(known[0]), last / PANES)


def paces_of(within: Floats) -> Floats:
    """Return the ratios of the steps of F at other paces to its own, float64[s, `PANES`].

    At the pace c, delays are c times as short: F(c·t) takes the place of F(t). The paces are 1/8 to 8; the
    steps are those at delays of 0 to `PANES` − 1 panes.

    Parameters
    ----------
    within
        F at each delay in panes, float64[`BINS`]. A delay of b panes is b + ½ panes in the mean.
    """
    ages = np.arange(BINS) + 0.5
    scaled = np.interp(np.outer(_PACES, ages), np.append(0.0, ages), np.append(0.0, within))
    steps = np.diff(scaled[:, :PANES], axis=1, prepend=0.0)
    ratios: Floats = (steps + _LEAST_STEP) / (np.diff(within[:PANES], prepend=0.0) + _LEAST_STEP)
    return ratios
