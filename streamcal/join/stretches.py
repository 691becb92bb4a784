"""Stretches: runs of events whose case is the common one, taken many at a time.

The common case: a prediction whose id is new, and a label whose prediction waits for it, with nothing that
expires. What a stretch holds besides is for `Join`, one event at a time: it alone knows the other rules. So a
stretch ends before the first event that may be anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.join.clock import ExpiryClock
from streamcal.join.tables import Pending, Settled, Tables

__all__ = ["Match", "Stretch", "look", "take"]

_NONE: Final = -1

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


class Match(NamedTuple):
    """A label that meets its prediction."""

    at: int
    """The index of the label in its stretch."""
    prediction: int
    """The index of its prediction in the stretch; −1: it waited before."""
    waiting: Pending | None
    """That prediction, if it waited before."""


class Stretch(NamedTuple):
    """Events of the common case, from some event on."""

    size: int
    predictions: Indices
    """The indices of its predictions."""
    labels: Indices
    """The indices of its labels."""
    own: list[int]
    """Of each label, the number of its prediction among those of the stretch; −1: it waited before."""
    waiting: list[Pending | None]
    """Of each label, its prediction, if that waited before."""
    clock: Floats | None
    """The clock at each event; None: it does not move."""
