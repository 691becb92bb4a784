"""Summary of the delays of labels by class, and of the labels that are held."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from streamcal.delayed.delay_laws_c import COMPLETE, EDGES, completeness
from streamcal.delayed.label_release_c import LabelRelease
from streamcal.delayed.outage import Outage, outage_of

_MOST: Final = 0.9  # of the labels of a class
_SUSPECT: Final = 3.0  # standard deviations from which labels may be no fair sample


class LabelDelays(msgspec.Struct, frozen=True):
    """Delays of labels by class, and labels that are held so that both classes are equally complete."""

    by_time: bool
    """Whether ages are in seconds of event time; otherwise in predictions."""
    late: int | None
    """Class, 0 or 1, whose labels come later than those of the other; None: delays do not depend on it."""
    fair: bool
    """Whether the labels that have come are a fair sample: neither class is late, or it would have shown."""
    z: float
    """Log-rank statistic of the two classes, in standard deviations; `late` is named above 5."""
    first: bool
    """Whether all labels are held because the first are no fair sample yet."""
    missing: int | None
    """Class of which no label has come, though labels of it are expected; None: both come."""
    held: int
    """Number of labels that have come and are held."""
    oldest: float | None
    """Age of the oldest prediction whose label is held; None: none is held."""
    complete: tuple[float, float] | None
    """Share of the labels of class 0 and of class 1 that have come, of predictions with a label that is held;
    None while it is not known."""
    within: tuple[float | None, float | None] | None
    """Ages at which 90 % of the labels of class 0 and of class 1 have come, None if they never do; None while
    it is not known."""
    complete_at: float | None
    """Age of predictions from which nearly all labels of both classes have come, in seconds; None: it is not
    known, or ages are in predictions."""
    outage: Outage | None
    """Class whose labels have stopped, and since when: those of the other come as before; None: neither."""
    excluded: int
    """Number of predictions that were learned without a label, because all labels of one class had come."""
    mistaken: int
    """Number of these whose label came later and was another."""


def label_delays(release: LabelRelease) -> LabelDelays:
    """Return what is known of the delays of labels."""
    k = release.k
    cohorts = release.cohorts[:k]
    time, told = cohorts["time"], cohorts["told"]
    held = np.flatnonzero((told - cohorts["released"]).sum(axis=1))
    oldest = None
    if len(held):  # the latest cohort has no time yet
        oldest = float(release.now - time[held[0]]) if held[0] < k - 1 else 0.0
    complete = within = outage = None
    complete_at = (
        0.0 if release.asked() - told.sum() <= (1.0 - COMPLETE) * told.sum(axis=0).min() else math.inf
    )
    if release.known and k > 1:
        shares = np.empty((4, k - 1))
        complete_at = min(complete_at, completeness(release, 0, shares))
        some = held[held < k - 1]
        if len(some):
            counts = told[some].T.astype(np.float64)
            part = counts.sum(axis=1) / np.maximum(
                (counts / np.maximum(shares[:2, some], 1e-12)).sum(axis=1), 1e-12
            )
            complete = (min(1.0, float(part[0])), min(1.0, float(part[1])))
        within = (_age(release, 0), _age(release, 1))
        outage = outage_of(release, complete_at)
        if outage is not None:
            complete_at = max(complete_at, release.now - outage.since)
    totals = told.sum(axis=0)
    missing = None
    if release.unsettled and release.late_class and totals.any() and not totals.all():
        missing = int(totals.argmin())
    late = int(release.late) if release.on else None
    if late is None and release.unsettled and release.late_class:  # by the first labels
        late = int(release.first.positives <= release.first.expected)
    return LabelDelays(
        by_time=bool(release.by_time),
        late=late,
        fair=late is None and outage is None and _alike(release),
        z=float(release.z),
        first=bool(release.unsettled and release.held > 0),
        missing=missing,
        held=int(release.held),
        oldest=oldest,
        complete=complete,
        within=within,
        complete_at=complete_at if release.by_time and complete_at < math.inf else None,
        outage=outage,
        excluded=int(release.excluded),
        mistaken=int(release.mistaken),
    )


def most_apart(release: LabelRelease) -> tuple[float, float, float] | None:
    """Return the age at which the shares of the labels that have come differ most between the classes.

    Behind it are the share of class 0 and that of class 1, in [0, 1]; None while delays are not known.
    """
    if not release.known:
        return None
    ages = [(age, release.law(0, age), release.law(1, age)) for age in EDGES.tolist()]
    return max(ages, key=lambda each: abs(each[1] - each[2]))


def _alike(release: LabelRelease) -> bool:
    """Return whether nothing tells that one class is late, though a test would have."""
    return bool(release.z <= _SUSPECT and not release.unsettled and release.sampled())


def _age(release: LabelRelease, label: int) -> float | None:
    """Return the age at which most labels of a class have come, at least the end of a bin."""
    return next((edge for edge in EDGES.tolist() if release.law(label, edge) >= _MOST), None)
