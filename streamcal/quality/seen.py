"""Labels of which some are missing: which are there, and with what chance."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from streamcal.base.values import Flags, Floats, unmasked

_SURELY: Final = 5.0  # standard deviations


def seen_labels(labels: Any, propensities: Any) -> tuple[Flags, Floats]:
    """Return which labels are there, bool[n], and the weights of these; warn if they are not as promised."""
    unmasked("labels", labels)
    chances, known = np.asarray(propensities, np.float64), np.asarray(labels, object)
    if chances.shape != known.shape:
        raise ValueError(f"propensities must have the length of labels, {len(known)}: got {chances.shape}")
    bad = np.flatnonzero(~((chances > 0.0) & (chances <= 1.0)))
    if len(bad):
        raise ValueError(f"index {bad[0]}: a propensity must be in (0, 1], got {chances[bad[0]]}")
    seen = present(known.tolist())
    promised, deviation = chances.sum(), math.sqrt((chances * (1.0 - chances)).sum())
    if not seen.all() and abs(seen.sum() - promised) > _SURELY * deviation + 1.0:
        warnings.warn(
            f"by the propensities, {promised:,.0f} of {len(seen):,} labels should be there, and"
            f" {seen.sum():,} are: check that each is the chance of its own label, and that all that"
            " were asked for came",
            stacklevel=3,
        )
    return seen, 1.0 / chances[seen]


def present(values: Sequence[object]) -> Flags:
    """Return which values are there, bool[n]: NaN equals nothing, and of pandas' NA nothing is true."""
    return np.array([each is not None and (each == each) is True for each in values], np.bool_)
