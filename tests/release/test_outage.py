"""Outages of one class: they are told from a class balance that moves, and from fewer labels of both."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.release.delay_laws_c import completeness
from streamcal.release.label_release_c import LabelRelease
from streamcal.release.outage import Outage, outage_of
from tests.release.streams import ALIKE, Delays, Stream, driven, made

N = 12_000
FROM, UNTIL = 6_000, 9_000


def outages(stream: Stream) -> dict[int, Outage]:
    """Return the outages that are seen after each 200 predictions."""
    release, seen = LabelRelease(), dict[int, Outage]()

    def look(i: int) -> None:
        if i % 200 == 0 and release.known and release.k > 1:
            age = completeness(release, 0, np.empty((4, release.k - 1)))
            outage = outage_of(release, age)
            if outage is not None:
                seen[i] = outage

    driven(release, stream, after=look)
    return seen


def without(late: int, usual: Delays) -> Delays:
    """Return delays with which labels of one class stop for a while, and come at its end."""

    def delays(rng: np.random.Generator, y: np.ndarray, x: np.ndarray, at: np.ndarray) -> np.ndarray:
        out = (y == late) & (at >= FROM) & (at < UNTIL)
        return np.where(out, UNTIL - at, usual(rng, y, x, at))

    return delays


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("kind", ["fixed", "exponential"])
def test_an_outage_is_seen_until_its_labels_come(late: int, kind: str) -> None:
    seen = outages(made(N, [1, late], without(late, ALIKE[kind])))
    assert seen
    assert FROM < min(seen) < UNTIL
    assert max(seen) <= UNTIL + 400
    assert all(each.label == late and FROM - 200 <= each.since <= FROM + 800 for each in seen.values())


@pytest.mark.parametrize("kind", ALIKE)
def test_no_outage_is_seen_where_there_is_none(kind: str) -> None:
    assert not outages(made(N, [2, len(kind)], ALIKE[kind]))


def test_a_balance_that_moves_is_none() -> None:
    assert not outages(made(N, 3, ALIKE["fixed"], ramp=-3.0))
    assert not outages(made(N, 3, ALIKE["fixed"], ramp=3.0))


def test_fewer_labels_of_both_classes_are_none() -> None:
    def rarer(rng: np.random.Generator, y: np.ndarray, x: np.ndarray, at: np.ndarray) -> np.ndarray:
        return np.where(rng.random(len(y)) < np.where(at < FROM, 0.1, 0.6), np.inf, 100.0)

    assert not outages(made(N, 4, rarer))
