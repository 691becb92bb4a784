"""The delay of positives: how long after its prediction a positive is told.

Only positives tell a delay, and only one that is not longer than the age of their prediction: the sample is
truncated on the right. The reverse-time product limit (Woodroofe 1985; Lagakos, Barraj and De Gruttola 1988)
estimates its distribution nevertheless, see docs/proofs/exposure.md. Delays are counted in bins, and
predictions in panes of time, so that of each pane it is known which of its bins are complete. In time that is
measured in panes, an age of k panes completes all delays of at most k.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["BINS", "EDGES", "LEAST", "PANES", "Delays", "bins_of", "fit_delays", "within_pane"]

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

PANES: Final = 64
"""After so many panes a label is final: the delays beyond do not count."""

EDGES: Final = np.concatenate((2.0 ** np.arange(-12.0, 0.0), np.arange(1.0, PANES + 1.0)))
"""The greatest delay of each bin, in panes, float64[`BINS`]: octaves up to one pane, then one pane each."""

BINS: Final = len(EDGES)

LEAST: Final = 32
"""A risk set of fewer positives says nothing: the product limit would multiply all before it by chance."""

_SHRINKAGE: Final = 32.0  # positives of all bands that a band's own are mixed with
_DEVIATIONS: Final = 9.0  # the square of the standard errors by which a band must differ: three
_KNOTS: Final = np.concatenate(([0.0], EDGES))


class Delays(NamedTuple):
    """Estimated distributions of the delay."""

    within: Floats
    """F at 0 and at each of `EDGES`, float64[g, `BINS` + 1]: one row per band, ending with 1."""
    known: float
    """F, of all bands together, at the longest delay that the data tell of; 0 if they tell nothing."""


def bins_of(delays: Floats) -> Counts:
    """Return the bin of each delay in panes, int64[n] for float64[n] in [0, `PANES`]."""
    bins: Counts = np.minimum(EDGES.searchsorted(delays, "left"), BINS - 1)
    return bins


def fit_delays(counts: Counts, ages: Counts) -> Delays:
    """Estimate the distribution of the delay, in each band of scores.

    With N_b positives in bin b of the panes that are old enough to complete it, and R_b positives in that bin
    or an earlier one of the same panes, F(b − 1) / F(b) is estimated by 1 − N_b / R_b, and F is 1 at the end.
    Beyond the last bin with R_b ≥ `LEAST`, the density is taken to stay as it was over the upper half before:
    where it falls, as it mostly does, that puts too much there rather than too little.

    A band has a distribution of its own as far as the log-rank statistic says that it differs: by more than
    three standard errors.

    Parameters
    ----------
    counts
        int64[p, g, `BINS`]: the positives of each pane, band and bin of the delay.
    ages
        int64[p]: the least age of the predictions of each pane, in panes.
    """
    complete = ages[:, np.newaxis] >= EDGES
    own = np.einsum("pgb,pb->gb", counts, complete).astype(np.float64)
    risk = np.einsum("pgb,pb->gb", counts.cumsum(axis=2), complete).astype(np.float64)
    every, at_risk = own.sum(axis=0), risk.sum(axis=0)
    told = np.flatnonzero(at_risk >= LEAST)
    if not len(told):
        return Delays(np.tile(_KNOTS / PANES, (len(own), 1)), 0.0)
    last = int(told[-1])
    pooled = every / np.maximum(at_risk, 1.0)
    expected = risk * pooled
    spread = (expected * (1.0 - pooled) * (1.0 - risk / np.maximum(at_risk, 1.0)))[:, : last + 1].sum(axis=1)
    excess = (own - expected)[:, : last + 1].sum(axis=1)
    differs = 1.0 - _DEVIATIONS * spread / np.maximum(np.square(excess), 1e-300)
    shares = (own + _SHRINKAGE * pooled) / (risk + _SHRINKAGE)
    shares = pooled + np.maximum(differs, 0.0)[:, np.newaxis] * (shares - pooled)
    shares[:, last + 1 :] = 0.0
    within = np.zeros((len(own) + 1, BINS + 1))
    for row, each in enumerate((pooled * (np.arange(BINS) <= last), *shares)):
        within[row, 1:] = np.append(np.cumprod((1.0 - each)[:0:-1])[::-1], 1.0)
    return _extrapolated(within, last)


def _extrapolated(within: Floats, last: int) -> Delays:
    """Return F with the delays beyond this bin; the first row is that of all bands, and is left out."""
    end = float(EDGES[last])
    if end < PANES:
        middle = np.array([float(np.interp(end / 2.0, _KNOTS, row)) for row in within])
        known = 1.0 / (1.0 + (1.0 - middle) * 2.0 * (PANES - end) / end)
        within *= known[:, np.newaxis]
        beyond = (EDGES[last:] - end) / (PANES - end)
        within[:, last + 1 :] = known[:, np.newaxis] + np.outer(1.0 - known, beyond)
        return Delays(within[1:], float(known[0]))
    return Delays(within[1:], 1.0)


def within_pane(within: Floats) -> Floats:
    """Return the mean of F over the ages of each pane, float64[g, `PANES`]: for pane k from k to k + 1."""
    areas = np.zeros_like(within)
    areas[:, 1:] = np.cumsum((within[:, 1:] + within[:, :-1]) * 0.5 * np.diff(_KNOTS), axis=1)
    whole = areas[:, [0, *range(BINS - PANES + 1, BINS + 1)]]
    return np.diff(whole, axis=1)
