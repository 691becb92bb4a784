"""Completeness of each class in each cohort: what contradicts the laws, and what is found by exclusion."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from streamcal.delayed.delay_laws_c import COHORT, DelayLaws, completeness
from tests.delayed.streams import Floats, Labels, Stream, by_class, fixed, made, told
from tests.nightly import one_in


def complete(laws: DelayLaws) -> Floats:
    """Return the completeness of each cohort, as if the scores of all were noted."""
    np.asarray(laws._columns[8])[:, 0] = 1
    out = np.full((4, laws.k - 1), np.nan)
    completeness(laws, 0, out)
    return out


# What contradicts the laws


def marked(stream: Stream, seen: Callable[[DelayLaws, Floats], None], *, begin: int = 0) -> None:
    """Call back with the completeness at the end of each cohort from this prediction on."""
    laws = DelayLaws()

    def closed() -> None:
        if laws.on and laws.n >= begin:
            seen(laws, complete(laws))

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


@pytest.mark.parametrize("late", [0, 1])
def test_an_outage_contradicts_the_laws(late: int) -> None:
    """Labels of the sooner class stop for 3,000 predictions. Before, next to no cohort is marked."""
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
