"""Candidates of one's own in mode ``auto``, behind the built-in ones.

A process that goes on from a state must have registered the same ones, in the same order.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

import numpy as np

from streamcal.maps.platt import narrowed
from streamcal.mixture.candidates import CANDIDATES, EARLY, WINDOWS, Candidate, names_of
from streamcal.mixture.fits import Labelled
from streamcal.mixture.forecasts_c import Line
from streamcal.values import Floats

__all__ = ["FARTHEST", "Own", "clear", "fit_own", "known_names", "register", "registered"]

FARTHEST: Final = 100.0
"""Bound on the logits of knots; those of scores lie inside."""


class Own(Protocol):
    """A map that is fitted to the latest target labels, again after each quarter of them."""

    name: str
    """Name of its weight in the output, such as ``target/kernel/1000``."""
    memory: int
    """Number of the latest labels that it is fitted to, at most 16,000."""

    def fit(self, logits: Floats, counts: Floats) -> tuple[Floats, Floats]:
        """Return knots in ascending logits, float64[p], and the probability at each.

        Between knots the map is linear in the logit, and beyond them constant. It must be a function of the
        arguments alone.

        Parameters
        ----------
        logits
            logits of the scores that have labels, float64[m], ascending.
        counts
            labels of class 0 and of class 1 at each, float64[2, m].
        """


_registered: list[Candidate] = []


def known_names() -> set[str]:
    """Return the names that candidates may have in this process."""
    every = (*CANDIDATES, *EARLY, *_registered)
    return {*names_of(every), *names_of(every, by_scores=True)}


def register(candidate: Own) -> None:
    """Make a map a candidate of every engine that takes its first label after this, in this process.

    Raises
    ------
    ValueError
        if its name is taken, or its memory is not from 1 to 16,000.
    """
    if candidate.name in known_names():
        raise ValueError(f"there is a candidate {candidate.name!r} already: give this one another name")
    if not 1 <= candidate.memory <= WINDOWS[-1]:
        raise ValueError(
            f"memory of candidate {candidate.name!r} must be from 1 to {WINDOWS[-1]:,} labels, got"
            f" {candidate.memory!r}"
        )
    fit = partial(fit_own, candidate)
    _registered.append(Candidate(candidate.name, "labels", candidate.memory, fit))


def clear() -> None:
    """Forget all that were registered; engines that exist keep theirs."""
    _registered.clear()


def registered() -> tuple[Candidate, ...]:
    """Return the candidates that were registered, in order."""
    return tuple(_registered)


def fit_own(candidate: Own, labels: Labelled, _before: Line | None = None) -> Line:
    """Return the map of a candidate, checked.

    Raises
    ------
    ValueError
        if it is none.
    """
    # Scores nearer to 0 or 1 than 2⁻⁴⁰ have the same logit.
    logits, counted = narrowed(labels.logits), labels.weighed
    first = np.flatnonzero(np.diff(logits, prepend=-np.inf))
    logits, counts = logits[first], np.add.reduceat(counted.masses.astype(np.float64), first, axis=1)
    counts *= counted.labels / float(counts.sum())
    given = candidate.fit(logits, counts)
    knots, values = np.array(given[0], np.float64), np.array(given[1], np.float64)
    right = knots.ndim == 1 and knots.shape == values.shape and len(knots) > 0
    if not (
        right
        and (np.abs(knots) <= FARTHEST).all()
        and (np.diff(knots) >= 0.0).all()
        and ((values >= 0.0) & (values <= 1.0)).all()
    ):
        raise ValueError(
            f"candidate {candidate.name!r} must return knots that ascend from −100 to 100 and as many values"
            f" in [0, 1], got {knots!r} and {values!r}"
        )
    return Line(knots, values)
