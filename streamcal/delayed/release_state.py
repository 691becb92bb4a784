"""State of the labels in front of an engine, and those that it is to learn."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from streamcal.delayed.first_labels import FirstLabels
from streamcal.join.entries import Memo
from streamcal.sketch.decoding import Count, Finite, Part
from streamcal.values import Cells, Counts, Floats, Labels

__all__ = ["SCALARS", "ReleaseState", "Released"]

Small = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 16)]


class ReleaseState(Part, array_like=True):
    """The state of `LabelRelease`: its scalars, its cohorts, and its held labels, each by its name there."""

    n: Count
    now: Finite
    origin: Finite
    spacing: Finite
    z: Finite
    power: Finite
    never: Finite
    p: Finite
    full: Finite
    most: Finite
    by_time: bool
    on: bool
    known: bool
    late: Annotated[int, msgspec.Meta(ge=0, le=1)]
    _first: Small
    _low: Small
    _high: Small
    _earlier: float
    _before: float
    _latest: float
    unsettled: bool
    late_class: bool
    excluded: Count
    mistaken: Count
    sum: Finite
    squares: Finite
    _moment: float
    _came: float
    first: FirstLabels
    sums: Floats
    laws: Floats
    histogram: Floats
    more: Counts
    cohorts: tuple[Counts, Counts, Floats, Counts, Counts, Cells, Cells, Floats, Cells, Cells]
    """Columns of cohorts but for the first and last label that each holds."""
    held: Counts
    """By cohort: labels held of each class, and scores noted; then labels held that came at once."""
    scores: Floats
    labels: Labels
    index: Counts
    weights: Floats
    stands: Cells
    times: Floats
    memos: dict[int, bytes]
    """Values kept with held labels, by their place."""


SCALARS: Final = ReleaseState.__struct_fields__[: ReleaseState.__struct_fields__.index("sums")]
"""Names of the attributes that a release is restored with as they are."""


class Released(NamedTuple):
    """Labels to be learned, in the order of their predictions."""

    scores: Floats
    labels: Labels
    prediction_index: Counts
    weights: Floats
    times: Floats
    """Event times of the labels, float64[k]; NaN where there is none."""
    memos: list[Memo | None]
