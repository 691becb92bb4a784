"""Names of the candidates of mode ``auto``, in their order.

A candidate is the identity, or one of the paper's estimators × a family of maps × a memory. Its name is
``estimator/family/memory``. A memory is a number of labels, the discount of every earlier label, or ``all``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

__all__ = [
    "COMPOSITE",
    "DELAYED",
    "DISCOUNTS",
    "LOGISTIC_ROWS",
    "NAMES",
    "NAMES_BY_SCORES",
    "RECENT_PRIOR",
    "WINDOWS",
    "names_of",
]

WINDOWS: Final = (250, 1000, 4000, 16_000)
"""Lengths of the windows of labels with maps of their own."""

DISCOUNTS: Final = (0.98, 0.9997)
"""Discount of a label in each online Platt scaling when one more has come."""

LOGISTIC_ROWS: Final = len(WINDOWS) + 1 + len(DISCOUNTS)
"""Number of logistic maps before those of `DELAYED`: hinge maps, and online Platt scalings."""

RECENT_PRIOR: Final = 300
"""Number of the latest target labels that estimate the more recent of the two priors."""

_PRIORS: Final = ("all", str(RECENT_PRIOR))  # the labels that estimate the prior of each composite

NAMES: Final = (
    "identity",
    *(f"target/isotonic/{window}" for window in WINDOWS),
    "target/curve/all",
    *(f"target/hinge/{memory}" for memory in (*WINDOWS, "all")),
    *(f"target/platt/{discount}" for discount in DISCOUNTS),
    *(f"composite/curve/{prior}" for prior in _PRIORS),
)
"""Names of all K candidates, in their order. Candidates of the target come first.

``target``: fitted to target labels, which continue the source's newest ones. ``composite``: the source's map,
corrected for label shift (eq. 13) by the prior of the latest target labels or of all."""

NAMES_BY_SCORES: Final = (*NAMES[: -len(_PRIORS)], *("composite/curve/scores" for _ in _PRIORS))
"""Names of all candidates if the target's prior is estimated from scores, too.

Both composites are then the same."""

DELAYED: Final = ("delayed/platt/all", "delayed/platt/recent")
"""Candidates behind all others if positives come before a label is final: fitted to early positives and
exposures, of all predictions or of those since the latest change (`streamcal.delayed`). Final labels do not
weigh them: these are about predictions as old as a label takes."""

COMPOSITE: Final = np.array([name.startswith("composite") for name in NAMES])
"""Mask of the candidates that need a source and assume label shift between source and target, bool[K]."""


def names_of(*, delayed: bool, by_scores: bool, own: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of all candidates; ``by_scores`` as in `NAMES_BY_SCORES`, ``own`` the user's."""
    names = NAMES_BY_SCORES if by_scores else NAMES
    return (*names, *(DELAYED if delayed else ()), *own)
