"""State of the labels in front of an engine."""

from __future__ import annotations

import msgspec

from streamcal.release.first_labels import FirstLabels
from streamcal.sketch.decoding import Count
from streamcal.values import Cells, Counts, Floats, Labels

__all__ = ["ReleaseState"]


class ReleaseState(msgspec.Struct, array_like=True):
    """The state of `LabelRelease`."""

    n: Count
    """Number of predictions."""
    numbers: list[float]
    """Numbers of `DelayLaws`: now, origin, spacing, z, power, never, p, full, most."""
    flags: list[bool]
    """Flags of `DelayLaws`: by_time, on, known."""
    bins: list[int]
    """Places of `DelayLaws`: late, and bins."""
    sums: Floats
    laws: Floats
    histogram: Floats
    counts: Counts
    """By cohort: first prediction, predictions, labels told and released of each class, bin, and mark."""
    reals: Floats
    """By cohort: time, and sums of what was expected; then the times of the latest predictions."""
    cells: Cells
    """By cohort, band and class: labels up to the bin before, and of the bin."""
    more: Counts
    """`HeldLabels.more`."""
    held: Counts
    """By cohort: labels held of each class, and scores noted; then labels held that came at once."""
    scores: Floats
    labels: Labels
    index: Counts
    units: Cells
    stands: Cells
    times: Floats
    memos: dict[int, bytes]
    """Values kept with held labels, by their place."""
    settled: list[bool]
    """Flags of `LabelRelease`: unsettled, late_class, and whether a label had a time."""
    found: list[int]
    """Numbers of labels by exclusion, and of those that were mistaken."""
    observed: list[float]
    """Sums of what was expected of predictions, and of its squares; latest time of a label."""
    first: FirstLabels
