"""Completeness of each class in each cohort, against plain Python, and what contradicts the laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from streamcal.delayed.delay_laws_c import COHORT, DelayLaws, completeness
from tests.delayed.streams import Delays, Floats, Labels, Stream, bulk, by_class, fixed, made, told
from tests.nightly import one_in


def complete(laws: DelayLaws, unnoted: int | None = None) -> tuple[Floats, float]:
    """Return the completeness of each cohort, and the age of complete ones.

    It is as if scores were noted: of all cohorts, or of all but every third one, from this one on.
    """
    noted = np.asarray(laws._columns[8])[:, 0]
    noted[:] = 1
    if unnoted is not None:
        noted[unnoted::3] = 0
    out = np.full((4, laws.k - 1), np.nan)
    return out, completeness(laws, 0, out)


class Cohorts:
    """What a cohort and the laws say, read off the laws."""

    def __init__(self, laws: DelayLaws) -> None:
        k = int(laws.k) - 1
        columns = [np.asarray(column)[:k] for column in laws._columns[:9]]
        self.k, self.laws = k, laws
        self.size, self.time, self.told = columns[1].astype(float), columns[2], columns[3].astype(float)
        least = 0.25 * (laws.now - self.time[k - 2]) if k > 1 else 0.0
        self.age = np.maximum(laws.now - self.time, least)
        self.excludable = (columns[8][:, 0] > 0) & (laws.now - self.time >= least)
        self.law = np.array([[laws.law(y, age) for age in self.age] for y in range(2)])

    def near(self, i: int, steps: int) -> list[int]:
        """Return cohorts up to so many steps away, no farther than a quarter of the age."""
        inside = range(max(0, i - steps), min(self.k, i + steps + 1))
        return [j for j in inside if abs(self.time[j] - self.time[i]) <= 0.25 * self.age[i]]


def plain(laws: DelayLaws) -> tuple[Floats, float]:
    """Return the completeness of each cohort as it is documented, and the age from which all is complete."""
    said = Cohorts(laws)
    k, p, never, (law0, law1), told = said.k, laws.p, laws.never, said.law, said.told
    missing = (1.0 - never) * (p * (1.0 - law1) + (1.0 - p) * (1.0 - law0))
    unlabelled = np.maximum(said.size - told.sum(axis=1), 0.0)
    pending = unlabelled * missing / np.maximum(missing + never, 1e-9)
    complete = min(
        (age for age, a, b in zip(said.age, law0, law1, strict=True) if min(a, b) >= 0.98), default=math.inf
    )
    mature = np.zeros(2)
    for i in reversed(range(k)):
        if min(law0[i], law1[i]) >= 0.9 and mature.sum() < 2000.0:
            mature += told[i] / (law0[i], law1[i])
    recent = (mature[1] + 8.0 * p) / (mature.sum() + 8.0)
    out = np.zeros((4, k))
    pi = np.zeros(k)  # of what is pending, the share of class 1
    least, most = np.zeros((2, k, 2))  # rate of label 1 that is possible, for the labels of each class
    for i in range(k):
        near = said.near(i, 2)
        (told0, told1), wait = told[near].sum(axis=0), pending[near].sum()

        def share(rate: float, i: int = i) -> float:
            late1, late0 = rate * (1.0 - law1[i]), (1.0 - rate) * (1.0 - law0[i])
            return float(late1 / (late1 + late0) if late1 + late0 > 1e-9 else rate)

        rate = p
        for _ in range(4):
            rate = (told1 + wait * share(rate) + 8.0 * p) / (told0 + told1 + wait + 8.0)
        pi[i] = share(rate)
        for y in range(2):
            possible = [p, recent, *rate_by(1 - y, said, near)]
            least[i, y], most[i, y] = min(possible), max(possible)
        out[2, i] = mixed(told0, told1, law0[i], law1[i], (least[i].min(), most[i].max()))
        if laws.full >= 0.95 and said.excludable[i]:
            out[3, i] = rest(said, i, recent)
    totals = told + pending[:, None] * np.stack((1.0 - pi, pi), axis=1)
    for i in range(k):
        for y in range(2):
            chosen = grown(said, i, totals[:, y])
            out[y, i] = (told[chosen, y].sum() + 0.1 * said.law[y, i]) / (totals[chosen, y].sum() + 0.1)
            expected = (1.0 - never) * (said.size[chosen] * said.law[y, chosen]).sum()
            low, high = (least[i, 1], most[i, 1]) if y else (1.0 - most[i, 0], 1.0 - least[i, 0])
            up_to = min(1.0, 2.0 * high) * expected
            from_ = max(low / 2.0, 1.0 - 2.0 * (1.0 - low)) * expected
            number = told[chosen, y].sum()
            too_many = number > up_to + 4.0 * math.sqrt(up_to + 1.0)
            too_few = number < from_ - 4.0 * math.sqrt(from_ * (1.0 - said.law[y, i]) + 1.0)
            out[2, i] = max(out[2, i], too_many or too_few)
        out[3, i] *= out[2, i] == 0.0
        if said.size[i] - told[i].sum() <= 0.05 * said.size[i] * min(p, 1.0 - p):
            out[2, i] = 0.0
    return out, complete


def rate_by(y: int, said: Cohorts, near: list[int]) -> list[float]:
    """Return the rate of label 1 that labels of class y alone tell, if 64 were due were all of this class."""
    due = (1.0 - said.laws.never) * (said.size[near] * said.law[y, near]).sum()
    if due < 64.0:
        return []
    share = min(1.0, said.told[near, y].sum() / due)
    return [share if y else 1.0 - share]


def grown(said: Cohorts, i: int, totals: Floats) -> list[int]:
    """Return the cohorts that count together: as many neighbours as bring 16 labels of a class."""
    first = last = i
    reach = 0.25 * said.age[i]
    while totals[first : last + 1].sum() < 16.0:
        down = first > 0 and said.time[i] - said.time[first - 1] <= reach
        up = last < said.k - 1 and said.time[last + 1] - said.time[i] <= reach
        if not down and not up:
            break
        first, last = first - down, last + up
    return [*range(first, last + 1)]


def mixed(told0: float, told1: float, law0: float, law1: float, rates: tuple[float, float]) -> float:
    """Return whether the classes of what is told are off by more than a factor of 2 and 4 errors."""
    n, ratio = told0 + told1, max(law1, 1e-6) / max(law0, 1e-6)
    odds = [
        rate / max(1.0 - rate, 1e-9) * ratio * factor for rate, factor in zip(rates, (0.5, 2.0), strict=True)
    ]
    low, high = (each / (1.0 + each) for each in odds)
    above = told1 > n * high + 4.0 * math.sqrt(n * high * (1.0 - high) + 1.0)
    below = told1 < n * low - 4.0 * math.sqrt(n * low * (1.0 - low) + 1.0)
    return float(above or below)


def rest(said: Cohorts, i: int, prior: float) -> float:
    """Return 1 plus the class of what is pending, if next to none of it is of the other, else 0."""
    near, (law0, law1), never = said.near(i, 4), said.law[:, i], said.laws.never
    told = said.told[near].sum()
    wait = np.maximum(said.size[near] - said.told[near].sum(axis=1), 0.0).sum()
    late = (1.0 - prior) * (1.0 - law0), prior * (1.0 - law1)
    out = (1.0 - never) * sum(late) + never
    label = int(late[1] > late[0])
    expected = (told + wait) * out
    off = abs(wait - expected) - 4.0 * math.sqrt(expected * (1.0 - min(out, 1.0)) + 1.0) - 0.1 * expected
    return 0.0 if max(late[1 - label], never) > 0.01 * min(prior, 1.0 - prior) or off > 0.0 else 1.0 + label


def missing(delays: Delays) -> Delays:
    return lambda rng, y, x, at: np.where(rng.random(len(y)) < 0.2, np.inf, delays(rng, y, x, at))


# Delays, rate, and what is added to the log odds of the truth by the end.
CASES = {
    "exponential": (by_class(200.0, 1500.0), 0.2, 0.0),
    "rare": (by_class(200.0, 1500.0), 0.02, 0.0),
    "negatives late": (fixed(1500.0, 300.0), 0.2, 0.0),
    "one soon": (fixed(0.0, 1500.0), 0.5, 0.0),
    "bulk": (bulk(0), 0.2, 0.0),
    "bulk of positives": (bulk(1, 1500.0, 100.0), 0.02, 0.0),
    "missing": (missing(by_class(200.0, 1500.0)), 0.2, 0.0),
    "ever rarer, positives late": (missing(by_class(100.0, 1500.0)), 0.5, -5.0),
    "ever rarer, negatives late": (by_class(3000.0, 100.0), 0.5, -5.0),
}


@pytest.mark.parametrize("name", one_in(2, CASES))
def test_completeness_is_that_of_the_plain_one(name: str) -> None:
    """At many moments of a stream, all four rows."""
    delays, rate, ramp = CASES[name]
    laws, compared, marks = DelayLaws(), 0, set[float]()

    def closed() -> None:
        nonlocal compared
        if not laws.known or (laws.n // COHORT) % 9:
            return
        # As seen behind the end of a cohort, whose successor has begun.
        (out, found), (expected, age) = complete(laws, compared % 3), plain(laws)
        np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-12)
        assert found == age
        compared += 1
        marks.update(out[2:].ravel().tolist())

    told(laws, made(10_000, [11, len(name)], delays, rate=rate, ramp=ramp), closed=closed)
    assert compared >= 5
    if name in ("bulk", "negatives late", "one soon"):
        assert len(marks) > 1  # some cohorts are marked


# What contradicts the laws


def marked(stream: Stream, seen: Callable[[DelayLaws, Floats], None], *, begin: int = 0) -> None:
    """Call back with the completeness at the end of each cohort from this prediction on."""
    laws = DelayLaws()

    def closed() -> None:
        if laws.on and laws.n >= begin:
            seen(laws, complete(laws)[0])

    told(laws, stream, closed=closed)


def share_marked(stream: Stream, begin: int, end: int, young: float = 1e9) -> float:
    """Return the share of cohorts that are marked as contradictory, of an age below ``young``."""
    counts = np.zeros(2)

    def seen(laws: DelayLaws, out: Floats) -> None:
        ages = laws.now - np.asarray(laws._columns[2])[: laws.k - 1]
        if laws.n <= end:
            counts[:] += (out[2, ages < young] > 0.0).sum(), (ages < young).sum()

    marked(stream, seen, begin=begin)
    assert counts[1] > 0.0
    return float(counts[0] / counts[1])


def shares_marked_of_bulk(late: int, rate: float, soon: float) -> tuple[float, float]:
    """Return the shares of cohorts that are marked: where many labels of a class are due and out, and others.

    A share of the labels of this class and all others come at once, the rest at the end of a week of 2,000.
    The first cohorts are of the present week, and four fifths of the class are due; the others of the last.
    """

    def delays(rng: np.random.Generator, y: Labels, x: Floats, at: Floats) -> Floats:
        return np.where(rng.random(len(y)) < soon, 0.0, bulk(late)(rng, y, x, at))

    counts = np.zeros((2, 2))

    def seen(laws: DelayLaws, out: Floats) -> None:
        start, _, time = (np.asarray(column)[: laws.k - 1] for column in laws._columns[:3])
        week = laws.now - laws.now % 2000.0
        due = np.array([laws.law(late, age) for age in laws.now - time])
        present, last = (start >= week) & (due >= 0.8), (time <= week) & (laws.now - time < 2000.0)
        for of, some in zip(counts, (present, last), strict=True):
            of += (out[2, some] > 0.0).sum(), some.sum()

    marked(made(20_000, [12, late], delays, rate=rate), seen, begin=8000)
    assert counts[:, 1].min() > 100
    out, complete = (counts[:, 0] / counts[:, 1]).tolist()
    return out, complete


@pytest.mark.parametrize(("late", "rate", "least"), [(0, 0.2, 0.9), (1, 0.2, 0.4)])
def test_bulk_contradicts_the_laws(late: int, rate: float, least: float) -> None:
    """None or a tenth of a class has come, where four fifths are due: most are marked, of a rare class fewer.

    With a tenth, seen to fail if a rate may be off by a factor of 4.
    """
    out, complete = shares_marked_of_bulk(late, rate, 0.1)
    assert out > least
    assert complete < 0.03


@pytest.mark.parametrize("late", [0, 1])
def test_an_outage_contradicts_the_laws(late: int) -> None:
    """Labels of the sooner class stop for 3,000 predictions. Before, next to no cohort is marked.

    Seen to fail (.25 and .48 of them) at 40 instead of 4 standard errors.
    """
    delays = by_class(300.0, 1500.0) if late else by_class(1500.0, 300.0)

    def stopped(rng: np.random.Generator, y: Labels, x: Floats, at: Floats) -> Floats:
        due = at + delays(rng, y, x, at)
        hit = (due > 12_000.0) & (due < 15_000.0) & (y == 1 - late)
        return np.where(hit, 15_000.0, due) - at

    stream = made(15_000, [13, late], stopped, rate=0.2)
    assert share_marked(stream, 6000, 12_000) < 0.01
    assert share_marked(stream, 13_000, 15_000, young=2000.0) > 0.5


@pytest.mark.statistical
@pytest.mark.parametrize(("rate", "ramp"), one_in(2, product((0.5, 0.2), (-0.6, 0.0, 0.6))))
def test_drift_by_less_than_a_factor_of_2_is_no_contradiction(rate: float, ramp: float) -> None:
    """Log odds that move by ±.6 move the rate by less than a factor of 1.7: under 1 % of cohorts are marked.

    The test of one cohort is at 4 standard deviations beyond a factor of 2: of about 10⁴ tests a stream,
    fewer than one fails by chance (10⁴ · 6e-5), so 1 % of them do with a probability below 1e-6.
    Seen to fail (.38 marked) at 1 standard error beyond a factor of 1.
    """
    for seed in range(2):
        for delays in (by_class(300.0, 1500.0), by_class(1500.0, 300.0)):
            stream = made(20_000, [14, seed], delays, rate=rate, ramp=ramp)
            assert share_marked(stream, 6000, 20_000) < 0.01


# What is pending is of one class


@pytest.mark.parametrize("late", [0, 1])
def test_exclusion_only_where_one_class_is_all_but_complete(late: int) -> None:
    """Of fixed delays of 400 and 2,000: at ages in between, and then of the class that is late."""
    stream = made(16_000, [15, late], fixed(400.0, 2000.0) if late else fixed(2000.0, 400.0), rate=0.5)
    found = np.zeros(3)

    def seen(laws: DelayLaws, out: Floats) -> None:
        rows = np.asarray(laws._columns[1])[: laws.k - 1], np.asarray(laws._columns[3])[: laws.k - 1]
        ages = laws.now - np.asarray(laws._columns[2])[: laws.k - 1]
        for age, row, size, (no, yes) in zip(ages, out.T, *rows, strict=True):
            if row[3] == 0.0:
                continue
            if size > no + yes:  # something is pending
                assert row[3] == 1.0 + late
                assert age >= 400.0 - COHORT
                assert laws.law(1 - late, age) >= 0.95
                assert row[2] == 0.0
            found[0] += 1
        between = (ages > 600.0) & (ages < 1500.0)
        found[1:] += between.sum(), (out[3, between] == 1.0 + late).sum()

    marked(stream, seen, begin=8000)
    assert found[0] > 0
    assert found[2] > 0.8 * found[1]
