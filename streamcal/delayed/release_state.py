"""State of the labels in front of an engine, and those that it is to learn."""

from __future__ import annotations

import math
from typing import Annotated, Final, NamedTuple

import msgspec

from streamcal.base.values import NO_COUNTS, NO_FLOATS, Counts, Floats, Labels
from streamcal.delayed.first_labels import FirstLabels
from streamcal.join.entries import Memo
from streamcal.sketch.decoding import MOST, Count, Finite, Part, Probability

BANDS: Final = 24
"""Bands of scores: octaves of the odds, from 2⁻¹² to 2¹²."""


Small = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 16)]


class HeldRow(NamedTuple):
    """A label that waits to be learned, or the score of a prediction that waits for its label."""

    score: Probability
    label: Annotated[int, msgspec.Meta(ge=0, le=2)]
    """Label, 0 or 1; 2: none has come."""
    prediction: Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
    """Number of its prediction; below 0: the label came at once."""
    weight: float
    time: float
    """Event time of the label, in seconds; NaN: none."""
    memo: bytes | None
    """Value kept with the prediction."""
    stands: Annotated[int, msgspec.Meta(ge=1, le=MOST)]
    """Number of labels that it stands for."""


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
    cohorts: bytes | None = None
    """Cohorts, see `delay_laws_c.STORED_FIELDS`; None: no label is held either."""
    lists: list[Annotated[list[list[HeldRow]], msgspec.Meta(min_length=3, max_length=3)]] = msgspec.field(
        default_factory=list
    )
    """By cohort: held labels 0, held labels 1, and noted scores of predictions without a label."""
    loose: list[HeldRow] = msgspec.field(default_factory=list)
    """Held labels that came together with their prediction."""
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
