"""The table of the candidates of mode ``auto``: their names, order, weights, fits and states follow from it.

A candidate is a line in the logit of the score (`forecasts_c.Line`), or the score itself. Its name is
``estimator/family/memory``. A memory is a number of labels, the discount of every earlier label, or ``all``.
Candidates of one's own are registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np

from streamcal.maps.platt import narrowed
from streamcal.mixture.fits import Labelled, fit_free_curve, fit_hinge, fit_isotonic
from streamcal.mixture.forecasts_c import Line
from streamcal.values import Flags, Floats

WINDOWS: Final = (250, 1000, 4000, 16_000)
"""Lengths of the windows of labels with maps of their own."""

DISCOUNTS: Final = (0.98, 0.9997)
"""Discount of a label in each online Platt scaling when one more has come."""

RECENT_PRIOR: Final = 300
"""Number of the latest target labels that estimate the more recent of the two priors."""

FARTHEST: Final = 100.0
"""Bound on the logits of knots of one's own; those of scores lie inside."""

Origin: TypeAlias = Literal["score", "labels", "online", "source", "early"]


class Candidate(NamedTuple):
    """A row of the table."""

    name: str
    origin: Origin
    """Where its line comes from.

    ``score``: none, it is the score. ``labels``: fitted to the target's labels, which continue the source's
    newest ones. ``online``: follows them (`online`), one for each of `DISCOUNTS`. ``source``: a composite,
    the source's curve, corrected for label shift (eq. 13). ``early``: fitted to early positives and exposures
    (`streamcal.delayed`), one for each map of the `Evidence`. Final labels do not weigh these: they are about
    predictions as old as a label takes."""
    memory: int | None = None
    """Number of the latest labels that it is fitted to, or whose prior a composite takes; None: all."""
    fit: Callable[[Labelled, Line | None], Line] | None = None
    """Fits the line of ``labels``, from the line before; again after a part of these labels."""
    log_odds: bool = False
    """Whether the line is one of log odds: until there are labels, it is then that of the source's Platt map,
    else the source's curve."""


CANDIDATES: Final = (
    Candidate("identity", "score"),
    *(Candidate(f"target/isotonic/{window}", "labels", window, fit_isotonic) for window in WINDOWS),
    Candidate("target/curve/all", "labels", None, fit_free_curve),
    *(
        Candidate(f"target/hinge/{memory or 'all'}", "labels", memory, fit_hinge, log_odds=True)
        for memory in (*WINDOWS[:2], None)
    ),
    *(Candidate(f"target/platt/{discount}", "online", log_odds=True) for discount in DISCOUNTS),
    Candidate("composite/curve/all", "source"),
    Candidate(f"composite/curve/{RECENT_PRIOR}", "source", RECENT_PRIOR),
)
"""Built-in candidates, sorted by origin."""

EARLY: Final = tuple(Candidate(f"delayed/platt/{since}", "early") for since in ("all", "recent"))
"""Candidates if positives come before a label is final: of all predictions, or of those since the latest
change."""


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


def taking_part(*, delayed: bool) -> tuple[Candidate, ...]:
    """Return the candidates in the order of all weights and forecasts: by origin, and as registered.

    ``delayed``: `EARLY` are among them.
    """
    rows = (*CANDIDATES, *_registered, *(EARLY if delayed else ()))
    return tuple(sorted(rows, key=lambda row: get_args(Origin).index(row.origin)))


def names_of(candidates: Sequence[Candidate], *, by_scores: bool = False) -> tuple[str, ...]:
    """Return the names of candidates.

    ``by_scores``: the target's prior is estimated from scores, too; all composites are then the same.
    """
    return tuple(
        "composite/curve/scores" if by_scores and row.origin == "source" else row.name for row in candidates
    )


def are(origin: Origin, candidates: Sequence[Candidate]) -> Flags:
    """Return the mask of the candidates of an origin, bool[K]."""
    return np.array([row.origin == origin for row in candidates])


def register(candidate: Own) -> None:
    """Make a map a candidate of every engine that takes its first label after this, in this process.

    A process that goes on from a state must have registered the same ones, in the same order.

    Raises
    ------
    ValueError
        if its name is taken, or its memory is not from 1 to 16,000.
    """
    rows = taking_part(delayed=True)
    if candidate.name in {*names_of(rows), *names_of(rows, by_scores=True)}:
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
    knots, values = (np.array(numbers, np.float64) for numbers in candidate.fit(logits, counts))
    if not (
        knots.ndim == 1
        and knots.shape == values.shape
        and len(knots) > 0
        and (np.abs(knots) <= FARTHEST).all()
        and (np.diff(knots) >= 0.0).all()
        and ((values >= 0.0) & (values <= 1.0)).all()
    ):
        raise ValueError(
            f"candidate {candidate.name!r} must return knots that ascend from −100 to 100 and as many values"
            f" in [0, 1], got {knots!r} and {values!r}"
        )
    return Line(knots, values)
