"""Predictions of the join as objects, for what a row of its table cannot hold.

`streamcal.join.id_table_c` holds the rows.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from streamcal.events import Domain, Weight

# Checked where a pack is decoded.
_Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Label = Annotated[int, msgspec.Meta(ge=0, lt=1000)]  # below the number of classes: see `PackRows.of`
_Seen = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]


Values: TypeAlias = tuple[str | float | None, ...]

Memo: TypeAlias = Values | bytes
"""Value that the engine wants back with the label of a prediction; the join does not look into it."""


class Pending(msgspec.Struct, gc=False, array_like=True):
    """A prediction that waits for its label, or has; ``since`` is the join's clock at its arrival."""

    since: float | None
    score: _Probability
    probability: _Probability
    domain: Domain
    key: str | None
    time: float | None = None
    """Event time of the prediction, in seconds; None if it has none."""
    prediction_index: _Seen = 0
    """Number of target scores that the engine had observed before it answered."""
    answer: tuple[_Seen, float, float] | None = None
    """Answer that is kept to be given again: the map's version, and the two weights of its shift correction;
    None if it is not kept."""
    told: tuple[_Label, float | None] | None = None
    """Label and its event time, where one came before the prediction matured. If it was learned as 0 for want
    of a label: the 1 that came since."""
    weight: Weight | None = None
    """Weight of the label, unless the label has its own; None: 1."""
    memo: Memo | None = None
    """Values that the engine wants back with the label; None: nothing."""
    decided: Annotated[int, msgspec.Meta(ge=1, le=8)] | None = None
    """Decision that was made on it, if it is kept (`streamcal.quality.decision_figures.decision_names`)."""
