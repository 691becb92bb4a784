"""Labels that are held: how many, what is left out of them, their corrections, and their state."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.delayed.delay_laws_c import completeness
from streamcal.delayed.label_release_c import LabelRelease
from streamcal.delayed.outage import Outage, outage_of
from streamcal.sketch.decoding import encoded
from tests.delayed.streams import ALIKE, LATE, Delays, Stream, driven, made
from tests.nightly import one_in

# State


def roundtrip(release: LabelRelease) -> LabelRelease:
    return LabelRelease().restore(release.to_state())


def test_a_restored_release_goes_on_alike() -> None:
    """Cut anywhere: the same is released from then on, and the state is the same in the end."""
    delays, rate = LATE["bulk of negatives"]
    stream = made(9000, [44, 1], delays, rate=rate)
    whole = LabelRelease()
    expected = driven(whole, stream)
    for cut in (1, 63, 64, 65, 700, 2500, 5000):
        first = LabelRelease()
        before = driven(first, _until(stream, cut))
        again = roundtrip(first)
        assert encoded(again.to_state()) == encoded(first.to_state())
        after = driven(again, stream, start=cut)
        assert before.learned + after.learned == expected.learned
        assert encoded(again.to_state()) == encoded(whole.to_state())


def _until(stream: Stream, cut: int) -> Stream:
    """Return the predictions before a cut; labels that come after it do not come."""
    due = np.where(stream.due[:cut] <= cut - 1, stream.due[:cut], np.inf)
    return Stream(stream.scores[:cut], stream.truth[:cut], stream.labels[:cut], due)


# Outages of one class: they are told from a class balance that moves, and from fewer labels of both


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
def test_an_outage_is_seen_until_its_labels_come(late: int) -> None:
    seen = outages(made(N, [1, late], without(late, ALIKE["exponential"])))
    assert seen
    assert FROM < min(seen) < UNTIL
    assert max(seen) <= UNTIL + 400
    assert all(each.label == late and FROM - 200 <= each.since <= FROM + 800 for each in seen.values())


@pytest.mark.parametrize("kind", one_in(3, ALIKE))
def test_no_outage_is_seen_where_there_is_none(kind: str) -> None:
    assert not outages(made(N, [2, len(kind)], ALIKE[kind]))


def test_a_balance_that_moves_is_none() -> None:
    assert not outages(made(N, 3, ALIKE["fixed"], ramp=-3.0))
    assert not outages(made(N, 3, ALIKE["fixed"], ramp=3.0))
