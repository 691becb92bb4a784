"""Labels that are held: how many, what is left out of them, their corrections, and their state."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.delayed.label_release_c import MOST_HELD, LabelRelease
from streamcal.sketch.decoding import encoded
from tests.delayed.streams import LATE, Cohorts, Delays, Stream, driven, made

# Held at most


def one_class(n: int, release: LabelRelease) -> Stream:
    """Drive a release by labels of one class alone, and return the stream."""
    delays: Delays = lambda rng, y, x, at: np.where(y == 0, np.inf, 0.0)  # noqa: E731
    stream = made(n, 42, delays, rate=0.5)
    assert not driven(release, stream).learned
    return stream


def test_thinning_keeps_the_weights() -> None:
    """And the scores, about: of pairs, one stands for both, chosen without regard to its score."""
    release = LabelRelease()
    stream = one_class(50_000, release)
    held = Cohorts(release)
    state = held.state
    labels = state.labels < 2
    assert release.held <= MOST_HELD
    assert release.held == labels.sum()
    assert state.weights[labels].sum() == int(stream.labels.sum())
    assert (state.weights[labels] == state.stands[labels]).all()
    assert state.stands[labels].sum() == int(stream.labels.sum())
    assert state.stands[labels].max() >= 2
    scores = stream.scores[stream.labels == 1]
    mean = np.average(state.scores[labels], weights=state.weights[labels])
    # Its standard error is .22 / √8,000 at most.
    assert mean == pytest.approx(scores.mean(), abs=0.012)
    # Each stands in the cohort of its prediction.
    rows = [int(i) for cohort in range(len(held.start)) for i in [cohort] * int(held.held[cohort, 1])]
    index = state.index[labels]
    assert (held.start[rows] <= index).all()
    assert (index < np.append(held.start[1:], len(stream.scores))[rows]).all()


# Corrections


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
