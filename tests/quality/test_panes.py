"""Panes of event time: sums of their labels, however these come in parts, and states."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from streamcal.quality.panes import PANES, Panes
from streamcal.quality.sequences import Sequences
from streamcal.sketch.decoding import decoded, encoded
from streamcal.values import Floats


def drawn(seed: int, n: int) -> tuple[Floats, Floats, Floats]:
    """Return forecasts, labels and event times of predictions, in the order in which their labels came."""
    rng = np.random.default_rng(seed)
    forecasts, times = rng.random((2, n)), np.cumsum(rng.exponential(20.0, n)) - 1e5
    order = np.argsort(times + rng.exponential(3000.0, n), kind="stable")
    return forecasts[:, order], (rng.random(n) < 0.3).astype(float), times[order]


def filled(seed: int = 0, n: int = 3_000) -> Panes:
    made = Panes()
    made.add(*drawn(seed, n))
    return made


def test_matured_panes_have_the_sums_of_their_predictions() -> None:
    (forecasts, labels, times), made = drawn(0, 3_000), filled()
    assert len(made.numbers) <= PANES
    assert made.matured(-2e5).labels == 0
    until = float(np.median(times))
    found = made.matured(until)
    end = found.times[-1] + made.width
    assert until - made.width < end <= until
    for start, begin in enumerate(found.times):
        since = (times >= (-np.inf if start == 0 else begin)) & (times < end)
        assert found.labels - found.starts[start] == since.sum()
        alone = Sequences()
        alone.add(forecasts[:, since][:, :256], labels[since][:256], times[since][:256])
        gap = float((forecasts[1, since] - labels[since]).mean())
        assert found.gaps("after").mean[start, 0] == pytest.approx(gap)


def test_it_makes_no_difference_how_labels_come_in_parts() -> None:
    forecasts, labels, times = drawn(1, 3_000)
    times[::50] = np.nan
    rng, states = np.random.default_rng(2), set()
    for count in (0, 5, 60):
        made = Panes()
        for begin, end in itertools.pairwise([0, *sorted(rng.integers(0, 3_001, count).tolist()), 3_000]):
            made.add(forecasts[:, begin:end], labels[begin:end], times[begin:end])
            made = decoded(encoded(made, json=True), Panes, "panes", json=True)
        states.add(encoded(made, json=True))
    assert len(states) == 1
    assert made.matured(np.inf).labels == np.isfinite(times).sum()
