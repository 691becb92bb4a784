"""The table of the candidates of mode ``auto``: their names, order, weights, fits and states follow from it.

A candidate is a line in the logit of the score (`forecasts_c.Line`), or the score itself. Its name is
``estimator/family/memory``. A memory is a number of labels, the discount of every earlier label, or ``all``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from streamcal.base.values import Flags
from streamcal.mixture.fits import Labelled, fit_free_curve, fit_hinge, fit_isotonic
from streamcal.mixture.forecasts_c import Line

WINDOWS: Final = (250, 1000, 4000, 16_000)
"""Lengths of the windows of labels with maps of their own."""

DISCOUNTS: Final = (0.98, 0.9997)
"""Discount of a label in each online Platt scaling when one more has come."""

RECENT_PRIOR: Final = 300
"""Number of the latest target labels that estimate the more recent of the two priors."""

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


def taking_part(*, delayed: bool) -> tuple[Candidate, ...]:
    """Return the candidates in the order of all weights; ``delayed``: `EARLY` are among them."""
    return CANDIDATES + EARLY if delayed else CANDIDATES


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
