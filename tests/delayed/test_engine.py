"""Labels held in front of an engine: its state, blocks, event times, and how large it is."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal import Recalibrator
from tests.delayed.events import acts, take
from tests.delayed.streams import ALIKE, Delays, bulk, by_class, fixed, made, served
from tests.inside import memo_of
from tests.nightly import one_in

GRID = np.linspace(0.01, 0.99, 60)
STREAMS: dict[str, tuple[Delays, float]] = {
    "positives late": (by_class(100.0, 800.0), 0.2),
    "bulk of negatives": (bulk(0, 700.0), 0.5),
    "fixed": (fixed(700.0, 200.0), 0.2),
    "alike": (ALIKE["exponential"], 0.2),
}


def assert_alike(a: Recalibrator, b: Recalibrator) -> None:
    assert a.to_bytes() == b.to_bytes()
    assert np.array_equal(a.predict_many(GRID), b.predict_many(GRID))
    assert a.label_delays == b.label_delays


# Blocks


@pytest.mark.parametrize("options", [{}, {"window": 1000}])
@pytest.mark.parametrize("name", ["bulk of negatives", "alike"])
def test_blocks_are_as_one_by_one(name: str, options: dict[str, object]) -> None:
    """With any cut of predictions and of labels that belong to one batch."""
    delays, rate = STREAMS[name]
    stream = made(3000, [73, 1], delays, rate=rate)
    for batch in (25, 100):
        events = acts(stream, batch)
        one = take(Recalibrator(**options), stream, events)  # type: ignore[arg-type]
        for seed in range(2):
            assert_alike(take(Recalibrator(**options), stream, events, seed), one)  # type: ignore[arg-type]


# How large it is


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delays", "rate"), one_in(3, [(bulk(0), 0.02), (bulk(0), 0.2), (by_class(3000.0, 300.0), 0.02)])
)
def test_many_pending_predictions(delays: Delays, rate: float) -> None:
    """Negatives stop coming, positives are told at once: no more than 200 KB for 250,000 others."""
    n = 12_000
    _, engine = served(made(n, 82, delays, rate=rate))
    before = len(engine.to_bytes())
    more = made(250_000, 83, fixed(np.inf, 0.0), rate=rate)
    for i in range(0, 250_000, 1000):
        engine.observe_many(more.scores[i : i + 1000])
        for q in (i + np.flatnonzero(more.labels[i : i + 1000])[:20]).tolist():
            engine.learn_one(float(more.scores[q]), 1, memo=memo_of(n + q))
    assert engine.label_delays is not None
    assert engine.label_delays.late == 0
    size = len(engine.to_bytes())
    held = Recalibrator.from_bytes(engine.to_bytes())._engine.release.to_state()
    print(f"\n{before:,} bytes before, {size:,} after; {len(held.scores):,} scores held or noted")
    assert size <= 200_000
