"""Rates from positives that come late: the positives so far, and exposures.

A prediction of age a counts as F(a) of a prediction, its exposure: the share of its positives that have come
by then, if F is the distribution of their delay. Positives per exposure estimate the rate without waiting,
see docs/proofs/exposure.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from streamcal.base.values import Cells, Counts, Floats
from streamcal.delayed.delays import LEAST, PANES, Delays, paces_of
from streamcal.maps.platt import apply_platt, cell_logits, fit_platt

LEVEL: Final = 50
"""Level of the grid of scores: four cells for each halving of the distance to 0 or to 1."""


# Nats that a change must gain. By chance, P[χ²₁ > 20] at each of 63 splits: in one of 2,000 panes.
_CHANGED: Final = 10.0
# Nats by which a change of the rate must be likelier than one of reporting: 20 times.
_AHEAD: Final = 3.0
# Panes that a change of reporting must last: reports in batches of a day or two are not a change.
_LASTING: Final = 5


class Estimate(NamedTuple):
    """Estimate of the rate from the positives so far, as of the end of a pane."""

    cells: Cells
    """Cells of the predictions' scores, int32[m] of `LEVEL`, ascending."""
    exposures: Floats
    """Exposure of the predictions of each cell, float64[2, m], by memory."""
    positives: Floats
    """Positives so far of each cell, float64[2, m], by memory."""
    platt: Floats
    """Parameters (a, b) of a Platt map of the rate, float64[2, 2], by memory; if the recent memory has too
    few positives, both rows are of all predictions."""
    trust: float
    """Trust in the estimate, in [0, 1]: 0 if positives no longer come as they did; otherwise the part of the
    delays that it does not extrapolate, divided by the dispersion of the ratios of positives to exposures
    from pane to pane over that of Poisson counts."""
    scales: tuple[float, float]
    """Smallest and largest factor by which the exposures may differ from the true ones: if delays beyond
    those seen are uniform, or if there are none."""


def estimate(
    cells: Cells,
    older: Floats,
    predicted: Floats,
    positives: Floats,
    came: Floats,
    delays: Delays,
    band: Counts,
) -> Estimate:
    """Estimate the rate.

    Parameters
    ----------
    cells
        int32[m] of `LEVEL`, ascending.
    older
        predictions and positives of each cell that are older than all panes, float64[2, m].
    predicted, positives
        float64[`PANES`, m]: predictions, and their positives so far, of each pane and cell, the latest pane
        first.
    came
        float64[`PANES`, `PANES`]: the positives of each pane so far, the latest first, by their delay in
        panes.
    delays, band
        the distributions of the delay, and the index of each cell's band, int64[m].
    """
    within = delays.within[1 + band, :PANES]
    exposures = predicted * within.T
    whole = older + np.stack((exposures.sum(axis=0), positives.sum(axis=0)))
    logits = cell_logits(cells, LEVEL)
    first = _platt(logits, whole[1:], whole[:1])
    rates = apply_platt(first[0, :1], first[0, 1:], logits)
    due = np.tril((predicted * rates).dot(np.diff(within, axis=1, prepend=0.0)))
    varies = dispersion(came.sum(axis=1), due.sum(axis=1))
    since, lawful = latest_change(came, due, paces_of(delays.within[0]), varies)
    lately = np.stack((exposures[:since].sum(axis=0), positives[:since].sum(axis=0)))
    enough = lately[1].sum() >= LEAST  # after a gap, say, what is recent tells nothing
    second = _platt(logits, lately[1:], lately[:1]) if enough else first
    both = np.stack((whole, lately), axis=1)
    trust = delays.known / varies if lawful else 0.0
    scales = min(1.0, delays.seen / delays.known), 1.0 / delays.known
    return Estimate(cells, both[0], both[1], np.concatenate((first, second)), trust, scales)


def latest_change(came: Floats, due: Floats, paces: Floats, varies: float) -> tuple[int, bool]:
    """Find the latest change of the rate, and whether positives have come in the same way since.

    More positives than expected come after a change of the rate, and after a change of reporting. Each change
    is fitted by maximum likelihood to Poisson counts, with one ratio since one pane: of the rate since a pane
    of predictions, of the positives since a pane of reporting, or of the pace of the positives of predictions
    since a pane. A change counts as one of the rate only if this explains the counts better than both others.

    Parameters
    ----------
    came, due
        float64[p, p]: the positives of each pane so far, the latest first, by their delay in panes, and the
        number expected at one rate; 0 where the delay is longer than the age.
    paces
        float64[s, p] from `delays.paces_of`.
    varies
        `dispersion` of the panes, which divides gains of likelihood, so that a difference of days and nights
        is not a change.

    Returns
    -------
    tuple[int, bool]
        Number of the latest panes since the change, all if there is none; and whether no change of reporting
        is found in them.
    """
    size = len(came)
    while True:
        came, due = came[:size, :size], due[:size, :size]
        rate = _gains(came.sum(axis=1), due.sum(axis=1))
        calendar = _gains(_by_reporting(came), _by_reporting(due))[_LASTING - 1 :].max(initial=0.0)
        reporting = max(calendar, _gains_by_pace(came, due, paces[:, :size]).max())
        if not rate.max(initial=0.0) > max(_CHANGED * varies, _AHEAD * varies + reporting):
            return size, bool(reporting <= _CHANGED * varies)
        size = int(rate.argmax()) + 1


def _gains(came: Floats, due: Floats) -> Floats:
    """Return the gain of log-likelihood by a ratio on each side of each split, float64[p − 1]."""
    came, due = came.cumsum(), due.cumsum()
    split = _likelihood(came[:-1], due[:-1]) + _likelihood(came[-1] - came[:-1], due[-1] - due[:-1])
    gains: Floats = split - _likelihood(came[-1:], due[-1:])
    return gains


def _gains_by_pace(came: Floats, due: Floats, paces: Floats) -> Floats:
    """Return the gain of log-likelihood by another pace in the latest panes, float64[p, s]."""
    latest = came.cumsum(axis=0).dot(np.log(paces).T)
    more = due.cumsum(axis=0).dot((paces - 1.0).T)
    before = due.sum()
    ratios = np.divide(before, before + more, out=np.ones_like(more), where=before + more > 0.0)
    gains: Floats = latest + came.sum() * np.log(ratios)
    return gains


def _by_reporting(counts: Floats) -> Floats:
    """Return the sums by the pane of the positive (age less delay), the latest first, float64[p]."""
    return np.array([counts.trace(-ago) for ago in range(len(counts))])


def _likelihood(came: Floats, due: Floats) -> Floats:
    """Return the log-likelihood of the best ratio of actual to expected positives, up to a constant."""
    ratios = np.divide(came, due, out=np.ones(due.shape), where=(came > 0.0) & (due > 0.0))
    likelihood: Floats = came * np.log(ratios)
    return likelihood


def dispersion(positives: Floats, expected: Floats) -> float:
    """Return the variance of neighbours' ratios over that of Poisson counts, at least 1.

    Neighbours are compared because a change separates only two of them. The arguments have a value for each
    pane, float64[p].
    """
    known = expected > 0.0
    came, due = positives[known], expected[known]
    if len(due) < 2 or came.sum() <= 0.0:
        return 1.0
    inverse = 1.0 / due
    variances = (inverse[1:] + inverse[:-1]) * float(came.sum() / due.sum())
    return max(1.0, float(np.mean(np.square(np.diff(came / due)) / variances)))


def _platt(logits: Floats, positives: Floats, exposures: Floats) -> Floats:
    """Fit (a, b), float64[1, 2]; by chance there may be more positives than exposure."""
    return fit_platt(logits, positives, np.maximum(exposures, positives))
