"""What the join remembers of one id, as an object: to store it, and where a row of the table has no column.

`streamcal.join.id_table_c` holds the rows.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

import msgspec

from streamcal.events import Domain, LabelEvent, Weight

__all__ = ["E", "E_co", "Early", "Entry", "Pending", "Settled"]

# Checked where a stored entry is decoded.
_Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Label = Annotated[int, msgspec.Meta(ge=0, le=1)]
_Seen = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]


class Pending(msgspec.Struct, gc=False, array_like=True):
    """A prediction that waits for its label; ``since`` is the join's clock at its arrival."""

    since: float | None
    score: _Probability
    probability: _Probability
    domain: Domain
    key: str | None
    time: float | None = None
    """Its event time."""
    seen: _Seen = 0
    """How many target scores its engine had observed before it answered."""
    answer: tuple[_Seen, float, float] | None = None
    """Of an answer that is kept, to be given again: the map's version, and the two weights of its shift
    correction."""
    told: tuple[_Label, float | None] | None = None
    """The label that it is learned with, and its event time: told before the prediction matured, or kept for
    a correction. Of one that was learned as 0 for want of a label, and is not corrected: the 1 told since."""
    weight: Weight | None = None
    """What its label counts for, if that does not say it itself; None: 1."""


class Early(msgspec.Struct, gc=False):
    """A label that waits for its prediction."""

    since: float | None
    event: LabelEvent


class Settled(msgspec.Struct, gc=False, array_like=True):
    """How a prediction ended; kept to tell duplicates and late labels."""

    since: float | None
    label: _Label | None
    """None: it expired without one."""
    answered: Pending | None = None
    """The prediction, if its answer is kept, or its label may yet be corrected."""


Entry: TypeAlias = Pending | Early | Settled

E = TypeVar("E", Pending, Early, Settled)
E_co = TypeVar("E_co", Pending, Early, Settled, covariant=True)
