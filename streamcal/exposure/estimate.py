"""Rates from positives that are told late: positives told so far, and exposures.

A prediction of age a counts as F(a) of a prediction, its exposure: so much of its positives is told by then,
if F is the distribution of their delay. Positives per exposure estimate the rate without waiting, see
docs/proofs/exposure.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.exposure.delays import PANES
from streamcal.maps.platt import apply_platt, cell_logits, fit_platt
from streamcal.sketch.arrays import Cells

__all__ = ["LEVEL", "MEMORIES", "Estimate", "dispersion", "estimate", "latest_change"]

Floats = npt.NDArray[np.float64]

LEVEL: Final = 50
"""Of the grid of scores: four cells for each halving of the distance to 0 or to 1."""

MEMORIES: Final = ("all", "recent")
"""What an estimate rests on: all predictions; or those of the last `PANES` panes, since the latest change."""

_CHANGED: Final = 10.0  # nats that a change must gain: chance reaches them about once in e¹⁰ / `PANES` panes


class Estimate(NamedTuple):
    """What the positives told so far tell of the rate, as of the end of a pane."""

    cells: Cells
    """The cells of scores that predictions lie in, int32[m] of `LEVEL`, ascending."""
    exposures: Floats
    """Of the predictions of each cell, float64[2, m], by memory."""
    positives: Floats
    """Those told so far, float64[2, m], by memory."""
    platt: Floats
    """(a, b) of a Platt map of the rate, float64[2, 2], by memory."""
    trust: float
    """How far to trust it, in [0, 1]: the part of the delays that it does not extrapolate, by how much more
    than Poisson counts the ratios of positives and exposures vary from pane to pane."""


def estimate(
    cells: Cells, settled: tuple[Floats, Floats], exposures: Floats, positives: Floats, known: float
) -> Estimate:
    """Estimate the rate.

    Parameters
    ----------
    cells
        int32[m] of `LEVEL`, ascending.
    settled
        predictions and positives of each cell that are older than all panes, float64[m] each.
    exposures, positives
        float64[`PANES`, m]: those of each pane and cell, the latest pane first.
    known
        of the delays.
    """
    whole = np.stack((settled[0] + exposures.sum(axis=0), settled[1] + positives.sum(axis=0)))
    logits = cell_logits(cells, LEVEL)
    first = _platt(logits, whole[1:], whole[:1])
    rates = apply_platt(first[0, :1], first[0, 1:], logits)
    told, expected = positives.sum(axis=1), exposures.dot(rates)
    varies = dispersion(told, expected)
    since = latest_change(told, expected, varies)
    lately = np.stack((exposures[:since].sum(axis=0), positives[:since].sum(axis=0)))
    second = _platt(logits, lately[1:], lately[:1])
    both = np.stack((whole, lately), axis=1)
    return Estimate(cells, both[0], both[1], np.concatenate((first, second)), known / varies)


def latest_change(positives: Floats, expected: Floats, varies: float) -> int:
    """Return how many of the latest panes there are since the rate changed last; all if it did not.

    Parameters
    ----------
    positives, expected
        float64[`PANES`], the latest first: the positives told of each pane, and how many were expected at one
        rate. Where a change is, the likelihood of Poisson counts gains most by a rate on each side.
    varies
        their `dispersion`, by which the gain is divided, so that days that differ from nights are no change.
    """
    size = PANES
    while size > 1:
        told, due = positives[:size].cumsum(), expected[:size].cumsum()
        split = _likelihood(told[:-1], due[:-1]) + _likelihood(told[-1] - told[:-1], due[-1] - due[:-1])
        gains = split - _likelihood(told[-1:], due[-1:])
        best = int(gains.argmax())
        if not gains[best] > _CHANGED * varies:
            break
        size = best + 1
    return size


def _likelihood(told: Floats, due: Floats) -> Floats:
    """Return the log-likelihood of the best rate, up to a constant that does not depend on the split."""
    ratios = np.divide(told, due, out=np.ones_like(due), where=(told > 0.0) & (due > 0.0))
    likelihood: Floats = told * np.log(ratios)
    return likelihood


def dispersion(positives: Floats, expected: Floats) -> float:
    """Return how much more than those of Poisson counts the ratios of neighbours vary, at least 1.

    The arguments are those of `latest_change`. Neighbours, because a change parts only two of them.
    """
    known = expected > 0.0
    told, due = positives[known], expected[known]
    if len(due) < 2 or told.sum() <= 0.0:
        return 1.0
    inverse = 1.0 / due
    variances = (inverse[1:] + inverse[:-1]) * float(told.sum() / due.sum())
    return max(1.0, float(np.mean(np.square(np.diff(told / due)) / variances)))


def _platt(logits: Floats, positives: Floats, exposures: Floats) -> Floats:
    """Fit (a, b), float64[1, 2]; chance may tell more positives than there is exposure."""
    return fit_platt(logits, positives, np.maximum(exposures, positives))
