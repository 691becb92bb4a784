"""Outages: labels of one class stop, while those of the other go on and predictions without a label pile up.

A class balance that moves looks alike by the labels that come, but then no label is missing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from streamcal.delayed.label_release_c import LabelRelease

_RECENT: Final = (16, 64, 256)  # latest cohorts that are compared with all
_LACKING: Final = 5.0  # standard deviations by which a class falls short of its rate
_HALF: Final = 0.5  # of what a class falls short must be missing; the other class lacks a smaller share


class Outage(NamedTuple):
    """Labels of one class that are missing."""

    label: int
    """The class, 0 or 1."""
    since: float
    """Time of the prediction from which they are missing, in the units of the release."""


def outage_of(release: LabelRelease, age: float) -> Outage | None:
    """Return the class whose labels are missing, and since when; None: those of neither are.

    Parameters
    ----------
    release
        labels in front of an engine, whose laws are known.
    age
        age from which predictions should have nearly all of their labels, in the units of the release.
    """
    cohorts = release.cohorts[: max(release.k - 1, 0)]
    size, time, told = cohorts["size"], cohorts["time"], cohorts["told"]
    old = release.now - time >= age
    due, time, told = size[old] * (1.0 - release.never), time[old], told[old]
    missing, expected = due - told.sum(axis=1), np.outer(due, told.sum(axis=0) / max(due.sum(), 1.0))
    for count in _RECENT:
        if len(due) < 2 * count:
            break
        usually = expected[-count:].sum(axis=0) + 1.0
        lack = (expected - told)[-count:].sum(axis=0)
        shares = lack / usually
        for label in (0, 1):
            short = lack[label] > _LACKING * np.sqrt(usually[label])
            short &= shares[1 - label] < _HALF * shares[label]
            if short and missing[-count:].sum() > _HALF * lack[label]:
                usual = _HALF * lack[label] * due / due[-count:].sum()
                begin = int(np.cumsum((expected[:, label] - told[:, label] - usual)[::-1])[::-1].argmax())
                return Outage(label, float(time[max(begin - 1, 0)]))
    return None
