"""Completeness of each class in each cohort: the share of its labels that have been told.

What is pending in a cohort is divided between the classes by the laws of their delays and the rate of the
cohort and its neighbours. A cohort whose labels contradict the laws is marked: it is bulk, or an outage. So
is a cohort where one class is all but complete: what is pending is of the other.

Compiled where there is a C compiler; `completeness_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from streamcal.release.delay_laws_c import DelayLaws
from streamcal.values import Floats

__all__ = ["COMPLETE", "completeness"]

COMPLETE: Final = 0.98
"""Share of its labels from which a class counts as complete."""

_ROUNDS: Final = 4  # of EM
_PSEUDO: Final = 8.0  # labels at the rate of all, for the rate of a cohort
_SMOOTH: Final = 0.1  # label at the law, for the completeness
_ENOUGH: Final = 16.0  # labels of a class to be expected, or neighbours count, too
_LOCAL: Final = 2  # neighbours on either side that count for the rate of a cohort
_BEFORE: Final = 8  # cohorts before the first that is asked for, which may count as neighbours
_REACH: Final = 0.25  # of the age of a cohort that a neighbour may be away
_MATURE: Final = 0.9  # completeness of cohorts that tell the latest rate
_RECENT: Final = 2000.0  # labels that tell it
_FACTOR: Final = 2.0  # by which a rate may be off before a cohort contradicts the laws, …
_TELLING: Final = 64.0  # labels of a class that are due, from which they tell a rate
_ERRORS: Final = 4.0  # … and standard errors
_NEAR: Final = 4  # neighbours on either side that count where labels are found by exclusion
_HARDLY: Final = 0.01  # of the rarer class: labels of the other class that may be pending
_OFF: Final = 0.1  # by which the pending may differ from what is expected
_SURE: Final = 0.95  # completeness at the greatest age from which labels are found by exclusion
_PENDING: Final = 0.05  # of the rarer class of a cohort: as long as more is pending, it is held

# As C has them.
_COMPLETE, _NEVER = COMPLETE, float("inf")


def completeness(laws: DelayLaws, start: int, out: Floats) -> float:
    """Put the completeness of each cohort from ``start`` on that has ended into ``out``, float64[4, k − 1].

    The rows are those of label 0, of label 1, 1.0 where a cohort contradicts the laws, else 0.0, and where
    one class is all but complete, 1.0 plus the other; else 0.0.

    Returns
    -------
    The least age from which both laws count as complete; infinity if there is none.
    """
    k = laws.k - 1
    start = max(0, start - _BEFORE)
    now, p, never = laws.now, laws.p, laws.never
    # Ages, laws, pending labels that will be told, labels by class with these, and rate.
    ages, law0, law1, pending, all0, all1 = np.empty((6, k))
    lows, highs = np.empty((2, 2, k))  # rates that the labels of each class may have
    least = 0.25 * (now - laws._time[k - 2]) if k > 1 else 0.0
    complete = _NEVER
    mature0 = mature1 = 0.0  # of the latest predictions whose labels are all but complete
    for i in range(k - 1, -1, -1):
        age = max(now - laws._time[i], least)
        ages[i], law0[i], law1[i] = age, laws.law(0, age), laws.law(1, age)
        if min(law0[i], law1[i]) >= _MATURE and mature0 + mature1 < _RECENT:
            mature0 += laws.told[i, 0] / law0[i]
            mature1 += laws.told[i, 1] / law1[i]
        if i < start and complete < _NEVER and mature0 + mature1 >= _RECENT:
            break
        missing = (1.0 - never) * (p * (1.0 - law1[i]) + (1.0 - p) * (1.0 - law0[i]))
        unlabelled = max(0.0, float(laws._size[i] - laws.told[i, 0] - laws.told[i, 1]))
        pending[i] = unlabelled * missing / max(missing + never, 1e-9)
        if min(law0[i], law1[i]) >= _COMPLETE:
            complete = min(complete, age)
    recent = (mature1 + _PSEUDO * p) / (mature0 + mature1 + _PSEUDO)
    for i in range(start, k):
        told0, told1, wait, due0, due1 = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(max(start, i - _LOCAL), min(k, i + _LOCAL + 1)):
            if abs(laws._time[j] - laws._time[i]) <= _REACH * ages[i]:
                told0 += laws.told[j, 0]
                told1 += laws.told[j, 1]
                wait += pending[j]
                due0 += (1.0 - never) * laws._size[j] * law0[j]
                due1 += (1.0 - never) * laws._size[j] * law1[j]
        rate = p
        share = p
        for step in range(_ROUNDS + 1):
            late1, late0 = rate * (1.0 - law1[i]), (1.0 - rate) * (1.0 - law0[i])
            share = late1 / (late1 + late0) if late1 + late0 > 1e-9 else rate
            if step < _ROUNDS:
                rate = (told1 + wait * share + _PSEUDO * p) / (told0 + told1 + wait + _PSEUDO)
        out[3, i] = 0.0
        if laws.full >= _SURE and laws.waiting[i, 0] > 0 and now - laws._time[i] >= least:
            out[3, i] = _rest(laws, k, i, law0[i], law1[i], _REACH * ages[i], recent)
        all0[i] = laws.told[i, 0] + pending[i] * (1.0 - share)
        all1[i] = laws.told[i, 1] + pending[i] * share
        # Rates that are possible: those of late, and for a class what the labels of the other say.
        low, high = min(p, recent), max(p, recent)
        lows[1, i], highs[1, i] = low, high
        lows[0, i], highs[0, i] = low, high
        if due0 >= _TELLING:
            lows[1, i] = max(0.0, min(low, 1.0 - told0 / due0))
            highs[1, i] = max(high, 1.0 - told0 / due0)
        if due1 >= _TELLING:
            lows[0, i] = min(low, told1 / due1)
            highs[0, i] = min(1.0, max(high, told1 / due1))
        low, high = min(lows[0, i], lows[1, i]), max(highs[0, i], highs[1, i])
        out[2, i] = float(_mixed(told0, told1, law0[i], law1[i], low, high))
    for i in range(start, k):
        for y in range(2):
            part = law1[i] if y else law0[i]
            first = last = i
            told = float(laws.told[i, y])
            total = all1[i] if y else all0[i]
            size = float(laws._size[i])
            expected = size * part
            while total < _ENOUGH:
                down = first > start and laws._time[i] - laws._time[first - 1] <= _REACH * ages[i]
                up = last < k - 1 and laws._time[last + 1] - laws._time[i] <= _REACH * ages[i]
                if not (down or up):
                    break
                if down:
                    first -= 1
                    told += laws.told[first, y]
                    total += all1[first] if y else all0[first]
                    expected += laws._size[first] * (law1[first] if y else law0[first])
                if up:
                    last += 1
                    told += laws.told[last, y]
                    total += all1[last] if y else all0[last]
                    expected += laws._size[last] * (law1[last] if y else law0[last])
            out[y, i] = (told + _SMOOTH * part) / (total + _SMOOTH)
            expected *= 1.0 - never
            low, high = lows[y, i], highs[y, i]
            least, most = (low, high) if y else (1.0 - high, 1.0 - low)
            most = min(1.0, _FACTOR * most) * expected
            least = max(least / _FACTOR, 1.0 - _FACTOR * (1.0 - least)) * expected
            below = least - _ERRORS * math.sqrt(least * (1.0 - part) + 1.0)
            if told > most + _ERRORS * math.sqrt(most + 1.0) or told < below:
                out[2, i] = 1.0
        unlabelled = float(laws._size[i] - laws.told[i, 0] - laws.told[i, 1])
        if out[2, i] > 0.0:
            out[3, i] = 0.0
        if unlabelled <= _PENDING * laws._size[i] * min(p, 1.0 - p):
            out[2, i] = 0.0
    return complete


def _mixed(told0: float, told1: float, law0: float, law1: float, low: float, high: float) -> bool:
    """Return whether the classes of what is told contradict the laws, however much is never told."""
    told = told0 + told1
    ratio = max(law1, 1e-6) / max(law0, 1e-6)
    high = _FACTOR * high / max(1.0 - high, 1e-9) * ratio
    low = low / max(1.0 - low, 1e-9) * ratio / _FACTOR
    high, low = high / (1.0 + high), low / (1.0 + low)
    return bool(
        told1 > told * high + _ERRORS * math.sqrt(told * high * (1.0 - high) + 1.0)
        or told1 < told * low - _ERRORS * math.sqrt(told * low * (1.0 - low) + 1.0)
    )


def _rest(laws: DelayLaws, k: int, i: int, law0: float, law1: float, reach: float, prior: float) -> float:
    """Return 1.0 plus the class of what is pending in a cohort, or 0.0 if some are of the other."""
    told0, told1, wait = 0.0, 0.0, 0.0
    for j in range(max(0, i - _NEAR), min(k, i + _NEAR + 1)):
        if abs(laws._time[j] - laws._time[i]) <= reach:
            told0 += laws.told[j, 0]
            told1 += laws.told[j, 1]
            wait += max(0.0, float(laws._size[j] - laws.told[j, 0] - laws.told[j, 1]))
    # Not at the rate of this cohort: of several, those with more labels of a class would be learned first.
    never = laws.never
    late1 = (1.0 - never) * prior * (1.0 - law1)
    late0 = (1.0 - never) * (1.0 - prior) * (1.0 - law0)
    all_ = late1 + late0 + never
    label = 1 if late1 > late0 else 0
    other = (1.0 - prior) * (1.0 - law0) if label else prior * (1.0 - law1)
    allowed = _HARDLY * min(prior, 1.0 - prior)
    total = told0 + told1 + wait
    expected = total * all_
    off = abs(wait - expected)
    if other > allowed or never > allowed:
        return 0.0
    if off > _ERRORS * math.sqrt(expected * (1.0 - min(all_, 1.0)) + 1.0) + _OFF * expected:
        return 0.0
    return 1.0 + label
