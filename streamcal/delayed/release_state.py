"""State of the labels in front of an engine, and those that it is to learn."""

from __future__ import annotations

import math
from typing import Annotated, Final, NamedTuple

import msgspec

from streamcal.delayed.first_labels import FirstLabels
from streamcal.join.entries import Memo
from streamcal.sketch.decoding import Count, Finite, Part
from streamcal.values import NO_CELLS, NO_COUNTS, NO_FLOATS, NO_LABELS, Cells, Counts, Floats, Labels

BANDS: Final = 24
"""Bands of scores: octaves of the odds, from 2⁻¹² to 2¹²."""


Small = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 16)]


class ReleaseState(Part):
    """The state of `LabelRelease`: its scalars, its cohorts, and its held labels, each by its name there.

    A state has what differs from that of a new release.
    """

    n: Count = 0
    now: Finite = 0.0
    origin: Finite = 0.0
    spacing: Finite = 0.0
    z: Finite = 0.0
    power: Finite = 0.0
    never: Finite = 0.0
    p: Finite = 0.5
    full: Finite = 1.0
    most: Finite = 0.0
    by_time: bool = False
    on: bool = False
    known: bool = False
    late: Annotated[int, msgspec.Meta(ge=0, le=1)] = 0
    _first: Small = 0
    _low: Small = BANDS
    _high: Small = -1
    _earlier: float = math.nan
    _before: float = math.nan
    _latest: float = math.nan
    unsettled: bool = True
    late_class: bool = False
    excluded: Count = 0
    mistaken: Count = 0
    sum: Finite = 0.0
    squares: Finite = 0.0
    _moment: float = math.nan
    _came: float = math.nan
    first: FirstLabels = msgspec.field(default_factory=FirstLabels)
    sums: Floats = NO_FLOATS
    laws: Floats = NO_FLOATS
    histogram: Floats = NO_FLOATS
    more: Counts = NO_COUNTS
    cohorts: tuple[Counts, Counts, Floats, Counts, Counts, Cells, Cells, Floats, Cells, Cells] | None = None
    """Columns of cohorts but for the first and last label that each holds; None: no label is held either."""
    held: Counts = NO_COUNTS
    """By cohort: labels held of each class, and scores noted; then labels held that came at once."""
    scores: Floats = NO_FLOATS
    labels: Labels = NO_LABELS
    index: Counts = NO_COUNTS
    weights: Floats = NO_FLOATS
    stands: Cells = NO_CELLS
    times: Floats = NO_FLOATS
    memos: dict[int, bytes] = msgspec.field(default_factory=dict)
    """Values kept with held labels, by their place."""
    young: Floats = NO_FLOATS
    """Scores of predictions to be noted in the first cohort, before there is one."""


_NAMES: Final = ReleaseState.__struct_fields__
SCALARS: Final = {name: getattr(ReleaseState(), name) for name in _NAMES[: _NAMES.index("sums")]}
"""Attributes that a release is restored with as they are, with their values in a new one."""


class Released(NamedTuple):
    """Labels to be learned, in the order of their predictions."""

    scores: Floats
    labels: Labels
    prediction_index: Counts
    weights: Floats
    times: Floats
    """Event times of the labels, float64[k]; NaN where there is none."""
    memos: list[Memo | None]
